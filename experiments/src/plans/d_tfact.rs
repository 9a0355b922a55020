//! The knowledge that a send buffer needs of a source that is slower than a round trip: T_fact. Our
//! file server reads from a disk that takes its time. The buffer learns T_fact from the read times
//! that the server measures, has it preset, or ignores it, as those of Semke, Mahdavi and Mathis do
//! (PSC): the server tells them, and their policy heeds no read times.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use lightwait::local::TcpStream;
use lightwait::shard::Handle;
use lightwait_core::config::{Limits, PoolPolicy, SendRule};
use lightwait_core::time::Duration;
use lightwait_http::{Files, FilesConfig, Server, ServerConfig};
use lightwait_sim::disk::Disk;
use lightwait_sim::{Side, web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::paths::{self, Way, client, server};
use crate::plans::transfers::{self, SEGMENT};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const SEEDS: u64 = 50;
/// Read times, in round trips.
const READ_TIMES: [f64; 7] = [0.2, 0.5, 0.8, 1.5, 2.0, 3.0, 4.0];
const ROUND_TRIP: Duration = Duration::from_millis(150);
const WAY: Way = Way { rate_bits: 1_000_000, round_trip: ROUND_TRIP, loss: 0.005 };
const BYTES: u64 = 1000 * SEGMENT;
/// The limit of a download.
const END: Duration = Duration::from_secs(600);

/// How the buffer gets T_fact.
#[derive(Clone, Copy, Debug)]
enum Factor {
    Measured,
    Preset(u8),
    /// By the policy of Semke, Mahdavi and Mathis, which ignores it.
    Psc,
}

const WAYS: [(Factor, &str); 3] =
    [(Factor::Measured, "measured"), (Factor::Preset(2), "preset to 2"), (Factor::Psc, "PSC")];
const MEASURED: usize = 0;
const PRESET: usize = 1;
const NONE: usize = 2;

const UNMEASURED: Ablation =
    Ablation { name: "unmeasured", instead: "where T_fact is measured, PSC ignores it" };
const LARGE: Ablation = Ablation { name: "large-presets", instead: "every preset of T_fact is 8" };
const LONG: Ablation = Ablation {
    name: "long-reads",
    instead: "a read takes three round trips more than the row says",
};

/// A download.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// From the request to the last byte.
    seconds: f64,
    misses: u64,
}

/// The downloads of one read time and one way, by seed.
struct Point(Vec<Found>);

impl Point {
    fn seconds(&self) -> Mean {
        Mean::of(self.0.iter().map(|found| found.seconds))
    }

    fn misses(&self) -> Mean {
        Mean::of(self.0.iter().map(|found| found.misses as f64))
    }

    /// How many times as long it takes as another, of downloads of the same seed.
    fn times(&self, other: &Point) -> Mean {
        Mean::of_pairs(&self.0, &other.0, |ours, theirs| ours.seconds / theirs.seconds)
    }
}

fn download(read_time: Duration, factor: Factor, seed: u64) -> Result<Found, Failure> {
    let tcp = transfers::tcp().with(|tcp| {
        tcp.buffers.send_size = SendRule::Los;
        match factor {
            Factor::Measured => {}
            Factor::Preset(factor) => tcp.buffers.send_factor = factor,
            Factor::Psc => tcp.pool.policy = PoolPolicy::Psc,
        }
    });
    let hosts = [(transfers::tcp(), Limits::default()), (tcp, Limits::default())];
    let mut world = paths::world(&[WAY], SEGMENT, hosts, seed)?;
    let clock = web::clock(&world, Side::B);
    let memory = web::memory(&world, Side::B);
    let disk = Disk::new(&[("file", BYTES, 1)], read_time, u64::MAX).with_many_arms();
    let files = Files::new(disk, FilesConfig::default(), clock.clone()).with_memory(memory.clone());
    let files = Rc::new(Server::new(files, ServerConfig::default(), clock).with_memory(memory));
    match factor {
        Factor::Measured | Factor::Psc => web::serve(&world, Side::B, server(), &files)?,
        Factor::Preset(_) => web::serve_without_read_times(&world, Side::B, server(), &files)?,
    }
    let (seconds, note) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(None)));
    let (taken, failure) = (seconds.clone(), note.clone());
    let client = world.spawn(Side::A, async move {
        match get().await {
            Ok(seconds) => taken.set(Some(seconds)),
            Err(error) => failure.set(Some(error)),
        }
    });
    world.run_until(END, |_| client.is_finished())?;
    let misses = world.host(Side::B, |host| host.counters().buffer_misses);
    if let Some(error) = note.take() {
        return Err(error.into());
    }
    Ok(Found { seconds: seconds.take().ok_or("no download")?, misses })
}

/// Requests the file, and returns the seconds until its last byte.
async fn get() -> io::Result<f64> {
    let local = SocketAddr::new(client(0), 10_000);
    let mut stream = TcpStream::connect_from(&Handle::current(), local, server()).await?;
    let begin = Handle::current().now();
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
    if !answer.starts_with(b"HTTP/1.1 200 ") || (answer.len() - head) as u64 != BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Handle::current().now().since(begin).as_secs_f64())
}

fn point(read_time: f64, factor: Factor, seeds: Range<u64>) -> Result<Point, Failure> {
    let read_time = Duration::from_secs_f64(ROUND_TRIP.as_secs_f64() * read_time);
    Ok(Point(seeds.map(|seed| download(read_time, factor, seed)).collect::<Result<_, _>>()?))
}

/// The ways to get T_fact, or others in their place.
fn factors(report: &Report) -> [Factor; WAYS.len()] {
    let mut factors = WAYS.map(|(factor, _)| factor);
    if report.is_ablated(&UNMEASURED) {
        factors[MEASURED] = Factor::Psc;
    }
    if report.is_ablated(&LARGE) {
        factors[PRESET..].fill(Factor::Preset(8));
    }
    factors
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    report.say(
        "500 KB by our HTTP server, in segments of 512 B over 1 Mbit/s and 150 ms, 0.5 % of them \
         lost.\nThe file is opened and first read in a read time each.",
    );
    let ways = factors(report);
    let more = if report.is_ablated(&LONG) { 3.0 } else { 0.0 };
    let points = parallel::map(READ_TIMES.len() * WAYS.len(), |number| {
        let read_time = READ_TIMES[number / WAYS.len()] + more;
        point(read_time, ways[number % WAYS.len()], seeds.clone())
    })?;
    let grid: Vec<&[Point]> = points.chunks(WAYS.len()).collect();
    let mut table = Table::new(&["read time, RTT", "T_fact", "seconds", "misses"]);
    for (read_time, row) in READ_TIMES.iter().zip(&grid) {
        for ((_, name), point) in WAYS.iter().zip(*row) {
            table.row(&[read_time, name, &point.seconds(), &point.misses()]);
        }
    }
    report.table("read_times", &table)?;
    let mut chart = Chart::new("500 KB from a slow source", "read time, round trips", "seconds");
    for (number, (_, name)) in WAYS.iter().enumerate() {
        let line = READ_TIMES.iter().zip(&grid).map(|(at, row)| (*at, row[number].seconds()));
        chart.draw_means(name, Mark::Line, line);
    }
    let of = |way: usize| grid.iter().map(move |row| &row[way]);
    let most = of(MEASURED).map(|point| point.misses().mean).fold(0.0, f64::max);
    // Before an RTT is known, the first reads use the preset.
    report.claim(
        "with T_fact measured hardly a miss but for the first reads, whose RTT is not known",
        &UNMEASURED,
        most < 3.0,
        format!("{most:.2} a transfer at most"),
    );
    let slow = |row: &[Point], way: usize| row[way].times(&row[MEASURED]);
    let from = |least: f64| {
        let rows = READ_TIMES.iter().zip(&grid).filter(move |(at, _)| **at >= least);
        rows.map(|(_, row)| slow(row, NONE))
    };
    let list = |least| from(least).map(|times| times.to_string()).collect::<Vec<_>>().join(", ");
    let last = grid[grid.len() - 1];
    // A tenth of the seeds gives wide intervals, so the quick form compares means.
    let is_quick = report.is_quick();
    let beyond = |times: Mean, bound| if is_quick { times.mean } else { times.least() } > bound;
    report.claim(
        "without it much time is lost where a read takes two round trips and more",
        &LARGE,
        from(2.0).all(|times| beyond(times, 1.1)),
        list(2.0) + " times as long",
    );
    report.observe(
        "and some already where it takes one and a half",
        from(1.5).all(|times| beyond(times, 1.0)),
        list(1.5) + " times as long",
    );
    report.claim(
        "and none where it is shorter",
        &LONG,
        (0..3).all(|at| slow(grid[at], NONE).mean < 1.02),
        format!("at 0.8 round trips {:.3} times", slow(grid[2], NONE)),
    );
    report.claim(
        "a preset of 2 is enough for two round trips, and not for four",
        &LARGE,
        slow(grid[4], PRESET).mean < 1.02 && slow(last, PRESET).least() > 1.05,
        format!("{:.3} and {:.2} times as long", slow(grid[4], PRESET), slow(last, PRESET)),
    );
    report.picture("read_times", &chart)
}
