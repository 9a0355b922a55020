//! The progress that a load tells.

use super::*;

/// A load of 3 s after a warm-up of 1.5 s. Its server stalls at the end for longer than the grace.
/// It is stopped at that time. Returns what it told of the recorded part, and its length.
fn told(stop: impl Future<Output = ()> + 'static) -> (Vec<Progress>, Duration) {
    let server = Server { stall: Some([S * 4, S * 60]), ..Server::new() };
    let plan = Plan {
        warm_up: MS * 1500,
        duration: S * 3,
        grace: S * 5,
        stop_grace: S * 5,
        ..plan(open(100.0, 5))
    };
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    let all = Rc::new(RefCell::new(Vec::new()));
    let seen = all.clone();
    let on_progress = move |progress: &Progress| {
        if let Progress::Recording(_) | Progress::Recorded(_) = progress {
            seen.borrow_mut().push(*progress);
        }
    };
    let (outcome, _) = run_late(server, plan, tuples, stop, [Instant::ZERO; 2], on_progress);
    assert!(outcome.totals.faults.of(Fault::Unfinished) > 0 || outcome.recorded < S * 2);
    (all.take(), outcome.recorded)
}

#[test]
fn the_recorded_part_is_told_without_the_grace_behind_it() {
    let both = |from, to| vec![Progress::Recording(from), Progress::Recorded(to)];
    assert_eq!(told(std::future::pending()), (both(MS * 1500, MS * 4500), S * 3));
    assert_eq!(told(async { rt::sleep(MS * 3310).await }), (both(MS * 1500, MS * 3310), MS * 1810));
    assert_eq!(told(async { rt::sleep(S).await }), (both(S, S), Duration::ZERO));
}

#[test]
fn the_part_of_a_second_at_the_end_is_in_the_counters_alone() {
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    let stop = async { rt::sleep(MS * 3310).await };
    let (outcome, _) = run_with(Server::new(), plan(open(100.0, 10)), tuples, stop);
    assert_eq!((outcome.seconds.len(), outcome.recorded), (3, MS * 3310));
    let answered: u64 = outcome.seconds.iter().map(|second| second.answered).sum();
    let all = outcome.totals.ended.answered;
    assert!((299..=301).contains(&answered) && (329..=332).contains(&all), "{answered}, {all}");
}
