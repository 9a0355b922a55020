//! Fig. 10: a trace of many files at a server whose memory TIME-WAIT and the cache of files share.
//! Our HTTP server runs with its own cache, on whole hosts, in virtual time. Only the state that
//! TIME-WAIT keeps of a connection differs: whole control blocks, or records.
//!
//! The paper's trace (three days of Rice's computer science department: over 3000 files, 87 MB) is
//! not public. In its place there are 3072 files of 87 MB in all, with log-normal lengths,
//! requested by Zipf's law without regard to length. We chose the other parameters that the paper
//! does not give: a seek of 5 ms for each operation of the disk, and 10 MB/s; clients that together
//! make 834 requests a second if nothing is read from the disk, the paper's rate for one cached
//! file; and the memory, which is swept. The engine finds the number of connections in TIME-WAIT.
//! Each counts with the bytes that the allocator counts for it, and the cache of files gets the
//! rest, again and again.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lightwait::local::TcpStream;
use lightwait::shard::Handle;
use lightwait_bench::memory::{self, State};
use lightwait_bench::stacks::{Ip, Variant, Which};
use lightwait_core::Host;
use lightwait_core::config::{Limits, Scheme, TimeWaitState};
use lightwait_core::rng::Rng;
use lightwait_http::{Files, FilesConfig, Server, ServerConfig};
use lightwait_sim::disk::Disk;
use lightwait_sim::{Side, World, web};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::newreno;
use crate::plans::paths::{self, Way, client, server};
use crate::report::{Report, Table};

const FILES: usize = 3072;
const TOTAL_BYTES: u64 = 87_000_000;
/// Deviation of the logarithm of a length: two thirds of the lengths lie between a sixth and six
/// times the median.
const DEVIATION: f64 = 1.8;
const LONGEST_BYTES: u64 = 2_000_000;
/// The exponent of Zipf's law.
const EXPONENT: f64 = 0.9;
const SEEK: Duration = Duration::from_millis(5);
const DISK_BYTES_PER_SECOND: u64 = 10_000_000;
const CLIENTS: usize = 64;
const RATE_BITS: u64 = 100_000_000;
const ROUND_TRIP: Duration = Duration::from_micros(31_200);
const SEGMENT: u64 = 1448;
/// The paper's rate for one cached file (Fig. 7, new).
const PAPER_CACHED: f64 = 834.0;
/// The time before measuring, in which TIME-WAITs gather and the cache fills.
const WARM_UP: Duration = Duration::from_secs(100);
const MEASURED: Duration = Duration::from_secs(60);
/// The age of the files: thirty years.
const FILES_AGE: Duration = Duration::from_secs(30 * 365 * 86_400);
/// The interval at which the cache gets the memory that TIME-WAIT leaves.
const LOOK: Duration = Duration::from_millis(500);
/// Memory for TIME-WAIT and files together.
const MEMORIES_MB: [u64; 5] = [20, 35, 50, 70, 100];
const SEEDS: u64 = 2;
const QUICK_SEEDS: u64 = 1;

const WHOLE: Ablation =
    Ablation { name: "whole", instead: "whole blocks are kept where records were" };

/// The state that is kept of a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug)]
struct Kept {
    name: &'static str,
    state: TimeWaitState,
    /// Bytes of one connection, all in.
    bytes: f64,
}

/// The result of a world.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    rate: f64,
    /// Connections in TIME-WAIT at the end, when there are most.
    time_wait: f64,
    cached_bytes: f64,
    hit_part: f64,
    failed: u64,
}

/// Requests for files by Zipf's law.
#[derive(Clone)]
struct Popular(Rc<[f64]>);

impl Popular {
    fn new() -> Popular {
        let mut sum = 0.0;
        let mut upto = |rank: usize| {
            sum += (rank as f64).powf(-EXPONENT);
            sum
        };
        Popular((1..=FILES).map(&mut upto).collect())
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.unit() * self.0[FILES - 1];
        self.0.partition_point(|upto| *upto < at).min(FILES - 1)
    }
}

/// Lengths of the files, in order of their popularity.
fn lengths(seed: u64) -> Vec<u64> {
    let mut rng = Rng::from_seed(seed);
    let mut normal = || {
        let (one, other) = (1.0 - rng.unit(), rng.unit());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    };
    let shapes: Vec<f64> = (0..FILES).map(|_| (DEVIATION * normal()).exp()).collect();
    let scale = TOTAL_BYTES as f64 / shapes.iter().sum::<f64>();
    let length = |shape: &f64| ((shape * scale) as u64).clamp(100, LONGEST_BYTES);
    shapes.iter().map(length).collect()
}

fn name(rank: usize) -> String {
    format!("f{rank}")
}

/// The state that the tasks of a world share.
#[derive(Default)]
struct Notes {
    answered: Cell<u64>,
    failed: Cell<u64>,
}

/// Runs one world, with that much memory for TIME-WAIT and files; `None` means no limit.
fn run_world(kept: &Kept, memory_mb: Option<u64>, seed: u64) -> Result<Found, Failure> {
    let ways = [Way { rate_bits: RATE_BITS, round_trip: ROUND_TRIP, loss: 0.0 }; CLIENTS];
    let memory_bytes = memory_mb.unwrap_or(2 * TOTAL_BYTES / 1_000_000) as usize * 1_000_000;
    let tcp = newreno().with(|tcp| {
        (tcp.timers, tcp.time_wait.state) = (Scheme::OrderedList, kept.state);
    });
    let hosts = [(newreno(), Limits::default()), (tcp, Limits::default())];
    let mut world = paths::world(&ways, SEGMENT, hosts, seed)?;
    let lengths = lengths(seed);
    let names: Vec<String> = (0..FILES).map(name).collect();
    let files = names.iter().zip(&lengths).zip(0..);
    let files: Vec<(&str, u64, u64)> =
        files.map(|((name, length), seed)| (&**name, *length, seed)).collect();
    let disk = match memory_mb {
        Some(_) => Disk::new(&files, SEEK, DISK_BYTES_PER_SECOND),
        None => Disk::new(&files, Duration::ZERO, u64::MAX),
    };
    let mut clock = web::clock(&world, Side::B);
    let wall = clock.wall;
    // The world begins in 1970, and the files on its disk are of 1994: a client keeps no file from
    // the future.
    clock.wall = Rc::new(move || wall() + FILES_AGE);
    let config = FilesConfig {
        cache_bytes: memory_bytes,
        cache_file_bytes: LONGEST_BYTES as usize,
        // The files never change.
        cache_age: Duration::from_secs(1 << 20),
        ..FilesConfig::default()
    };
    let service = Files::new(disk, config, clock.clone());
    let service = Rc::new(Server::new(service, ServerConfig::default(), clock));
    web::serve(&world, Side::B, server(), &service)?;
    let notes = Rc::new(Notes::default());
    let popular = Popular::new();
    for number in 0..CLIENTS {
        let rng = Rng::from_seed(seed << 16 | number as u64);
        let asking = Asking { number, rng, popular: popular.clone(), notes: notes.clone() };
        world.spawn(Side::A, asking.run());
    }
    let mut run_for = |length: Duration| -> Result<f64, Failure> {
        let (mut cached, looks) = (0.0, length.as_millis() / LOOK.as_millis());
        for _ in 0..looks {
            world.run_for(LOOK)?;
            let time_wait = (time_waits(&world) as f64 * kept.bytes) as usize;
            service.handler().set_cache_bytes(memory_bytes.saturating_sub(time_wait));
            cached += service.handler().cache_tally().bytes as f64;
        }
        Ok(cached / looks as f64)
    };
    run_for(WARM_UP)?;
    let (before, answered) = (service.handler().cache_tally(), notes.answered.get());
    let cached_bytes = run_for(MEASURED)?;
    let after = service.handler().cache_tally();
    let hits = (after.hits - before.hits) as f64;
    let misses = (after.misses - before.misses) as f64;
    Ok(Found {
        rate: (notes.answered.get() - answered) as f64 / MEASURED.as_secs_f64(),
        time_wait: time_waits(&world) as f64,
        cached_bytes,
        hit_part: hits / (hits + misses),
        failed: notes.failed.get(),
    })
}

fn time_waits(world: &World) -> usize {
    world.host(Side::B, Host::time_wait_len)
}

/// A client that requests one file after the other, each on a connection of its own.
struct Asking {
    number: usize,
    rng: Rng,
    popular: Popular,
    notes: Rc<Notes>,
}

impl Asking {
    async fn run(mut self) {
        for port in (10_000..=u16::MAX).cycle() {
            let rank = self.popular.draw(&mut self.rng);
            let count = match self.ask(port, rank).await {
                Ok(()) => &self.notes.answered,
                Err(_) => &self.notes.failed,
            };
            count.set(count.get() + 1);
        }
    }

    async fn ask(&self, port: u16, rank: usize) -> io::Result<()> {
        let local = SocketAddr::new(client(self.number), port);
        let mut stream = TcpStream::connect_from(&Handle::current(), local, server()).await?;
        let name = name(rank);
        let request = format!("GET /{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let (mut chunk, mut is_first) = (vec![0; 64 << 10], true);
        loop {
            match stream.read(&mut chunk).await? {
                0 if is_first => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => return Ok(()),
                len if is_first && !chunk[..len].starts_with(b"HTTP/1.1 200") => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                _ => is_first = false,
            }
        }
    }
}

/// Bytes of a connection in TIME-WAIT, by the allocator's count.
fn bytes(which: Which, variant: Variant) -> Result<f64, Failure> {
    let plan = memory::Plan { state: State::TimeWait, count: 20_000, ip: Ip::V4, variant };
    Ok(which.memory(&plan).ok_or("no memory of its own")?.bytes)
}

fn mean(found: &[Found], of: impl Fn(&Found) -> f64) -> f64 {
    found.iter().map(of).sum::<f64>() / found.len() as f64
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let usual = if report.is_quick() { QUICK_SEEDS } else { SEEDS };
    let seeds = report.seeds(usual);
    let whole = Variant::Keeping(Scheme::OrderedList, TimeWaitState::Full);
    let mut kept = [
        Kept {
            name: "whole blocks",
            state: TimeWaitState::Full,
            bytes: bytes(Which::LightwaitFull, whole)?,
        },
        Kept {
            name: "records",
            state: TimeWaitState::Compact,
            bytes: bytes(Which::Lightwait, Variant::Default)?,
        },
    ];
    if report.is_ablated(&WHOLE) {
        (kept[1].state, kept[1].bytes) = (kept[0].state, kept[0].bytes);
    }
    // One more run, whose disk takes no time.
    let count = MEMORIES_MB.len() * kept.len();
    let first = seeds.start;
    let seeds = seeds.count();
    let found = parallel::map((count + 1) * seeds, |number| {
        let (place, seed) = (number / seeds, first + (number % seeds) as u64);
        let memory = MEMORIES_MB.get(place / kept.len()).copied();
        run_world(&kept[place % kept.len()], memory, seed)
    })?;
    let found: Vec<&[Found]> = found.chunks(seeds).collect();
    let cached_rate = mean(found[count], |found| found.rate);
    let mut table = Table::new(&[
        "memory MB",
        "TIME-WAIT keeps",
        "conn/s",
        "in TIME-WAIT",
        "MB",
        "files cached MB",
        "hits %",
        "gain %",
    ]);
    let mut gains = Vec::new();
    for (place, megabytes) in MEMORIES_MB.iter().enumerate() {
        let rates = [0, 1].map(|way| mean(found[2 * place + way], |found| found.rate));
        let gain = rates[1] / rates[0] - 1.0;
        gains.push(gain);
        for (way, kept) in kept.iter().enumerate() {
            let found = found[2 * place + way];
            let time_wait = mean(found, |found| found.time_wait);
            table.row(&[
                megabytes,
                &kept.name,
                &format!("{:.0}", rates[way]),
                &format!("{time_wait:.0}"),
                &format!("{:.1}", time_wait * kept.bytes / 1e6),
                &format!("{:.1}", mean(found, |found| found.cached_bytes) / 1e6),
                &format!("{:.1}", mean(found, |found| found.hit_part) * 100.0),
                &if way == 1 { format!("{:+.0}", gain * 100.0) } else { String::new() },
            ]);
        }
    }
    report.say(format!(
        "A block takes {:.0} bytes, a record {:.0}. With a disk that takes no time: \
         {cached_rate:.0} a second.\nThe paper: 216 connections a second with 17 MB of kernel \
         memory, 379 with 4 MB.\n",
        kept[0].bytes, kept[1].bytes
    ));
    report.table("trace", &table)?;
    claims(report, &found, cached_rate, &gains);
    report.picture("trace", &chart(&kept, &found))
}

fn chart(kept: &[Kept], found: &[&[Found]]) -> Chart {
    let mut chart = Chart::new("Connections a second of a trace", "memory, MB", "connections/s");
    for (way, kept) in kept.iter().enumerate() {
        let rate = |place: usize| mean(found[2 * place + way], |found| found.rate);
        let points = MEMORIES_MB.iter().enumerate();
        let points = points.map(|(place, megabytes)| (*megabytes as f64, rate(place)));
        chart.draw(kept.name, Mark::Line, points.collect());
    }
    chart
}

fn claims(report: &mut Report, found: &[&[Found]], cached_rate: f64, gains: &[f64]) {
    let failed: u64 = found.iter().flat_map(|found| found.iter()).map(|found| found.failed).sum();
    report.check("no request fails", failed == 0, failed);
    report.check(
        "clients ask as often as the paper's server could answer, to a twentieth",
        (cached_rate / PAPER_CACHED - 1.0).abs() < 0.05,
        format!("{cached_rate:.0} a second; the paper: {PAPER_CACHED:.0}"),
    );
    let percent = |gain: &f64| format!("{:+.0} %", gain * 100.0);
    let all: Vec<String> = gains.iter().map(percent).collect();
    report.claim(
        "where memory is short, records carry more connections than whole blocks",
        &WHOLE,
        gains[..4].iter().all(|gain| *gain > 0.05),
        all.join(", "),
    );
    let most = gains.iter().copied().fold(0.0, f64::max);
    report.value("most_gain", most);
    report.observe(
        "somewhere by three quarters, as in the paper",
        most >= 0.75,
        format!("{:+.0} % at the most (paper: +75 %)", most * 100.0),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_as_many_and_as_large_as_the_papers() {
        let lengths = lengths(1);
        let total: u64 = lengths.iter().sum();
        assert!(lengths.len() > 3000 && (70_000_000..=90_000_000).contains(&total), "{total}");
    }

    #[test]
    fn the_first_file_is_asked_for_as_often_as_zipfs_law_says() {
        let (popular, mut rng) = (Popular::new(), Rng::from_seed(1));
        let first = (0..20_000).filter(|_| popular.draw(&mut rng) == 0).count() as f64;
        let wanted = 20_000.0 / popular.0[FILES - 1];
        assert!((first / wanted - 1.0).abs() < 0.1, "{first} {wanted}");
    }
}
