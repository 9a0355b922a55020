//! The link itself: a queue, a serializer and a heap of packets under way.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use lightwait_core::Instant;
use lightwait_core::rng::Rng;
use lightwait_core::time::{Duration, as_nanos};

use crate::loss::LossProcess;
use crate::{LinkConfig, QueueLimit};

/// A packet as it comes out of a link; give it back with [`Link::recycle`].
pub type Packet = Vec<u8>;

/// Buffers kept for reuse at most.
const SPARE_PACKETS: usize = 1024;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// One direction of an emulated link.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    rng: Rng,
    loss: LossProcess,
    serializer: Serializer,
    queue: Queue,
    /// Packets on their way, by time of arrival and then in order of pushing.
    under_way: BinaryHeap<UnderWay>,
    in_flight_bytes: usize,
    /// When the last packet that keeps the order arrives.
    last_arrival: Instant,
    pushed: u64,
    spare: Vec<Packet>,
    counters: Counters,
}

/// Everything a link has done, since its beginning.
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
    /// Packets dropped because too many bytes were on their way.
    pub in_flight_overflowed: u64,
    /// Packets lost on the wire.
    pub lost: u64,
    /// Packets sent late.
    pub reordered: u64,
    /// Packets that arrive twice.
    pub duplicated: u64,
    /// Packets (each copy for itself) with a bit flipped.
    pub corrupted: u64,
}

impl Link {
    /// A link like that, empty.
    pub fn new(config: LinkConfig) -> Self {
        Link {
            rng: Rng::from_seed(config.seed),
            loss: LossProcess::new(config.loss),
            serializer: Serializer::new(config.rate_bits_per_second),
            queue: Queue::new(match config.rate_bits_per_second {
                Some(_) => config.queue,
                None => QueueLimit::Unlimited,
            }),
            under_way: BinaryHeap::new(),
            in_flight_bytes: 0,
            last_arrival: Instant::ZERO,
            pushed: 0,
            spare: Vec::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// What it is like.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Sends a packet. `now` never goes backwards from call to call.
    pub fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.counters.pushed += 1;
        self.counters.pushed_bytes += bytes.len() as u64;
        if !self.queue.admits(now, bytes.len()) {
            self.counters.overflowed += 1;
            return;
        }
        let sent = self.serializer.send(now, bytes.len());
        self.queue.enter(sent, bytes.len());
        if self.loss.next_is_lost(&mut self.rng) {
            self.counters.lost += 1;
            return;
        }
        let arrival = self.arrival(sent);
        self.dispatch(arrival, bytes);
        if self.rng.chance(self.config.duplicate) {
            self.counters.duplicated += 1;
            self.dispatch(arrival, bytes);
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Packet> {
        if self.under_way.peek()?.arrival > now {
            return None;
        }
        let packet = self.under_way.pop()?.packet;
        self.in_flight_bytes -= packet.len();
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len() as u64;
        Some(packet)
    }

    /// Gives a packet's buffer back for reuse.
    pub fn recycle(&mut self, mut packet: Packet) {
        if self.spare.len() < SPARE_PACKETS {
            packet.clear();
            self.spare.push(packet);
        }
    }

    /// When the next packet arrives; `None` if none is on its way.
    pub fn deadline(&self) -> Option<Instant> {
        self.under_way.peek().map(|next| next.arrival)
    }

    /// Packets on their way, duplicates included.
    pub fn in_flight(&self) -> usize {
        self.under_way.len()
    }

    /// When a packet whose last bit leaves at `sent` arrives.
    fn arrival(&mut self, sent: Instant) -> Instant {
        let jitter_ns = as_nanos(self.config.jitter);
        let late_ns = if jitter_ns == 0 { 0 } else { (self.rng.unit() * jitter_ns as f64) as u64 };
        let arrival = sent + self.config.delay + Duration::from_nanos(late_ns);
        if self.rng.chance(self.config.reorder) {
            self.counters.reordered += 1;
            return arrival + self.config.reorder_delay;
        }
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_arrival
    }

    /// Puts one copy on its way.
    fn dispatch(&mut self, arrival: Instant, bytes: &[u8]) {
        if self.in_flight_bytes + bytes.len() > self.config.in_flight_limit_bytes {
            self.counters.in_flight_overflowed += 1;
            return;
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.extend_from_slice(bytes);
        if !packet.is_empty() && self.rng.chance(self.config.corrupt) {
            let bit = self.rng.below(packet.len() as u32 * 8);
            packet[bit as usize / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
        }
        self.in_flight_bytes += packet.len();
        self.under_way.push(UnderWay { arrival, order: self.pushed, packet });
        self.pushed += 1;
    }
}

/// Turns bytes into time, exactly: what division leaves over is carried to the next packet, so that
/// a busy serializer never drifts from its rate.
#[derive(Clone, Debug)]
struct Serializer {
    rate: Option<u64>,
    free_at: Instant,
    /// Nanoseconds not yet charged, times the rate.
    remainder: u128,
}

impl Serializer {
    fn new(rate: Option<u64>) -> Self {
        Serializer { rate: rate.map(|r| r.max(1)), free_at: Instant::ZERO, remainder: 0 }
    }

    /// When the last bit of a packet handed over at `now` has left.
    fn send(&mut self, now: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.rate else { return now };
        if self.free_at <= now {
            self.free_at = now;
            self.remainder = 0;
        }
        let scaled = bytes as u128 * 8 * NANOS_PER_SECOND + self.remainder;
        let ns = u64::try_from(scaled / u128::from(rate)).unwrap_or(u64::MAX);
        self.remainder = scaled % u128::from(rate);
        self.free_at = self.free_at + Duration::from_nanos(ns);
        self.free_at
    }
}

/// What waits before the serializer or is being sent.
#[derive(Clone, Debug)]
struct Queue {
    limit: QueueLimit,
    waiting: VecDeque<(Instant, usize)>,
    bytes: usize,
}

impl Queue {
    fn new(limit: QueueLimit) -> Self {
        Queue { limit, waiting: VecDeque::new(), bytes: 0 }
    }

    /// True if a packet of `len` bytes still fits at `now`.
    fn admits(&mut self, now: Instant, len: usize) -> bool {
        while self.waiting.front().is_some_and(|&(sent, _)| sent <= now) {
            let (_, len) = self.waiting.pop_front().unwrap_or_default();
            self.bytes -= len;
        }
        match self.limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Bytes(limit) => self.bytes + len <= limit,
            QueueLimit::Packets(limit) => self.waiting.len() < limit,
        }
    }

    fn enter(&mut self, sent: Instant, len: usize) {
        if self.limit != QueueLimit::Unlimited {
            self.waiting.push_back((sent, len));
            self.bytes += len;
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

/// The *earliest* arrival is the greatest, because the heap hands out its greatest first.
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
