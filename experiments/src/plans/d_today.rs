//! Send buffers and pools at today's scale: many connections at a time, from 1 Mbit/s to 1 Gbit/s
//! and from 5 to 300 ms, small answers beside large ones, and a pool from tiny to ample. A second
//! plan adds a share of peers that ask and never read.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use lightwait::net::{TcpListener, TcpStream};
use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::Instant;
use lightwait_core::buffer::PAGE_BYTES;
use lightwait_core::config::{Limits, PoolPolicy, SendRule, TcpConfig};
use lightwait_core::rng::Rng;
use lightwait_core::time::Duration;
use lightwait_sim::Side;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::paths::{self, Way, client, server};
use crate::report::{Report, Table};
use crate::statistics::quantile;

const CLIENTS: usize = 2000;
const QUICK_CLIENTS: usize = 200;
const RATES_BITS: [f64; 2] = [1e6, 1e9];
const ROUND_TRIPS_S: [f64; 2] = [0.005, 0.3];
const LOSS: f64 = 0.0005;
const LINKS_SEED: u64 = 1;
const WAYS_SEED: u64 = 2000;
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
const BEGIN: Duration = Duration::from_secs(4);
const LENGTH: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of the pool for each client.
const POOLS_EACH: [usize; 3] = [2 << 10, 8 << 10, 128 << 10];
/// The share of peers that never read, in `d-stalled`.
const STALLED_PART: f64 = 0.2;

/// A rule for buffers, one for the pool, and the name of the pair.
struct Rules {
    name: &'static str,
    policy: PoolPolicy,
    change: fn(&mut TcpConfig),
}

const LOS_PRIORITY: usize = 0;
/// The first of the Linux rules.
const LINUX: usize = 5;
/// The first of the Linux rules with the policy of ours.
const LINUX_PRIORITY: usize = 9;
const RULES: [Rules; 12] = [
    Rules { name: "LOS, priority", policy: PoolPolicy::Priority, change: los },
    Rules { name: "LOS, round robin", policy: PoolPolicy::RoundRobin, change: los },
    Rules { name: "LOS, line", policy: PoolPolicy::Line, change: los },
    Rules { name: "round, line", policy: PoolPolicy::Line, change: |_| {} },
    Rules {
        name: "fixed 256 KiB, line",
        policy: PoolPolicy::Line,
        change: |tcp| (tcp.buffers.send_size, tcp.buffers.send) = (SendRule::Fixed, 256 << 10),
    },
    Rules { name: "Linux, line", policy: PoolPolicy::Line, change: |tcp| linux(tcp, None) },
    Rules {
        name: "Linux, lowat 16 KiB, line",
        policy: PoolPolicy::Line,
        change: |tcp| linux(tcp, Some(16 << 10)),
    },
    Rules {
        name: "Linux, lowat 128 KiB, line",
        policy: PoolPolicy::Line,
        change: |tcp| linux(tcp, Some(128 << 10)),
    },
    Rules { name: "round, priority", policy: PoolPolicy::Priority, change: |_| {} },
    Rules { name: "Linux, priority", policy: PoolPolicy::Priority, change: |tcp| linux(tcp, None) },
    Rules {
        name: "Linux, lowat 16 KiB, priority",
        policy: PoolPolicy::Priority,
        change: |tcp| linux(tcp, Some(16 << 10)),
    },
    Rules { name: "LOS, PSC", policy: PoolPolicy::Psc, change: los },
];

fn los(tcp: &mut TcpConfig) {
    tcp.buffers.send_size = SendRule::Los;
}

/// Linux lets a send buffer grow to 4 MiB.
fn linux(tcp: &mut TcpConfig, lowat: Option<u32>) {
    (tcp.buffers.send_size, tcp.buffers.send) = (SendRule::Linux, 4 << 20);
    tcp.buffers.send_lowat = lowat;
}

/// The results of one world.
#[derive(Clone, Debug, Default)]
struct Found {
    goodput_mbit: f64,
    /// Times of small answers, with the opening of their connections.
    small_ms: Vec<f64>,
    held_mib: f64,
    /// Connections that failed, other than those that never read.
    failed: u64,
}

impl Found {
    fn quantile_ms(&self, part: f64) -> f64 {
        quantile(&self.small_ms, part)
    }
}

/// The state that the tasks of a world share.
#[derive(Debug, Default)]
struct Shared {
    received: u64,
    small_ms: Vec<f64>,
    failed: u64,
    looks: (u64, u64),
}

type Notes = Rc<RefCell<Shared>>;

/// A number between two, any power of ten as likely as any other.
fn between(rng: &mut Rng, [from, to]: [f64; 2]) -> f64 {
    from * (to / from).powf(rng.unit())
}

fn run_world(
    clients: usize,
    pool_each: usize,
    rules: &Rules,
    stalled_part: f64,
) -> Result<Found, Failure> {
    let mut rng = Rng::from_seed(WAYS_SEED);
    let ways: Vec<Way> = (0..clients)
        .map(|_| Way {
            rate_bits: between(&mut rng, RATES_BITS) as u64,
            round_trip: Duration::from_secs_f64(between(&mut rng, ROUND_TRIPS_S)),
            loss: LOSS,
        })
        .collect();
    let mut tcp = TcpConfig::default();
    (rules.change)(&mut tcp);
    tcp.pool.policy = rules.policy;
    let limits = Limits { pages: clients * pool_each / PAGE_BYTES, ..Limits::default() };
    let hosts = [(TcpConfig::default(), Limits::default()), (tcp, limits)];
    let mut world = paths::world(&ways, SEGMENT, hosts, LINKS_SEED)?;
    let notes = Notes::default();
    let listener = TcpListener::bind_with_backlog(&world.handle(Side::B), server(), 65_535)?;
    world.spawn(Side::B, accept(listener));
    world.spawn(Side::B, look(world.now() + BEGIN, notes.clone()));
    for number in 0..clients {
        let never_reads = rng.unit() < stalled_part;
        let ask = Client { number, never_reads, rng: Rng::from_seed(number as u64) };
        world.spawn(Side::A, ask.run(world.now() + BEGIN, notes.clone()));
    }
    world.run_for(BEGIN + LENGTH)?;
    let notes = notes.take();
    let mut small_ms = notes.small_ms;
    small_ms.sort_by(f64::total_cmp);
    Ok(Found {
        goodput_mbit: notes.received as f64 * 8.0 / LENGTH.as_secs_f64() / 1e6,
        small_ms,
        held_mib: notes.looks.0 as f64 / notes.looks.1.max(1) as f64 / f64::from(1 << 20),
        failed: notes.failed,
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
            let got = self.ask(port, is_large, from, &notes).await;
            let (now, mut notes) = (Handle::current().now(), notes.borrow_mut());
            if now < from {
                continue;
            }
            match got {
                Ok(()) if !is_large => {
                    notes.small_ms.push(now.since(begin).as_secs_f64() * 1000.0);
                }
                Ok(()) => {}
                Err(_) => notes.failed += u64::from(!self.never_reads),
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
        let (mut count, mut chunk) = (0, vec![0; 16 << 10]);
        loop {
            let read = stream.read(&mut chunk).await?;
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

async fn accept(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // A peer that is reset is not a failure of the server.
        Handle::current().spawn_local(async move { send(stream).await.ok() });
    }
}

/// Serves like a file server: reads a block, writes it, reads the next.
async fn send(mut stream: TcpStream) -> io::Result<()> {
    let control = stream.control();
    let mut left = if stream.read_u8().await? == b'L' { LARGE_BYTES } else { SMALL_BYTES };
    while left > 0 {
        let size = control
            .read_size()
            .map_or(BLOCK, |bytes| bytes as u64)
            .clamp(SEGMENT, left.max(SEGMENT));
        let size = size.min(left);
        rt::sleep(READ_TIME).await;
        left -= size;
        control.set_supply(READ_TIME, left > 0);
        stream.write_all(&vec![0; size as usize]).await?;
    }
    stream.shutdown().await
}

async fn look(from: Instant, notes: Notes) {
    loop {
        rt::sleep(LOOK).await;
        if Handle::current().now() >= from {
            let pool = Handle::current().with_host(lightwait_core::Host::pool_info);
            let looks = &mut notes.borrow_mut().looks;
            *looks = (looks.0 + (pool.in_use * pool.page_bytes) as u64, looks.1 + 1);
        }
    }
}

/// The seeds of the links and of the paths. Each client has its number as its own.
pub(crate) fn seeds() -> Vec<u64> {
    vec![LINKS_SEED, WAYS_SEED]
}

/// The results by pool and rules.
fn grid(report: &mut Report, stalled_part: f64) -> Result<Vec<Vec<Found>>, Failure> {
    let clients = if report.is_quick() { QUICK_CLIENTS } else { CLIENTS };
    report.say(format!(
        "{clients} clients at 1 Mbit/s to 1 Gbit/s and 5 to 300 ms, 0.05 % lost; each asks, on a \
         new connection,\nfor 10 KB (nine times in ten) or 1 MB, and rests for a second; a read \
         takes 5 ms.\nThe pool is given for each client."
    ));
    let found = parallel::map(POOLS_EACH.len() * RULES.len(), |number| {
        let (pool, rules) = (number / RULES.len(), number % RULES.len());
        run_world(clients, POOLS_EACH[pool], &RULES[rules], stalled_part)
    })?;
    let mut table = Table::new(&[
        "pool KiB",
        "rules",
        "goodput Mbit/s",
        "10 KB answers",
        "median ms",
        "p99 ms",
        "held MiB",
        "failed",
    ]);
    for (number, found) in found.iter().enumerate() {
        table.row(&[
            &(POOLS_EACH[number / RULES.len()] >> 10),
            &RULES[number % RULES.len()].name,
            &format!("{:.0}", found.goodput_mbit),
            &found.small_ms.len(),
            &format!("{:.0}", found.quantile_ms(0.5)),
            &format!("{:.0}", found.quantile_ms(0.99)),
            &format!("{:.1}", found.held_mib),
            &found.failed,
        ]);
    }
    report.table("today", &table)?;
    Ok(found.chunks(RULES.len()).map(<[Found]>::to_vec).collect())
}

/// The plan in which all clients read.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let grid = grid(report, 0.0)?;
    let best = |row: &[Found]| row.iter().map(|found| found.goodput_mbit).fold(0.0, f64::max);
    let ours = |row: &[Found]| row[LOS_PRIORITY].goodput_mbit / best(row);
    let parts: Vec<String> = grid.iter().map(|row| format!("{:.3}", ours(row))).collect();
    report.claim(
        "LOS and priority have at least 0.95 of the best goodput with every pool",
        grid.iter().all(|row| ours(row) >= 0.95),
        format!("{} of the best", parts.join(", ")),
    );
    let ample = &grid[grid.len() - 1];
    let share = ample[LOS_PRIORITY].held_mib / ample[LINUX].held_mib;
    report.claim(
        "and hold less than Linux's rule does, with an ample pool",
        share < 0.9,
        format!("{share:.2} of it"),
    );
    report.observe(
        "… no more than half",
        share <= 0.5,
        "most of what is held is in flight, and 1 MB is sent before buffers that grow are full",
    );
    let (tiny, middle) = (&grid[0], &grid[1]);
    report.claim(
        "where the pool is short LOS and priority carry a third more than Linux's rule by the line",
        middle[LOS_PRIORITY].goodput_mbit > 1.33 * middle[LINUX].goodput_mbit,
        format!(
            "{:.0} and {:.0} Mbit/s with 8 KiB a client",
            middle[LOS_PRIORITY].goodput_mbit, middle[LINUX].goodput_mbit
        ),
    );
    report.observe(
        "… and more than Linux's rule by priority: the gain is not the policy's alone",
        middle[LOS_PRIORITY].goodput_mbit > 1.02 * middle[LINUX_PRIORITY].goodput_mbit,
        format!(
            "{:.0} and {:.0} Mbit/s",
            middle[LOS_PRIORITY].goodput_mbit, middle[LINUX_PRIORITY].goodput_mbit
        ),
    );
    report.observe(
        "small answers are as fast as by any rule where the pool is tiny (p99)",
        tiny[LOS_PRIORITY].quantile_ms(0.99)
            <= tiny.iter().map(|found| found.quantile_ms(0.99)).fold(f64::INFINITY, f64::min),
        format!(
            "{:.0} ms, by Linux's rule and the line {:.0} ms",
            tiny[LOS_PRIORITY].quantile_ms(0.99),
            tiny[LINUX].quantile_ms(0.99)
        ),
    );
    Ok(())
}

/// The plan in which some clients never read.
pub(crate) fn stalled(report: &mut Report) -> Outcome {
    report
        .say(format!("{:.0} % of the clients ask for 1 MB and never read.", STALLED_PART * 100.0));
    let grid = grid(report, STALLED_PART)?;
    let answers = |found: &Found| found.small_ms.len() as f64;
    let most = |row: &[Found]| row.iter().map(answers).fold(0.0, f64::max);
    let ours = |row: &[Found]| answers(&row[LOS_PRIORITY]) / most(row);
    let parts: Vec<String> = grid.iter().map(|row| format!("{:.3}", ours(row))).collect();
    report.claim(
        "LOS and priority answer at least 0.95 as many small requests as any, with every pool",
        grid.iter().all(|row| ours(row) >= 0.95),
        parts.join(", "),
    );
    let failed: u64 = grid[1..].iter().map(|row| row[LOS_PRIORITY].failed).sum();
    report.claim(
        "and nobody fails who reads, but where the pool is tiny",
        failed == 0,
        format!("{failed} failed, {} with the tiny pool", grid[0][LOS_PRIORITY].failed),
    );
    let ample = &grid[grid.len() - 1];
    let least = ample.iter().map(|found| found.held_mib).fold(f64::INFINITY, f64::min);
    report.observe(
        "and hold no more than any, with an ample pool",
        ample[LOS_PRIORITY].held_mib <= least,
        format!("{:.1} MiB, the least is {least:.1}", ample[LOS_PRIORITY].held_mib),
    );
    Ok(())
}
