//! The configuration of a link: every knob, its unit, and its default.

use alloc::sync::Arc;
use core::time::Duration;

use crate::Trace;

/// One direction of a link. The default is perfect: no delay, infinitely fast, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The rate at which bytes leave the queue.
    pub rate: Rate,
    /// A bound on what leaves over a while, beside the rate at which each packet leaves.
    pub bucket: Option<Bucket>,
    /// Propagation delay.
    pub delay: Duration,
    /// The variation of the delay; see [`Distribution`]. Jitter keeps the order, as a later queue
    /// would: a packet that would overtake arrives together with the one before it.
    pub jitter: Duration,
    /// The distribution of the jitter.
    pub jitter_distribution: Distribution,
    /// The capacity of the queue before the serializer, including the packet being sent. No packet
    /// ever waits while the rate is infinite.
    pub queue: QueueLimit,
    /// Drops packets that have waited too long, before the queue is full; `None` means only tail
    /// drop.
    pub codel: Option<CodelConfig>,
    /// Serves flows in turns, each from a queue of its own (RFC 8290); `None` means first come,
    /// first served. Where the queues together are full, the longest loses its oldest packet.
    pub fair: Option<FairConfig>,
    /// Marks packets whose ends use ECN (RFC 3168) from so long a queue on; `None` means none.
    pub mark: Option<MarkFrom>,
    /// The loss on the wire, after the queue: a lost packet took its time to send.
    pub loss: Loss,
    /// Probability that a packet is late by `reorder_delay`, so that later packets overtake it.
    pub reorder: f64,
    /// The extra delay of a reordered packet.
    pub reorder_delay: Duration,
    /// In its place, how many packets overtake a reordered one. If fewer come within
    /// [`LinkConfig::OVERTAKEN_WITHIN`], it arrives then.
    pub reorder_distance: Option<u32>,
    /// Probability that a packet arrives twice, the copy right after it.
    pub duplicate: f64,
    /// The longest IP packet that passes; a longer one vanishes, and nobody hears of it (a black
    /// hole of path MTU discovery, RFC 2923 §2.1). Of frames that carry IP; `None` means all pass.
    pub mtu: Option<u16>,
    /// Probability that an arriving packet (each copy separately) has one bit flipped. It is one
    /// bit because every Internet checksum detects that: a receiver that accepts the packet is at
    /// fault.
    pub corrupt: f64,
    /// Bytes in the queue and on their way, at most, whatever the other knobs are: a bound on
    /// memory.
    pub in_flight_limit_bytes: usize,
    /// Decides every random choice.
    pub seed: u64,
}

impl LinkConfig {
    /// How long a packet waits to be overtaken, at most.
    pub const OVERTAKEN_WITHIN: Duration = Duration::from_millis(100);

    /// True if packets may wait before the link: it has a rate, or a bucket.
    pub fn has_queue(&self) -> bool {
        self.rate != Rate::Unlimited || self.bucket.is_some()
    }

    /// The key about waiting packets, if there is one, by its name in a link's text. It does
    /// nothing where no packet waits ([`LinkConfig::has_queue`]).
    pub fn bound_on_waiting(&self) -> Option<&'static str> {
        let keys = [
            ("queue", self.queue != QueueLimit::Unlimited),
            ("codel", self.codel.is_some()),
            ("fq", self.fair.is_some()),
            ("mark", self.mark.is_some()),
        ];
        keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            rate: Rate::Unlimited,
            bucket: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_distribution: Distribution::Uniform,
            queue: QueueLimit::Unlimited,
            codel: None,
            fair: None,
            mark: None,
            loss: Loss::None,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            reorder_distance: None,
            duplicate: 0.0,
            mtu: None,
            corrupt: 0.0,
            in_flight_limit_bytes: 1 << 30,
            seed: 0,
        }
    }
}

/// The rate at which bytes leave the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Infinite.
    Unlimited,
    /// Bits a second, at least one.
    BitsPerSecond(u64),
    /// The times at which a recorded link could send.
    Trace(Arc<Trace>),
}

/// A token bucket: packets leave while it is not empty. The last of them may take more than it
/// holds; then the next one waits until that is made up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The rate at which it fills, at least one.
    pub bits_per_second: u64,
    /// Bytes that it holds, with which it begins.
    pub burst_bytes: usize,
}

/// The distribution of jitter. `J` is [`LinkConfig::jitter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Distribution {
    /// A packet is late by 0 to `J`, each equally likely.
    #[default]
    Uniform,
    /// A packet is late or early, with mean 0 and standard deviation `J`: the sum of twelve uniform
    /// numbers, which never exceeds 6 `J`. No packet arrives before it was sent.
    Normal,
    /// A packet is late by `J` on average, and a few by much more: a Lomax distribution of shape 3,
    /// that is, P(late > x) = (1 + x / 2`J`)^-3.
    Pareto,
}

/// The capacity of the queue before the serializer; a packet beyond it is dropped (tail drop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// No limit.
    Unlimited,
    /// At most this many bytes.
    Bytes(usize),
    /// At most this many packets.
    Packets(usize),
}

/// The length of a queue from which on packets are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkFrom {
    /// A packet that comes when at least so many bytes wait.
    Bytes(usize),
    /// A packet that comes when at least so many packets wait.
    Packets(usize),
    /// A packet that has waited at least that long.
    Wait(Duration),
}

/// Flow queueing (RFC 8290 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairConfig {
    /// Queues; flows that hash alike share one. 1,024.
    pub queues: u32,
    /// Bytes that a queue may send in its turn. 1,514: a full frame.
    pub quantum_bytes: u32,
}

impl Default for FairConfig {
    fn default() -> Self {
        FairConfig { queues: 1024, quantum_bytes: 1514 }
    }
}

/// CoDel's two parameters (RFC 8289 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The waiting time that does no harm.
    pub target: Duration,
    /// The time for which packets must have waited longer before one is dropped.
    pub interval: Duration,
    /// Marks a packet whose ends use ECN in place of dropping it (RFC 8289 §3; RFC 8290 §5.6).
    pub ecn: bool,
}

impl Default for CodelConfig {
    /// 5 ms and 100 ms (RFC 8289 §4.4).
    fn default() -> Self {
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        CodelConfig { target, interval, ecn: false }
    }
}

/// The loss process. Every field is a probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// No loss.
    None,
    /// Each packet independently (Bernoulli).
    Uniform(f64),
    /// Gilbert and Elliott's two-state chain, which takes a step before each packet.
    GilbertElliott {
        /// From the good state to the bad one.
        good_to_bad: f64,
        /// From the bad state to the good one.
        bad_to_good: f64,
        /// Losing a packet in the bad state.
        loss_in_bad: f64,
        /// Losing a packet in the good state.
        loss_in_good: f64,
    },
    /// Bursty loss: a lost packet raises the next one's probability (Cohen & Cohen 2002, §3 and
    /// §5). The mean loss is `first / (1 - after_loss + first)`.
    Bursty {
        /// Losing a packet after one that got through.
        first: f64,
        /// Losing a packet after a lost one.
        after_loss: f64,
    },
}
