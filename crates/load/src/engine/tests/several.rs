//! Connections that carry several requests, in an open loop with few tuples.

use super::*;

/// 500 requests a second for 5 s, on connections that are kept.
fn kept() -> Plan {
    Plan { duration: S * 5, requests_per_connection: None, ..plan(open(500.0, 5)) }
}

fn tuples(count: u16) -> Tuples {
    Tuples::new(sources(1), 5000..=4999 + count, S * 65, 0)
}

#[test]
fn what_a_stall_leaves_is_served_by_open_connections() {
    let server = Server { stall: Some([S * 2, S * 3]), ..Server::new() };
    let (outcome, server) = run_with(server, kept(), tuples(10), std::future::pending());
    let totals = &outcome.totals;
    assert_eq!((totals.answered, totals.failed(), totals.connections), (2500, 0, 10));
    assert_eq!(outcome.notes.tuple_waits, 0);
    let longest = totals.total.percentile(100.0);
    assert!((MS * 990..MS * 1300).contains(&longest), "{longest:?}");
    assert_eq!(server.seen.borrow().most_open, 10);
}

#[test]
fn connections_of_many_requests_serve_what_a_stall_leaves() {
    let server = Server { stall: Some([S * 2, S * 3]), ..Server::new() };
    let many = Plan { requests_per_connection: NonZeroU32::new(100), ..kept() };
    let (outcome, server) = run_with(server, many, tuples(40), std::future::pending());
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (2500, 0));
    assert!(server.seen.borrow().most_open <= 40);
}

#[test]
fn requests_wait_for_a_tuple_where_no_connection_is_left() {
    let server = Server { most: 20, ..Server::new() };
    let (outcome, _) = run_with(server, kept(), tuples(10), std::future::pending());
    let totals = &outcome.totals;
    assert_eq!((totals.answered, totals.connections), (200, 10));
    assert_eq!(totals.faults.sum(), 2300, "{:?}", totals.faults);
    assert!(outcome.notes.tuple_waits > 0);
}
