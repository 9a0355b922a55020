use super::*;
use crate::time::Duration;
use proptest::prelude::*;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Connections that consist of their timers alone.
struct Timed {
    bsd: Bsd,
    connections: [(Filed, Deadlines); 3],
}

impl Timed {
    fn new(ordered: bool) -> Timed {
        Timed { bsd: Bsd::new(ordered), connections: Default::default() }
    }

    fn deadlines(&mut self, index: u32) -> &mut Deadlines {
        &mut self.connections[index as usize].1
    }

    fn touched(&mut self, index: u32, now: Instant) {
        let (filed, deadlines) = &mut self.connections[index as usize];
        self.bsd.touched(index, filed, deadlines, now);
    }

    fn set(&mut self, index: u32, timer: Timer, to: Instant, now: Instant) {
        self.deadlines(index).set(timer, to);
        self.touched(index, now);
    }

    fn enter_time_wait(&mut self, index: u32, now: Instant, ms: u64) {
        let time = TimeWaitTerm { now, duration: Duration::from_millis(ms) };
        let (filed, deadlines) = &mut self.connections[index as usize];
        deadlines.set(Timer::Lifetime, now + time.duration);
        self.bsd.enter_time_wait(index, filed, deadlines, time);
    }

    fn due(&mut self, now: Instant) -> Option<(u32, Fired)> {
        self.bsd.due(now, &mut |index, tick| {
            let (filed, deadlines) = &mut self.connections[index as usize];
            filed.count_down(tick, deadlines)
        })
    }

    /// What is due up to `until`, each with the time of its tick in ms.
    fn run(&mut self, until: u64) -> Vec<(u64, u32, Fired)> {
        self.run_from(0, until)
    }

    /// What is due from `begin` on, which is a multiple of 100 ms, to `until`.
    fn run_from(&mut self, begin: u64, until: u64) -> Vec<(u64, u32, Fired)> {
        let mut fired = Vec::new();
        for ms in (begin..=until).step_by(100) {
            while let Some((index, what)) = self.due(at(ms)) {
                fired.push((ms, index, what));
            }
        }
        fired
    }
}

#[test]
fn a_timer_of_k_ticks_fires_at_the_kth_tick_after_it_is_set() {
    for ordered in [false, true] {
        for (set, ticks, fires) in [(0, 3, 1500), (1, 3, 1500), (499, 3, 1500), (500, 3, 2000)] {
            let mut timed = Timed::new(ordered);
            assert_eq!(timed.due(at(set)), None);
            timed.set(0, Timer::Retransmit, at(set + ticks * 500), at(set));
            let fired = timed.run(5000);
            assert_eq!(fired, [(fires, 0, Fired::Timer(Timer::Retransmit))], "set at {set}");
        }
    }
}

#[test]
fn a_finer_clock_ends_no_time_early_and_a_count_of_one_stays() {
    // When it is set and for how long, when it fires as a time and when as a count; in ms.
    let cases = [
        (0, 260, 1000, 1000),
        (499, 260, 1000, 1000),
        (300, 500, 1000, 1000),
        (499, 501, 1000, 1000),
        (499, 502, 1500, 1000),
        (300, 1000, 1500, 1000),
        (499, 1500, 2000, 1500),
        (0, 1500, 1500, 1500),
    ];
    for (set, wait, time, count) in cases {
        for (fine, fires) in [(true, time), (false, count)] {
            let mut timed = Timed::new(false);
            timed.bsd.set_fine(fine);
            assert_eq!(timed.due(at(set)), None);
            timed.set(0, Timer::Retransmit, at(set + wait), at(set));
            let fired = timed.run(5000);
            let expected = [(fires, 0, Fired::Timer(Timer::Retransmit))];
            assert_eq!(fired, expected, "set at {set} for {wait}, fine {fine}");
        }
    }
}

#[test]
fn a_retransmission_waits_two_ticks_at_least_and_no_other_must() {
    for (timer, fires) in [(Timer::Retransmit, 1000), (Timer::Persist, 500)] {
        let mut timed = Timed::new(true);
        timed.bsd.set_fine(true);
        timed.set(0, timer, at(200), at(0));
        assert_eq!(timed.run(5000), [(fires, 0, Fired::Timer(timer))]);
    }
}

#[test]
fn a_delayed_ack_leaves_with_the_next_fast_tick() {
    let mut timed = Timed::new(false);
    assert_eq!(timed.due(at(350)), None);
    timed.set(2, Timer::DelayedAck, at(390), at(350));
    assert_eq!(timed.run(1000), [(400, 2, Fired::Timer(Timer::DelayedAck))]);
}

#[test]
fn a_moved_timer_counts_anew_and_a_cancelled_one_does_not_fire() {
    let mut timed = Timed::new(true);
    timed.deadlines(0).set(Timer::Persist, at(1000));
    timed.set(0, Timer::KeepAlive, at(1000), at(0));
    assert_eq!(timed.run(600), []);
    timed.deadlines(0).cancel(Timer::KeepAlive);
    timed.set(0, Timer::Persist, at(1600), at(600));
    assert_eq!(timed.run(5000), [(1500, 0, Fired::Timer(Timer::Persist))]);
}

#[test]
fn setting_a_timer_to_its_time_keeps_its_count_and_others_alone() {
    let mut timed = Timed::new(true);
    assert_eq!(timed.due(at(499)), None);
    timed.set(0, Timer::KeepAlive, at(1999), at(499));
    assert_eq!(timed.run(600), []);
    timed.deadlines(0).set(Timer::KeepAlive, at(1999));
    timed.set(0, Timer::Persist, at(9000), at(600));
    assert_eq!(timed.run(2500), [(1500, 0, Fired::Timer(Timer::KeepAlive))]);
}

#[test]
fn a_timer_cancelled_when_counted_fires_only_if_set_again() {
    let mut timed = Timed::new(false);
    timed.set(0, Timer::DelayedAck, at(100), at(0));
    timed.set(0, Timer::FinWait2, at(1000), at(0));
    for timer in [Timer::DelayedAck, Timer::FinWait2] {
        timed.deadlines(0).cancel(timer);
    }
    assert_eq!(timed.run(700), []);
    timed.set(0, Timer::FinWait2, at(1700), at(700));
    assert_eq!(timed.run(5000), [(1500, 0, Fired::Timer(Timer::FinWait2))]);
}

#[test]
fn a_cleared_connection_has_no_deadlines_and_may_get_others() {
    let mut timed = Timed::new(false);
    timed.set(0, Timer::Lifetime, at(1000), at(0));
    timed.deadlines(0).clear();
    timed.touched(0, at(0));
    assert_eq!(timed.run(400), []);
    timed.set(0, Timer::Persist, at(1400), at(400));
    assert_eq!(timed.run(5000), [(1000, 0, Fired::Timer(Timer::Persist))]);
}

#[test]
fn what_takes_longer_than_a_counter_holds_is_counted_on() {
    // The most ticks that a counter holds are 32 767; three of that, and some.
    for ticks in [32_766, 32_767, 32_768, 100_000] {
        let (mut filed, mut deadlines) = (Filed::default(), Deadlines::default());
        let mut bsd = Bsd::new(true);
        deadlines.set(Timer::KeepAlive, at(ticks * 500));
        bsd.touched(0, &mut filed, &mut deadlines, at(0));
        let mut fires = |tick| filed.count_down(Tick::Slow(tick), &deadlines) != TimerSet::EMPTY;
        assert_eq!((1..=200_000).find(|tick| fires(*tick)), Some(ticks));
    }
}

#[test]
fn time_wait_is_over_in_order_and_a_restart_goes_to_the_end() {
    for ordered in [false, true] {
        let mut timed = Timed::new(ordered);
        for index in 0..3 {
            timed.enter_time_wait(index, at(0), 1000);
        }
        assert_eq!(timed.run(500), []);
        timed.enter_time_wait(1, at(500), 1000);
        let mut first: Vec<u32> = timed.run(1000).iter().map(|fired| fired.1).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 2]);
        let over = if ordered { Fired::TimeWait } else { Fired::Timer(Timer::Lifetime) };
        assert_eq!(timed.run(1500), [(1500, 1, over)]);
        (0..3).for_each(|index| timed.bsd.forget(index));
        assert!(timed.bsd.len == 0 && timed.bsd.deadline().is_none());
    }
}

#[test]
fn connections_in_front_of_time_wait_are_scanned_all_the_same() {
    let mut timed = Timed::new(true);
    timed.set(0, Timer::KeepAlive, at(500), at(0));
    timed.enter_time_wait(1, at(0), 60_000);
    timed.set(2, Timer::KeepAlive, at(500), at(0));
    let mut fired: Vec<u32> = timed.run(500).iter().map(|fired| fired.1).collect();
    fired.sort_unstable();
    assert_eq!(fired, [0, 2]);
    timed.bsd.forget(0);
    timed.bsd.forget(2);
    timed.bsd.forget(2);
    assert_eq!(timed.bsd.len, 1);
}

#[test]
fn none_waits_behind_one_that_is_in_time_wait_for_longer() {
    for (first, second) in [(60_000, 1000), (1000, 60_000), (1000, 1000)] {
        let mut timed = Timed::new(true);
        timed.enter_time_wait(0, at(0), first);
        assert_eq!(timed.run(500), []);
        timed.enter_time_wait(1, at(500), second);
        // One that starts over goes behind its like.
        timed.enter_time_wait(2, at(500), first);
        assert_eq!(timed.due(at(700)), None);
        timed.enter_time_wait(2, at(700), first);
        let mut fired: Vec<(u64, u32)> =
            timed.run(70_000).iter().map(|fired| (fired.0, fired.1)).collect();
        fired.sort_unstable();
        let mut expected = [(first, 0), (500 + second, 1), (500 + first, 2)];
        expected.sort_unstable();
        assert_eq!(fired, expected);
        assert!(timed.bsd.len == 0);
    }
}

proptest! {
    #[test]
    fn whatever_the_lengths_each_is_over_at_its_own_tick(
        enters in proptest::collection::vec((0u64..3, 1u64..4, 0u64..3), 1..40),
    ) {
        let mut timed = Timed::new(true);
        let (mut now, mut expected, mut fired) = (0, [0; 3], Vec::new());
        for (index, length, pause) in enters {
            let until = now + pause * 500;
            while now < until {
                now += 100;
                while let Some((index, what)) = timed.due(at(now)) {
                    prop_assert_eq!((what, expected[index as usize]), (Fired::TimeWait, now));
                    fired.push(index);
                    expected[index as usize] = 0;
                }
            }
            timed.enter_time_wait(index as u32, at(now), length * 1000);
            expected[index as usize] = now / 500 * 500 + length * 1000;
            prop_assert_eq!(timed.bsd.len, expected.iter().filter(|at| **at > 0).count());
        }
        for (ms, index, what) in timed.run_from(now, now + 5000) {
            prop_assert_eq!((what, expected[index as usize]), (Fired::TimeWait, ms));
            expected[index as usize] = 0;
        }
        prop_assert_eq!(expected, [0; 3]);
    }
}

/// The connections that one tick of `bsd` visits, from the lowest.
fn visited(bsd: &mut Bsd, is_fast: bool) -> Vec<u32> {
    let mut visited = Vec::new();
    let mut count = |index, _| {
        visited.push(index);
        TimerSet::EMPTY
    };
    if is_fast {
        bsd.scan_fast(&mut count);
    } else {
        bsd.scan_slow(&mut count);
    }
    visited.sort_unstable();
    visited
}

#[test]
fn scans_stop_at_an_ordered_time_wait_and_cross_an_unordered() {
    for ordered in [true, false] {
        let mut bsd = Bsd::new(ordered);
        let time = TimeWaitTerm { now: at(0), duration: Duration::from_secs(60) };
        for index in 1..=100 {
            let (mut filed, mut deadlines) = Default::default();
            Deadlines::set(&mut deadlines, Timer::Lifetime, at(60_000));
            bsd.enter_time_wait(index, &mut filed, &mut deadlines, time);
        }
        bsd.list_first(0);
        let (fast, slow) = (visited(&mut bsd, true), visited(&mut bsd, false));
        if ordered {
            assert_eq!((fast, slow), (Vec::from([0]), Vec::from([0])));
        } else {
            assert_eq!((fast, slow), ((0..=100).collect(), (0..=100).collect()));
        }
    }
}

/// Blocks that note what they are asked for: `true` to read ahead.
#[derive(Default)]
struct Watched(core::cell::RefCell<Vec<(u32, bool)>>);

impl Blocks for Watched {
    fn count_down(&mut self, index: u32, _: Tick) -> TimerSet {
        self.0.get_mut().push((index, false));
        TimerSet::EMPTY
    }

    fn prefetch(&self, index: u32) {
        self.0.borrow_mut().push((index, true));
    }
}

#[test]
fn a_block_is_prefetched_once_before_its_scan_the_tail_never() {
    let mut bsd = Bsd::new(true);
    for index in 0..50 {
        let (mut filed, mut deadlines) = Default::default();
        if index < 40 {
            Deadlines::set(&mut deadlines, Timer::KeepAlive, at(7_200_000));
            bsd.touched(index, &mut filed, &mut deadlines, at(0));
        } else {
            let time = TimeWaitTerm { now: at(0), duration: Duration::from_secs(60) };
            bsd.enter_time_wait(index, &mut filed, &mut deadlines, time);
        }
    }
    let scans: [fn(&mut Bsd, &mut Watched); 2] =
        [|bsd, blocks| bsd.scan_fast(blocks), |bsd, blocks| bsd.scan_slow(blocks)];
    for scan in scans {
        let mut blocks = Watched::default();
        scan(&mut bsd, &mut blocks);
        let asked = blocks.0.into_inner();
        let when = |index, ahead| asked.iter().position(|it| *it == (index, ahead)).unwrap();
        assert!((0..40).all(|index| when(index, true) < when(index, false)));
        assert_eq!(asked.len(), 80, "each once, and none of the tail");
    }
}
