//! An axum `Router` and hyper's client in a simulation: HTTP over every fault.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::{Request, StatusCode};
use hyper_util::service::TowerToHyperService;
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::{Timer, interval, sleep, timeout};
use lightwait_sim::{LinkConfig, Simulation, each_seed};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SECOND: Duration = Duration::from_secs(1);

/// A slow answer, as of a database.
async fn double(Path(number): Path<u64>) -> String {
    sleep(Duration::from_millis(100)).await;
    (2 * number).to_string()
}

async fn serve() -> Outcome<()> {
    let router = Router::new().route("/double/{number}", get(double));
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(router.clone());
        // The date is the system's, which no seed decides.
        let mut builder = server::Builder::new();
        builder.timer(Timer).auto_date_header(false);
        let connection = builder.serve_connection(stream, service);
        spawn_local(connection);
    }
}

async fn ask(number: u64) -> Outcome<u64> {
    let stream = TcpStream::connect("server:80").await?;
    let (mut sender, connection) = client::handshake(stream).await?;
    spawn_local(connection);
    let request = Request::get(format!("/double/{number}")).header("host", "server");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    let text = answer.into_body().collect().await?.to_bytes();
    Ok(std::str::from_utf8(&text)?.parse()?)
}

/// Asks until there is an answer. Returns how often that was.
async fn insist(number: u64) -> Outcome<u32> {
    for times in 1.. {
        if let Ok(Ok(answer)) = timeout(3 * SECOND, ask(number)).await {
            assert_eq!(answer, 2 * number);
            return Ok(times);
        }
        sleep(SECOND).await;
    }
    unreachable!("it asks for ever")
}

/// Returns how often the client asked, and a hash of every packet.
fn run(seed: u64) -> (u32, u64) {
    let mut sim = Simulation::new(seed);
    let link: LinkConfig = "delay=20ms,jitter=5ms,rate=10Mbit,loss=5%".parse().expect("a link");
    sim.set_links(&link);
    let server = sim.host("server", serve);
    let asked = Rc::new(Cell::new(0));
    let count = asked.clone();
    let client = sim.client("client", async move {
        let mut every = interval(5 * SECOND);
        for number in 0..60 {
            every.tick().await;
            count.set(count.get() + insist(number).await?);
        }
        Ok(())
    });
    sim.after(20 * SECOND, move |sim| sim.cut(client, server));
    sim.after(50 * SECOND, move |sim| sim.join(client, server));
    sim.after(90 * SECOND, move |sim| sim.restart(server));
    sim.after(120 * SECOND, move |sim| sim.pause(server));
    sim.after(140 * SECOND, move |sim| sim.resume(server));
    sim.after(180 * SECOND, move |sim| sim.crash(server));
    sim.after(200 * SECOND, move |sim| sim.restart(server));
    sim.run(Duration::from_secs(3600)).unwrap();
    (asked.get(), sim.digest())
}

#[test]
fn every_request_is_answered_whatever_happens() {
    each_seed(0..20, |seed| {
        let (asked, _) = run(seed);
        assert!(asked > 60, "seed {seed}: {asked}: some were asked in vain");
    });
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
