//! The end of a connection, and of a load.

use super::*;

#[test]
fn a_server_that_leaves_connections_open_costs_one_wait() {
    let closed = |connections| {
        let server = Server { stays: true, ..Server::new() };
        let (outcome, server) = run_for(server, plan(Mode::Closed { connections }));
        assert_eq!(outcome.totals.failed(), 0);
        let left = server.seen.borrow().left as u64;
        assert!(left.abs_diff(outcome.notes.closed_by_client) <= connections as u64);
        outcome.totals.answered
    };
    // Each connection takes 1 ms for its answer and some for its handshake, of 10 s.
    let (well, _) = run_for(Server::new(), plan(Mode::Closed { connections: 4 }));
    let left = closed(4);
    assert!(left * 100 >= well.totals.answered * 90, "{left} of {}", well.totals.answered);
    // One that closes nearly all is waited for, though it forgets some.
    let (outcome, _) = run_for(Server::new(), plan(Mode::Closed { connections: 1 }));
    assert_eq!(outcome.notes.closed_by_client, 0);
}

#[test]
fn slow_answers_have_their_time_limit_and_less_after_a_stop() {
    let slow = || Server { service: S * 7, ..Server::new() };
    let limits = Plan { timeout: S * 9, grace: S * 9, stop_grace: S * 5, ..plan(open(1.0, 10)) };
    let (outcome, _) = run_for(slow(), limits.clone());
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (10, 0));
    let tuples = Tuples::new(sources(10), 1024..=65_535, S * 61, 0);
    let (outcome, _) = run_with(slow(), limits, tuples, async {
        rt::sleep(S * 4 + MS * 500).await;
    });
    assert!(outcome.totals.failed() > 0, "a stop waits for 5 s: {outcome:?}");
}

#[test]
fn a_server_that_resets_has_not_closed_behind_the_load() {
    // The load announces the close, or is asked to close, or both.
    for (asks, requests, close) in [
        (false, NonZeroU32::new(1), Close::ClientClose),
        (true, NonZeroU32::new(1), Close::Server),
        (true, None, Close::Client),
    ] {
        let server = Server { asks, resets: true, ..Server::new() };
        let plan = Plan { requests_per_connection: requests, close, ..plan(open(200.0, 10)) };
        let (outcome, _) = run_for(server, plan);
        assert_eq!((outcome.totals.answered, outcome.totals.failed()), (2000, 0));
        let notes = outcome.notes;
        assert_eq!((notes.asked, notes.closed_by_reset), (if asks { 2000 } else { 0 }, 2000));
        assert_eq!((notes.closed_by_client, notes.closed_by_server), (0, 0));
        assert_eq!((notes.client_closes, notes.obeyed), (0, 0), "{close:?}");
    }
}
