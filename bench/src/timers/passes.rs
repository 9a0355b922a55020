//! The passes of the bench over one scheme.
//!
//! ```text
//!   births ─ touch ─ re-arm ─ cancel ─ set ─ move earlier ─ idle turns ─ deaths ─ births
//!   births ─ turns with one expiry each ─ turns until all have expired ─ touch in that order
//! ```
//!
//! Every pass visits all connections in the same random order. `touch` is the work of a segment on
//! a connection without timers. It is measured before each batch of every pass, on another batch
//! that is as cold. The median of the differences is the cost of the timer: the machine's state
//! changes more slowly than from one batch to the next. In the engine, a segment's work lies
//! between two connections, too long for any processor to fetch the next one meanwhile. The bench
//! therefore has such work, of more instructions than any processor keeps in flight.
//! one meanwhile; so there is here, of more instructions than any keeps in flight.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use lightwait_core::Instant;

use super::connection::{Connection, LEAST_MS, SPREAD_MS, connections, random_order};
use super::scheme::{Scheme, When};
use crate::instructions::section;
use crate::sample::{Samples, segment};

/// Connections that are timed together.
const BATCH: usize = 1000;
/// The name of the pass that only touches.
pub(super) const TOUCH: &str = "touch";
const IDLE_TURNS: usize = 10_000;
/// Turns with one expiry each; before any other deadline.
const LONE_EXPIRIES: usize = 100;

/// The meter of a pass.
enum Meter {
    /// By the clock, batch by batch.
    Time(Samples),
    /// By callgrind, as a whole.
    Instructions,
}

/// Median ns of each kind of operation, by name, with the number of measurements.
pub(super) fn times<S: Scheme>(count: usize, repetitions: usize) -> Samples {
    let mut bench = Bench::<S>::new(count, Meter::Time(Samples::default()));
    for repetition in 0..repetitions {
        bench.repeat(repetition);
    }
    match bench.meter {
        Meter::Time(samples) => samples,
        Meter::Instructions => Samples::default(),
    }
}

/// Runs one repetition, for callgrind to count.
pub(super) fn instructions<S: Scheme>(count: usize) {
    Bench::<S>::new(count, Meter::Instructions).repeat(0);
}

/// Touches connections one after the other, each with an operation, and does `work` after each.
fn visit<K: Default>(
    connections: &mut [Connection<K>],
    order: &[u32],
    now: Instant,
    mut operation: impl FnMut(u32, &mut Connection<K>, When),
    work: impl Fn(u64) -> u64,
) {
    for &index in order {
        // Code that touches a connection has its address.
        let connection = black_box(&mut connections[index as usize]);
        let at = connection.touch(now);
        operation(index, connection, When { now, at });
        work(1);
    }
}

/// ns of an operation, when `count` operations took `elapsed`.
fn per(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_nanos() as f64 / count.max(1) as f64
}

/// Everything but the scheme, which each repetition makes anew: schemes that cancel lazily would
/// otherwise carry cancelled entries along for ever.
struct Bench<S: Scheme> {
    connections: Vec<Connection<S::Key>>,
    order: Vec<u32>,
    /// The order in which timers expire, once it is known.
    expired: Vec<u32>,
    meter: Meter,
}

impl<S: Scheme> Bench<S> {
    fn new(count: usize, meter: Meter) -> Self {
        Bench {
            connections: connections(count),
            order: random_order(count),
            expired: Vec::with_capacity(count),
            meter,
        }
    }

    fn repeat(&mut self, repetition: usize) {
        let now = Instant::from_millis(1_000_000 + repetition as u64 * 611);
        self.operate(now);
        self.forget();
        self.expire(now);
        self.forget();
    }

    /// Resets the connections to their state before the first timer.
    fn forget(&mut self) {
        self.connections = connections(self.order.len());
    }

    /// One pass over all connections in random order.
    fn pass(
        &mut self,
        name: &'static str,
        now: Instant,
        mut operation: impl FnMut(u32, &mut Connection<S::Key>, When),
    ) {
        let Bench { connections, order, meter, .. } = self;
        let samples = match meter {
            Meter::Instructions => {
                return section(name, order.len(), || {
                    visit(connections, order, now, operation, |word| word);
                });
            }
            Meter::Time(samples) => samples,
        };
        // Half a round away: no batch was touched longer ago.
        let elsewhere = order.chunks(BATCH).cycle().skip(order.len().div_ceil(BATCH) / 2);
        for (batch, other) in order.chunks(BATCH).zip(elsewhere) {
            let clock = Clock::now();
            visit(connections, other, now, |_, _, _| {}, segment);
            let touched = per(clock.elapsed(), other.len());
            let clock = Clock::now();
            visit(connections, batch, now, &mut operation, segment);
            let whole = per(clock.elapsed(), batch.len());
            samples.add(TOUCH, touched);
            samples.add(name, whole);
            samples.add_net(name, whole - touched);
        }
    }

    fn operate(&mut self, now: Instant) {
        let mut scheme = S::new(now);
        let later = |ms| now + Duration::from_millis(ms);
        for &index in &self.order {
            let connection = &mut self.connections[index as usize];
            let at = connection.touch(now);
            scheme.birth(index, connection, When { now, at });
        }
        let scheme = &mut scheme;
        if matches!(self.meter, Meter::Instructions) {
            self.pass(TOUCH, now, |_, _, _| {});
        }
        self.pass("rearm", later(1), |index, c, when| scheme.rearm(index, c, when));
        self.pass("cancel", later(2), |index, c, _| scheme.cancel(index, c));
        self.pass("set", later(3), |index, c, when| scheme.set(index, c, when));
        self.pass("earlier", now, |index, c, When { now, at }| {
            let quarter = (at.as_nanos() - now.as_nanos()) / 4;
            let at = Instant::from_nanos(now.as_nanos() + quarter);
            scheme.rearm(index, c, When { now, at });
        });
        self.idle(scheme, now);
        self.pass("death", now, |index, c, _| scheme.death(index, c));
        self.pass("birth", now, |index, c, when| scheme.birth(index, c, when));
    }

    /// Turns with nothing due, a microsecond apart.
    fn idle(&mut self, scheme: &mut S, now: Instant) {
        let connections = &mut self.connections;
        let mut turns = || {
            for us in 0..IDLE_TURNS as u64 {
                let now = black_box(now + Duration::from_micros(us));
                scheme.turn(now, connections, |index, _| {
                    assert!(S::TICKS, "{index} is not due");
                });
            }
        };
        match &mut self.meter {
            Meter::Instructions => section("idle_turn", IDLE_TURNS, turns),
            Meter::Time(samples) => {
                let clock = Clock::now();
                turns();
                samples.add("idle_turn", per(clock.elapsed(), IDLE_TURNS));
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let mut scheme = S::new(now);
        for &index in &self.order {
            let connection = &mut self.connections[index as usize];
            let at = connection.touch(now);
            scheme.birth(index, connection, When { now, at });
        }
        // A tick's timers expire together, and at most two ticks late.
        let lone = if S::TICKS { 0 } else { LONE_EXPIRIES.min(self.order.len() / 2) };
        let ticks_ms = if S::TICKS { 1000 } else { 0 };
        for (ms, &index) in (1u64..).zip(&self.order[..lone]) {
            let connection = &mut self.connections[index as usize];
            let at = now + Duration::from_millis(ms);
            scheme.rearm(index, connection, When { now, at });
        }
        // A connection whose timer fires alone has been idle as long as all others.
        for &index in &self.order[lone..] {
            self.connections[index as usize].touch(now);
        }
        if lone > 0 {
            let fired = self.turns("lone_expiry", &mut scheme, now, lone);
            assert_eq!(fired, lone, "each has fired in its own turn");
        }
        let (begin, left) = (now + Duration::from_millis(lone as u64), self.order.len() - lone);
        let all = (LEAST_MS + u64::from(SPREAD_MS) + ticks_ms) as usize + 1 - lone;
        self.expired.clear();
        let fired = self.turns("expiry", &mut scheme, begin, all);
        assert_eq!(fired, left, "every timer has fired once");
        self.order_of_expiry(now);
    }

    /// Runs turns, one a millisecond. Returns the number of timers that fired.
    fn turns(&mut self, name: &'static str, scheme: &mut S, begin: Instant, turns: usize) -> usize {
        let Bench { connections, expired, meter, .. } = self;
        let (mut fired, mut elapsed) = (expired.len(), Duration::ZERO);
        let before = fired;
        let mut turn = |scheme: &mut S, now: Instant| {
            scheme.turn(now, connections, |index, connection| {
                connection.touch(now);
                expired.push(index);
            });
        };
        let at = |turn: usize| begin + Duration::from_millis(turn as u64 + 1);
        match meter {
            // The preparation of such a scheme would count as well.
            Meter::Instructions if S::ADVANCES => {
                for number in 0..turns {
                    scheme.advance(at(number));
                    turn(scheme, at(number));
                }
            }
            Meter::Instructions => {
                let operations = if name == "expiry" { self.order.len() } else { turns };
                section(name, operations, || (0..turns).for_each(|n| turn(scheme, at(n))));
            }
            Meter::Time(_) if S::ADVANCES => {
                for number in 0..turns {
                    scheme.advance(at(number));
                    let clock = Clock::now();
                    turn(scheme, at(number));
                    elapsed += clock.elapsed();
                }
            }
            Meter::Time(_) => {
                let clock = Clock::now();
                (0..turns).for_each(|number| turn(scheme, at(number)));
                elapsed = clock.elapsed();
            }
        }
        fired = expired.len() - before;
        if let Meter::Time(samples) = meter {
            samples.add(name, per(elapsed, fired));
        }
        fired
    }

    /// Measures the touching of connections in the order in which they expired.
    fn order_of_expiry(&mut self, now: Instant) {
        let Bench { connections, expired, meter, .. } = self;
        let mut again = Vec::with_capacity(expired.len());
        let mut touch = || {
            for &index in expired.iter() {
                connections[index as usize].touch(now);
                again.push(index);
            }
        };
        match meter {
            Meter::Instructions => section("touch_expired", expired.len(), touch),
            Meter::Time(samples) => {
                let clock = Clock::now();
                touch();
                samples.add("touch_expired", per(clock.elapsed(), expired.len()));
            }
        }
        black_box(again);
    }
}
