//! One world of `d-today`: a server, its clients, each at the end of a path of its own, and what
//! the clients see.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use lightwait::local::{Control, TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::Instant;
use lightwait_core::config::{Limits, PageSize, TcpConfig};
use lightwait_core::rng::Rng;
use lightwait_core::time::Duration;
use lightwait_sim::Side;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::plan::Failure;
use crate::plans::newreno;
use crate::plans::paths::{self, Way, client, server};
use crate::statistics::quantile;

const RATES_BITS: [f64; 2] = [1e6, 1e9];
const ROUND_TRIPS_S: [f64; 2] = [0.005, 0.3];
const LOSS: f64 = 0.0005;
const SEGMENT: u64 = 1448;
/// An answer, and how often it is a large one.
const SMALL_BYTES: u64 = 10_000;
const LARGE_BYTES: u64 = 1_000_000;
const LARGE_PART: f64 = 0.1;
/// Mean time between an answer and the next request.
const REST_S: f64 = 1.0;
/// The time of a file read, and its bytes where the buffer does not choose.
const READ_TIME: Duration = Duration::from_millis(5);
const BLOCK: u64 = 64 << 10;
/// The bytes of every file.
static CONTENT: [u8; LARGE_BYTES as usize] = [0; LARGE_BYTES as usize];
/// Bytes that a client reads at a time.
const READ_BYTES: usize = 16 << 10;
const BEGIN: Duration = Duration::from_secs(4);
const LENGTH: Duration = Duration::from_secs(8);
/// Requests that begin in the first part of the measured time are watched to its end, this long at
/// least.
pub(super) const WATCHED: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(100);

/// The load, and the server's TCP.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: usize,
    /// Bytes of the server's pool for each client.
    pub(super) pool_each: usize,
    /// The share of clients that never read.
    pub(super) stalled_part: f64,
    /// The server keeps a stream until all is acknowledged, so that its bytes are counted.
    pub(super) counts_all: bool,
    /// The pool's pages.
    pub(super) page: PageSize,
    pub(super) tcp: TcpConfig,
}

/// The results of one world.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) goodput_mbit: f64,
    /// Small answers in the measured time.
    pub(super) answers: u64,
    /// Times of the watched small requests, with the opening of their connections, in order;
    /// infinite for those without an answer.
    watched_ms: Vec<f64>,
    /// Pages in use.
    pub(super) held_mib: f64,
    /// Bytes in the send buffers: sent and not acknowledged, and not sent yet.
    pub(super) in_flight_mib: f64,
    pub(super) unsent_mib: f64,
    /// Connections that failed, other than those that never read.
    pub(super) failed: u64,
}

impl Found {
    /// Infinite where so many have no answer.
    pub(super) fn quantile_ms(&self, part: f64) -> f64 {
        quantile(&self.watched_ms, part)
    }

    /// Watched small requests without an answer at the end.
    pub(super) fn unanswered(&self) -> usize {
        self.watched_ms.iter().filter(|time| time.is_infinite()).count()
    }
}

/// The state that the tasks of a world share.
#[derive(Debug, Default)]
struct Shared {
    received: u64,
    answers: u64,
    /// Small requests that began in the watched part of the measured time.
    watched: usize,
    /// The times of those that were answered.
    watched_ms: Vec<f64>,
    failed: u64,
    looks: Looks,
    /// The server's connections, as they were accepted.
    senders: Vec<Control>,
    /// The clients' buffer.
    bytes: Vec<u8>,
}

/// Sums over the samples of the server's memory, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: u64,
    held: u64,
    in_flight: u64,
    unsent: u64,
}

impl Looks {
    fn mean_mib(self, sum: u64) -> f64 {
        sum as f64 / self.count.max(1) as f64 / f64::from(1 << 20)
    }
}

type Notes = Rc<RefCell<Shared>>;

/// A number between two, any power of ten as likely as any other.
fn between(rng: &mut Rng, [from, to]: [f64; 2]) -> f64 {
    from * (to / from).powf(rng.unit())
}

/// Runs a world. Equal seeds give equal paths and equal clients under each TCP.
pub(super) fn run(plan: &Plan, seed: u64) -> Result<Found, Failure> {
    let mut rng = Rng::from_seed(seed);
    let ways: Vec<Way> = (0..plan.clients)
        .map(|_| Way {
            rate_bits: between(&mut rng, RATES_BITS) as u64,
            round_trip: Duration::from_secs_f64(between(&mut rng, ROUND_TRIPS_S)),
            loss: LOSS,
        })
        .collect();
    let (page, bytes) = (plan.page, plan.clients * plan.pool_each);
    let limits = Limits { pages: bytes / page.bytes(), page, ..Limits::default() };
    let hosts = [(newreno(), Limits::default()), (plan.tcp.clone(), limits)];
    let mut world = paths::world(&ways, SEGMENT, hosts, seed)?;
    let notes = Notes::default();
    let listener = TcpListener::bind_with_backlog(&world.handle(Side::B), server(), 65_535)?;
    world.spawn(Side::B, accept(listener, notes.clone(), plan.counts_all));
    let from = world.now() + BEGIN;
    world.spawn(Side::B, look(from, notes.clone()));
    for number in 0..plan.clients {
        let never_reads = rng.unit() < plan.stalled_part;
        let ask = Client { number, never_reads, rng: Rng::from_seed(seed << 32 | number as u64) };
        world.spawn(Side::A, ask.run(from, notes.clone()));
    }
    world.run_for(BEGIN + LENGTH)?;
    let Shared { received, answers, watched, mut watched_ms, failed, looks, .. } = notes.take();
    watched_ms.resize(watched, f64::INFINITY);
    watched_ms.sort_by(f64::total_cmp);
    Ok(Found {
        goodput_mbit: received as f64 * 8.0 / LENGTH.as_secs_f64() / 1e6,
        answers,
        watched_ms,
        held_mib: looks.mean_mib(looks.held),
        in_flight_mib: looks.mean_mib(looks.in_flight),
        unsent_mib: looks.mean_mib(looks.unsent),
        failed,
    })
}

/// A client that sends requests one after another.
struct Client {
    number: usize,
    never_reads: bool,
    rng: Rng,
}

impl Client {
    async fn run(mut self, from: Instant, notes: Notes) {
        let mut rest = REST_S * self.rng.unit();
        for port in 10_000..u16::MAX {
            rt::sleep(Duration::from_secs_f64(rest)).await;
            rest = -REST_S * (1.0 - self.rng.unit()).ln();
            let is_large = self.never_reads || self.rng.unit() < LARGE_PART;
            let begin = Handle::current().now();
            let is_watched = !is_large && begin >= from && begin + WATCHED < from + LENGTH;
            notes.borrow_mut().watched += usize::from(is_watched);
            let got = self.ask(port, is_large, from, &notes).await;
            let (now, mut notes) = (Handle::current().now(), notes.borrow_mut());
            if now < from {
                continue;
            }
            if got.is_err() {
                notes.failed += u64::from(!self.never_reads);
            } else if !is_large {
                notes.answers += 1;
                if is_watched {
                    notes.watched_ms.push(now.since(begin).as_secs_f64() * 1000.0);
                }
            }
        }
    }

    async fn ask(&self, port: u16, is_large: bool, from: Instant, notes: &Notes) -> io::Result<()> {
        let local = SocketAddr::new(client(self.number), port);
        let mut stream = TcpStream::connect_from(&Handle::current(), local, server()).await?;
        stream.write_all(if is_large { b"L" } else { b"S" }).await?;
        if self.never_reads {
            rt::sleep(BEGIN + LENGTH).await;
        }
        let mut count = 0;
        loop {
            let read = read(&mut stream, notes).await?;
            count += read as u64;
            if Handle::current().now() >= from {
                notes.borrow_mut().received += read as u64;
            }
            let whole = if is_large { LARGE_BYTES } else { SMALL_BYTES };
            match (read, count == whole) {
                (0, true) => return Ok(()),
                (0, false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
    }
}

/// Reads into a buffer that all clients share, since nothing looks at the bytes.
async fn read(stream: &mut TcpStream, notes: &Notes) -> io::Result<usize> {
    poll_fn(|context| {
        let bytes = &mut notes.borrow_mut().bytes;
        bytes.resize(READ_BYTES, 0);
        let mut buffer = ReadBuf::new(bytes);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}

async fn accept(listener: TcpListener, notes: Notes, counts_all: bool) {
    while let Ok((stream, _)) = listener.accept().await {
        notes.borrow_mut().senders.push(stream.control());
        // A peer that is reset is not a failure of the server.
        Handle::current().spawn_local(async move { send(stream, counts_all).await.ok() });
    }
}

/// Serves like our file server: reads a block, writes it, reads the next. Data that memory is short
/// for is taken back, and read again once the peer has taken some of the rest.
async fn send(mut stream: TcpStream, counts_all: bool) -> io::Result<()> {
    let control = stream.control();
    let whole = if stream.read_u8().await? == b'L' { LARGE_BYTES } else { SMALL_BYTES };
    let mut written = 0;
    while written < whole {
        let left = whole - written;
        let size = control.read_size().map_or(BLOCK, |bytes| bytes as u64).max(SEGMENT).min(left);
        rt::sleep(READ_TIME).await;
        control.set_supply(READ_TIME, size < left);
        let end = written + size;
        while written < end {
            match write(&mut stream, &control, (end - written) as usize).await? {
                Progress::Written(bytes) => written += bytes as u64,
                Progress::TakenBack(bytes) => {
                    written -= bytes as u64;
                    let kept = control.unacknowledged_bytes();
                    poll_fn(|context| control.poll_taken(context, kept)).await;
                    break;
                }
            }
        }
    }
    stream.shutdown().await?;
    if counts_all {
        poll_fn(|context| control.poll_taken(context, 0)).await;
    }
    Ok(())
}

/// What became of a write.
enum Progress {
    Written(usize),
    TakenBack(usize),
}

/// Writes some of so many bytes, or takes back what was never sent where the stack asks for that.
async fn write(stream: &mut TcpStream, control: &Control, most: usize) -> io::Result<Progress> {
    poll_fn(|context| {
        if control.is_wanted_back() {
            return Poll::Ready(Ok(Progress::TakenBack(control.take_back(usize::MAX))));
        }
        let written = ready!(Pin::new(&mut *stream).poll_write(context, &CONTENT[..most]))?;
        Poll::Ready(Ok(Progress::Written(written)))
    })
    .await
}

/// Samples the memory in use.
async fn look(from: Instant, notes: Notes) {
    loop {
        rt::sleep(LOOK).await;
        if Handle::current().now() >= from {
            let pool = Handle::current().with_host(lightwait_core::Host::pool_info);
            let Shared { looks, senders, .. } = &mut *notes.borrow_mut();
            senders.retain(|control| control.info().is_some());
            for info in senders.iter().filter_map(Control::info) {
                looks.in_flight += u64::from(info.in_flight_bytes);
                looks.unsent += u64::from(info.unsent_bytes);
            }
            looks.held += (pool.in_use * pool.page_bytes) as u64;
            looks.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_an_answer_counts_as_the_longest() {
        let found = |unanswered: usize| Found {
            watched_ms: [vec![5.0; 100 - unanswered], vec![f64::INFINITY; unanswered]].concat(),
            ..Found::default()
        };
        assert_eq!((found(0).quantile_ms(0.99), found(0).unanswered()), (5.0, 0));
        assert_eq!((found(1).quantile_ms(0.98), found(1).unanswered()), (5.0, 1));
        assert_eq!(found(1).quantile_ms(0.99), f64::INFINITY);
    }
}
