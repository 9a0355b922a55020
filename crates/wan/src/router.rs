//! The router: two devices, a link in each direction, and the loop that polls them.

use std::io;
use std::time::Duration;

use lightwait::clock::Clock;
use lightwait::device::{Device, Losses};
use lightwait_core::frame::BURST;
use lightwait_core::{Instant, Outbox};
use lightwait_netem::{Counters, Delivered, Link, LinkConfig, QueueLimit, Queued};

#[cfg(doc)]
use crate::Way;
use crate::flows::Flows;
use crate::{FlowSnapshot, Lateness, Steps};

/// Packets that leave in one direction before the other one has its turn, at most.
const RELEASES: usize = 64;

/// Room for frames that wait at a packet socket, in bytes
/// ([`with_receive_buffer`](lightwait::device::AfPacket::with_receive_buffer)). They wait in one
/// row for all connections, so that a flood makes every packet late by as long as the row takes.
/// This holds 2700 small frames, which take the router 4 to 30 ms, or 900 full ones: those of 10 ms
/// at 1 Gbit/s. A TAP's queue holds 1000 frames.
pub const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// The times at which due packets are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// At once: the router polls without rest.
    Polling,
    /// At the end of each interval, all together, as on a clock's interrupt.
    Every(Duration),
}

/// Two devices joined by an emulated link in each direction.
pub struct Router {
    devices: [Box<dyn Device>; 2],
    /// In the order of [`Way::ALL`].
    ways: [OneWay; 2],
    release: Release,
    steps: Steps,
    began: Instant,
    /// The beginning of the last turn.
    turned: Instant,
    longest_turn: Duration,
}

/// One direction.
#[derive(Debug)]
struct OneWay {
    link: Link,
    /// The packet that is being sent, and the time at which it was due.
    leaving: Outbox,
    due: Instant,
    /// The time at which the last packet entered the link.
    entered: Instant,
    /// The last time at which the source device was found empty.
    emptied: Instant,
    /// Packets that are due have not left yet.
    is_behind: bool,
    lateness: Lateness,
    /// The greatest lateness since the last call of `live`, in ns.
    latest_ns: u64,
    changes: Vec<Change>,
    /// What each flow got, if the caller asks for it.
    flows: Option<Flows>,
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
    /// The longest time between two turns.
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
    /// The greatest lateness since the last call of [`Router::live`].
    pub latest: Duration,
}

impl Router {
    /// Joins device A (the first) and B by these links, in the order of [`Way::ALL`]. Starts at
    /// `now`.
    pub fn new(
        devices: [Box<dyn Device>; 2],
        links: [LinkConfig; 2],
        release: Release,
        steps: Steps,
        now: Instant,
    ) -> Router {
        Router {
            devices,
            ways: links.map(|config| OneWay::new(config, now)),
            release,
            steps,
            began: now,
            turned: now,
            longest_turn: Duration::ZERO,
        }
    }

    /// Counts what each flow gets, too. It costs some 100 ns a packet.
    #[must_use]
    pub fn with_flows(mut self) -> Router {
        for way in &mut self.ways {
            way.link.keep_gone();
            way.flows = Some(Flows::default());
        }
        self
    }

    /// Polls without rest until `is_over` returns true or `until` is reached. Calls `tell` with
    /// itself every `interval`; `tell` should be quick.
    ///
    /// This is a loop of its own: a driver ([`lightwait::driver`]) would ask for deadlines and
    /// prepare to sleep, and the router never sleeps.
    ///
    /// # Errors
    /// If a device fails.
    pub fn run(
        &mut self,
        clock: &Clock,
        is_over: impl Fn() -> bool,
        until: Option<Instant>,
        interval: Duration,
        mut tell: impl FnMut(&mut Router),
    ) -> io::Result<()> {
        let mut tell_at = clock.now() + interval;
        self.turned = clock.now();
        while !is_over() && until.is_none_or(|until| self.turned < until) {
            self.turn(|| clock.now())?;
            if self.turned >= tell_at {
                tell(self);
                tell_at = self.turned + interval;
                // The time of `tell` does not count as a turn.
                self.turned = clock.now();
            }
        }
        Ok(())
    }

    /// Runs one turn: receives frames, and releases due ones. Returns true if there were any.
    pub fn turn(&mut self, now: impl Fn() -> Instant) -> io::Result<bool> {
        let begin = now();
        self.longest_turn = self.longest_turn.max(begin.since(self.turned));
        self.turned = begin;
        while let Some(step) = self.steps.take_due(begin.since(self.began)) {
            let began = self.began;
            for ((way, config), text) in self.ways.iter_mut().zip(step.links).zip(step.texts) {
                way.change(began, step.at, config, text.to_string());
            }
        }
        let [a, b] = &mut self.devices;
        let [there, back] = &mut self.ways;
        let (release, began) = (self.release, self.began);
        let mut moved = there.take_in(&mut **a, &now)?;
        moved |= there.release(&mut **b, release, began, &now)?;
        moved |= back.take_in(&mut **b, &now)?;
        moved |= back.release(&mut **a, release, began, &now)?;
        Ok(moved)
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
        let [of_a, of_b] = self.devices.each_mut().map(|device| device.losses().ok());
        let [there, back] = &self.ways;
        Snapshot {
            elapsed: now.since(self.began),
            ways: [there.snapshot(of_a, of_b), back.snapshot(of_b, of_a)],
            longest_turn: self.longest_turn,
        }
    }
}

impl OneWay {
    fn new(config: LinkConfig, now: Instant) -> OneWay {
        OneWay {
            link: Link::changeable(now, config),
            leaving: Outbox::new(1),
            due: now,
            entered: now,
            emptied: now,
            is_behind: false,
            lateness: Lateness::new(),
            latest_ns: 0,
            changes: Vec::new(),
            flows: None,
        }
    }

    /// The link is another one from `at` after `began` on, unless it stays the same. Its seed does.
    fn change(&mut self, began: Instant, at: Duration, config: LinkConfig, link: String) {
        let config = LinkConfig { seed: self.link.config().seed, ..config };
        if *self.link.config() == config {
            return;
        }
        self.changes.push(Change { at, link, before: self.link.counters() });
        self.entered = self.entered.max(began + at);
        self.link.reconfigure(self.entered, config);
    }

    /// Receives frames, unless earlier ones that are due have not left: a large segment becomes
    /// many packets, and what came faster than it leaves would wait here without bound. It waits at
    /// the device, which has a bound and counts what it drops.
    ///
    /// Each frame comes with its time of arrival if the device knows that, else with the time at
    /// which it was found. The device may use another clock: a frame came since the last turn
    /// that found the device empty, and before it is handed over. The clock is read again then,
    /// since something else may have had the processor after the first reading.
    fn take_in(&mut self, from: &mut dyn Device, clock: &impl Fn() -> Instant) -> io::Result<bool> {
        if self.is_behind {
            return Ok(false);
        }
        let now = clock();
        let (link, entered, flows) = (&mut self.link, &mut self.entered, &mut self.flows);
        let earliest = self.emptied.min(now);
        let received = from.receive(now, BURST, &mut |frames| {
            let found = clock();
            for frame in frames {
                *entered = (*entered).max(frame.arrived.clamp(earliest, found));
                link.push(*entered, frame.bytes);
                if let Some(flows) = flows {
                    flows.on_in(*entered, frame.bytes);
                }
            }
        })?;
        if received < BURST {
            self.emptied = now;
        }
        Ok(received > 0)
    }

    /// Sends due packets, one at a time: each has its own time, and its own lateness.
    fn release(
        &mut self,
        to: &mut dyn Device,
        release: Release,
        began: Instant,
        clock: &impl Fn() -> Instant,
    ) -> io::Result<bool> {
        let begin = clock();
        let until = match release {
            Release::Polling => begin,
            Release::Every(interval) => last_tick(began, interval, begin),
        };
        let mut now = begin;
        self.is_behind = true;
        for number in 0..RELEASES {
            if self.leaving.is_empty() {
                let Some(Delivered { arrival, entered, packet }) = self.link.deliver(until) else {
                    self.is_behind = false;
                    self.count_gone();
                    return Ok(number > 0);
                };
                self.due = arrival;
                if let Some(flows) = &mut self.flows {
                    flows.on_out(arrival, arrival.since(entered), &packet);
                }
                if let Some(frame) = self.leaving.push() {
                    frame.head.extend_from_slice(&packet);
                }
                self.link.recycle(packet);
            }
            to.transmit(now, &mut self.leaving)?;
            if !self.leaving.is_empty() {
                return Ok(number > 0);
            }
            now = clock();
            let late_ns = now.nanos_since(self.due);
            self.lateness.record(late_ns);
            self.latest_ns = self.latest_ns.max(late_ns);
        }
        Ok(true)
    }

    /// Counts what the link dropped and lost, by flow.
    fn count_gone(&mut self) {
        let Some(flows) = &mut self.flows else { return };
        while let Some(packet) = self.link.take_gone() {
            flows.on_lost(&packet);
            self.link.recycle(packet);
        }
    }

    fn live(&mut self, now: Instant) -> Live {
        Live {
            counters: self.link.counters(),
            queue: self.link.config().queue,
            queued: self.link.queued(now),
            in_flight: self.link.in_flight(),
            latest: Duration::from_nanos(std::mem::take(&mut self.latest_ns)),
        }
    }

    /// `from` and `to` are the losses of the two devices, as far as they are known.
    fn snapshot(&self, from: Option<Losses>, to: Option<Losses>) -> WaySnapshot {
        WaySnapshot {
            counters: self.link.counters(),
            in_flight: self.link.in_flight(),
            lateness: self.lateness.clone(),
            changes: self.changes.clone(),
            missed: from.map(|losses| losses.missed),
            refused: to.map(|losses| losses.refused),
            flows: self.flows.as_ref().map(Flows::largest).unwrap_or_default(),
        }
    }
}

/// The last tick at or before `now`; ticks are `interval` apart, from `began` on.
fn last_tick(began: Instant, interval: Duration, now: Instant) -> Instant {
    let interval_ns = (interval.as_nanos() as u64).max(1);
    let elapsed_ns = now.nanos_since(began);
    began.plus_nanos(elapsed_ns - elapsed_ns % interval_ns)
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("ways", &self.ways).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
