//! The cost of requesting a delayed acknowledgement: a flag (4.4BSD), a bucket (Mansley), or an
//! entry in an eager timing wheel; and a lock pair for comparison.
//!
//! The connections are few enough to lie in the cache, so that only the bookkeeping counts. Each
//! makes one request, and is then acknowledged, which is not measured. The more requests find an
//! earlier one pending, the cheaper they are. The result of each step selects the next connection,
//! so that each step waits for the one before. The result is the time that a step takes longer with
//! a request in it. Steps are measured one after the other, like the paper's, and behind a
//! segment's work. That work has more instructions than a processor keeps in flight, and hides part
//! of the cost, as in a stack.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant as Clock;

use lightwait_bench::instructions::section;
use lightwait_bench::sample::{median, segment};
use lightwait_core::Instant;
use lightwait_core::config::{AckDelay, Scheme, TcpConfig};
use lightwait_core::flow::Seq;
use lightwait_core::tcp::recv::ack::AckState;
use lightwait_core::tcp::timers::{Deadlines, Filed, Ticks, Timer, TimerSet, Timers};
use lightwait_core::time::Duration;

use super::newreno;

/// Connections that make requests, one after the other.
const CONNECTIONS: usize = 256;
/// Rounds; the median counts.
const ROUNDS: usize = 4001;
/// Time between two requests, in ns. One request in some thousands then finds its interval over, as
/// at 1 Gbit/s, where a connection makes 8560 requests in 100 ms.
const BETWEEN_NS: u64 = 100;

/// The ways to request an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Only the loop, to compare the others with.
    None,
    /// A bit in the connection.
    Flag,
    /// Mansley's buckets: only the request.
    Request,
    /// The request, and the lazy scheme's bookkeeping for it.
    Buckets,
    /// A timer of its own in an eager hierarchical wheel, as in FreeBSD and Linux, with its
    /// bookkeeping.
    Wheel,
    /// A bit in the connection, behind a lock.
    Locked,
}

impl Way {
    /// All ways, with their names.
    pub(super) const ALL: [(Way, &str); 6] = [
        (Way::None, "nothing"),
        (Way::Flag, "flag"),
        (Way::Request, "buckets"),
        (Way::Buckets, "buckets, timers told"),
        (Way::Wheel, "eager wheel, timers told"),
        (Way::Locked, "flag behind a lock"),
    ];
}

/// The fields of a connection for delayed ACKs.
struct Connection {
    flags: u32,
    ack: AckState,
    deadlines: Deadlines,
    filed: Filed,
    locked: Mutex<u32>,
}

impl Connection {
    /// The traces of a request in this connection, for any way.
    #[inline(always)]
    fn left(&mut self) -> u64 {
        let locked = self.locked.get_mut().map_or(0, |flags| *flags);
        self.deadlines.at(Timer::DelayedAck).as_nanos() ^ u64::from(self.flags ^ locked)
    }
}

/// All connections, and the way to request.
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
        let (ack_delay, scheme) = match way {
            Way::Wheel => (AckDelay::Timer, Scheme::Wheel),
            _ => (AckDelay::Buckets, Scheme::Inline),
        };
        let ticks = Ticks::new(Duration::from_millis(1));
        Bench {
            connections: (0..CONNECTIONS).map(connection).collect(),
            config: newreno().with(|tcp| tcp.ack.delay = ack_delay),
            timers: Timers::new(scheme, ticks),
            now: Instant::from_millis(1_000),
        }
    }

    /// Every connection makes one request.
    #[inline(always)]
    fn ask(
        &mut self,
        work: impl Fn(u64) -> u64,
        mut request: impl FnMut(&mut Connection, &mut Asked<'_>),
    ) {
        let Bench { connections, config, timers, now } = self;
        let mut asked = Asked { config, timers, now: *now, index: 0 };
        // No bits, but neither compiler nor processor can know that.
        let (mut word, none) = (1, black_box(0));
        for number in 0..CONNECTIONS {
            word = work(word);
            let connection = &mut connections[number + (word & none) as usize];
            // The time is already known: a shard reads it once for a batch of segments.
            asked.now = Instant::from_nanos(black_box(asked.now.as_nanos() + BETWEEN_NS));
            request(black_box(&mut *connection), &mut asked);
            word ^= black_box(connection).left();
            asked.index += 1;
        }
        black_box(word);
        *now = asked.now;
    }

    /// Acknowledges every connection and updates the timers, so that no request is pending. Then
    /// runs the timers.
    fn acknowledge(&mut self) {
        let Bench { connections, timers, now, .. } = self;
        for (index, connection) in connections.iter_mut().enumerate() {
            let Connection { flags, ack, deadlines, filed, .. } = connection;
            *flags = 0;
            ack.on_sent(Seq(0), deadlines);
            timers.touched(index as u32, filed, deadlines, *now);
        }
        while let Some((index, _)) = timers.due(*now, &mut |_, _| TimerSet::EMPTY) {
            let Connection { filed, deadlines, .. } = &mut connections[index as usize];
            timers.take_out(filed);
            deadlines.tighten();
        }
    }
}

/// The arguments of a request beside its connection.
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
fn request(connection: &mut Connection, asked: &mut Asked<'_>) {
    connection.ack.request(asked.now, asked.config, &mut connection.deadlines);
}

/// Reports a request to the scheme, for buckets and the wheel.
#[inline(always)]
fn request_and_tell(connection: &mut Connection, asked: &mut Asked<'_>) {
    request(connection, asked);
    let Connection { filed, deadlines, .. } = connection;
    asked.timers.touched(asked.index, filed, deadlines, asked.now);
}

fn set_flag_behind_lock(connection: &mut Connection, _: &mut Asked<'_>) {
    if let Ok(mut flags) = connection.locked.lock() {
        *flags |= 1;
    }
}

/// ns that a step takes more with each way than without a request, one step after the other.
pub(super) fn overheads() -> Vec<f64> {
    overheads_with(|word| word)
}

/// ns that a step takes more with each way than without a request, behind a segment's work.
pub(super) fn overheads_behind_work() -> Vec<f64> {
    overheads_with(segment)
}

/// The medians of many rounds. All ways take turns in each round, so that the machine's state is
/// the same for all.
fn overheads_with(work: impl Fn(u64) -> u64 + Copy) -> Vec<f64> {
    let mut benches = Way::ALL.map(|(way, _)| (way, Bench::new(way)));
    let mut more = vec![Vec::with_capacity(ROUNDS); Way::ALL.len()];
    for _ in 0..ROUNDS {
        let ns = benches.each_mut().map(|(way, bench)| round(*way, bench, work));
        for (more, ns_of) in more.iter_mut().zip(ns) {
            more.push(ns_of - ns[0]);
        }
    }
    more.iter_mut().map(|more| median(more)).collect()
}

/// ns of a step, with `work` in it.
fn round(way: Way, bench: &mut Bench, work: impl Fn(u64) -> u64) -> f64 {
    let clock = Clock::now();
    ask(way, bench, work);
    let ns = clock.elapsed().as_nanos() as f64 / CONNECTIONS as f64;
    bench.acknowledge();
    ns
}

/// Every connection makes one request in its way, each after some work.
#[inline(always)]
fn ask(way: Way, bench: &mut Bench, work: impl Fn(u64) -> u64) {
    match way {
        Way::None => bench.ask(work, ask_nothing),
        Way::Flag => bench.ask(work, set_flag),
        Way::Request => bench.ask(work, request),
        Way::Buckets | Way::Wheel => bench.ask(work, request_and_tell),
        Way::Locked => bench.ask(work, set_flag_behind_lock),
    }
}

/// Runs one round of each way without the work, for callgrind to count.
pub(super) fn sections() {
    for (way, name) in Way::ALL {
        let mut bench = Bench::new(way);
        // The first round sets each connection's interval, and files its entry.
        ask(way, &mut bench, |word| word);
        bench.acknowledge();
        section(name, CONNECTIONS, || ask(way, &mut bench, |word| word));
    }
}
