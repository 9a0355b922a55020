//! The queues of one end of a cable, a shard's device each: what arrives comes to the shard that
//! owns its connection, but for a frame now and then.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use lightwait::device::{Device, Sink};
use lightwait_core::flow::Steering;
use lightwait_core::frame::in_bursts;
use lightwait_core::rng::Rng;
use lightwait_core::wire::{ends, ethernet};
use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};
use lightwait_netem::Packet;

use crate::cable::Port;

/// Frames that wait in a queue; the device drops more.
const WAITING_MAX: usize = 4096;

/// How many shards a host has, and how well its device steers frames to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crew {
    /// Shards.
    pub shards: u16,
    /// The part of the frames that comes to any shard.
    pub strays: f64,
    /// The seed by which these are chosen.
    pub seed: u64,
}

impl Crew {
    /// A host of one shard.
    pub const ONE: Crew = Crew { shards: 1, strays: 0.0, seed: 0 };
}

/// One of the queues.
#[derive(Debug)]
pub(crate) struct Queue {
    index: u16,
    shared: Rc<RefCell<Shared>>,
}

#[derive(Debug)]
struct Shared {
    port: Port,
    steering: Steering,
    strays: f64,
    rng: Rng,
    waiting: Vec<VecDeque<Packet>>,
}

impl Queue {
    /// The queues of a port, for a host with that secret.
    pub(crate) fn all(port: Port, crew: Crew, secret: &[u8; 32]) -> Vec<Queue> {
        let shared = Rc::new(RefCell::new(Shared {
            port,
            steering: Steering::new(secret, crew.shards),
            strays: crew.strays,
            rng: Rng::from_seed(crew.seed),
            waiting: (0..crew.shards).map(|_| VecDeque::new()).collect(),
        }));
        (0..crew.shards).map(|index| Queue { index, shared: shared.clone() }).collect()
    }
}

impl Shared {
    /// Takes all that has arrived, and puts it into the queues.
    fn distribute(&mut self, now: Instant) {
        while let Some(packet) = self.port.take(now) {
            let to = self.steer(&packet);
            match self.waiting.get_mut(usize::from(to)) {
                Some(queue) if queue.len() < WAITING_MAX => queue.push_back(packet),
                _ => self.port.recycle(packet),
            }
        }
    }

    fn steer(&mut self, frame: &[u8]) -> u16 {
        if self.rng.chance(self.strays) {
            return self.rng.below(self.steering.shards().into()) as u16;
        }
        let packet = ethernet::Frame::parse(frame).ok();
        let ends = packet.and_then(|link| ends::of_packet(link.payload));
        ends.map_or(0, |ends| self.steering.owner(&ends))
    }
}

impl Device for Queue {
    fn capabilities(&self) -> Capabilities {
        self.shared.borrow().port.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let mut shared = self.shared.borrow_mut();
        shared.distribute(now);
        let queue = &mut shared.waiting[usize::from(self.index)];
        let count = queue.len().min(budget);
        let arrived: Vec<Packet> = queue.drain(..count).collect();
        in_bursts(arrived.iter().map(|packet| RxFrame::plain(packet)), sink);
        arrived.into_iter().for_each(|packet| shared.port.recycle(packet));
        Ok(count)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.shared.borrow().port.send(now, self.index, outbox);
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let shared = self.shared.borrow();
        let has_frames = !shared.waiting[usize::from(self.index)].is_empty();
        if has_frames { Some(Instant::ZERO) } else { shared.port.deadline() }
    }
}
