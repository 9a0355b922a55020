//! One direction: a device that is read, a link, and a device that is written.

use std::io;
use std::time::Duration;

use lightwait::device::{Device, Losses};
use lightwait_core::frame::BURST;
use lightwait_core::{Instant, Outbox};
use lightwait_netem::{Delivered, Link, LinkConfig};

use super::{Change, Live, Release, WaySnapshot};
use crate::flows::Flows;
use crate::{Lateness, Steps, Way};

/// Packets that leave before the device is read again, at most. Where one thread has both
/// directions, the other one has its turn then.
pub(super) const RELEASES: usize = 64;

/// One direction. It shares nothing with the other.
pub(super) struct OneWay<D> {
    pub(super) way: Way,
    pub(super) from: D,
    pub(super) to: D,
    pub(super) link: Link,
    release: Release,
    steps: Steps,
    began: Instant,
    /// The beginning of the last turn.
    pub(super) turned: Instant,
    pub(super) longest_turn: Duration,
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

impl<D: Device> OneWay<D> {
    pub(super) fn new(
        way: Way,
        (from, to): (D, D),
        config: LinkConfig,
        release: Release,
        steps: Steps,
        now: Instant,
    ) -> OneWay<D> {
        OneWay {
            way,
            from,
            to,
            link: Link::changeable(now, config),
            release,
            steps,
            began: now,
            turned: now,
            longest_turn: Duration::ZERO,
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

    pub(super) fn count_flows(&mut self) {
        self.link.keep_gone();
        self.flows = Some(Flows::default());
    }

    /// Runs one turn: receives frames, and releases due ones. Returns true if there were any.
    pub(super) fn turn(&mut self, clock: &impl Fn() -> Instant) -> io::Result<bool> {
        let begin = clock();
        self.longest_turn = self.longest_turn.max(begin.since(self.turned));
        self.turned = begin;
        while let Some(step) = self.steps.take_due(begin.since(self.began)) {
            let number = self.way as usize;
            let (config, text) = (step.links[number].clone(), step.texts[number].to_string());
            self.change(step.at, config, text);
        }
        let received = self.take_in(begin, clock)?;
        Ok(self.release(clock)? || received)
    }

    /// The link is another one from `at` after the beginning on, unless it stays the same. Its seed
    /// does.
    fn change(&mut self, at: Duration, config: LinkConfig, link: String) {
        let config = LinkConfig { seed: self.link.config().seed, ..config };
        if *self.link.config() == config {
            return;
        }
        self.changes.push(Change { at, link, before: self.link.counters() });
        self.entered = self.entered.max(self.began + at);
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
    fn take_in(&mut self, now: Instant, clock: &impl Fn() -> Instant) -> io::Result<bool> {
        if self.is_behind {
            return Ok(false);
        }
        let (link, entered, flows) = (&mut self.link, &mut self.entered, &mut self.flows);
        let earliest = self.emptied.min(now);
        let received = self.from.receive(now, BURST, &mut |frames| {
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
    fn release(&mut self, clock: &impl Fn() -> Instant) -> io::Result<bool> {
        let begin = clock();
        let until = match self.release {
            Release::Polling => begin,
            Release::Every(interval) => last_tick(self.began, interval, begin),
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
            self.to.transmit(now, &mut self.leaving)?;
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

    pub(super) fn live(&mut self, now: Instant) -> Live {
        Live {
            counters: self.link.counters(),
            queue: self.link.config().queue,
            queued: self.link.queued(now),
            in_flight: self.link.in_flight(),
            latest: Duration::from_nanos(std::mem::take(&mut self.latest_ns)),
        }
    }

    /// `from` and `to` are the losses of the two devices, as far as they are known.
    pub(super) fn snapshot(&self, from: Option<Losses>, to: Option<Losses>) -> WaySnapshot {
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
