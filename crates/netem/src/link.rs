//! The link: a queue, a serializer and packets on their way.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use lightwait_core::Instant;
use lightwait_core::rng::Rng;

use crate::codel::Codel;
use crate::loss::LossProcess;
use crate::queue::Queue;
use crate::serializer::Serializer;
use crate::{LinkConfig, QueueLimit, Rate, jitter};

/// A packet that comes out of a link; give it back with [`Link::recycle`].
pub type Packet = Vec<u8>;

/// The most buffers kept for reuse.
const SPARE_PACKETS: usize = 1024;

/// One direction of an emulated link.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    rng: Rng,
    loss: LossProcess,
    queue: Queue,
    codel: Option<Codel>,
    serializer: Serializer,
    /// Packets whose last bit leaves after the last poll: the time at which it leaves, and the
    /// bytes.
    unsent: VecDeque<(Instant, usize)>,
    unsent_bytes: usize,
    /// The link decides about a packet at its push. Nothing can change that later.
    decides_early: bool,
    /// Packets on their way that keep the order, earliest first.
    in_order: VecDeque<UnderWay>,
    /// Packets that do not keep the order, by time of arrival and then in order of sending.
    late: BinaryHeap<UnderWay>,
    under_way_bytes: usize,
    /// The arrival of the last packet that keeps the order.
    last_arrival: Instant,
    dispatched: u64,
    spare: Vec<Packet>,
    counters: Counters,
}

/// The counters of a link, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets pushed.
    pub pushed: u64,
    /// Bytes pushed.
    pub pushed_bytes: u64,
    /// Packets popped.
    pub delivered: u64,
    /// Bytes popped.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets that CoDel dropped because they had waited too long.
    pub codel_dropped: u64,
    /// Packets dropped because too many bytes were on their way.
    pub in_flight_overflowed: u64,
    /// Packets lost on the wire.
    pub lost: u64,
    /// Packets sent late.
    pub reordered: u64,
    /// Packets that arrive twice.
    pub duplicated: u64,
    /// Packets (each copy separately) with a bit flipped.
    pub corrupted: u64,
    /// The most bytes in the queue, including the packet being sent.
    pub most_queued_bytes: u64,
}

/// The packets before the serializer, including the one being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Packets.
    pub packets: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Link {
    /// An empty link since [`Instant::ZERO`]. It decides about a packet at its push, unless it has
    /// CoDel.
    pub fn new(config: LinkConfig) -> Self {
        let decides_early = config.codel.is_none();
        Link { decides_early, ..Link::changeable(Instant::ZERO, config) }
    }

    /// An empty link since `now` that can be [reconfigured](Link::reconfigure). It decides about a
    /// packet when it begins to send it. A trace begins at `now`.
    pub fn changeable(now: Instant, config: LinkConfig) -> Self {
        Link {
            rng: Rng::from_seed(config.seed),
            loss: LossProcess::new(config.loss),
            queue: Queue::default(),
            codel: config.codel.map(Codel::new),
            serializer: Serializer::new(now),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            decides_early: false,
            in_order: VecDeque::new(),
            late: BinaryHeap::new(),
            under_way_bytes: 0,
            last_arrival: Instant::ZERO,
            dispatched: 0,
            spare: Vec::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// Changes the link from `now` on, which must not be before the last push. The packet that is
    /// being sent and packets on their way are not affected; waiting packets are sent at the new
    /// rate. Packets do not overtake, even if the delay becomes shorter. The seed stays.
    ///
    /// # Panics
    /// If the link was not made [`Link::changeable`].
    pub fn reconfigure(&mut self, now: Instant, config: LinkConfig) {
        assert!(!self.decides_early, "this link has decided already");
        self.advance(now);
        if self.config.loss != config.loss {
            self.loss = LossProcess::new(config.loss);
        }
        if self.config.codel != config.codel {
            self.codel = config.codel.map(Codel::new);
        }
        if self.config.rate != config.rate {
            self.serializer.begin_anew(now);
        }
        self.config = config;
        self.advance(now);
    }

    /// The configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The packets that wait at `now`.
    pub fn queued(&mut self, now: Instant) -> Queued {
        self.advance(now);
        while self.unsent.front().is_some_and(|&(sent, _)| sent <= now) {
            let (_, len) = self.unsent.pop_front().unwrap_or_default();
            self.unsent_bytes -= len;
        }
        Queued {
            packets: self.queue.len() + self.unsent.len(),
            bytes: self.queue.bytes() + self.unsent_bytes,
        }
    }

    /// Sends a packet. `now` never goes backwards from call to call.
    pub fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.counters.pushed += 1;
        self.counters.pushed_bytes += bytes.len() as u64;
        let queued = self.queued(now);
        let is_free = self.config.rate == Rate::Unlimited && queued.packets == 0;
        if !is_free && !self.admits(queued, bytes.len()) {
            self.counters.overflowed += 1;
            return;
        }
        if !self.has_room(bytes.len()) {
            return;
        }
        let packet = self.copy_of(bytes);
        if is_free {
            self.depart(now, packet);
            return;
        }
        let most = self.counters.most_queued_bytes.max((queued.bytes + bytes.len()) as u64);
        self.counters.most_queued_bytes = most;
        self.queue.push(now, packet);
        self.advance(if self.decides_early { Instant::FAR_FUTURE } else { now });
    }

    /// The next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Packet> {
        self.pop_with_arrival(now).map(|(_, packet)| packet)
    }

    /// The next packet that has arrived by `now`, and its time of arrival.
    pub fn pop_with_arrival(&mut self, now: Instant) -> Option<(Instant, Packet)> {
        self.advance(now);
        let is_late = match (self.in_order.front(), self.late.peek()) {
            (Some(straight), Some(late)) => late > straight,
            (straight, _) => straight.is_none(),
        };
        let next = if is_late { self.late.peek() } else { self.in_order.front() };
        if next?.arrival > now {
            return None;
        }
        let next = if is_late { self.late.pop() } else { self.in_order.pop_front() };
        let UnderWay { arrival, packet, .. } = next?;
        self.under_way_bytes -= packet.len();
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len() as u64;
        Some((arrival, packet))
    }

    /// Gives a packet's buffer back for reuse.
    pub fn recycle(&mut self, mut packet: Packet) {
        if self.spare.len() < SPARE_PACKETS {
            packet.clear();
            self.spare.push(packet);
        }
    }

    /// The arrival of the next packet; `None` if none is on its way. With CoDel or jitter, the fate
    /// of waiting packets is not decided yet, and the next one may arrive later than this:
    /// [`Link::pop`] then returns nothing, and there is another deadline.
    pub fn deadline(&self) -> Option<Instant> {
        let under_way = [self.in_order.front(), self.late.peek()];
        let waiting = self.queue.front().map(|head| {
            let start = self.serializer.free_at().max(head.entered);
            // The first packet may be dropped, and a packet behind it may take less time.
            let bytes = if self.codel.is_some() { 0 } else { head.packet.len() };
            let sent = self.serializer.clone().send(&self.config.rate, start, bytes);
            jitter::earliest(&self.config, sent)
        });
        under_way.into_iter().flatten().map(|next| next.arrival).chain(waiting).min()
    }

    /// Packets that wait or are on their way, duplicates included.
    pub fn in_flight(&self) -> usize {
        self.queue.len() + self.in_order.len() + self.late.len()
    }

    /// True if a packet of `len` bytes still fits into the queue.
    fn admits(&self, queued: Queued, len: usize) -> bool {
        match self.config.queue {
            QueueLimit::Unlimited => true,
            QueueLimit::Bytes(limit) => queued.bytes + len <= limit,
            QueueLimit::Packets(limit) => queued.packets < limit,
        }
    }

    /// True if there is memory for `len` more bytes; counts an overflow if there is none.
    fn has_room(&mut self, len: usize) -> bool {
        let held = self.queue.bytes() + self.under_way_bytes;
        let has_room = held + len <= self.config.in_flight_limit_bytes;
        self.counters.in_flight_overflowed += u64::from(!has_room);
        has_room
    }

    /// Sends the packets that the serializer has reached by `now`, each at its own time.
    fn advance(&mut self, now: Instant) {
        while let Some(head) = self.queue.front() {
            let start = self.serializer.free_at().max(head.entered);
            if start > now {
                return;
            }
            if let Some(packet) = self.dequeue(start) {
                self.depart(start, packet);
            }
        }
    }

    /// The packet to send at `start`, if CoDel leaves any.
    fn dequeue(&mut self, start: Instant) -> Option<Packet> {
        let Some(codel) = &mut self.codel else { return self.queue.pop().map(|it| it.packet) };
        let mut dropped = Vec::new();
        let packet = codel.dequeue(start, &mut self.queue, &mut |packet| dropped.push(packet));
        self.counters.codel_dropped += dropped.len() as u64;
        dropped.into_iter().for_each(|packet| self.recycle(packet));
        packet
    }

    /// The serializer begins to send a packet at `start`: this decides the packet's fate.
    fn depart(&mut self, start: Instant, packet: Packet) {
        let sent = self.serializer.send(&self.config.rate, start, packet.len());
        if sent > start {
            self.unsent.push_back((sent, packet.len()));
            self.unsent_bytes += packet.len();
        }
        if self.loss.next_is_lost(&mut self.rng) {
            self.counters.lost += 1;
            self.recycle(packet);
            return;
        }
        let (arrival, is_late) = self.arrival(sent);
        let copy = (self.config.duplicate > 0.0).then(|| self.copy_of(&packet));
        self.dispatch(arrival, is_late, packet);
        let Some(copy) = copy else { return };
        if self.rng.chance(self.config.duplicate) && self.has_room(copy.len()) {
            self.counters.duplicated += 1;
            self.dispatch(arrival, is_late, copy);
        } else {
            self.recycle(copy);
        }
    }

    fn copy_of(&mut self, bytes: &[u8]) -> Packet {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.extend_from_slice(bytes);
        packet
    }

    /// The arrival of a packet whose last bit leaves at `sent`, and whether others may overtake it.
    fn arrival(&mut self, sent: Instant) -> (Instant, bool) {
        let arrival = jitter::arrival(&self.config, sent, &mut self.rng);
        if self.rng.chance(self.config.reorder) {
            self.counters.reordered += 1;
            return (arrival + self.config.reorder_delay, true);
        }
        self.last_arrival = self.last_arrival.max(arrival);
        (self.last_arrival, false)
    }

    /// Puts one copy on its way.
    fn dispatch(&mut self, arrival: Instant, is_late: bool, mut packet: Packet) {
        if !packet.is_empty() && self.rng.chance(self.config.corrupt) {
            let bit = self.rng.below(packet.len() as u32 * 8);
            packet[bit as usize / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
        }
        self.under_way_bytes += packet.len();
        let under_way = UnderWay { arrival, order: self.dispatched, packet };
        self.dispatched += 1;
        if is_late {
            self.late.push(under_way);
        } else {
            self.in_order.push_back(under_way);
        }
    }
}

/// A packet on its way.
#[derive(Clone, Debug)]
struct UnderWay {
    arrival: Instant,
    order: u64,
    packet: Packet,
}

/// The *earliest* arrival is the greatest, because the heap returns its greatest first.
impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival, other.order).cmp(&(self.arrival, self.order))
    }
}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for UnderWay {}

#[cfg(test)]
mod tests;
