//! The link: a queue, a serializer and packets on their way.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;

use lightwait_core::Instant;
use lightwait_core::rng::Rng;

use crate::discipline::{Discipline, Judged};
use crate::loss::LossProcess;
use crate::queue::Waiting;
use crate::serializer::Serializer;
use crate::{LinkConfig, MarkFrom, QueueLimit, frame, jitter};

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
    queue: Discipline,
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
    /// Packets that wait to be overtaken.
    held: VecDeque<Held>,
    /// Packets that were dropped or lost, if the caller asks for them.
    gone: Option<Vec<Packet>>,
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
    /// Packets that found the queue full, or that made room in one for another flow.
    pub overflowed: u64,
    /// Packets that CoDel dropped because they had waited too long.
    pub codel_dropped: u64,
    /// Packets marked with Congestion Experienced.
    pub marked: u64,
    /// Packets dropped because too many bytes were on their way.
    pub in_flight_overflowed: u64,
    /// Packets that were too long to pass.
    pub too_long: u64,
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
    /// CoDel or flow queues.
    pub fn new(config: LinkConfig) -> Self {
        let decides_early = config.codel.is_none() && config.fair.is_none();
        Link { decides_early, ..Link::changeable(Instant::ZERO, config) }
    }

    /// An empty link since `now` that can be [reconfigured](Link::reconfigure). It decides about a
    /// packet when it begins to send it. A trace begins at `now`.
    pub fn changeable(now: Instant, config: LinkConfig) -> Self {
        Link {
            rng: Rng::from_seed(config.seed),
            loss: LossProcess::new(config.loss),
            queue: Discipline::new(&config),
            serializer: Serializer::new(now),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            decides_early: false,
            in_order: VecDeque::new(),
            late: BinaryHeap::new(),
            held: VecDeque::new(),
            gone: None,
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
        if (self.config.codel, self.config.fair) != (config.codel, config.fair) {
            let waiting = self.queue.take_all();
            self.queue = Discipline::new(&config);
            waiting.into_iter().for_each(|waiting| self.queue.push(waiting));
        }
        if (&self.config.rate, self.config.bucket) != (&config.rate, config.bucket) {
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

    /// Keeps packets that are dropped or lost from here on, for [`Link::take_gone`].
    pub fn keep_gone(&mut self) {
        self.gone.get_or_insert_default();
    }

    /// The next packet that was dropped or lost.
    pub fn take_gone(&mut self) -> Option<Packet> {
        self.gone.as_mut()?.pop()
    }

    /// Sends a packet. `now` never goes backwards from call to call.
    pub fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.counters.pushed += 1;
        self.counters.pushed_bytes += bytes.len() as u64;
        if self.config.mtu.is_some_and(|mtu| frame::packet_len(bytes) > usize::from(mtu)) {
            self.counters.too_long += 1;
            self.lose_copy_of(bytes);
            return;
        }
        let queued = self.queued(now);
        let is_free = !self.config.has_queue() && queued.packets == 0;
        if !is_free && !self.admits(queued, bytes.len()) {
            self.counters.overflowed += 1;
            self.lose_copy_of(bytes);
            return;
        }
        if !self.has_room(bytes.len()) {
            self.lose_copy_of(bytes);
            return;
        }
        let mut packet = self.copy_of(bytes);
        if is_free {
            self.depart(now, Waiting { entered: now, packet });
            return;
        }
        let is_long = match self.config.mark {
            Some(MarkFrom::Bytes(from)) => queued.bytes >= from,
            Some(MarkFrom::Packets(from)) => queued.packets >= from,
            Some(MarkFrom::Wait(_)) | None => false,
        };
        self.counters.marked += u64::from(is_long && frame::mark(&mut packet));
        let most = self.counters.most_queued_bytes.max((queued.bytes + bytes.len()) as u64);
        self.counters.most_queued_bytes = most;
        self.queue.push(Waiting { entered: now, packet });
        self.advance(if self.decides_early { Instant::FAR_FUTURE } else { now });
    }

    /// The next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Packet> {
        self.deliver(now).map(|delivered| delivered.packet)
    }

    /// The next packet that has arrived by `now`, and its times.
    pub fn deliver(&mut self, now: Instant) -> Option<Delivered> {
        self.advance(now);
        self.put_behind(|held| held.latest <= now);
        let is_late = match (self.in_order.front(), self.late.peek()) {
            (Some(straight), Some(late)) => late > straight,
            (straight, _) => straight.is_none(),
        };
        let next = if is_late { self.late.peek() } else { self.in_order.front() };
        if next?.arrival > now {
            return None;
        }
        let next = if is_late { self.late.pop() } else { self.in_order.pop_front() };
        let UnderWay { arrival, entered, packet, .. } = next?;
        self.under_way_bytes -= packet.len();
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len() as u64;
        Some(Delivered { arrival, entered, packet })
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
        let waiting = self.queue.waits_since().map(|since| {
            let start = self.serializer.ready_at(&self.config).max(since);
            // If the next packet is not certain, it may be one that takes no time.
            let bytes = self.queue.next_bytes().unwrap_or(0);
            let sent = self.serializer.clone().send(&self.config, start, bytes);
            jitter::earliest(&self.config, sent)
        });
        let held = self.held.iter().map(|held| held.latest).min();
        let arrivals = under_way.into_iter().flatten().map(|next| next.arrival);
        arrivals.chain(waiting).chain(held).min()
    }

    /// Packets that wait or are on their way, duplicates included.
    pub fn in_flight(&self) -> usize {
        self.queue.len() + self.in_order.len() + self.late.len() + self.held.len()
    }

    /// True if a packet of `len` bytes still fits into the queue, where others may have to go for
    /// it.
    fn admits(&mut self, mut queued: Queued, len: usize) -> bool {
        while !self.config.queue.admits(queued, len) {
            let Some(packet) = self.queue.drop_for_newcomer() else { return false };
            self.counters.overflowed += 1;
            queued.packets -= 1;
            queued.bytes -= packet.len();
            self.lose(packet);
        }
        true
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
        while let Some(since) = self.queue.waits_since() {
            let start = self.serializer.ready_at(&self.config).max(since);
            if start > now {
                return;
            }
            if let Some(waiting) = self.dequeue(start) {
                self.depart(start, waiting);
            }
        }
    }

    /// The packet to send at `start`, if CoDel leaves any.
    fn dequeue(&mut self, start: Instant) -> Option<Waiting> {
        let mut judged = Judged::default();
        let mut next = self.queue.pop(start, &mut judged);
        self.counters.codel_dropped += judged.dropped.len() as u64;
        self.counters.marked += judged.marked;
        judged.dropped.into_iter().for_each(|packet| self.lose(packet));
        if let (Some(MarkFrom::Wait(from)), Some(waiting)) = (self.config.mark, &mut next)
            && start.since(waiting.entered) >= from
        {
            self.counters.marked += u64::from(frame::mark(&mut waiting.packet));
        }
        next
    }

    /// The serializer begins to send a packet at `start`: this decides the packet's fate.
    fn depart(&mut self, start: Instant, Waiting { entered, packet }: Waiting) {
        let sent = self.serializer.send(&self.config, start, packet.len());
        if sent > start {
            self.unsent.push_back((sent, packet.len()));
            self.unsent_bytes += packet.len();
        }
        if self.loss.next_is_lost(&mut self.rng) {
            self.counters.lost += 1;
            self.lose(packet);
            return;
        }
        let (arrival, way) = self.arrival(sent);
        let copy = (self.config.duplicate > 0.0).then(|| self.copy_of(&packet));
        self.dispatch(entered, arrival, way, packet);
        let Some(copy) = copy else { return };
        if self.rng.chance(self.config.duplicate) && self.has_room(copy.len()) {
            self.counters.duplicated += 1;
            self.dispatch(entered, arrival, way, copy);
        } else {
            self.recycle(copy);
        }
    }

    /// Drops a packet, which the caller may want to know.
    fn lose(&mut self, packet: Packet) {
        match &mut self.gone {
            Some(gone) => gone.push(packet),
            None => self.recycle(packet),
        }
    }

    /// Drops a packet that did not come in.
    fn lose_copy_of(&mut self, bytes: &[u8]) {
        if self.gone.is_some() {
            let packet = self.copy_of(bytes);
            self.lose(packet);
        }
    }

    fn copy_of(&mut self, bytes: &[u8]) -> Packet {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.extend_from_slice(bytes);
        packet
    }

    /// The arrival of a packet whose last bit leaves at `sent`, and whether others may overtake it.
    fn arrival(&mut self, sent: Instant) -> (Instant, Order) {
        let arrival = jitter::arrival(&self.config, sent, &mut self.rng);
        if self.rng.chance(self.config.reorder) {
            self.counters.reordered += 1;
            return match self.config.reorder_distance {
                Some(distance) => (arrival, Order::Behind(distance)),
                None => (arrival + self.config.reorder_delay, Order::Late),
            };
        }
        self.last_arrival = self.last_arrival.max(arrival);
        (self.last_arrival, Order::Kept)
    }

    /// Puts one copy on its way.
    fn dispatch(&mut self, entered: Instant, arrival: Instant, way: Order, mut packet: Packet) {
        if !packet.is_empty() && self.rng.chance(self.config.corrupt) {
            let bit = self.rng.below(packet.len() as u32 * 8);
            packet[bit as usize / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
        }
        self.under_way_bytes += packet.len();
        let order = (self.dispatched, 0);
        self.dispatched += 1;
        let under_way = UnderWay { arrival, order, entered, packet };
        match way {
            Order::Kept => {
                self.in_order.push_back(under_way);
                self.overtake(arrival, order.0);
            }
            Order::Late => self.late.push(under_way),
            Order::Behind(left) => {
                let latest = arrival + LinkConfig::OVERTAKEN_WITHIN;
                let under_way = UnderWay { order: (order.0, order.0 + 1), ..under_way };
                self.held.push_back(Held { left: left.max(1), latest, under_way });
            }
        }
    }

    /// A packet with that number, which arrives then, overtakes those that wait for it.
    fn overtake(&mut self, arrival: Instant, order: u64) {
        for held in &mut self.held {
            held.left -= 1;
            if held.left == 0 && arrival < held.latest {
                (held.latest, held.under_way.order.0) = (arrival, order);
            }
        }
        self.put_behind(|held| held.left == 0);
    }

    /// Sends those on their way that are done with waiting: each arrives at its latest time, behind
    /// the packet whose number it has.
    fn put_behind(&mut self, is_done: impl Fn(&Held) -> bool) {
        let mut at = 0;
        while let Some(held) = self.held.get(at) {
            if !is_done(held) {
                at += 1;
                continue;
            }
            let Some(Held { latest, under_way, .. }) = self.held.remove(at) else { return };
            self.late.push(UnderWay { arrival: latest, ..under_way });
        }
    }
}

impl QueueLimit {
    /// True if a packet of `len` bytes fits beside those.
    fn admits(self, queued: Queued, len: usize) -> bool {
        match self {
            QueueLimit::Unlimited => true,
            QueueLimit::Bytes(limit) => queued.bytes + len <= limit,
            QueueLimit::Packets(limit) => queued.packets < limit,
        }
    }
}

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// When it arrived.
    pub arrival: Instant,
    /// When it was pushed.
    pub entered: Instant,
    /// Its bytes.
    pub packet: Packet,
}

/// How a packet stands to those sent after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// None of them overtakes it.
    Kept,
    /// Those overtake it that arrive before.
    Late,
    /// So many overtake it.
    Behind(u32),
}

/// A packet that waits to be overtaken.
#[derive(Clone, Debug)]
struct Held {
    /// By how many more.
    left: u32,
    /// It arrives then, at the latest.
    latest: Instant,
    under_way: UnderWay,
}

/// A packet on its way.
#[derive(Clone, Debug)]
struct UnderWay {
    arrival: Instant,
    /// Its number, and 0; of one that was overtaken, the number of the packet that it arrives
    /// behind, and its own.
    order: (u64, u64),
    entered: Instant,
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
