use super::*;
use crate::config::TcpConfig;
use crate::flow::Seq;
use crate::tcp::Settings;
use crate::tcp::congestion::Congestion;
use crate::tcp::send::rack::Evidence;
use crate::tcp::send::rack::News;
use crate::tcp::send::recovery::Detection;

use crate::tcp::send::tests::{context, synchronized};
use crate::time::Duration;

fn news(una: Seq) -> News {
    News::new(Evidence::default(), Instant::ZERO, 0, una)
}

/// A segment of the connections here.
const MSS: u32 = 1000;

/// A sending half whose socket asks for that, and what its host lends it.
struct Case {
    send: SendHalf,
    options: SocketOptions,
    cx: Context,
}

impl Case {
    fn new(send_size: SendSize) -> Case {
        let cx = context(1000);
        let options = SocketOptions { send_size, ..SocketOptions::new(&cx.config) };
        Case { send: synchronized().send, options, cx }
    }

    fn with_limit(mut self, limit: u32) -> Case {
        self.options.send_buffer_bytes = limit;
        self
    }

    /// A congestion window of so many segments, in congestion avoidance.
    fn with_window(mut self, segments: u32) -> Case {
        self.set_window(segments);
        self
    }

    fn set_window(&mut self, segments: u32) {
        self.send.congestion = Congestion::of_reno(segments * MSS, 2 * MSS);
        (self.send.window, self.send.max_window) = (1 << 30, 1 << 30);
    }

    fn write(&mut self, bytes: u32) {
        let written = self.send.buffer.write(&std::vec![0; bytes as usize], &mut self.cx.pool);
        assert_eq!(written, bytes as usize);
    }

    /// So many bytes of what was written are sent.
    fn send(&mut self, bytes: u32) {
        self.send.nxt += bytes;
        self.send.max = self.send.nxt;
    }

    fn room(&self) -> u32 {
        self.send.room_for(usize::MAX, &self.options, self.cx.sizing(self.cx.now)) as u32
    }

    fn has_much_room(&self) -> bool {
        self.send.has_much_room(&self.options, self.cx.sizing(self.cx.now))
    }

    fn read(&self) -> u32 {
        self.send.demand(&self.options, self.cx.sizing(self.cx.now)).read as u32
    }
}

#[test]
fn what_waits_to_be_sent_is_no_more_than_the_window_carries() {
    let mut case = Case::new(SendSize::Round);
    let limit = case.options.send_buffer_bytes;
    let room = |case: &Case, limit: u32| case.send.room_of_round(limit);
    assert_eq!((room(&case, limit), room(&case, 1000)), (QUEUED_MIN, 1000));
    case.write(QUEUED_MIN);
    assert_eq!((room(&case, limit), room(&case, 1000)), (0, 0));
    assert!(!case.has_much_room());
    // What is in flight waits no more.
    case.send(50_000);
    assert_eq!(case.room(), 50_000);
    assert!(case.has_much_room());
    // A window that carries more in a round trip is worth more, up to the limit.
    case.set_window(400);
    assert_eq!(case.room(), 400 * MSS - QUEUED_MIN + 50_000);
    assert_eq!(room(&case, 400 * MSS), 400 * MSS - QUEUED_MIN);
    case.options.send_buffer_bytes = 1000;
    assert!(!case.has_much_room());
}

#[test]
fn a_write_takes_exactly_the_room_however_it_is_found() {
    const SIZES: [u32; 8] = [0, 1, 499, 500, 501, QUEUED_MIN - 1, QUEUED_MIN, QUEUED_MIN + 1];
    for held in [0, 1, 500] {
        for limit in SIZES {
            let mut case = Case::new(SendSize::Round).with_limit(limit);
            case.write(held);
            for wanted in SIZES {
                let room =
                    case.send.room(&case.options, case.cx.sizing(case.cx.now)).min(wanted) as usize;
                let found =
                    case.send.room_for(wanted as usize, &case.options, case.cx.sizing(case.cx.now));
                assert_eq!(found, room, "{held}, {limit}");
            }
        }
    }
}

#[test]
fn by_los_the_buffer_follows_the_window_up_and_down() {
    let mut case = Case::new(SendSize::Los).with_window(10);
    assert_eq!((case.room(), case.read()), (21 * MSS, 21 * MSS));
    case.write(21 * MSS);
    case.send(10 * MSS);
    assert_eq!((case.room(), case.read()), (0, 12 * MSS), "next^2");
    case.set_window(20);
    assert_eq!((case.room(), case.read()), (20 * MSS, 22 * MSS));
    case.set_window(5);
    assert_eq!((case.room(), case.has_much_room()), (0, false), "it holds too much");
    let pool = &mut case.cx.pool;
    case.send.buffer.advance(10 * MSS as usize, pool);
    case.send.una += 10 * MSS;
    assert_eq!(case.room(), 0, "eleven are left, and eleven is all");
    case.send(5 * MSS);
    for expected in [(MSS, false), (2 * MSS, true)] {
        case.send.buffer.advance(MSS as usize, &mut case.cx.pool);
        case.send.una += MSS;
        assert_eq!((case.room(), case.has_much_room()), expected);
    }
}

#[test]
fn by_los_a_slow_source_gets_the_rounds_it_takes_to_bring_more() {
    let mut case = Case::new(SendSize::Los).with_window(10);
    let read_time = |case: &mut Case, ms: u64| {
        let supply = Supply { read_time: Duration::from_millis(ms), more: true };
        case.send.set_supply(supply);
    };
    read_time(&mut case, 250);
    assert_eq!(case.room(), 21 * MSS, "the RTT is not known");
    let at = |ms: u64| Instant::from_millis(ms);
    case.write(MSS);
    case.send.sent.on_sent(case.send.una, case.send.nxt + MSS, at(0));
    case.send(MSS);
    let sent = case.send.sent.on_ack(case.send.nxt, &mut news(case.send.una)).sent.unwrap();
    case.send.rtt.on_ack(sent, at(100), MSS, MSS);
    case.write(20 * MSS);
    assert_eq!(case.send.rtt.srtt_ns(), 100_000_000);
    let info = case.send.info(&case.options, case.cx.sizing(case.cx.now));
    assert_eq!((info.factor, info.hiwat as u32), (3, (10 + 11 + 12 + 13) * MSS));
    assert_eq!(case.read(), (14 + 15 + 16) * MSS);
    // PSC knows nothing of reads (Cohen & Cohen 2002 §5).
    let mut psc = TcpConfig::default();
    psc.pool.policy = PoolPolicy::Psc;
    let others = mem::replace(&mut case.cx.config, Settings::new(psc));
    let info = case.send.info(&case.options, case.cx.sizing(case.cx.now));
    assert_eq!((info.factor, info.hiwat as u32), (1, (10 + 11) * MSS));
    case.cx.config = others;
    read_time(&mut case, 100);
    assert_eq!((case.room(), case.read()), (0, 12 * MSS));
}

#[test]
fn by_los_a_peer_that_takes_nothing_is_given_next_to_nothing() {
    let mut case = Case::new(SendSize::Los).with_window(100);
    (case.send.window, case.send.max_window) = (0, 50 * MSS);
    assert_eq!(case.room(), 2 * MSS);
    case.send.window = 50 * MSS;
    assert_eq!(case.room(), (50 + 50) * MSS, "no window is wider than the peer's");
}

#[test]
fn by_los_what_the_peer_has_behind_a_hole_takes_no_room() {
    let mut case = Case::new(SendSize::Los).with_window(10);
    case.write(21 * MSS);
    case.send(10 * MSS);
    assert_eq!(case.room(), 0);
    let (una, nxt) = (case.send.una, case.send.nxt);
    case.send.detection = Detection::Count;
    case.send.recovery_mut();
    case.send.sent.on_sent(una, nxt, Instant::ZERO);
    case.send.sent.on_sacked(una, (una + MSS, una + 5 * MSS), &mut news(una));
    assert_eq!(case.room(), 4 * MSS, "and the windows let so much more out");
}

#[test]
fn by_los_a_read_that_begins_with_an_empty_buffer_fills_it() {
    let mut case = Case::new(SendSize::Los).with_window(10);
    case.write(20 * MSS);
    assert_eq!((case.room(), case.read()), (MSS, 12 * MSS));
    case.send.buffer.advance(15_000, &mut case.cx.pool);
    assert_eq!((case.room(), case.read()), (16 * MSS, 16 * MSS));
}

#[test]
fn by_los_the_window_after_a_silence_is_the_initial_one() {
    let mut case = Case::new(SendSize::Los).with_window(100);
    assert_eq!(case.room(), (100 + 101) * MSS);
    case.cx.now = Instant::from_millis(60_000);
    assert_eq!(case.room(), (10 + 11) * MSS);
}

#[test]
fn a_fixed_buffer_has_the_size_asked_for_within_the_limit() {
    let mut case = Case::new(SendSize::Fixed(32_000)).with_window(100);
    assert_eq!((case.room(), case.read()), (32_000, 32_000));
    case.write(30_000);
    assert_eq!((case.room(), case.has_much_room()), (2000, false), "less than sb_lowat");
    case.send.buffer.advance(2000, &mut case.cx.pool);
    assert_eq!((case.room(), case.has_much_room()), (4000, true));
    assert_eq!(case.with_limit(29_000).room(), 1000);
    let tiny = Case::new(SendSize::Fixed(100));
    assert!(tiny.has_much_room(), "though it holds less than a segment");
}

#[test]
fn by_linux_s_rule_a_buffer_grows_and_never_shrinks() {
    let mut case = Case::new(SendSize::Linux { lowat: None }).with_window(4);
    assert_eq!(case.room(), LINUX_MIN);
    case.set_window(100);
    case.send.keep_size(&case.options);
    case.set_window(50);
    assert_eq!(case.room(), 200 * MSS);
    case.write(140 * MSS);
    assert!(!case.has_much_room());
    case.send.buffer.advance(10_000, &mut case.cx.pool);
    assert!(case.has_much_room(), "a third is free");
}

#[test]
fn by_linux_s_lowat_what_is_unsent_is_bounded() {
    let mut case = Case::new(SendSize::Linux { lowat: Some(16_000) }).with_window(100);
    assert_eq!(case.room(), 16_000);
    case.write(16_000);
    assert_eq!((case.room(), case.has_much_room()), (0, false));
    case.send(8000);
    assert_eq!((case.room(), case.has_much_room()), (8000, false), "half of it is unsent");
    case.send(1);
    assert_eq!((case.room(), case.has_much_room()), (8001, true));
}

#[test]
fn a_writer_hears_of_exactly_the_room_that_its_rule_asks_for() {
    // A third of what may wait; an eighth of the capacity; sb_lowat; half of what is queued.
    let (round, los) = (QUEUED_MIN - QUEUED_MIN / 3, 15 * MSS - 15 * MSS / TOLD_PART);
    for (send_size, window, most_queued) in [
        (SendSize::Round, 10, round),
        (SendSize::Los, 7, los),
        (SendSize::Fixed(32_000), 100, 32_000 - BSD_LOWAT),
        (SendSize::Linux { lowat: None }, 50, 66_667),
    ] {
        let mut case = Case::new(send_size).with_window(window);
        case.write(most_queued + 1);
        assert!(!case.has_much_room(), "{send_size:?}");
        case.send.buffer.advance(1, &mut case.cx.pool);
        assert!(case.has_much_room(), "{send_size:?}");
    }
}

#[test]
fn where_memory_is_scarce_a_rule_gives_at_most_two_peer_windows() {
    let mut case = Case::new(SendSize::Fixed(64_000)).with_window(100);
    assert!(case.cx.pool.charge(800, crate::buffer::Purpose::More) && case.cx.pool.is_scarce());
    case.send.window = 10_000;
    assert_eq!(case.room(), 20_000);
    case.send.window = 0;
    assert_eq!(case.room(), PAGE_BYTES as u32);
    case.options.send_size = SendSize::Round;
    assert_eq!(case.room(), PAGE_BYTES as u32);
    // That rule gives no more than two congestion windows either.
    case.set_window(4);
    case.write(3 * MSS);
    let (options, sizing) = (&case.options, case.cx.sizing(case.cx.now));
    assert_eq!((case.room(), case.send.room_where_scarce(options, sizing)), (5 * MSS, 5 * MSS));
    assert_eq!(case.send.room(options, sizing), QUEUED_MIN - 3 * MSS, "were it not scarce");
}

#[test]
fn a_source_lacks_once_the_windows_exceed_fresh_by_a_segment() {
    let mut case = Case::new(SendSize::Los).with_window(10);
    let now = Instant::from_millis(9);
    case.write(12 * MSS);
    case.send(10 * MSS);
    assert!(!case.send.note_lack(now, &case.cx.config), "nobody has said that there is more");
    case.send.set_supply(Supply { read_time: Duration::ZERO, more: true });
    assert!(!case.send.note_lack(now, &case.cx.config), "the window is full");
    case.set_window(12);
    assert!(!case.send.note_lack(now, &case.cx.config), "two are fresh");
    case.set_window(13);
    assert!(case.send.note_lack(now, &case.cx.config), "and three could leave");
    case.send.window = 12 * MSS;
    assert!(!case.send.note_lack(now, &case.cx.config), "but for the peer");
    case.send.end_lack(case.cx.at(now));
    assert_eq!(case.cx.counters.buffer_misses, 0, "what comes in the same turn is not late");
    case.send.window = 13 * MSS;
    assert!(
        case.send.note_lack(now, &case.cx.config)
            && case.send.note_lack(Instant::from_millis(10), &case.cx.config)
    );
    case.send.end_lack(case.cx.at(Instant::from_millis(11)));
    case.send.end_lack(case.cx.at(Instant::from_millis(12)));
    assert_eq!(case.cx.counters.buffer_misses, 1, "once an occasion");
    assert_eq!(case.send.info(&case.options, case.cx.sizing(case.cx.now)).misses, 1);
}

#[test]
fn one_that_waits_in_line_says_once_that_it_has_moved() {
    let mut case = Case::new(SendSize::Los);
    let pool = &mut case.cx.pool;
    case.send.note_moved(pool);
    assert_eq!(pool.next_moved(), None, "it does not wait");
    case.send.wait_at(7);
    case.send.note_moved(pool);
    case.send.note_moved(pool);
    assert_eq!((pool.next_moved(), pool.next_moved()), (Some(7), None));
}

#[test]
fn what_is_lost_leaves_before_anything_is_lacking() {
    let mut case = Case::new(SendSize::Los).with_window(20);
    case.send.set_supply(Supply { read_time: Duration::ZERO, more: true });
    case.write(10 * MSS);
    case.send(10 * MSS);
    let (una, nxt, now) = (case.send.una, case.send.nxt, Instant::from_millis(9));
    case.send.sent.on_sent(una, nxt, Instant::ZERO);
    assert_eq!(case.send.sent.lose(una, (una, una + MSS), una), MSS);
    assert!(!case.send.note_lack(now, &case.cx.config));
    case.send.sent.forget_lost();
    assert!(case.send.note_lack(now, &case.cx.config));
}

#[test]
fn a_share_of_the_pool_bounds_all_rules_but_round() {
    let mut case = Case::new(SendSize::Los).with_window(10);
    case.cx.pool.set_share(Some(2));
    let share = 2 * case.cx.pool.page_bytes() as u32;
    assert_eq!((case.room(), case.read(), case.has_much_room()), (share, share, true));
    case.write(share);
    assert_eq!((case.room(), case.has_much_room()), (0, false));
    // Round asks for the window alone; but its writer need not come where a write takes nothing.
    case.options.send_size = SendSize::Round;
    let room = case.send.room(&case.options, case.cx.sizing(case.cx.now));
    let left = QUEUED_MIN - share;
    assert_eq!((room, case.room(), case.has_much_room()), (left, left, false));
}
