//! A client that asks again, while its network is cut, its server stalls and loses power: what TCP
//! makes of it, which a simulation of sockets alone does not show.
//!
//! `cargo run --release -p lightwait-sim --example retries`

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::{measure, sleep, timeout};
use lightwait_core::Host;
use lightwait_sim::{HostId, LinkConfig, Simulation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers each request, a byte, with as many bytes as a window takes, sixteen times over.
const ANSWER: usize = 16 << 16;

type Outcome<T> = Result<T, Box<dyn Error>>;

// ---- The program. It runs as it is on a TAP, too.

async fn serve() -> Outcome<()> {
    let listener = TcpListener::bind("0.0.0.0:7").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        spawn_local(async move {
            while stream.read_u8().await.is_ok() {
                stream.write_all(&vec![7; ANSWER]).await?;
            }
            io::Result::Ok(())
        });
    }
}

/// One request. With `stall` the client stops reading for a while in the middle of the answer.
async fn request(stall: Duration) -> io::Result<()> {
    let mut stream = TcpStream::connect("server:7").await?;
    stream.write_u8(1).await?;
    let mut answer = vec![0; ANSWER];
    stream.read_exact(&mut answer[..1]).await?;
    sleep(stall).await;
    stream.read_exact(&mut answer[1..]).await?;
    Ok(())
}

/// Asks until there is an answer. Returns how each try ended, and how long all of them took.
async fn insist(stall: Duration) -> (Vec<String>, Duration) {
    let (begin, mut tries) = (measure(), Vec::new());
    loop {
        let told = match timeout(PATIENCE + 2 * stall, request(stall)).await {
            Ok(Ok(())) => "answered".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        let is_answered = told == "answered";
        tries.push(told);
        if is_answered {
            return (tries, measure() - begin);
        }
        sleep(SECOND).await;
    }
}

// ---- What happens to it.

/// A fault, the client's stall in it, and how often it has to ask.
type Case = (&'static str, Duration, usize, fn(&mut Simulation, HostId, HostId));

const CASES: [Case; 6] = [
    ("nothing", Duration::ZERO, 1, |_, _, _| ()),
    ("the first SYN is lost", Duration::ZERO, 1, |sim, client, server| {
        sim.cut(client, server);
        sim.after(SECOND / 2, move |sim| sim.join(client, server));
    }),
    ("a cut of 20 s", Duration::ZERO, 4, |sim, client, server| {
        sim.cut(client, server);
        sim.after(20 * SECOND, move |sim| sim.join(client, server));
    }),
    ("the server loses power under way", Duration::ZERO, 2, |sim, _, server| {
        sim.after(SECOND / 10, move |sim| sim.crash(server));
        sim.after(3 * SECOND, move |sim| sim.restart(server));
    }),
    ("the server is stopped for 4 s", Duration::ZERO, 1, |sim, _, server| {
        sim.after(SECOND / 10, move |sim| sim.pause(server));
        sim.after(4 * SECOND, move |sim| sim.resume(server));
    }),
    (
        "the window closes, and its update is lost",
        Duration::from_secs(10),
        1,
        |sim, client, server| {
            sim.after(9 * SECOND, move |sim| sim.cut_one_way(client, server));
            sim.after(12 * SECOND, move |sim| sim.join(client, server));
        },
    ),
];

fn main() -> Outcome<()> {
    for (name, stall, expected, fault) in CASES {
        let mut sim = Simulation::new(1);
        let link: LinkConfig = "delay=20ms,rate=100Mbit".parse()?;
        sim.set_links(&link);
        let server = sim.host("server", serve);
        let told = Rc::new(RefCell::new(None));
        let tell = told.clone();
        let client = sim.client("client", async move {
            *tell.borrow_mut() = Some(insist(stall).await);
            Ok(())
        });
        fault(&mut sim, client, server);
        sim.run(Duration::from_secs(600))?;
        let (tries, took) = told.take().expect("the client has ended");
        sim.run_for(SECOND)?;
        let waiting = sim.look(client, Host::time_wait_len).unwrap_or(0);
        assert_eq!((tries.len(), waiting), (expected, 1), "{name}: {tries:?}");
        println!("{name}: {} in {took:.1?}; TIME-WAIT records: {waiting}", tries.join(", "));
    }
    Ok(())
}
