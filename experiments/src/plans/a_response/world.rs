//! One world of the experiment: our HTTP server at B, clients at A, and the measurements.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use lightwait::local::TcpStream;
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_bench::sample::median;
use lightwait_core::config::{LossDetection, TcpConfig};
use lightwait_core::time::Duration;
use lightwait_http::{Files, FilesConfig, Server, ServerConfig};
use lightwait_netem::{LinkConfig, Loss, QueueLimit, Rate};
use lightwait_sim::disk::Disk;
use lightwait_sim::{Side, World, web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::network::{server, shared, watched};
use crate::plan::Failure;
use crate::plans::newreno;
use crate::plans::repeats::Repeats;
use crate::statistics::quantile;

/// The delay of one direction.
const DELAY: Duration = Duration::from_millis(30);
/// The queue holds half a round trip's data, so that the RTT varies with the load.
pub(super) const RATE_BITS: u64 = 4_000_000;
const QUEUE_BYTES: usize = 15_000;
/// Clients; each makes a new request after its answer and a rest.
pub(super) const CLIENTS: usize = 8;
pub(super) const LENGTH: Duration = Duration::from_secs(60);
/// A retransmission this late is the timer's.
const TIMED_OUT_MS: f64 = 150.0;

/// A client's behaviour, which it repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    /// Bytes of the requested file.
    pub(super) file_bytes: u64,
    /// Answers on one connection; after a single one the server closes it.
    pub(super) answers: u32,
    /// The rest after each answer.
    pub(super) rest: Duration,
    /// Segments that the client acknowledges at once when a connection begins.
    pub(super) quick_acks: u8,
}

/// The results of one world, or of all seeds.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    file_bytes: u64,
    response_ms: Vec<f64>,
    pub(super) timeouts: u64,
    /// The waiting times of segments that the timer sent again.
    timeout_ms: Vec<f64>,
    /// Segments sent again although the client had all their data.
    pub(super) repeated: u64,
    /// Repeated segments whose acknowledgement was not lost, but on its way or not sent yet.
    pub(super) spurious: u64,
    /// Repeated segments whose acknowledgement was lost.
    pub(super) unanswered: u64,
    /// Repeated segments that could not be acknowledged, since data before them was missing.
    pub(super) held: u64,
    pub(super) retransmits: u64,
    /// Bits on the server's link, as a part of its capacity.
    carried: f64,
    seconds: f64,
}

impl Found {
    /// The results of all of these.
    pub(super) fn of_all(parts: &[Found]) -> Found {
        let mut all = Found::default();
        for part in parts {
            all.file_bytes = part.file_bytes;
            all.response_ms.extend(&part.response_ms);
            all.timeout_ms.extend(&part.timeout_ms);
            all.timeouts += part.timeouts;
            all.repeated += part.repeated;
            all.spurious += part.spurious;
            all.unanswered += part.unanswered;
            all.held += part.held;
            all.retransmits += part.retransmits;
            all.carried += part.carried;
            all.seconds += part.seconds;
        }
        all
    }

    pub(super) fn answers(&self) -> usize {
        self.response_ms.len()
    }

    pub(super) fn median_ms(&self) -> f64 {
        median(&mut self.response_ms.clone())
    }

    pub(super) fn median_timeout_ms(&self) -> f64 {
        median(&mut self.timeout_ms.clone())
    }

    pub(super) fn mean_ms(&self) -> f64 {
        self.response_ms.iter().sum::<f64>() / self.answers().max(1) as f64
    }

    pub(super) fn quantile_ms(&self, part: f64) -> f64 {
        let mut sorted = self.response_ms.clone();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, part)
    }

    pub(super) fn throughput_kbits(&self) -> f64 {
        (self.answers() as u64 * self.file_bytes * 8) as f64 / self.seconds / 1000.0
    }

    pub(super) fn per_thousand(&self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.answers().max(1) as f64
    }

    pub(super) fn utilisation_percent(&self) -> f64 {
        self.carried * 100.0 / (self.seconds * RATE_BITS as f64)
    }
}

/// Runs one world with the given TCP configuration at the server.
pub(super) fn run_world(
    workload: &Workload,
    tcp: TcpConfig,
    (loss, seed): (f64, u64),
) -> Result<Found, Failure> {
    let link = |seed| LinkConfig {
        rate: Rate::BitsPerSecond(RATE_BITS),
        delay: DELAY,
        queue: QueueLimit::Bytes(QUEUE_BYTES),
        loss: Loss::Uniform(loss),
        seed,
        ..LinkConfig::default()
    };
    let client = newreno().with(|tcp| {
        tcp.ack.quick = workload.quick_acks;
        // A request that is lost waits for its timeout, too, and not for a loss probe.
        tcp.congestion.detection = LossDetection::Count;
    });
    let repeats = shared(Repeats::default());
    let seen = repeats.clone();
    let links = [link(seed * 2 + 1), link(seed * 2 + 2)];
    let mut world = watched(links, &[client, tcp], move |passage, segment| {
        seen.borrow_mut().on_passage(passage, segment);
    })?;
    serve(&world, workload.file_bytes)?;
    let times = shared(Vec::new());
    for _ in 0..CLIENTS {
        world.spawn(Side::A, ask_for_ever(*workload, times.clone()));
    }
    world.run_for(LENGTH)?;
    let server = world.host(Side::B, |host| *host.counters());
    let (repeats, response_ms) = (repeats.borrow(), times.take());
    let sent_again_ms = repeats.sent_again_ms.iter().copied();
    Ok(Found {
        file_bytes: workload.file_bytes,
        response_ms,
        timeouts: server.timeouts,
        timeout_ms: sent_again_ms.filter(|ms| *ms > TIMED_OUT_MS).collect(),
        repeated: repeats.repeated,
        spurious: repeats.spurious,
        unanswered: repeats.unanswered,
        held: repeats.held,
        retransmits: server.retransmits,
        carried: world.cable().link_from(Side::B).counters().pushed_bytes as f64 * 8.0,
        seconds: LENGTH.as_secs_f64(),
    })
}

/// Our HTTP server, unmodified; its disk takes no time.
fn serve(world: &World, file_bytes: u64) -> Result<(), Failure> {
    let clock = web::clock(world, Side::B);
    let disk = Disk::new(&[("file", file_bytes, 1)], Duration::ZERO, u64::MAX);
    // Without a cache, every request reads the disk.
    let uncached = FilesConfig { cache_age: std::time::Duration::ZERO, ..FilesConfig::default() };
    let files = Files::new(disk, uncached, clock.clone());
    let files = Rc::new(Server::new(files, ServerConfig::default(), clock));
    Ok(web::serve(world, Side::B, server(), &files)?)
}

/// Makes requests on one connection after the other.
async fn ask_for_ever(workload: Workload, times: Rc<RefCell<Vec<f64>>>) {
    loop {
        // A failed connection ends like any other: the next one begins.
        let _ = converse(&workload, &times).await;
    }
}

/// Uses one connection; the first answer's time includes opening it.
async fn converse(workload: &Workload, times: &RefCell<Vec<f64>>) -> io::Result<()> {
    let mut begin = Handle::current().now();
    let mut stream = TcpStream::connect(server()).await?;
    for _ in 0..workload.answers {
        if workload.answers == 1 {
            ask_once(&mut stream, workload.file_bytes).await?;
        } else {
            ask(&mut stream, workload.file_bytes).await?;
        }
        let took = Handle::current().now().since(begin);
        times.borrow_mut().push(took.as_secs_f64() * 1000.0);
        rt::sleep(workload.rest).await;
        begin = Handle::current().now();
    }
    Ok(())
}

/// Makes a request, and reads until the server closes.
async fn ask_once(stream: &mut TcpStream, file_bytes: u64) -> io::Result<()> {
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.len() as u64 > file_bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Makes a request, and reads one answer, head and body.
async fn ask(stream: &mut TcpStream, file_bytes: u64) -> io::Result<()> {
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\n\r\n").await?;
    let mut answer = Vec::new();
    loop {
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
        if head.is_some_and(|head| (answer.len() - head - 4) as u64 >= file_bytes) {
            return Ok(());
        }
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
