//! The configuration of a link: every knob, its unit, and its default.

use alloc::sync::Arc;
use core::time::Duration;

use crate::Trace;

/// One direction of a link. The default is perfect: no delay, infinitely fast, no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The rate at which bytes leave the queue.
    pub rate: Rate,
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
    /// The loss on the wire, after the queue: a lost packet took its time to send.
    pub loss: Loss,
    /// Probability that a packet is late by `reorder_delay`, so that later packets overtake it.
    pub reorder: f64,
    /// The extra delay of a reordered packet.
    pub reorder_delay: Duration,
    /// Probability that a packet arrives twice, the copy right after it.
    pub duplicate: f64,
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
    /// The key that bounds waiting packets, if there is one, by its name in a link's text. It does
    /// nothing while the rate is infinite, since no packet waits.
    pub fn bound_on_waiting(&self) -> Option<&'static str> {
        match (self.queue, self.codel) {
            (QueueLimit::Unlimited, None) => None,
            (QueueLimit::Unlimited, Some(_)) => Some("codel"),
            _ => Some("queue"),
        }
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_distribution: Distribution::Uniform,
            queue: QueueLimit::Unlimited,
            codel: None,
            loss: Loss::None,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            duplicate: 0.0,
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

/// CoDel's two parameters (RFC 8289 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The waiting time that does no harm.
    pub target: Duration,
    /// The time for which packets must have waited longer before one is dropped.
    pub interval: Duration,
}

impl Default for CodelConfig {
    /// 5 ms and 100 ms (RFC 8289 §4.4).
    fn default() -> Self {
        CodelConfig { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
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
