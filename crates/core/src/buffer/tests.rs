use super::limits::RESERVED_FROM;
use crate::buffer::*;

#[test]
fn the_pool_gives_its_limit_and_not_one_more() {
    let mut pool = PagePool::new(2);
    let (a, _b) = (pool.take(Purpose::Receive).unwrap(), pool.take(Purpose::Receive).unwrap());
    assert!(pool.take(Purpose::Receive).is_none());
    assert!(!pool.charge(1, Purpose::More));
    pool.put(a);
    assert!(pool.charge(1, Purpose::More));
    assert!(pool.take(Purpose::Receive).is_none());
    pool.discharge(1);
    assert_eq!((pool.in_use(), pool.available()), (1, 1));
}

#[test]
fn a_sender_leaves_pages_to_others_and_all_to_receivers() {
    let mut pool = PagePool::new(RESERVED_FROM);
    let mut all = |purpose: Purpose| -> Vec<usize> {
        let pages: Vec<Page> = core::iter::from_fn(|| pool.take(purpose)).collect();
        let counts = std::vec![pages.len(), pool.level() as usize];
        pages.into_iter().for_each(|page| pool.put(page));
        counts
    };
    let full = Level::Full as usize;
    assert_eq!(all(Purpose::More), [56, full]);
    assert_eq!(all(Purpose::First), [60, full]);
    assert_eq!(all(Purpose::Receive), [64, full]);
    let mut small = PagePool::new(RESERVED_FROM - 1);
    assert_eq!(core::iter::from_fn(|| small.take(Purpose::More)).count(), RESERVED_FROM - 1);
}

#[test]
fn a_new_pool_has_the_limits_that_it_finds_later() {
    for mut pool in [PagePool::new(64), PagePool::of_segments(64), PagePool::new(63)] {
        let found = |pool: &PagePool| {
            let by_purpose = [Purpose::Receive, Purpose::First, Purpose::More];
            let available = by_purpose.map(|purpose| pool.available_to(purpose));
            (pool.limit_in_line(), pool.available_in_line(), available)
        };
        let at_first = found(&pool);
        pool.keep_line(true);
        pool.keep_line(false);
        assert_eq!(found(&pool), at_first);
        assert_eq!(at_first.0, if pool.limit() < 64 { 63 } else { 56 });
    }
}

#[test]
fn a_limit_that_moves_is_as_if_it_had_been_so() {
    for (first, last) in [(64, 1000), (1000, 64), (1000, 63), (5, 6)] {
        for [by_connections, elsewhere] in [[0, 0], [9000, 0], [0, 3 * PAGE_BYTES]] {
            let made = |limit: usize| {
                let mut pool = PagePool::new(limit);
                pool.set_by_connections(by_connections);
                pool.set_elsewhere(elsewhere);
                pool.want_elsewhere(elsewhere > 0);
                pool
            };
            let mut moved = made(first);
            moved.set_limit(last);
            assert_eq!(std::format!("{moved:?}"), std::format!("{:?}", made(last)));
        }
    }
}

#[test]
fn while_some_wait_in_line_only_those_whose_turn_it_is_get_more() {
    let mut pool = PagePool::new(64);
    pool.keep_line(true);
    assert!(!pool.was_refused() && pool.take(Purpose::More).is_none() && pool.was_refused());
    assert_eq!((pool.available_in_line(), pool.available_to(Purpose::More)), (56, 0));
    let first = pool.take(Purpose::First);
    assert!(first.is_some() && pool.in_turn(1, |pool| pool.take(Purpose::More)).is_some());
    let both = pool.in_turn(1, |pool| [(); 2].map(|()| pool.take(Purpose::More).is_some()));
    assert_eq!(both, [true, false], "a turn of one page");
    assert!(pool.take(Purpose::More).is_none());
    pool.keep_line(false);
    assert!(pool.take(Purpose::More).is_some());
}

#[test]
fn what_others_hold_counts_and_refuses_them_nothing() {
    let mut pool = PagePool::new(64);
    assert_eq!(pool.level(), Level::Plenty);
    pool.set_elsewhere(48 * PAGE_BYTES + 1);
    assert_eq!((pool.in_use(), pool.level()), (49, Level::Scarce));
    assert_eq!(core::iter::from_fn(|| pool.take(Purpose::More)).count(), 7);
    pool.set_elsewhere(1000 * PAGE_BYTES);
    assert_eq!((pool.available(), pool.level()), (0, Level::Full));
    assert!(pool.take(Purpose::Receive).is_none());
    pool.set_elsewhere(0);
    assert_eq!((pool.in_use(), pool.level()), (7, Level::Plenty));
}

#[test]
fn pages_that_are_kept_do_not_come_on_top_of_those_that_are_out() {
    let (limit, large) = (4096, 4096 / (LARGE_BYTES / PAGE_BYTES));
    let mut pool = PagePool::new(limit);
    let kept = |pool: &PagePool| pool.free_large.bytes() + pool.free.bytes();
    let taken: Vec<LargePage> = core::iter::from_fn(|| pool.take_large(Purpose::Receive)).collect();
    assert_eq!(taken.len(), large);
    // Half come back and are kept; then pages of another size go out.
    for page in taken.into_iter().take(large / 2) {
        pool.put_shared(SharedPage::OwnLarge(page));
    }
    assert_eq!(kept(&pool), limit * PAGE_BYTES / 2);
    let small: Vec<Page> = core::iter::from_fn(|| pool.take(Purpose::Receive)).collect();
    assert_eq!((small.len(), kept(&pool)), (limit / 2, 0));
}

#[test]
fn after_a_burst_no_more_is_kept_than_in_any_case() {
    let mut pool = PagePool::new(16 * KEPT_BYTES / PAGE_BYTES);
    let pages: Vec<Page> = core::iter::from_fn(|| pool.take(Purpose::Receive)).collect();
    pages.into_iter().for_each(|page| pool.put(page));
    assert!(pool.free.bytes() <= KEPT_BYTES, "{}", pool.free.bytes());
}

#[test]
fn small_pages_count_for_a_quarter() {
    let mut pool = PagePool::new(2);
    let small: Vec<SmallPage> =
        (0..PAGE / SMALL + 1).map(|_| pool.take_small(Purpose::First).unwrap()).collect();
    assert_eq!((pool.in_use(), pool.available()), (2, 0));
    assert!(pool.take(Purpose::Receive).is_none() && !pool.charge(1, Purpose::More));
    let others: Vec<SmallPage> =
        core::iter::from_fn(|| pool.take_small(Purpose::Receive)).collect();
    assert_eq!(others.len(), PAGE / SMALL - 1);
    small.into_iter().for_each(|page| pool.put_small(Side::Send, page));
    assert_eq!((pool.in_use(), pool.available()), (1, 1));
    others.into_iter().for_each(|page| pool.put_small(Side::Receive, page));
    assert_eq!((pool.in_use(), pool.available()), (0, 2));
}

#[test]
fn send_pages_follow_receive_pages_only_where_many_are_free() {
    let place = |page: &SmallPage| core::ptr::from_ref(page.bytes()).addr();
    let kept = KEPT_BYTES / SMALL_BYTES;
    for (received, is_shared) in [(kept - 1, false), (kept, true)] {
        let mut pool = PagePool::new(2 * kept);
        let pages: Vec<SmallPage> =
            (0..received).map(|_| pool.take_small(Purpose::Receive).unwrap()).collect();
        let places: Vec<usize> = pages.iter().map(place).collect();
        let sent = pool.take_small(Purpose::First).unwrap();
        pages.into_iter().for_each(|page| pool.put_small(Side::Receive, page));
        let other = pool.take_small(Purpose::First).unwrap();
        assert_eq!(places.contains(&place(&other)), is_shared, "{received} are free");
        let sent_from = place(&sent);
        pool.put_small(Side::Send, sent);
        let last = pool.take_small(Purpose::Receive).unwrap();
        assert_ne!(place(&last), sent_from, "though that was freed last");
        assert_eq!(place(&pool.take_small(Purpose::First).unwrap()), sent_from);
    }
}

#[test]
fn large_pages_count_for_four() {
    let mut pool = PagePool::new(9);
    let [own, counted] =
        [(); 2].map(|()| SharedPage::OwnLarge(pool.take_large(Purpose::First).unwrap()));
    assert!(pool.take_large(Purpose::First).is_none());
    assert_eq!((pool.in_use(), pool.available()), (8, 1));
    pool.put_shared(own);
    let counted = counted.counted();
    let frames = counted.clone();
    pool.put_shared(SharedPage::Counted(counted));
    assert_eq!((pool.in_use(), frames.bytes().len()), (0, LARGE_BYTES));
}

#[test]
fn connections_have_three_quarters_and_leave_an_eighth_to_send() {
    const EACH: usize = 8 * PAGE_BYTES;
    let mut pool = PagePool::new(256);
    let room_of = |pool: &mut PagePool, pages: usize| {
        pool.set_by_connections(pages * PAGE_BYTES);
        pool.room_for_connection(EACH)
    };
    assert_eq!(room_of(&mut pool, 184), ConnectionRoom::Enough);
    assert!(!pool.was_refused() && !pool.is_short_for_connections());
    assert_eq!(room_of(&mut pool, 185), ConnectionRoom::None);
    assert!(pool.was_refused() && pool.is_short_for_connections() && !pool.is_crowded());
    pool.set_crowded(true);
    assert!(pool.is_crowded());
    assert_eq!(pool.room_for_connection(4 * PAGE_BYTES), ConnectionRoom::Enough);
    assert_eq!(room_of(&mut pool, 189), ConnectionRoom::None);
    assert_eq!(pool.room_for_connection(3 * PAGE_BYTES), ConnectionRoom::Little);
    pool.set_by_connections(192 * PAGE_BYTES);
    assert_eq!(core::iter::from_fn(|| pool.take(Purpose::More)).count(), 256 / 8);
    assert_eq!(pool.in_use(), 192 + 256 / 8);
}

#[test]
fn a_waiting_holder_counts_when_others_have_their_share() {
    let mut pool = PagePool::new(256);
    pool.want_elsewhere(true);
    assert!(pool.was_refused() && !pool.is_short_elsewhere(), "there is room");
    pool.set_elsewhere(129 * PAGE_BYTES);
    assert!(pool.is_short_elsewhere());
    pool.want_elsewhere(false);
    assert!(!pool.is_short_elsewhere());
}

#[test]
fn bytes_in_transit_and_pages_do_not_keep_each_other_out() {
    // Senders may have 224 pages, and 56 of them are for holders elsewhere though senders wait.
    let mut pool = PagePool::new(256);
    pool.set_elsewhere(111 * PAGE_BYTES);
    assert!(pool.has_room_elsewhere());
    pool.set_elsewhere(112 * PAGE_BYTES);
    assert!(!pool.has_room_elsewhere(), "half of it is the most");
    pool.set_elsewhere(0);
    let pages: Vec<Page> = core::iter::from_fn(|| pool.take(Purpose::More)).collect();
    assert_eq!((pages.len(), pool.has_room_elsewhere()), (224, false));
    pool.keep_line(true);
    pool.want_elsewhere(true);
    let mut pages = pages.into_iter();
    pages.by_ref().take(56).for_each(|page| pool.put(page));
    assert_eq!((pool.available_in_line(), pool.has_room_elsewhere()), (0, true));
    pool.set_elsewhere(55 * PAGE_BYTES);
    assert!(pool.has_room_elsewhere());
    pool.set_elsewhere(56 * PAGE_BYTES);
    assert!(!pool.has_room_elsewhere(), "the rest is for those in line");
    pages.by_ref().take(1).for_each(|page| pool.put(page));
    assert_eq!((pool.available_in_line(), pool.has_room_elsewhere()), (1, false));
    // What is kept for nobody is the senders'.
    pool.set_elsewhere(0);
    assert_eq!(pool.available_in_line(), 1);
    pool.want_elsewhere(false);
    assert_eq!(pool.available_in_line(), 57);
}

#[test]
fn holders_beyond_their_half_leave_a_first_page() {
    let mut pool = PagePool::new(256);
    pool.set_elsewhere(112 * PAGE_BYTES);
    assert_eq!(pool.available_to(Purpose::First), 240 - 112);
    pool.set_elsewhere(250 * PAGE_BYTES);
    assert_eq!((pool.available_in_line(), pool.available_to(Purpose::First)), (0, 6));
    pool.set_elsewhere(100 * PAGE_BYTES);
    assert_eq!(pool.available_to(Purpose::First), 240 - 100);
}

#[test]
fn pages_leave_a_quarter_to_connections_once_there_are_some() {
    let mut pool = PagePool::new(256);
    pool.set_by_connections(1);
    let pages: Vec<Page> = core::iter::from_fn(|| pool.take(Purpose::First)).collect();
    assert_eq!(pages.len(), 256 / 16 * 11);
    // What is set aside is counted once it is taken.
    assert_eq!((pool.in_use(), pool.level()), (pages.len() + 1, Level::Full));
    pool.set_by_connections(61 * PAGE_BYTES);
    assert_eq!(pool.room_for_connection(3 * PAGE_BYTES), ConnectionRoom::Little);
    pages.into_iter().for_each(|page| pool.put(page));
    pool.set_by_connections(0);
    assert_eq!((pool.in_use(), pool.level()), (0, Level::Plenty));
    assert_eq!(core::iter::from_fn(|| pool.take(Purpose::First)).count(), 240);
}

#[test]
fn kept_pages_give_way_to_connections_and_to_other_holders() {
    let mut pool = PagePool::new(4096);
    let mut pages: Vec<Page> = core::iter::from_fn(|| pool.take(Purpose::Receive)).collect();
    pages.drain(..2048).for_each(|page| pool.put(page));
    assert_eq!(pool.free.bytes(), 2048 * PAGE_BYTES);
    pool.set_by_connections(1024 * PAGE_BYTES);
    assert_eq!(pool.free.bytes(), 1024 * PAGE_BYTES);
    pool.set_elsewhere(512 * PAGE_BYTES);
    assert_eq!(pool.free.bytes(), 512 * PAGE_BYTES);
}
