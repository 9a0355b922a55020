//! Connections that are held beside a load.

use super::*;

fn idle(connections: usize) -> IdlePlan {
    IdlePlan { connections, is_silent: false }
}

/// No load beside the idle connections.
fn none() -> Mode {
    Mode::Closed { connections: 0 }
}

#[test]
fn idle_connections_ask_once_and_are_held_to_the_end() {
    let (outcome, server) = run_for(Server::new(), Plan { idle: idle(3000), ..plan(none()) });
    let held = &outcome.idle;
    assert_eq!((held.asked, held.opened, held.held(), held.faults.sum()), (3000, 3000, 3000, 0));
    // 256 are opened at a time, with a millisecond for each answer.
    assert!((MS * 12..MS * 40).contains(&held.opening), "{:?}", held.opening);
    let seen = server.seen.borrow();
    assert_eq!((seen.requests, seen.connections.len(), seen.most_open), (3000, 3000, 3000));
    assert_eq!((seen.open, seen.left), (0, 3000), "the load closes them in the end");
    assert_eq!((outcome.totals.answered, outcome.totals.connections), (0, 0));
    assert_eq!(outcome.recorded, S * 10);
}

#[test]
fn a_load_runs_beside_idle_connections_and_is_recorded_alone() {
    let plan = Plan { idle: idle(500), ..plan(open(200.0, 10)) };
    let (outcome, server) = run_for(Server::new(), plan);
    assert_eq!((outcome.totals.answered, outcome.totals.connections), (2000, 2000));
    assert_eq!((outcome.idle.held(), outcome.seconds.len()), (500, 10));
    assert!(is_near(outcome.totals.total.percentile(99.0), MS));
    let seen = server.seen.borrow();
    assert_eq!(seen.requests, 2500);
    // No other connection uses their tuples while they are held.
    assert!(seen.connections.values().all(|times| times.len() == 1));
}

#[test]
fn silent_ones_say_nothing() {
    let silent = IdlePlan { is_silent: true, ..idle(300) };
    let (outcome, server) = run_for(Server::new(), Plan { idle: silent, ..plan(none()) });
    assert_eq!((outcome.idle.held(), server.seen.borrow().requests), (300, 0));
}

#[test]
fn those_that_the_server_ends_are_lost() {
    for resets in [false, true] {
        let server = Server { patience: S * 4, resets, ..Server::new() };
        let (outcome, _) = run_for(server, Plan { idle: idle(200), ..plan(none()) });
        let held = &outcome.idle;
        assert_eq!((held.opened, held.lost, held.held()), (200, 200, 0), "resets: {resets}");
    }
    let server = Server { patience: S * 15, ..Server::new() };
    let (outcome, _) = run_for(server, Plan { idle: idle(200), ..plan(none()) });
    assert_eq!(outcome.idle.held(), 200);
}

#[test]
fn those_that_cannot_be_opened_are_counted_by_cause() {
    // The server closes after its answer: no connection can be held.
    let server = Server { most: 1, ..Server::new() };
    let (outcome, _) = run_for(server, Plan { idle: idle(5000), ..plan(none()) });
    let held = &outcome.idle;
    assert_eq!((held.opened, held.lost), (5000, 5000));
    // There are tuples for 1000 connections.
    let few = Tuples::new(sources(1), 1024..=2023, S * 61, 0);
    let timeout = S;
    let plan = Plan { idle: idle(1200), timeout, ..plan(none()) };
    let (outcome, _) = run_with(Server::new(), plan, few, std::future::pending());
    let held = &outcome.idle;
    assert_eq!((held.held(), held.faults.of(Fault::Source)), (1000, 200));
    assert!(outcome.notes.tuple_waits >= 200);
}

#[test]
fn a_failure_behind_the_handshake_gives_the_tuple_back() {
    // The first 256 are not answered in time. There are no more tuples than theirs.
    let server = Server { stall: Some([Duration::ZERO, MS * 4500]), ..Server::new() };
    let tuples = Tuples::new(sources(1), 1024..=1279, S * 2, 0);
    let plan = Plan { idle: idle(300), timeout: S * 4, ..plan(none()) };
    let (outcome, _) = run_with(server, plan, tuples, std::future::pending());
    let held = &outcome.idle;
    assert_eq!((held.held(), held.faults.of(Fault::Timeout), held.faults.sum()), (44, 256, 256));
}

#[test]
fn a_stop_while_they_are_opened_ends_the_load() {
    let plan = Plan { idle: idle(100_000), ..plan(open(200.0, 10)) };
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    let stop = async { rt::sleep(MS * 20).await };
    let (outcome, server) = run_with(Server::new(), plan, tuples, stop);
    assert!((1000..20_000).contains(&outcome.idle.opened), "{:?}", outcome.idle);
    assert_eq!((outcome.totals.answered, outcome.recorded), (0, Duration::ZERO));
    assert_eq!(server.seen.borrow().open, 0);
}
