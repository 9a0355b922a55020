//! The router: two devices, a link in each direction, and the loops that poll them.

mod one_way;

use std::io;
use std::panic::resume_unwind;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lightwait::clock::Clock;
use lightwait::device::{Device, Losses};
use lightwait_core::Instant;
use lightwait_netem::{Counters, LinkConfig, QueueLimit, Queued};

use crate::{FlowSnapshot, Lateness, Steps, Way};
use one_way::OneWay;

/// Room for frames that wait at a packet socket, in bytes
/// ([`with_receive_buffer`](lightwait::device::AfPacket::with_receive_buffer)). They wait in one
/// row for all connections, so that a flood makes every packet late by as long as the row takes.
/// This holds 2700 small frames, which take the router 4 to 30 ms, or 900 full ones: those of 10 ms
/// at 1 Gbit/s. A TAP's queue holds 1000 frames.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// The time between two looks whether a thread should end.
const LOOK: Duration = Duration::from_millis(1);

/// The times at which due packets are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// At once: the router polls without rest.
    Polling,
    /// At the end of each interval, all together, as on a clock's interrupt.
    Every(Duration),
}

/// The threads of a router. Each takes a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One for both directions, in turns.
    One,
    /// One for each direction.
    OneEach,
}

impl Threads {
    /// The threads where this many cores may be used. Two that poll leave one for others.
    pub fn for_cores(cores: u16) -> Threads {
        if cores > 2 { Threads::OneEach } else { Threads::One }
    }

    /// The number of threads.
    pub fn count(self) -> usize {
        match self {
            Threads::One => 1,
            Threads::OneEach => 2,
        }
    }
}

/// A device as two handles, so that a thread may receive while another sends:
/// [`Tap::try_clone`](lightwait::device::Tap::try_clone),
/// [`AfPacket::try_clone`](lightwait::device::AfPacket::try_clone).
#[derive(Debug)]
pub struct Ends<D> {
    /// The router receives from it.
    pub receiving: D,
    /// The router sends to it.
    pub sending: D,
}

/// Two devices joined by an emulated link in each direction.
pub struct Router<D> {
    /// In the order of [`Way::ALL`].
    ways: [OneWay<D>; 2],
    began: Instant,
}

/// A change of a link while the router runs.
#[derive(Clone, Debug)]
pub struct Change {
    /// The time since the router's beginning.
    pub at: Duration,
    /// A description of the link from then on.
    pub link: String,
    /// The link's counters until then.
    pub before: Counters,
}

/// A router's counters.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time since its beginning.
    pub elapsed: Duration,
    /// Each direction, in the order of [`Way::ALL`].
    pub ways: [WaySnapshot; 2],
    /// The longest time between two turns of a direction.
    pub longest_turn: Duration,
}

/// The counters of one direction.
#[derive(Clone, Debug)]
pub struct WaySnapshot {
    /// The link's counters.
    pub counters: Counters,
    /// Packets that wait or are on their way.
    pub in_flight: usize,
    /// The lateness of packets.
    pub lateness: Lateness,
    /// The changes of the link so far, in order.
    pub changes: Vec<Change>,
    /// Frames that the kernel dropped before the router received them; `None` if the source device
    /// does not know.
    pub missed: Option<u64>,
    /// Frames that the kernel refused to send; `None` if the destination device does not know.
    pub refused: Option<u64>,
    /// What each flow got ([`Router::with_flows`]), the largest first.
    pub flows: Vec<FlowSnapshot>,
}

/// The state of one direction: figures that are available at any time without a delay.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// The link's counters.
    pub counters: Counters,
    /// The capacity of the link's queue, as it is now.
    pub queue: QueueLimit,
    /// Packets that wait before the link's serializer.
    pub queued: Queued,
    /// Packets that wait or are on their way.
    pub in_flight: usize,
    /// The greatest lateness since the last state.
    pub latest: Duration,
}

impl<D: Device> Router<D> {
    /// Joins device A (the first) and B by these links, in the order of [`Way::ALL`]. Starts at
    /// `now`.
    pub fn new(
        devices: [Ends<D>; 2],
        links: [LinkConfig; 2],
        release: Release,
        steps: &Steps,
        now: Instant,
    ) -> Router<D> {
        let [a, b] = devices;
        let [there, back] = links;
        let one_way =
            |way, devices, link| OneWay::new(way, devices, link, release, steps.clone(), now);
        Router {
            ways: [
                one_way(Way::AToB, (a.receiving, b.sending), there),
                one_way(Way::BToA, (b.receiving, a.sending), back),
            ],
            began: now,
        }
    }

    /// Counts what each flow gets, too. It costs some 100 ns a packet.
    #[must_use]
    pub fn with_flows(mut self) -> Router<D> {
        self.ways.iter_mut().for_each(OneWay::count_flows);
        self
    }

    /// Runs one turn of each direction: receives frames, and releases due ones. Returns true if
    /// there were any.
    pub fn turn(&mut self, now: impl Fn() -> Instant) -> io::Result<bool> {
        let [there, back] = &mut self.ways;
        let moved = there.turn(&now)?;
        Ok(back.turn(&now)? || moved)
    }

    /// The time at which the next packet is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.ways.iter().filter_map(|way| way.link.deadline()).min()
    }

    /// The state, in the order of [`Way::ALL`].
    pub fn live(&mut self, now: Instant) -> [Live; 2] {
        self.ways.each_mut().map(|way| way.live(now))
    }

    /// The counters by `now`. The kernel may not know the losses of a device: its interface is
    /// gone, or in another network namespace. Everything else is known.
    pub fn snapshot(&mut self, now: Instant) -> Snapshot {
        let [there, back] = &mut self.ways;
        let of_a = losses(&mut there.from, &mut back.to);
        let of_b = losses(&mut back.from, &mut there.to);
        Snapshot {
            elapsed: now.since(self.began),
            longest_turn: there.longest_turn.max(back.longest_turn),
            ways: [there.snapshot(of_a, of_b), back.snapshot(of_b, of_a)],
        }
    }
}

impl<D: Device + Send> Router<D> {
    /// Polls without rest until `is_over` returns true or `until` is reached. Calls `tell` with the
    /// state of each direction every `interval`, on the direction's thread; `tell` should be quick.
    /// `clock` has the time of this thread.
    ///
    /// These are loops of their own: a driver ([`lightwait::driver`]) would ask for deadlines and
    /// prepare to sleep, and the router never sleeps. Two threads share nothing but the order to
    /// end.
    ///
    /// # Errors
    /// If a device fails. The other direction then ends, too.
    pub fn run(
        &mut self,
        threads: Threads,
        clock: &Clock,
        is_over: impl Fn() -> bool + Sync,
        until: Option<Instant>,
        interval: Duration,
        tell: impl Fn(Way, Live) + Sync,
    ) -> io::Result<()> {
        let run = Run { ended: AtomicBool::new(false), is_over, until, interval, tell };
        let [there, back] = match threads {
            Threads::One => return run.route(&mut self.ways, clock),
            Threads::OneEach => self.ways.each_mut().map(slice::from_mut),
        };
        let (run, origin) = (&run, clock.origin());
        thread::scope(|scope| {
            let there = move || run.route(there, &Clock::with_origin(origin));
            let there =
                thread::Builder::new().name("a to b".to_owned()).spawn_scoped(scope, there)?;
            let back = run.route(back, clock);
            there.join().unwrap_or_else(|panic| resume_unwind(panic)).and(back)
        })
    }
}

/// A run of the router: what its threads have together.
struct Run<O, T> {
    /// A direction has ended, so that the other one does.
    ended: AtomicBool,
    is_over: O,
    until: Option<Instant>,
    interval: Duration,
    tell: T,
}

impl<O: Fn() -> bool, T: Fn(Way, Live)> Run<O, T> {
    /// Polls these directions in turns.
    fn route<D: Device>(&self, ways: &mut [OneWay<D>], clock: &Clock) -> io::Result<()> {
        let _ending = Ending(&self.ended);
        let begin_turns = |ways: &mut [OneWay<D>]| {
            let now = clock.now();
            ways.iter_mut().for_each(|way| way.turned = now);
            now
        };
        let mut now = begin_turns(ways);
        let (mut look_at, mut tell_at) = (now, now + self.interval);
        while self.until.is_none_or(|until| now < until) {
            // What others write is read seldom: it would cost a turn more than an empty device.
            if now >= look_at {
                if self.ended.load(Ordering::Relaxed) || (self.is_over)() {
                    break;
                }
                look_at = now + LOOK;
            }
            for way in &mut *ways {
                way.turn(&|| clock.now())?;
                now = way.turned;
            }
            if now >= tell_at {
                tell_at = now + self.interval;
                ways.iter_mut().for_each(|way| (self.tell)(way.way, way.live(now)));
                // The time of `tell` does not count as a turn.
                now = begin_turns(ways);
            }
        }
        Ok(())
    }
}

/// Ends both directions when it is dropped: at the end of one, its error or its panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The losses of a device: each handle knows its own.
fn losses(receiving: &mut impl Device, sending: &mut impl Device) -> Option<Losses> {
    let (one, other) = (receiving.losses().ok()?, sending.losses().ok()?);
    Some(Losses { missed: one.missed + other.missed, refused: one.refused + other.refused })
}

impl<D> std::fmt::Debug for Router<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let links = self.ways.each_ref().map(|way| &way.link);
        f.debug_struct("Router").field("links", &links).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
