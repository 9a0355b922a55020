//! Loads over HTTP/2 against a server of the test's own, on the kernel's stack.

use std::future::pending;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

use super::*;
use crate::arrivals::{Arrivals, Spacing, Stage};
use crate::engine::{self, Close, IdlePlan, Mode, Outcome, Plan};
use crate::mix::Mix;
use crate::network::Kernel;
use crate::request::Request;
use crate::sources::Sources;
use crate::tuples::Tuples;

const S: Duration = Duration::from_secs(1);

/// What the server does, and what it saw.
struct Server {
    body: Bytes,
    /// Each answer takes this long.
    takes: Duration,
    /// Each connection says that it goes away at its request of that number.
    goes_away_at: Option<u32>,
    /// Refuses every stream.
    refuses: bool,
    /// Resets each request of that number of a connection.
    resets: Option<u32>,
    connections: Cell<u64>,
    /// Streams at a time on one connection, at most.
    most_streams: Cell<usize>,
    /// Requests on one connection, at most.
    most_requests: Cell<u32>,
    uploaded: Cell<u64>,
}

impl Server {
    fn new(body: usize) -> Server {
        Server {
            body: vec![7; body].into(),
            takes: Duration::ZERO,
            goes_away_at: None,
            refuses: false,
            resets: None,
            connections: Cell::default(),
            most_streams: Cell::default(),
            most_requests: Cell::default(),
            uploaded: Cell::default(),
        }
    }

    async fn serve(self: Rc<Self>, stream: TcpStream) {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        self.connections.set(self.connections.get() + 1);
        let streams = Rc::new(Cell::new(0));
        let mut count = 0;
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            count += 1;
            self.most_requests.set(self.most_requests.get().max(count));
            if self.goes_away_at == Some(count) {
                connection.graceful_shutdown();
            }
            if self.refuses {
                answer.send_reset(Reason::REFUSED_STREAM);
                continue;
            }
            if self.resets == Some(count) {
                answer.send_reset(Reason::INTERNAL_ERROR);
                continue;
            }
            streams.set(streams.get() + 1);
            self.most_streams.set(self.most_streams.get().max(streams.get()));
            let (server, streams) = (self.clone(), streams.clone());
            spawn_local(async move {
                let mut upload = request.into_body();
                while let Some(Ok(chunk)) = upload.data().await {
                    server.uploaded.set(server.uploaded.get() + chunk.len() as u64);
                    let _ = upload.flow_control().release_capacity(chunk.len());
                }
                if !server.takes.is_zero() {
                    tokio::time::sleep(server.takes).await;
                }
                streams.set(streams.get() - 1);
                let head = http::Response::new(());
                if let Ok(mut body) = answer.send_response(head, server.body.is_empty()) {
                    let _ = body.send_data(server.body.clone(), true);
                }
            });
        }
    }
}

fn plan(to: SocketAddr, streams: u32) -> Plan {
    let request = Request::new("GET", "/", "h", &[], &[]).unwrap();
    Plan {
        to,
        mix: Mix::one(request),
        mode: Mode::Closed { connections: 2 },
        idle: IdlePlan::default(),
        requests_per_connection: None,
        pipeline: NonZeroU32::MIN,
        http2: Some(Http2 { streams: NonZeroU32::new(streams).unwrap(), is_secured: false }),
        close: Close::Client,
        farewell: Vec::new(),
        timeout: S * 5,
        warm_up: Duration::ZERO,
        duration: S,
        grace: S * 5,
        stop_grace: S * 5,
    }
}

async fn run(server: Server, plan: impl FnOnce(SocketAddr) -> Plan) -> (Outcome, Rc<Server>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plan = plan(listener.local_addr().unwrap());
    let server = Rc::new(server);
    let serving = server.clone();
    let local = LocalSet::new();
    local.spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn_local(serving.clone().serve(stream));
        }
    });
    let sources = Sources::new(&["127.9.0.0/16".parse().unwrap()]).unwrap();
    let tuples = Tuples::new(sources, 20_000..=40_000, S * 61, u64::from(std::process::id()));
    let network = Kernel::new(false).unwrap();
    let load = engine::run(network, plan, tuples, pending(), pending, |_| ());
    let outcome = local.run_until(load).await;
    (outcome, server)
}

#[tokio::test]
async fn each_connection_has_as_many_streams_as_asked_for() {
    let server = Server { takes: S / 100, ..Server::new(100) };
    let (outcome, server) = run(server, |to| plan(to, 4)).await;
    let totals = &outcome.totals;
    assert_eq!((totals.failed(), server.most_streams.get()), (0, 4));
    assert_eq!((server.connections.get(), totals.connections), (2, 2));
    // Eight at a time, of 10 ms and more each.
    assert!((100..=800).contains(&totals.answered), "{}", totals.answered);
    assert_eq!(totals.bytes, 100 * totals.answered, "the bodies");
    assert_eq!(outcome.notes.closed_by_server, 0);
}

#[tokio::test]
async fn a_connection_carries_no_more_requests_than_it_may() {
    let three = NonZeroU32::new(3);
    let of_three = |to| Plan { requests_per_connection: three, ..plan(to, 2) };
    let (outcome, server) = run(Server::new(10), of_three).await;
    let totals = &outcome.totals;
    assert_eq!((totals.failed(), server.most_requests.get()), (0, 3));
    assert!(totals.answered > 30 && totals.connections >= totals.answered / 3, "{totals:?}");
    let notes = outcome.notes;
    assert!(notes.closed_by_client > 10 && notes.closed_by_server == 0, "{notes:?}");
}

#[tokio::test]
async fn a_server_that_goes_away_costs_no_request() {
    let server = Server { goes_away_at: Some(5), ..Server::new(10) };
    let (outcome, server) = run(server, |to| plan(to, 4)).await;
    assert!(outcome.totals.answered > 30 && server.connections.get() > 4);
    assert_eq!(outcome.totals.failed(), 0, "{:?}", outcome.totals.faults);
    assert!(outcome.notes.closed_by_server > 0, "{:?}", outcome.notes);
}

#[tokio::test]
async fn a_server_that_takes_no_request_at_all_is_told() {
    let refuses = |to| Plan { duration: S / 2, ..plan(to, 2) };
    let server = Server { refuses: true, ..Server::new(10) };
    let (outcome, _) = run(server, refuses).await;
    let (failed, reopened) = (outcome.totals.failed(), outcome.notes.reopened);
    assert!(failed > 0 && outcome.totals.answered == 0, "{failed}");
    assert!(reopened <= (outcome.notes.failed + 4) * u64::from(REPEATS_MOST), "{reopened}");
}

#[tokio::test]
async fn a_stream_that_is_reset_fails_alone() {
    let server = Server { resets: Some(3), ..Server::new(10) };
    let (outcome, server) = run(server, |to| plan(to, 1)).await;
    assert_eq!(outcome.totals.faults.of(Fault::Reset), 2, "{:?}", outcome.totals.faults);
    assert_eq!((outcome.totals.failed(), server.connections.get()), (2, 2));
    assert!(outcome.totals.answered > 30);
}

#[tokio::test]
async fn bodies_are_longer_than_the_windows() {
    let (outcome, _) = run(Server::new(3 << 20), |to| plan(to, 2)).await;
    let totals = &outcome.totals;
    assert!(totals.answered > 4 && totals.failed() == 0, "{totals:?}");
    assert_eq!(totals.bytes, totals.answered * (3 << 20));
    let post = Request::new("POST", "/", "h", &[], &vec![1; 200_000]).unwrap();
    let (outcome, server) =
        run(Server::new(0), |to| Plan { mix: Mix::one(post), ..plan(to, 2) }).await;
    assert!(outcome.totals.answered > 4 && outcome.totals.failed() == 0);
    assert!(server.uploaded.get() >= outcome.totals.answered * 200_000);
}

#[tokio::test]
async fn an_open_loop_shares_connections() {
    let stage = Stage { duration: S, from: 300.0, to: 300.0 };
    let arrivals = Arrivals::new(vec![stage], Spacing::Constant, 1, 1);
    let open = |to| Plan { mode: Mode::Open { arrivals, connections: 2 }, ..plan(to, 8) };
    let server = Server { takes: S / 100, ..Server::new(10) };
    let (outcome, server) = run(server, open).await;
    assert_eq!((outcome.totals.answered, outcome.totals.failed()), (300, 0));
    assert!(server.connections.get() <= 2 && server.most_streams.get() <= 8);
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_told() {
    let server = Server { takes: S * 60, ..Server::new(10) };
    let (outcome, _) = run(server, |to| Plan { timeout: S / 5, grace: S, ..plan(to, 2) }).await;
    assert!(outcome.totals.faults.of(Fault::Timeout) > 4, "{:?}", outcome.totals.faults);
    assert_eq!(outcome.totals.answered, 0);
}
