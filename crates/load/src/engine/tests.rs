//! Whole loads in virtual time, on our own stack: two shards joined by a wire in memory.

mod closing;
mod idle;
mod progress;
mod several;

use std::collections::HashMap;
use std::ops::RangeInclusive;

use lightwait::bridge;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::{Handle, Shard};
use lightwait_core::Instant;
use lightwait_http::client_close;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::arrivals::{Spacing, Stage};
use crate::network::OurStack;
use crate::request::Request;
use crate::sources::Sources;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const PORT: u16 = 80;

/// A server's behaviour, and the requests that it saw.
struct Server {
    /// The time that an answer takes.
    service: Duration,
    /// Connections that wait longer for a request are closed.
    patience: Duration,
    /// The server answers no request between these times.
    stall: Option<[Duration; 2]>,
    /// Requests of a connection, after which the server closes it without notice.
    most: usize,
    /// Every answer asks the client to close.
    asks: bool,
    /// The server obeys CLIENT_CLOSE without an answer; otherwise the request is an error.
    knows: bool,
    /// The server resets connections instead of closing them.
    resets: bool,
    /// The server speaks HTTP/1.0 and keeps connections.
    is_older: bool,
    /// The server announces the end, and leaves the connection open.
    stays: bool,
    /// The server ends each connection in place of an answer.
    breaks: bool,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: usize,
    /// The targets of the requests, in order.
    targets: Vec<String>,
    /// Connections by the client's address, with the time of each one's beginning.
    connections: HashMap<SocketAddr, Vec<Instant>>,
    /// Connections at a time.
    open: usize,
    most_open: usize,
    /// Connections whose client closed first.
    left: usize,
    /// CLIENT_CLOSE requests, and those whose clients had closed their half by then.
    farewells: usize,
    /// Requests that were read together.
    largest_batch: usize,
}

impl Server {
    fn new() -> Server {
        let (seen, stall, asks, resets, is_older) = Default::default();
        let most = usize::MAX;
        let patience = Duration::MAX;
        let (knows, stays, breaks, service) = (true, false, false, MS);
        Server {
            service,
            patience,
            stall,
            most,
            asks,
            knows,
            resets,
            is_older,
            stays,
            breaks,
            seen,
        }
    }

    async fn serve(self: Rc<Self>, listener: TcpListener) {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let handle = Handle::current();
            let now = handle.now();
            self.seen.borrow_mut().connections.entry(peer).or_default().push(now);
            handle.spawn_local(self.clone().serve_one(stream));
        }
    }

    async fn serve_one(self: Rc<Self>, mut stream: TcpStream) {
        {
            let mut seen = self.seen.borrow_mut();
            seen.open += 1;
            seen.most_open = seen.most_open.max(seen.open);
        }
        stream.set_nodelay(true).unwrap();
        let mut served = 0;
        'connection: loop {
            let mut text = vec![0; 64 << 10];
            let read = stream.read(&mut text);
            let Some(read) = self.patient(read).await else { break };
            let len = read.unwrap_or(0);
            if len == 0 {
                self.seen.borrow_mut().left += 1;
                break;
            }
            let text = String::from_utf8_lossy(&text[..len]).into_owned();
            let requests: Vec<&str> = text.split_terminator("\r\n\r\n").collect();
            let largest = self.seen.borrow().largest_batch.max(requests.len());
            self.seen.borrow_mut().largest_batch = largest;
            for request in requests {
                if request.starts_with(client_close::METHOD) {
                    self.on_farewell(&mut stream, request).await;
                    break 'connection;
                }
                if self.breaks {
                    break 'connection;
                }
                self.wait().await;
                {
                    let mut seen = self.seen.borrow_mut();
                    seen.requests += 1;
                    seen.targets.push(request.split(' ').nth(1).unwrap().to_owned());
                }
                let closes = request.contains("Connection: close");
                let field = match (closes, self.asks) {
                    (false, false) if self.is_older => "Connection: keep-alive\r\n",
                    (false, false) => "",
                    (true, false) => "Connection: close\r\n",
                    (false, true) => "Connection: client-close\r\n",
                    (true, true) => "Connection: close, client-close\r\n",
                };
                let body = if request.starts_with("HEAD") { "" } else { "abc" };
                let version = if self.is_older { "HTTP/1.0" } else { "HTTP/1.1" };
                let answer = format!("{version} 200 OK\r\n{field}Content-Length: 3\r\n\r\n{body}");
                let written = stream.write_all(answer.as_bytes()).await;
                served += 1;
                if closes && self.asks {
                    // Anything but the client's FIN is an error of the client.
                    assert_eq!(stream.read(&mut [0; 100]).await.unwrap_or(0), 0);
                    self.seen.borrow_mut().left += 1;
                }
                if closes && self.stays {
                    // Until the client has had enough.
                    let _ = stream.read(&mut [0; 100]).await;
                    self.seen.borrow_mut().left += 1;
                }
                if closes || served == self.most || written.is_err() {
                    break 'connection;
                }
            }
        }
        if self.resets {
            stream.set_zero_linger().unwrap();
        }
        self.seen.borrow_mut().open -= 1;
    }

    async fn on_farewell(&self, stream: &mut TcpStream, request: &str) {
        let well_formed = client_close::request("h");
        assert_eq!(format!("{request}\r\n\r\n").as_bytes(), well_formed);
        if !self.knows {
            let error = b"HTTP/1.1 501 Not Implemented\r\nConnection: close\r\n\r\n";
            stream.write_all(error).await.unwrap();
        }
        assert_eq!(stream.read(&mut [0; 100]).await.unwrap(), 0, "nothing but its FIN");
        self.seen.borrow_mut().farewells += 1;
    }

    async fn patient<F: Future>(&self, future: F) -> Option<F::Output> {
        if self.patience == Duration::MAX {
            return Some(future.await);
        }
        tokio::select! {
            output = future => Some(output),
            () = rt::sleep(self.patience) => None,
        }
    }

    async fn wait(&self) {
        rt::sleep(self.service).await;
        let now = Duration::from_nanos(Handle::current().now().as_nanos());
        if let Some([from, to]) = self.stall
            && (from..to).contains(&now)
        {
            rt::sleep(to - now).await;
        }
    }
}

fn sources(addresses: u64) -> Sources {
    Sources::new(&["100.65.0.0/16".parse().unwrap()]).unwrap().first(addresses)
}

fn request(target: &str) -> Request {
    Request::new("GET", target, "h", &[], &[]).unwrap()
}

fn plan(mode: Mode) -> Plan {
    Plan {
        to: (bridge::SERVER_ADDRESS, PORT).into(),
        mix: Mix::one(request("/")),
        mode,
        idle: IdlePlan::default(),
        requests_per_connection: NonZeroU32::new(1),
        pipeline: NonZeroU32::MIN,
        http2: None,
        close: Close::Server,
        farewell: client_close::request("h"),
        timeout: S * 10,
        warm_up: Duration::ZERO,
        duration: S * 10,
        grace: S * 10,
        stop_grace: S * 10,
    }
}

fn open(rate: f64, seconds: u32) -> Mode {
    let stage = Stage { duration: S * seconds, from: rate, to: rate };
    Mode::Open {
        arrivals: Arrivals::new(vec![stage], Spacing::Constant, 1, 1),
        connections: usize::MAX,
    }
}

/// Runs a load against that server to its end.
fn run_with(
    server: Server,
    plan: Plan,
    tuples: Tuples,
    stop: impl Future<Output = ()> + 'static,
) -> (Outcome, Rc<Server>) {
    run_late(server, plan, tuples, stop, [Instant::ZERO; 2], |_| ())
}

/// Runs `plan` on a machine that does nothing else from the first of these times to the second.
fn run_late(
    server: Server,
    plan: Plan,
    tuples: Tuples,
    stop: impl Future<Output = ()> + 'static,
    busy: [Instant; 2],
    on_progress: impl FnMut(&Progress) + 'static,
) -> (Outcome, Rc<Server>) {
    let (server_end, client_end) = bridge::wire();
    let mut shards = [
        Shard::in_made_time(bridge::server_config([1; 32]), Box::new(server_end)).unwrap(),
        Shard::in_made_time(bridge::client_config([2; 32]), Box::new(client_end)).unwrap(),
    ];
    let [at, from] = [shards[0].handle(), shards[1].handle()];
    let listener = TcpListener::bind_on(&at, (bridge::SERVER_ADDRESS, PORT)).unwrap();
    let server = Rc::new(server);
    at.spawn_local(server.clone().serve(listener));
    let outcome = Rc::new(RefCell::new(None));
    let result = outcome.clone();
    from.spawn_local(async move {
        let network = OurStack::current();
        let run = run(network, plan, tuples, stop, std::future::pending, on_progress);
        *result.borrow_mut() = Some(run.await);
    });
    let mut now = Instant::ZERO;
    let end = now + S * 600;
    loop {
        shards.iter_mut().for_each(|shard| {
            shard.turn(now);
        });
        if outcome.borrow().is_some() {
            break;
        }
        let next = shards.iter().filter_map(|shard| shard.deadline(now)).min();
        now = now.max(next.expect("something to wait for"));
        if (busy[0]..busy[1]).contains(&now) {
            now = busy[1];
        }
        assert!(now < end, "a load that does not end");
    }
    let outcome = outcome.borrow_mut().take().unwrap();
    (outcome, server)
}

fn run_for(server: Server, plan: Plan) -> (Outcome, Rc<Server>) {
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    run_with(server, plan, tuples, std::future::pending())
}

fn is_near(value: Duration, wanted: Duration) -> bool {
    value.abs_diff(wanted) <= wanted / 100
}

#[test]
fn an_open_loop_opens_a_connection_for_each_arrival() {
    let (outcome, server) = run_for(Server::new(), plan(open(200.0, 10)));
    let totals = &outcome.totals;
    assert_eq!((totals.answered, totals.failed(), totals.connections), (2000, 0, 2000));
    assert_eq!(outcome.notes.closed_by_server, 2000);
    assert_eq!(outcome.recorded, S * 10);
    assert!(is_near(totals.total.percentile(99.0), MS), "{:?}", totals.total.percentile(99.0));
    let per_second: Vec<u64> = outcome.seconds.iter().map(|second| second.answered).collect();
    assert_eq!(per_second.len(), 10);
    assert!(per_second.iter().all(|answered| (199..=201).contains(answered)), "{per_second:?}");
    assert_eq!(server.seen.borrow().requests, 2000);
}

#[test]
fn a_slow_server_shows_its_rate_and_its_backlog_is_not_recorded() {
    // One answer at a time takes 10 ms: 100 a second at most, of the 150 that are due.
    let server = Server { service: MS * 10, ..Server::new() };
    let Mode::Open { arrivals, .. } = open(150.0, 10) else { unreachable!() };
    let (outcome, _) = run_for(server, plan(Mode::Open { arrivals, connections: 1 }));
    let totals = &outcome.totals;
    assert_eq!((totals.answered, totals.faults.sum()), (1500, 0));
    assert!((990..=1000).contains(&totals.ended.answered), "{:?}", totals.ended);
    assert!(totals.ended.connections <= 1001, "{:?}", totals.ended);
    let pending: Vec<u64> = outcome.seconds.iter().map(|second| second.in_flight).collect();
    for (number, pending) in pending[..10].iter().enumerate() {
        assert!(pending.abs_diff(50 * (number as u64 + 1)) <= 3, "{number}: {pending}");
    }
}

#[test]
fn a_stall_shows_in_an_open_loop_as_often_as_it_was_due() {
    // Half of the requests in a stall of one second wait for more than half a second.
    let stall = Some([S * 4, S * 5]);
    let server = || Server { stall, ..Server::new() };
    let (outcome, _) = run_for(server(), plan(open(100.0, 10)));
    let total = &outcome.totals.total;
    assert_eq!(outcome.totals.answered, 1000);
    assert!(total.percentile(99.0) > MS * 850, "{:?}", total.percentile(99.0));
    assert!(total.percentile(94.0) > MS * 350 && total.percentile(89.0) < MS * 10);
    // On one connection at a time, working off the stall's queue takes time as well.
    let Mode::Open { arrivals, .. } = open(100.0, 10) else { unreachable!() };
    let (outcome, server) = run_for(server(), plan(Mode::Open { arrivals, connections: 1 }));
    assert_eq!((outcome.totals.answered, server.seen.borrow().most_open), (1000, 1));
    assert!(outcome.totals.total.percentile(99.0) > MS * 850);
    assert!(outcome.totals.delay.percentile(99.0) > MS * 850, "it did not even begin");
}

#[test]
fn the_same_stall_is_met_once_by_a_closed_loop() {
    let server = Server { stall: Some([S * 4, S * 5]), service: MS * 10, ..Server::new() };
    let (outcome, _) = run_for(server, plan(Mode::Closed { connections: 1 }));
    let total = &outcome.totals.total;
    assert!(is_near(total.percentile(99.8), MS * 10), "{:?}", total.percentile(99.8));
    assert!(total.percentile(100.0) > MS * 990);
}

#[test]
fn a_closed_loop_keeps_its_connections_busy_and_no_more() {
    let server = Server { service: MS * 5, ..Server::new() };
    let closed = Plan { requests_per_connection: None, ..plan(Mode::Closed { connections: 20 }) };
    let (outcome, server) = run_for(server, closed);
    let seen = server.seen.borrow();
    assert_eq!((seen.most_open, seen.connections.len()), (20, 20));
    // 20 connections with 200 requests a second each, except for the first's handshake.
    assert!((39_900..=40_020).contains(&outcome.totals.answered), "{}", outcome.totals.answered);
    assert_eq!(outcome.totals.failed(), 0);
    assert_eq!(outcome.notes.closed_by_client, 20);
}

#[test]
fn a_connection_keeps_to_its_requests_and_to_the_chosen_closer() {
    for close in [Close::Server, Close::Client, Close::Swap, Close::Negotiate, Close::ClientClose] {
        let plan = Plan {
            requests_per_connection: NonZeroU32::new(7),
            close,
            ..plan(Mode::Closed { connections: 3 })
        };
        let (outcome, server) = run_for(Server::new(), plan);
        let seen = server.seen.borrow();
        assert!(seen.requests.div_ceil(7).abs_diff(seen.connections.len()) <= 3);
        assert_eq!(outcome.totals.failed(), 0);
        let [by_server, by_client] =
            [outcome.notes.closed_by_server, outcome.notes.closed_by_client];
        let clean = |one: u64, other: u64| one > 100 && other <= 3;
        match close {
            Close::Client => assert!(clean(by_client, by_server) && seen.left > 100),
            Close::ClientClose => {
                assert!(clean(by_client, by_server) && seen.left == 0);
                assert!(seen.farewells as u64 == by_client);
                assert_eq!(outcome.notes.client_closes, by_client);
            }
            _ => assert!(clean(by_server, by_client) && seen.left <= 3 && seen.farewells == 0),
        }
    }
}

#[test]
fn a_server_that_does_not_know_client_close_takes_nothing_away() {
    let server = Server { knows: false, ..Server::new() };
    let close = Close::ClientClose;
    let (outcome, server) = run_for(server, Plan { close, ..plan(open(200.0, 10)) });
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (2000, 0));
    let notes = outcome.notes;
    assert_eq!((notes.client_closes, notes.closed_by_client), (2000, 2000));
    assert_eq!(server.seen.borrow().farewells, 2000);
}

#[test]
fn a_server_that_asks_the_load_to_close_is_obeyed() {
    // With `Connection: close` no CLIENT_CLOSE is sent; on a kept connection it is.
    for (requests, close, says_so) in [
        (NonZeroU32::new(1), Close::Server, false),
        (NonZeroU32::new(7), Close::Client, true),
        (None, Close::ClientClose, true),
    ] {
        let server = Server { asks: true, ..Server::new() };
        let plan = Plan {
            requests_per_connection: requests,
            pipeline: NonZeroU32::new(4).unwrap(),
            close,
            ..plan(Mode::Closed { connections: 3 })
        };
        let (outcome, server) = run_for(server, plan);
        let (notes, seen) = (outcome.notes, server.seen.borrow());
        assert_eq!(outcome.totals.failed(), 0);
        assert!(notes.asked > 100 && notes.obeyed == notes.asked, "{notes:?}");
        assert_eq!((notes.closed_by_client, notes.closed_by_server), (notes.asked, 0));
        let farewells = if says_so { notes.asked } else { 0 };
        assert_eq!((notes.client_closes, seen.farewells as u64), (farewells, farewells));
        // The requests sent together were answered; no further ones followed.
        let batch = if says_so { 4 } else { 1 };
        assert_eq!(seen.requests, seen.connections.len() * batch);
    }
}

#[test]
fn a_server_before_http_1_1_is_told_nothing() {
    let server = Server { is_older: true, ..Server::new() };
    let plan = Plan { close: Close::ClientClose, ..plan(open(200.0, 10)) };
    let (outcome, server) = run_for(server, plan);
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (2000, 0));
    let (notes, seen) = (outcome.notes, server.seen.borrow());
    assert_eq!((notes.client_closes, notes.closed_by_client), (0, 2000));
    assert_eq!((seen.farewells, seen.left), (0, 2000));
}

#[test]
fn a_mix_is_asked_by_weight_and_pipelined_with_heads_among_it() {
    let head = Request::new("HEAD", "/head", "h", &[], &[]).unwrap();
    let parts = vec![(1.0, request("/a")), (3.0, request("/b"))];
    let mix = Mix::weighted(parts, 5).unwrap();
    let (outcome, server) = run_for(Server::new(), Plan { mix, ..plan(open(200.0, 10)) });
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (2000, 0));
    let count =
        |target: &str| server.seen.borrow().targets.iter().filter(|asked| *asked == target).count();
    // The deviation of a binomial count of 2000 by 1/4 is 19.
    assert!(count("/a").abs_diff(500) < 80 && count("/a") + count("/b") == 2000);
    let mix = Mix::in_order(vec![request("/a"), head, request("/b")], vec![0, 1, 1, 2]);
    let plan = Plan {
        mix,
        requests_per_connection: NonZeroU32::new(8),
        pipeline: NonZeroU32::new(4).unwrap(),
        ..plan(Mode::Closed { connections: 1 })
    };
    let (outcome, server) = run_for(Server::new(), plan);
    assert!(outcome.totals.answered > 1000 && outcome.totals.failed() == 0, "{outcome:?}");
    let targets = &server.seen.borrow().targets;
    let wanted = ["/a", "/head", "/head", "/b"].iter().cycle();
    assert!(targets.iter().zip(wanted).all(|(asked, wanted)| asked == wanted), "{targets:?}");
}

#[test]
fn a_trace_is_asked_in_its_order_at_its_times() {
    let times = [0, 10, 10, 2500, 7000].map(Duration::from_millis);
    let mix = Mix::in_order(["/0", "/1", "/2"].map(request).into(), vec![2, 0, 0, 1, 2]);
    let mode = Mode::Open { arrivals: Arrivals::at(times.into()), connections: usize::MAX };
    let (outcome, server) = run_for(Server::new(), Plan { mix, ..plan(mode) });
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (5, 0));
    let per_second: Vec<u64> = outcome.seconds.iter().map(|second| second.answered).collect();
    assert_eq!(per_second, [3, 0, 1, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(server.seen.borrow().targets, ["/2", "/0", "/0", "/1", "/2"]);
}

#[test]
fn pipelined_requests_are_sent_at_once() {
    let plan = Plan {
        requests_per_connection: None,
        pipeline: NonZeroU32::new(8).unwrap(),
        ..plan(Mode::Closed { connections: 1 })
    };
    let (outcome, server) = run_for(Server::new(), plan);
    assert_eq!(server.seen.borrow().largest_batch, 8);
    // 1 ms each: the last of eight waits for all.
    assert!(is_near(outcome.totals.total.percentile(99.0), MS * 8));
    assert!((9_980..=10_010).contains(&outcome.totals.answered), "{}", outcome.totals.answered);
}

#[test]
fn a_request_that_meets_a_connection_just_closed_is_sent_again() {
    let server = Server { most: 10, ..Server::new() };
    let plan = Plan { requests_per_connection: None, ..plan(Mode::Closed { connections: 2 }) };
    let (outcome, server) = run_for(server, plan);
    assert_eq!(outcome.totals.failed(), 0);
    assert!(outcome.notes.reopened > 100, "{:?}", outcome.notes);
    assert!(server.seen.borrow().connections.len() as u64 > outcome.notes.reopened);
}

#[test]
fn no_4_tuple_comes_again_too_soon_and_the_wait_is_reported() {
    // 100 tuples and 20 s of rest allow five connections a second, where the plan asks for ten.
    for close in [Close::Server, Close::Client, Close::Swap, Close::Negotiate, Close::ClientClose] {
        let ports: RangeInclusive<u16> = 5000..=5049;
        let tuples = Tuples::new(sources(2), ports, S * 20, 0);
        let plan = Plan {
            duration: S * 100,
            timeout: S * 60,
            grace: S * 60,
            stop_grace: S * 60,
            close,
            ..plan(open(10.0, 100))
        };
        let (outcome, server) = run_with(Server::new(), plan, tuples, std::future::pending());
        let seen = server.seen.borrow();
        assert_eq!(seen.connections.len(), 100);
        for (peer, times) in &seen.connections {
            let is_rested = |one: &Instant, other: &Instant| other.since(*one) >= S * 20;
            assert!(times.is_sorted_by(is_rested), "{close:?}, {peer}: {times:?}");
        }
        assert!(outcome.notes.tuple_waits > 100, "{close:?}: {:?}", outcome.notes);
        assert_eq!(outcome.seconds[50].time_wait, 100, "{close:?}");
    }
}

#[test]
fn a_warm_up_is_in_the_seconds_and_nowhere_else() {
    let plan = Plan { warm_up: S * 5, duration: S * 3, ..plan(open(100.0, 8)) };
    let server = Server { stall: Some([S, S * 2]), ..Server::new() };
    let (outcome, _) = run_for(server, plan);
    assert_eq!((outcome.totals.answered, outcome.totals.connections), (300, 300));
    assert!(outcome.totals.total.percentile(100.0) < MS * 10);
    assert_eq!((outcome.warm_up, outcome.recorded), (S * 5, S * 3));
    assert!(outcome.seconds[1].longest > MS * 900 || outcome.seconds[2].longest > MS * 900);
    assert!((700..=800).contains(&outcome.seconds.iter().map(|s| s.answered).sum::<u64>()));
}

#[test]
fn a_load_that_is_stopped_says_what_it_has() {
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    let stop = async { rt::sleep(MS * 3500).await };
    let (outcome, _) = run_with(Server::new(), plan(open(100.0, 10)), tuples, stop);
    assert_eq!(outcome.recorded, MS * 3500);
    assert!((349..=350).contains(&outcome.totals.answered), "{}", outcome.totals.answered);
    assert_eq!(outcome.totals.failed(), 0, "those under way had their time");
}

#[test]
fn what_was_to_start_before_the_end_is_done_behind_it() {
    // Ten requests a second come, and five are served: 35 have come by the end, and half of them
    // wait for the connection.
    let Mode::Open { arrivals, .. } = open(10.0, 10) else { unreachable!() };
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    let stop = async { rt::sleep(MS * 3450).await };
    let server = Server { service: MS * 200, ..Server::new() };
    let plan = plan(Mode::Open { arrivals, connections: 1 });
    let (outcome, _) = run_with(server, plan, tuples, stop);
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (35, 0));
}

#[test]
fn what_was_to_start_in_a_turn_that_is_late_for_the_end_is_done() {
    let tuples = Tuples::new(sources(1000), 1024..=65_535, S * 61, 0);
    let busy = [9700, 10_005].map(Instant::from_millis);
    let plan = plan(open(2000.0, 10));
    let (outcome, _) = run_late(Server::new(), plan, tuples, std::future::pending(), busy, |_| ());
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (20_000, 0));
}

#[test]
fn requests_without_an_answer_are_told_by_cause() {
    // Requests of the last second are unfinished; earlier ones have timed out.
    let server = Server { stall: Some([S * 5, S * 500]), ..Server::new() };
    let late =
        Plan { timeout: S * 2, grace: MS * 950, stop_grace: MS * 950, ..plan(open(10.0, 10)) };
    let (outcome, _) = run_for(server, late);
    let faults = &outcome.totals.faults;
    assert_eq!((faults.of(Fault::Timeout), faults.of(Fault::Unfinished)), (40, 10));
    assert_eq!(outcome.totals.answered, 50);
    // That port has no listener.
    let mut refused = plan(Mode::Closed { connections: 2 });
    refused.to.set_port(81);
    let (outcome, _) = run_for(Server::new(), refused);
    let count = outcome.totals.faults.of(Fault::Refused);
    assert!((1000..=2002).contains(&count), "{count} refusals");
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (0, count));
}

#[test]
fn the_same_load_is_the_same_again() {
    let poisson = || {
        let stage = Stage { duration: S * 5, from: 10.0, to: 500.0 };
        let arrivals = Arrivals::new(vec![stage], Spacing::Poisson, 1, 7);
        let plan = plan(Mode::Open { arrivals, connections: 3 });
        run_for(Server::new(), Plan { duration: S * 5, ..plan }).0
    };
    assert_eq!(poisson(), poisson());
}

#[test]
fn a_closed_loop_pauses_after_a_connection_that_breaks() {
    for resets in [false, true] {
        let server = Server { breaks: true, resets, ..Server::new() };
        let (outcome, server) = run_for(server, plan(Mode::Closed { connections: 2 }));
        // One each 10 ms and on each connection, in 10 s.
        let failed = outcome.totals.faults.sum();
        assert!((1000..=2002).contains(&failed), "{failed} failures");
        assert!(server.seen.borrow().connections.len() <= 2002);
    }
}
