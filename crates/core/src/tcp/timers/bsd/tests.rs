use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// What is due up to `until`, each with the time of its tick in ms.
fn run(bsd: &mut Bsd, until: u64) -> Vec<(u64, u32, Fired)> {
    let mut fired = Vec::new();
    for ms in (0..=until).step_by(100) {
        while let Some((index, what)) = bsd.due(at(ms)) {
            fired.push((ms, index, what));
        }
    }
    fired
}

#[test]
fn a_timer_of_k_ticks_fires_at_the_kth_tick_after_it_is_set() {
    for ordered in [false, true] {
        for (set, ticks, fires) in [(0, 3, 1500), (1, 3, 1500), (499, 3, 1500), (500, 3, 2000)] {
            let mut bsd = Bsd::new(ordered);
            assert_eq!(bsd.due(at(set)), None);
            let mut deadlines = Deadlines::default();
            deadlines.set(Timer::Retransmit, at(set + ticks * 500));
            bsd.touched(0, &deadlines, at(set));
            let fired = run(&mut bsd, 5000);
            assert_eq!(fired, [(fires, 0, Fired::Timer(Timer::Retransmit))], "set at {set}");
        }
    }
}

#[test]
fn a_time_by_a_finer_clock_is_not_over_early_and_a_count_stays_one() {
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
            let mut bsd = Bsd::new(false);
            bsd.set_fine(fine);
            assert_eq!(bsd.due(at(set)), None);
            let mut deadlines = Deadlines::default();
            deadlines.set(Timer::Retransmit, at(set + wait));
            bsd.touched(0, &deadlines, at(set));
            let fired = run(&mut bsd, 5000);
            let expected = [(fires, 0, Fired::Timer(Timer::Retransmit))];
            assert_eq!(fired, expected, "set at {set} for {wait}, fine {fine}");
        }
    }
}

#[test]
fn no_retransmission_waits_for_less_than_two_ticks_and_nothing_else_must() {
    for (timer, fires) in [(Timer::Retransmit, 1000), (Timer::Persist, 500)] {
        let mut bsd = Bsd::new(true);
        bsd.set_fine(true);
        let mut deadlines = Deadlines::default();
        deadlines.set(timer, at(200));
        bsd.touched(0, &deadlines, at(0));
        assert_eq!(run(&mut bsd, 5000), [(fires, 0, Fired::Timer(timer))]);
    }
}

#[test]
fn a_delayed_ack_leaves_with_the_next_fast_tick() {
    let mut bsd = Bsd::new(false);
    assert_eq!(bsd.due(at(350)), None);
    let mut deadlines = Deadlines::default();
    deadlines.set(Timer::DelayedAck, at(390));
    bsd.touched(7, &deadlines, at(350));
    assert_eq!(run(&mut bsd, 1000), [(400, 7, Fired::Timer(Timer::DelayedAck))]);
}

#[test]
fn a_timer_that_moves_counts_anew_and_one_cancelled_does_not_fire() {
    let mut bsd = Bsd::new(true);
    let mut deadlines = Deadlines::default();
    deadlines.set(Timer::Persist, at(1000));
    deadlines.set(Timer::KeepAlive, at(1000));
    bsd.touched(0, &deadlines, at(0));
    assert_eq!(run(&mut bsd, 600), []);
    deadlines.set(Timer::Persist, at(1600));
    deadlines.cancel(Timer::KeepAlive);
    bsd.touched(0, &deadlines, at(600));
    assert_eq!(run(&mut bsd, 5000), [(1500, 0, Fired::Timer(Timer::Persist))]);
}

#[test]
fn time_wait_is_over_in_order_and_a_restart_goes_to_the_end() {
    for ordered in [false, true] {
        let mut bsd = Bsd::new(ordered);
        for index in 0..3 {
            bsd.enter_time_wait(index, Duration::from_secs(1));
        }
        assert_eq!(run(&mut bsd, 500), []);
        bsd.enter_time_wait(1, Duration::from_secs(1));
        let mut first: Vec<u32> = run(&mut bsd, 1000).iter().map(|fired| fired.1).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 2]);
        assert_eq!(run(&mut bsd, 1500), [(1500, 1, Fired::TimeWait)]);
        assert!(bsd.is_empty() && bsd.deadline().is_none());
    }
}

#[test]
fn connections_in_front_of_time_wait_are_scanned_all_the_same() {
    let mut bsd = Bsd::new(true);
    let mut deadlines = Deadlines::default();
    deadlines.set(Timer::KeepAlive, at(500));
    bsd.touched(0, &deadlines, at(0));
    bsd.enter_time_wait(1, Duration::from_secs(60));
    bsd.touched(2, &deadlines, at(0));
    let mut fired: Vec<u32> = run(&mut bsd, 500).iter().map(|fired| fired.1).collect();
    fired.sort_unstable();
    assert_eq!(fired, [0, 2]);
    bsd.forget(0);
    bsd.forget(2);
    bsd.forget(2);
    assert_eq!(bsd.len(), 1);
}
