//! What it costs to ask for a delayed acknowledgement: a flag (4.4BSD), a bucket (Mansley), an
//! entry in an eager timing wheel; and a lock pair, to compare.
//!
//! The connections are few enough to lie in the cache: what counts is the bookkeeping. Each asks
//! once, and is then acknowledged, which is not measured; a request costs the more the later ones
//! find that there is one. Each request begins when the one before it is done: in a stack there is
//! a segment's work between them, and a processor that overlaps them would show them for nothing.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant as Clock;

use lightwait_bench::instructions::section;
use lightwait_bench::sample::median;
use lightwait_core::Instant;
use lightwait_core::config::TcpConfig;
use lightwait_core::tcp::Seq;
use lightwait_core::tcp::recv::ack::{AckDelay, AckState};
use lightwait_core::tcp::timers::{Deadlines, Filed, Scheme, Ticks, Timers};
use lightwait_core::time::Duration;

/// Connections that ask, one after the other.
const CONNECTIONS: usize = 256;
/// Rounds of which the median is taken.
const ROUNDS: usize = 20_001;
/// Between two requests, in ns: so short that one in some thousands finds its interval over, as at
/// 1 Gbit/s, where a connection asks 8560 times in 100 ms.
const BETWEEN_NS: u64 = 100;

/// Always zero, which only the processor's order of memory knows.
static DONE: AtomicUsize = AtomicUsize::new(0);

/// The ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing but the loop: what the others are compared with.
    None,
    /// A bit in the connection.
    Flag,
    /// Mansley's buckets.
    Buckets,
    /// A timer of its own in an eager hierarchical wheel, as FreeBSD and Linux.
    Wheel,
    /// A bit in the connection, behind a lock.
    Locked,
}

impl Way {
    /// Each with its name.
    pub(super) const ALL: [(Way, &str); 5] = [
        (Way::None, "nothing"),
        (Way::Flag, "flag"),
        (Way::Buckets, "buckets"),
        (Way::Wheel, "eager wheel"),
        (Way::Locked, "flag behind a lock"),
    ];
}

/// A connection, as far as delayed ACKs go.
struct Connection {
    flags: u32,
    ack: AckState,
    deadlines: Deadlines,
    filed: Filed,
    locked: Mutex<u32>,
}

/// All connections, and how they ask.
struct Bench {
    connections: Vec<Connection>,
    config: TcpConfig,
    timers: Timers,
    now: Instant,
}

impl Bench {
    fn new(way: Way) -> Bench {
        let connection = |number: usize| Connection {
            flags: 0,
            ack: AckState::new(0, Seq(0), (number as u32).wrapping_mul(0x9e37_79b9)),
            deadlines: Deadlines::default(),
            filed: Filed::default(),
            locked: Mutex::new(0),
        };
        let ack_delay = if way == Way::Wheel { AckDelay::Timer } else { AckDelay::Buckets };
        let ticks = Ticks::new(Duration::from_millis(1));
        Bench {
            connections: (0..CONNECTIONS).map(connection).collect(),
            config: TcpConfig { ack_delay, ..TcpConfig::default() },
            timers: Timers::new(Scheme::Wheel, ticks),
            now: Instant::from_millis(1_000),
        }
    }

    /// Every connection asks once.
    #[inline(always)]
    fn ask(&mut self, mut request: impl FnMut(&mut Connection, &mut Asked<'_>)) {
        let Bench { connections, config, timers, now } = self;
        let mut asked = Asked { config, timers, now: *now, index: 0 };
        for number in 0..CONNECTIONS {
            let connection = &mut connections[number + DONE.swap(0, Ordering::SeqCst)];
            // The time is in hand: a shard reads it once for a batch of segments.
            asked.now = Instant::from_nanos(black_box(asked.now.as_nanos() + BETWEEN_NS));
            request(black_box(connection), &mut asked);
            asked.index += 1;
        }
        *now = asked.now;
    }

    /// Every connection is acknowledged, and nothing is asked for any more.
    fn acknowledge(&mut self, way: Way) {
        for (index, connection) in self.connections.iter_mut().enumerate() {
            connection.flags = 0;
            connection.ack.on_sent(Seq(0), &mut connection.deadlines);
            if way == Way::Wheel {
                let Connection { filed, deadlines, .. } = connection;
                self.timers.touched(index as u32, filed, deadlines, self.now);
            }
        }
    }
}

/// What a request knows besides its connection.
struct Asked<'a> {
    config: &'a TcpConfig,
    timers: &'a mut Timers,
    now: Instant,
    index: u32,
}

fn ask_nothing(_: &mut Connection, _: &mut Asked<'_>) {}

fn set_flag(connection: &mut Connection, _: &mut Asked<'_>) {
    connection.flags |= 1;
}

#[inline(always)]
fn ask_bucket(connection: &mut Connection, asked: &mut Asked<'_>) {
    connection.ack.request(asked.now, asked.config, &mut connection.deadlines);
}

#[inline(always)]
fn ask_wheel(connection: &mut Connection, asked: &mut Asked<'_>) {
    ask_bucket(connection, asked);
    let Connection { filed, deadlines, .. } = connection;
    asked.timers.touched(asked.index, filed, deadlines, asked.now);
}

fn set_flag_behind_lock(connection: &mut Connection, _: &mut Asked<'_>) {
    if let Ok(mut flags) = connection.locked.lock() {
        *flags |= 1;
    }
}

/// ns that each way takes more than the loop: the medians of many rounds, in each of which all have
/// their turn, so that the machine's mood is the same for all.
pub(super) fn overheads() -> Vec<f64> {
    let mut benches = Way::ALL.map(|(way, _)| (way, Bench::new(way)));
    let mut more = vec![Vec::with_capacity(ROUNDS); Way::ALL.len()];
    for _ in 0..ROUNDS {
        let ns = benches.each_mut().map(|(way, bench)| round(*way, bench));
        for (more, ns_of) in more.iter_mut().zip(ns) {
            more.push(ns_of - ns[0]);
        }
    }
    more.iter_mut().map(|more| median(more)).collect()
}

/// ns a request, the loop included.
fn round(way: Way, bench: &mut Bench) -> f64 {
    let clock = Clock::now();
    match way {
        Way::None => bench.ask(ask_nothing),
        Way::Flag => bench.ask(set_flag),
        Way::Buckets => bench.ask(ask_bucket),
        Way::Wheel => bench.ask(ask_wheel),
        Way::Locked => bench.ask(set_flag_behind_lock),
    }
    let ns = clock.elapsed().as_nanos() as f64 / CONNECTIONS as f64;
    bench.acknowledge(way);
    ns
}

/// One round of each, for callgrind to count.
pub(super) fn sections() {
    count("nothing", Way::None, |bench| bench.ask(ask_nothing));
    count("flag", Way::Flag, |bench| bench.ask(set_flag));
    count("buckets", Way::Buckets, |bench| bench.ask(ask_bucket));
    count("eager wheel", Way::Wheel, |bench| bench.ask(ask_wheel));
    count("flag behind a lock", Way::Locked, |bench| bench.ask(set_flag_behind_lock));
}

fn count(name: &str, way: Way, ask: impl Fn(&mut Bench)) {
    let mut bench = Bench::new(way);
    // The first round finds each connection's interval.
    ask(&mut bench);
    bench.acknowledge(way);
    section(name, CONNECTIONS, || ask(&mut bench));
}
