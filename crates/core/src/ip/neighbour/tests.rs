use crate::ip::neighbour::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;

const MAC: Mac = [2, 0, 0, 0, 0, 9];
const OTHER: Mac = [2, 0, 0, 0, 0, 8];

fn hop(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn cache() -> Neighbours {
    Neighbours::new(4, 6, &[1; 32])
}

fn waiting(frame: Vec<u8>) -> Waiting {
    Waiting { frame, is_segment: false }
}

fn answer(target: IpAddr, mac: Mac) -> Advertisement {
    Advertisement { target, mac: Some(mac), solicited: true, overrides: true }
}

fn solicit(target: IpAddr, to: Option<Mac>) -> Option<Output> {
    Some(Output::Solicit { target, to })
}

/// A cache in which neighbour 1 is reachable since time 0.
fn reachable() -> Neighbours {
    let mut cache = cache();
    cache.lookup(at(0), hop(1));
    cache.output();
    cache.on_advertisement(at(0), answer(hop(1), MAC));
    assert_eq!(cache.resolved(), Some((hop(1), Resolution::Resolved)));
    cache
}

/// A cache in which neighbour 1 has been in doubt and in use since second 30.
fn delayed() -> Neighbours {
    let mut cache = reachable();
    assert_eq!(cache.lookup(at(30), hop(1)), Lookup::Known(MAC));
    cache
}

/// A cache in which neighbour 1 has been asked since second 35.
fn probed() -> Neighbours {
    let mut cache = delayed();
    cache.on_time(at(35));
    assert_eq!(cache.output(), solicit(hop(1), Some(MAC)));
    cache.on_time(at(36));
    assert_eq!(cache.output(), solicit(hop(1), Some(MAC)));
    cache
}

fn is_reachable(cache: &mut Neighbours, now: Instant) -> bool {
    let before = cache.deadline();
    cache.lookup(now, hop(1)) == Lookup::Known(MAC)
        && before.is_none()
        && cache.deadline().is_none()
}

#[test]
fn a_new_neighbour_is_asked_for_and_frames_follow_the_answer() {
    let mut cache = cache();
    assert_eq!(cache.lookup(at(0), hop(1)), Lookup::Pending);
    assert_eq!(cache.output(), solicit(hop(1), None));
    assert!(cache.wait(hop(1), waiting(vec![0; 14])));
    assert!(cache.wait(hop(1), waiting(vec![7; 14])));
    assert_eq!(cache.lookup(at(0), hop(1)), Lookup::Pending);
    assert_eq!(cache.output(), None, "asked once");
    cache.on_advertisement(at(0), answer(hop(1), MAC));
    assert_eq!(cache.lookup(at(0), hop(1)), Lookup::Known(MAC));
    assert_eq!(cache.resolved(), Some((hop(1), Resolution::Resolved)));
    for filler in [0, 7] {
        let Some(Output::Frame(Waiting { frame, .. })) = cache.output() else { panic!() };
        assert_eq!((&frame[..6], &frame[6..]), (&MAC[..], &[filler; 8][..]));
    }
    assert_eq!((cache.output(), cache.resolved(), cache.deadline()), (None, None, None));
}

#[test]
fn who_does_not_answer_three_times_has_failed_for_a_while() {
    let mut cache = cache();
    cache.lookup(at(0), hop(1));
    cache.wait(hop(1), waiting(vec![0; 14]));
    for second in 1..=3 {
        assert_eq!(cache.output(), solicit(hop(1), None));
        assert_eq!(cache.deadline(), Some(at(second)));
        cache.on_time(at(second) - Duration::from_nanos(1));
        assert_eq!(cache.output(), None);
        cache.on_time(at(second));
    }
    assert_eq!(cache.resolved(), Some((hop(1), Resolution::Failed)));
    assert_eq!((cache.output(), cache.deadline()), (None, None));
    assert_eq!(cache.waiting, 0, "what has waited is dropped");
    assert_eq!(cache.lookup(at(5), hop(1)), Lookup::Failed);
    assert!(!cache.wait(hop(1), waiting(vec![0; 14])));
    assert_eq!(cache.output(), None);
    assert_eq!(cache.lookup(at(6), hop(1)), Lookup::Pending);
    assert_eq!(cache.output(), solicit(hop(1), None));
}

#[test]
fn after_its_time_a_used_neighbour_is_verified() {
    let mut cache = reachable();
    assert!(is_reachable(&mut cache, at(29)));
    assert_eq!(cache.lookup(at(30), hop(1)), Lookup::Known(MAC));
    assert_eq!(cache.deadline(), Some(at(35)));
    for second in 35..=37 {
        cache.on_time(at(second));
        assert_eq!(cache.output(), solicit(hop(1), Some(MAC)));
        assert_eq!(cache.lookup(at(second), hop(1)), Lookup::Known(MAC));
    }
    cache.on_time(at(38));
    assert_eq!((cache.output(), cache.deadline()), (None, None));
    assert_eq!(cache.lookup(at(38), hop(1)), Lookup::Pending, "everybody is asked");
    assert_eq!(cache.output(), solicit(hop(1), None));
}

#[test]
fn an_answer_ends_the_doubt() {
    let mut cache = probed();
    cache.on_advertisement(at(36), answer(hop(1), MAC));
    assert!(is_reachable(&mut cache, at(36 + 29)));
}

#[test]
fn an_answer_that_nobody_asked_for_proves_nothing() {
    let mut trusted = reachable();
    trusted.on_advertisement(at(29), answer(hop(1), MAC));
    trusted.lookup(at(30), hop(1));
    assert_eq!(trusted.deadline(), Some(at(35)), "its time was not made longer");
    let mut doubted = delayed();
    doubted.on_advertisement(at(31), answer(hop(1), MAC));
    assert_eq!(doubted.deadline(), Some(at(35)));
    let mut heard = cache();
    heard.on_heard(at(0), hop(1), MAC);
    heard.on_advertisement(at(0), answer(hop(1), MAC));
    heard.lookup(at(0), hop(1));
    assert_eq!(heard.deadline(), Some(at(5)), "still to be verified");
}

/// What tells another address than is known without having been asked.
fn claims() -> [fn(&mut Neighbours, Instant); 3] {
    [
        |cache, now| cache.on_advertisement(now, answer(hop(1), OTHER)),
        |cache, now| {
            let told = Advertisement { solicited: false, ..answer(hop(1), OTHER) };
            cache.on_advertisement(now, told);
        },
        |cache, now| cache.on_heard(now, hop(1), OTHER),
    ]
}

#[test]
fn a_forged_address_of_a_reachable_neighbour_changes_nothing() {
    for forge in claims() {
        let mut stale = cache();
        stale.on_heard(at(0), hop(1), MAC);
        let mut known = [reachable(), stale, delayed()].into_iter();
        let mut cache = known.next().unwrap();
        for second in 32..80 {
            if second % 16 == 0 {
                cache = known.next().unwrap_or(cache);
            }
            // However often it is said.
            (0..3).for_each(|_| forge(&mut cache, at(second)));
            assert_eq!(cache.lookup(at(second), hop(1)), Lookup::Known(MAC));
            assert_eq!(cache.output(), solicit(hop(1), Some(MAC)), "its owner is asked");
            assert_eq!(cache.output(), None, "once");
            cache.on_advertisement(at(second), answer(hop(1), MAC));
            assert!(is_reachable(&mut cache, at(second)));
        }
    }
}

#[test]
fn a_neighbour_that_has_moved_is_followed_soon_after_it_says_so() {
    for tell in claims() {
        let mut stale = cache();
        stale.on_heard(at(0), hop(1), MAC);
        for mut cache in [reachable(), stale, delayed()] {
            tell(&mut cache, at(31));
            assert_eq!(cache.output(), solicit(hop(1), Some(MAC)));
            let end = at(31) + OWNER_ANSWERS;
            cache.on_time(end - Duration::from_nanos(1));
            assert_eq!(cache.output(), None);
            cache.on_time(end);
            assert_eq!(cache.output(), solicit(hop(1), None), "the old address does not answer");
            assert_eq!(cache.lookup(end, hop(1)), Lookup::Known(MAC));
            cache.on_advertisement(end, answer(hop(1), OTHER));
            assert_eq!(cache.lookup(end, hop(1)), Lookup::Known(OTHER));
            assert_eq!(cache.deadline(), None, "reachable");
        }
    }
}

#[test]
fn a_neighbour_that_is_contradicted_and_silent_fails() {
    let mut cache = reachable();
    claims()[1](&mut cache, at(10));
    let mut asked = 0;
    while let Some(deadline) = cache.deadline() {
        assert!(deadline <= at(14));
        cache.on_time(deadline);
        asked += core::iter::from_fn(|| cache.output()).count();
    }
    assert_eq!((asked, cache.resolved()), (4, Some((hop(1), Resolution::Failed))));
    assert_eq!((cache.lookup(at(14), hop(1)), cache.deadline()), (Lookup::Failed, None));
}

#[test]
fn another_address_while_one_is_asked_has_everybody_asked_next() {
    for tell in claims() {
        let mut cache = probed();
        tell(&mut cache, at(36));
        assert_eq!((cache.output(), cache.deadline()), (None, Some(at(36) + OWNER_ANSWERS)));
        assert_eq!(cache.lookup(at(36), hop(1)), Lookup::Known(MAC));
        cache.on_time(at(37));
        assert_eq!(cache.output(), solicit(hop(1), None));
        // An address that was not asked for before and comes unasked changes nothing now.
        cache.on_heard(at(37), hop(1), OTHER);
        assert_eq!(cache.lookup(at(37), hop(1)), Lookup::Known(MAC));
    }
}

#[test]
fn nobody_is_asked_for_more_than_once_a_second() {
    let mut cache = cache();
    let mut asked_at = Vec::new();
    // A neighbour that answers at once, and a host that says all the time that it is elsewhere.
    cache.lookup(at(0), hop(1));
    for ms in (0..10_000).step_by(10) {
        let now = Instant::from_millis(ms);
        cache.on_time(now);
        while let Some(output) = cache.output() {
            let Output::Solicit { to, .. } = output else { panic!("{output:?}") };
            assert!(to.is_none_or(|to| to == MAC));
            asked_at.push(ms);
            cache.on_advertisement(now, answer(hop(1), MAC));
        }
        claims().iter().for_each(|forge| forge(&mut cache, now));
        assert_eq!(cache.lookup(now, hop(1)), Lookup::Known(MAC));
    }
    assert_eq!(asked_at, (0..10).map(|second| second * 1000).collect::<Vec<_>>());
}

#[test]
fn an_unasked_answer_makes_no_entry_and_may_revive_a_failed_one() {
    let told =
        |mac, overrides| Advertisement { solicited: false, overrides, ..answer(hop(1), mac) };
    let mut empty = cache();
    empty.on_advertisement(at(0), told(MAC, true));
    empty.on_advertisement(at(0), answer(hop(1), MAC));
    assert!(empty.entries.is_empty());

    let mut same = reachable();
    same.on_advertisement(at(1), told(MAC, true));
    assert!(is_reachable(&mut same, at(1)));

    let mut failed = cache();
    failed.lookup(at(0), hop(1));
    (1..=3).for_each(|second| failed.on_time(at(second)));
    assert_eq!(failed.lookup(at(4), hop(1)), Lookup::Failed);
    failed.on_advertisement(at(4), answer(hop(1), MAC));
    assert_eq!(failed.lookup(at(4), hop(1)), Lookup::Known(MAC));
    assert_eq!(failed.deadline(), Some(at(9)), "and in doubt");
}

#[test]
fn an_address_that_must_not_replace_another_never_does() {
    for solicited in [false, true] {
        let weak = Advertisement { solicited, overrides: false, ..answer(hop(1), OTHER) };
        let mut trusted = reachable();
        trusted.on_advertisement(at(2), weak);
        assert_eq!(trusted.output(), solicit(hop(1), Some(MAC)));
        trusted.on_time(at(3));
        assert_eq!(trusted.output(), solicit(hop(1), None));
        trusted.on_advertisement(at(3), weak);
        assert_eq!(trusted.lookup(at(3), hop(1)), Lookup::Known(MAC));
    }
}

#[test]
fn an_advertisement_without_an_address_confirms_known_ones_only() {
    let bare = Advertisement { mac: None, ..answer(hop(1), MAC) };
    let mut known = probed();
    known.on_advertisement(at(36), bare);
    assert!(is_reachable(&mut known, at(36)));
    let mut unknown = cache();
    unknown.lookup(at(0), hop(1));
    unknown.on_advertisement(at(0), bare);
    assert_eq!(unknown.lookup(at(0), hop(1)), Lookup::Pending);
}

#[test]
fn who_asks_for_us_is_known_but_not_trusted() {
    let mut cache = cache();
    cache.on_heard(at(0), hop(1), MAC);
    assert_eq!((cache.entries.len(), cache.deadline()), (1, None));
    assert_eq!(cache.lookup(at(0), hop(1)), Lookup::Known(MAC));
    assert_eq!(cache.deadline(), Some(at(5)), "it will be verified");
    let mut same = reachable();
    same.on_heard(at(1), hop(1), MAC);
    assert!(is_reachable(&mut same, at(1)));
    let mut pending = self::cache();
    pending.lookup(at(0), hop(1));
    pending.output();
    pending.wait(hop(1), waiting(vec![0; 14]));
    pending.on_heard(at(0), hop(1), MAC);
    assert!(matches!(pending.output(), Some(Output::Frame(_))));
    assert_eq!(pending.resolved(), Some((hop(1), Resolution::Resolved)));
}

#[test]
fn groups_and_nobody_are_no_neighbours() {
    let mut cache = cache();
    let strange = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "127.0.0.1", "::", "ff02::1", "::1"];
    for address in strange {
        cache.on_heard(at(0), address.parse().unwrap(), MAC);
    }
    for mac in [[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        cache.on_heard(at(0), hop(1), mac);
    }
    assert!(cache.entries.is_empty());
    let mut pending = self::cache();
    pending.lookup(at(0), hop(1));
    pending.on_advertisement(at(0), answer(hop(1), [0xff; 6]));
    assert_eq!(pending.lookup(at(0), hop(1)), Lookup::Pending);
}

#[test]
fn the_entry_beyond_the_limit_evicts_the_oldest_unused() {
    let mut cache = cache();
    for n in 1..=4 {
        cache.on_heard(at(0), hop(n), MAC);
    }
    assert_eq!(cache.entries.len(), 4);
    cache.lookup(at(0), hop(1));
    cache.on_heard(at(0), hop(5), MAC);
    assert_eq!(cache.entries.len(), 4);
    for (n, known) in [(1, true), (2, false)] {
        let mac = cache.entries.get(&hop(n)).and_then(|entry| entry.state.mac());
        assert_eq!(mac.is_some(), known, "{n}");
    }
    // All of them in use: one goes all the same, timer and all.
    for n in [3, 4, 5, 1] {
        cache.lookup(at(0), hop(n));
    }
    cache.lookup(at(0), hop(6));
    assert_eq!((cache.entries.len(), cache.order.len(), cache.timers.len()), (4, 4, 4));
}

#[test]
fn frames_that_wait_are_bounded_for_each_and_for_all() {
    let mut each = Neighbours::new(4, 100, &[1; 32]);
    each.lookup(at(0), hop(1));
    each.output();
    for n in 0..=MAX_WAITING_EACH {
        assert!(each.wait(hop(1), waiting(vec![n as u8; 14])));
    }
    assert_eq!(each.waiting, MAX_WAITING_EACH);
    each.on_advertisement(at(0), answer(hop(1), MAC));
    let Some(Output::Frame(Waiting { frame, .. })) = each.output() else { panic!() };
    assert_eq!(frame[13], 1, "the oldest was dropped");

    let mut all = cache();
    all.lookup(at(0), hop(1));
    all.lookup(at(0), hop(2));
    assert!((0..6).all(|_| all.wait(hop(1), waiting(vec![0; 14]))));
    assert_eq!(all.dropped(), 0);
    assert!(!all.wait(hop(2), waiting(vec![0; 14])), "none of its own to give up");
    assert!(all.wait(hop(1), waiting(vec![9; 14])), "one of its own to give up");
    assert_eq!(all.waiting, 6);
    assert!(!all.wait(hop(3), waiting(vec![0; 14])), "never looked up");
    assert_eq!(all.dropped(), 3);
}

#[derive(Clone, Debug)]
enum Step {
    Lookup(u8),
    Wait(u8),
    Heard(u8, u8),
    Told(u8, u8, bool, bool),
    Pass(u16),
    Drain,
}

fn any_step() -> impl Strategy<Value = Step> {
    let n = 0u8..12;
    prop_oneof![
        n.clone().prop_map(Step::Lookup),
        n.clone().prop_map(Step::Wait),
        (n.clone(), 0u8..4).prop_map(|(n, mac)| Step::Heard(n, mac)),
        (n, 0u8..4, any::<bool>(), any::<bool>())
            .prop_map(|(n, mac, solicited, overrides)| Step::Told(n, mac, solicited, overrides)),
        (0u16..5000).prop_map(Step::Pass),
        Just(Step::Drain),
    ]
}

fn take(cache: &mut Neighbours, now: &mut Instant, step: &Step) {
    let mac = |n: u8| [n, 0, 0, 0, 0, n];
    match *step {
        Step::Lookup(n) => {
            cache.lookup(*now, hop(n));
        }
        Step::Wait(n) => {
            cache.wait(hop(n), waiting(vec![0; usize::from(n)]));
        }
        Step::Heard(n, m) => cache.on_heard(*now, hop(n), mac(m)),
        Step::Told(n, m, solicited, overrides) => {
            let mac = Some(mac(m)).filter(|_| m > 0);
            let told = Advertisement { target: hop(n), mac, solicited, overrides };
            cache.on_advertisement(*now, told);
        }
        Step::Pass(ms) => *now = *now + Duration::from_millis(ms.into()),
        Step::Drain => {
            while cache.output().is_some() {}
            while cache.resolved().is_some() {}
        }
    }
    cache.on_time(*now);
}

proptest! {
    #[test]
    fn whatever_comes_the_books_balance(steps in vec(any_step(), 0..200)) {
        let mut cache = cache();
        let mut now = at(1);
        for step in &steps {
            take(&mut cache, &mut now, step);
            prop_assert!(cache.entries.len() <= 4 && cache.waiting <= 6);
            prop_assert_eq!(cache.entries.len(), cache.order.len());
            let waiting: usize = cache.entries.values().map(|entry| entry.waiting.len()).sum();
            prop_assert_eq!(waiting, cache.waiting);
            let timers = cache.entries.values().filter(|entry| entry.timer.is_some()).count();
            prop_assert_eq!(timers, cache.timers.len());
            prop_assert!(cache.deadline().is_none_or(|deadline| deadline > now));
            prop_assert!(cache.outputs.len() <= 10 && cache.notices.len() <= 4);
        }
    }
}
