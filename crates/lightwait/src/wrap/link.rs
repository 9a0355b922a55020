//! A device behind an emulated link: rate, delay, queue, loss and the rest of [`LinkConfig`],
//! separately for each direction.
//!
//! The link works on packets: it is a [`Plain`] device, so that damage on the link can be found.

use std::io;
use std::os::fd::BorrowedFd;

use lightwait_core::frame::in_bursts;
use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};
use lightwait_netem::{Counters, Link as Direction, LinkConfig, Packet};

use super::Plain;
use crate::device::{Device, Losses, Sink};

/// Frames taken from the device, or given to it, at a time.
const BATCH: usize = 256;

/// A device behind an emulated link.
#[derive(Debug)]
pub struct Link<D> {
    device: Plain<D>,
    outgoing: Direction,
    incoming: Direction,
    /// Packets that have crossed the link and wait for the device.
    arrived: Outbox,
    /// Packets that are being handed over; empty between calls.
    due: Vec<Packet>,
    scratch: Vec<u8>,
}

impl<D: Device> Link<D> {
    /// Puts a link before `device`, with one configuration a direction, as seen from this side.
    pub fn new(device: D, outgoing: LinkConfig, incoming: LinkConfig) -> Self {
        Link {
            device: Plain::new(device),
            outgoing: Direction::new(outgoing),
            incoming: Direction::new(incoming),
            arrived: Outbox::new(BATCH),
            due: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Puts one link both ways before `device`; each direction draws its own random choices.
    pub fn both_ways(device: D, config: &LinkConfig) -> Self {
        let seed = config.seed ^ 0x9e37_79b9_7f4a_7c15;
        Link::new(device, config.clone(), LinkConfig { seed, ..config.clone() })
    }

    /// The counters of each direction: outgoing and incoming.
    pub fn counters(&self) -> (Counters, Counters) {
        (self.outgoing.counters(), self.incoming.counters())
    }

    /// Gives the device what has crossed the link by `now`.
    fn flush(&mut self, now: Instant) -> io::Result<()> {
        loop {
            while self.arrived.room() > 0 {
                let Some(packet) = self.outgoing.pop(now) else { break };
                if let Some(frame) = self.arrived.push() {
                    frame.head.extend_from_slice(&packet);
                }
                self.outgoing.recycle(packet);
            }
            if self.arrived.is_empty() {
                return Ok(());
            }
            self.device.transmit(now, &mut self.arrived)?;
            if !self.arrived.is_empty() {
                return Ok(());
            }
        }
    }
}

impl<D: Device> Device for Link<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        self.flush(now)?;
        let incoming = &mut self.incoming;
        self.device.receive(now, budget.max(BATCH), &mut |frames| {
            frames.iter().for_each(|frame| incoming.push(now, frame.bytes));
        })?;
        self.due.extend(std::iter::from_fn(|| self.incoming.pop(now)).take(budget));
        in_bursts(self.due.iter().map(|packet| RxFrame::plain(packet)), &mut *sink);
        let received = self.due.len();
        self.due.drain(..).for_each(|packet| self.incoming.recycle(packet));
        Ok(received)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        while let Some(frame) = outbox.front() {
            self.scratch.clear();
            frame.complete_to(&mut self.scratch);
            self.outgoing.push(now, &self.scratch);
            outbox.pop();
        }
        self.flush(now)
    }

    fn deadline(&self) -> Option<Instant> {
        let waiting = (!self.arrived.is_empty() && !self.wants_writable()).then_some(Instant::ZERO);
        let directions = [self.outgoing.deadline(), self.incoming.deadline()];
        directions.into_iter().chain([waiting, self.device.deadline()]).flatten().min()
    }

    fn take_link_up(&mut self) -> bool {
        self.device.take_link_up()
    }

    fn losses(&mut self) -> io::Result<Losses> {
        self.device.losses()
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        self.device.wait_on()
    }

    fn wants_writable(&self) -> bool {
        self.device.wants_writable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use crate::device::memory::Wire;
    use lightwait_core::Medium;
    use std::time::Duration;

    fn linked(text: &str, capacity: usize) -> (Link<MemoryDevice>, Wire) {
        let capabilities = Capabilities { checksum: true, segmentation: 65_535, ..plain() };
        let (device, wire) = MemoryDevice::with_wire(capabilities, capacity);
        (Link::both_ways(device, &text.parse().unwrap()), wire)
    }

    fn plain() -> Capabilities {
        Capabilities::plain(Medium::Ip, 1500)
    }

    fn send(link: &mut Link<MemoryDevice>, now: Instant, bytes: &[u8]) {
        let mut outbox = Outbox::new(1);
        outbox.push().unwrap().head.extend_from_slice(bytes);
        link.transmit(now, &mut outbox).unwrap();
        assert!(outbox.is_empty(), "the link takes everything: its queue drops");
    }

    fn received(link: &mut Link<MemoryDevice>, now: Instant, budget: usize) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        let mut sink = |frames: &[RxFrame<'_>]| got.extend(frames.iter().map(|f| f.bytes.to_vec()));
        link.receive(now, budget, &mut sink).unwrap();
        got
    }

    #[test]
    fn the_link_advertises_no_offload() {
        assert_eq!(linked("", 8).0.capabilities(), plain());
    }

    #[test]
    fn both_directions_are_delayed_exactly() {
        let (mut link, mut wire) = linked("delay=30ms", 8);
        let (sent, there) = (Instant::from_millis(1), Instant::from_millis(31));
        let early = there - Duration::from_nanos(1);
        send(&mut link, sent, b"out");
        assert!(wire.inject(RxFrame::plain(b"in")));
        assert!(received(&mut link, sent, 8).is_empty());
        assert_eq!(link.deadline(), Some(there));
        link.transmit(early, &mut Outbox::new(1)).unwrap();
        assert_eq!((wire.drain(), received(&mut link, early, 8).len()), (None, 0));
        assert_eq!(received(&mut link, there, 8), [b"in"]);
        assert_eq!(wire.drain().unwrap().bytes, b"out");
        assert_eq!(link.deadline(), None);
    }

    #[test]
    fn the_budget_of_a_receive_is_kept() {
        let (mut link, mut wire) = linked("", 8);
        for n in 0..3 {
            assert!(wire.inject(RxFrame::plain(&[n])));
        }
        assert_eq!(received(&mut link, Instant::ZERO, 2), [[0], [1]]);
        assert_eq!(link.deadline(), Some(Instant::ZERO), "the third is due");
        assert_eq!(received(&mut link, Instant::ZERO, 2), [[2]]);
    }

    #[test]
    fn what_the_device_cannot_take_waits_and_goes_later() {
        let (mut link, mut wire) = linked("", 2);
        for n in 0..3 {
            send(&mut link, Instant::ZERO, &[n]);
        }
        assert_eq!(link.deadline(), Some(Instant::ZERO));
        let first: Vec<_> = std::iter::from_fn(|| wire.drain()).map(|f| f.bytes).collect();
        assert_eq!(first, [[0], [1]]);
        link.transmit(Instant::ZERO, &mut Outbox::new(1)).unwrap();
        assert_eq!(wire.drain().unwrap().bytes, [2]);
        assert_eq!(link.deadline(), None);
    }

    #[test]
    fn the_directions_lose_different_packets() {
        let (mut link, mut wire) = linked("loss=50%,seed=1", 100);
        let mut there = Vec::new();
        for n in 0..100 {
            send(&mut link, Instant::ZERO, &[n]);
            assert!(wire.inject(RxFrame::plain(&[n])));
            there.extend(wire.drain().map(|f| f.bytes[0]));
        }
        let back: Vec<u8> = received(&mut link, Instant::ZERO, 200).iter().map(|p| p[0]).collect();
        assert_ne!(there, back);
        let (out, inward) = link.counters();
        assert_eq!(out.lost + there.len() as u64, 100);
        assert_eq!(inward.lost + back.len() as u64, 100);
    }
}
