//! Holds idle connections to an echo server over a wire in memory, with both ends in this process,
//! and reports the memory that they take.
//!
//! `cargo run --release -p lightwait-load --example idle -- 1000000`
//!
//! With `serve TAP ADDRESS/BITS` instead of the number, it is only the echo server, on a TAP, for
//! `lightwait load http://ADDRESS:7/ --idle N --idle-silent`.

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use lightwait::Stack;
use lightwait::bridge;
use lightwait::driver::{self, Stop};
use lightwait::local::{TcpListener, TcpStream};
use lightwait::shard::{Handle, Shard};
use lightwait::stack::secret;
use lightwait_load::engine::{self, Close, IdlePlan, Mode, Outcome, Plan, Progress};
use lightwait_load::mix::Mix;
use lightwait_load::network::OurStack;
use lightwait_load::request::Request;
use lightwait_load::sources::Sources;
use lightwait_load::tuples::Tuples;

const PORT: u16 = 7;
const BACKLOG: usize = 1 << 12;
const PORTS: std::ops::RangeInclusive<u16> = 1024..=65_535;
/// The time for which the connections are held.
const HELD: Duration = Duration::from_secs(5);

/// The buffer for every connection's reads.
type Buffer = Rc<RefCell<Vec<u8>>>;

async fn serve(listener: TcpListener) -> io::Result<()> {
    let buffer = Buffer::new(RefCell::new(vec![0; 64 << 10]));
    loop {
        let (stream, _) = listener.accept().await?;
        Handle::current().spawn_local(echo(stream, buffer.clone()));
    }
}

/// Keeps no memory for a silent connection except the connection.
async fn echo(stream: TcpStream, buffer: Buffer) {
    while stream.readable().await.is_ok() {
        match echo_some(&stream, &buffer) {
            Ok(ControlFlow::Continue(())) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(ControlFlow::Break(())) | Err(_) => return,
        }
    }
}

fn echo_some(stream: &TcpStream, buffer: &Buffer) -> io::Result<ControlFlow<()>> {
    let mut buffer = buffer.borrow_mut();
    let len = stream.try_read(&mut buffer)?;
    // If the data does not fit an empty send buffer, the peer does not read.
    let is_whole = len > 0 && stream.try_write(&buffer[..len])? == len;
    Ok(if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
}

fn plan(connections: usize) -> Plan {
    let request = Request::new("GET", "/", "echo", &[], &[]).expect("a request");
    Plan {
        to: SocketAddr::from((bridge::SERVER_ADDRESS, PORT)),
        mix: Mix::one(request),
        mode: Mode::Closed { connections: 0 },
        idle: IdlePlan { connections, is_silent: true },
        requests_per_connection: None,
        pipeline: std::num::NonZeroU32::MIN,
        http2: None,
        close: Close::Client,
        farewell: Vec::new(),
        timeout: Duration::from_secs(10),
        warm_up: Duration::ZERO,
        duration: HELD,
        grace: Duration::ZERO,
        stop_grace: Duration::ZERO,
    }
}

/// A line of `/proc/self/status`, in bytes.
fn memory(key: &str) -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(key));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes << 10).ok_or_else(|| io::Error::other("no such line"))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => hold(1_000_000),
        ["serve", tap, address] => {
            let stack = Stack::tap(tap, address)?;
            let at = SocketAddr::from((stack.address(), PORT));
            let listener = TcpListener::bind_with_backlog(&stack.handle(), at, BACKLOG)?;
            lightwait::run([stack], serve(listener))?
        }
        [count] => hold(count.parse().map_err(io::Error::other)?),
        _ => Err(io::Error::other("give a number of connections, or serve TAP ADDRESS/BITS")),
    }
}

fn hold(count: usize) -> io::Result<()> {
    let before = memory("VmRSS:")?;
    let (server_end, client_end) = bridge::wire();
    let server = Shard::new(bridge::server_config(secret()?), Box::new(server_end))?;
    let client = Shard::new(bridge::client_config(secret()?), Box::new(client_end))?;
    let at = SocketAddr::from((bridge::SERVER_ADDRESS, PORT));
    let listener = TcpListener::bind_with_backlog(&server.handle(), at, BACKLOG)?;
    server.handle().spawn_local(async move {
        serve(listener).await.expect("the listener stays");
    });
    let sources = Sources::new(&[bridge::client_range()]).map_err(io::Error::other)?;
    let addresses = (count as u64).div_ceil(PORTS.len() as u64);
    let tuples = Tuples::new(sources.first(addresses), PORTS, Duration::from_secs(65), 0);
    let (stop, result) = (Stop::new(), Rc::new(RefCell::new(None)));
    client.handle().spawn_local({
        let (stop, result) = (stop.clone(), result.clone());
        async move {
            let most = Rc::new(Cell::new(0));
            let seen = most.clone();
            let on_progress = move |progress: &Progress| match progress {
                Progress::Opening { open, of } => eprintln!("{open} of {of} are open"),
                Progress::Second(_) => {
                    let now = memory("VmRSS:").unwrap_or(0);
                    seen.set(now.max(seen.get()));
                }
                Progress::Recording(_) | Progress::Recorded(_) => {}
            };
            let load = engine::run(
                OurStack::current(),
                plan(count),
                tuples,
                pending(),
                pending,
                on_progress,
            );
            let outcome = load.await;
            *result.borrow_mut() = Some((outcome, most.get()));
            stop.set();
        }
    });
    driver::run(&mut [server, client], &stop, driver::SPIN)?;
    let (outcome, most): (Outcome, u64) =
        result.borrow_mut().take().expect("set before the switch");
    let held = outcome.idle.held();
    let (taken, peak) = (most - before, memory("VmHWM:")?);
    println!(
        "{held} of {count} connections held for {} s, opened in {:.1} s, {} bytes each at both \
         ends together; {} MiB resident, at the most {} MiB",
        HELD.as_secs(),
        outcome.idle.opening.as_secs_f64(),
        taken / held.max(1),
        most >> 20,
        peak >> 20,
    );
    if held == count as u64 { Ok(()) } else { Err(io::Error::other("some were not held")) }
}
