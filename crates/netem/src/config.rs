//! What a link is like: every knob, its unit, and its default, which is a perfect link.

use alloc::sync::Arc;
use core::time::Duration;

use crate::Trace;

/// One direction of a link. The default is perfect: no delay, infinitely fast, loses nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// How fast bytes leave the queue.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Duration,
    /// How much the delay varies; see [`Distribution`]. Jitter keeps the order, as a queue further
    /// on would: a packet that would overtake arrives together with the one before it.
    pub jitter: Duration,
    /// How the delay varies.
    pub jitter_distribution: Distribution,
    /// What may wait before the serializer, the packet being sent included. Nothing ever waits
    /// while the rate is infinite.
    pub queue: QueueLimit,
    /// Drops packets that have waited too long, before the queue is full; `None`: tail drop alone.
    pub codel: Option<CodelConfig>,
    /// Which packets are lost on the wire (after the queue: a lost packet took its time to send).
    pub loss: Loss,
    /// Probability that a packet is late by `reorder_delay`, so that those behind overtake it.
    pub reorder: f64,
    /// How late a reordered packet is.
    pub reorder_delay: Duration,
    /// Probability that a packet arrives twice, the copy right behind.
    pub duplicate: f64,
    /// Probability that an arriving packet (each copy for itself) has one bit flipped. One, because
    /// every Internet checksum catches one: what arrives damaged is then the receiver's fault.
    pub corrupt: f64,
    /// Bytes waiting and on their way at most, whatever the other knobs say: a bound on memory.
    pub in_flight_limit_bytes: usize,
    /// Decides every random choice.
    pub seed: u64,
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

/// How fast bytes leave the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// At once.
    Unlimited,
    /// So many bits a second, at least one.
    BitsPerSecond(u64),
    /// When a recorded link could send.
    Trace(Arc<Trace>),
}

/// How jitter is distributed. `J` is [`LinkConfig::jitter`].
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

/// How much may wait before the serializer; a packet beyond it is dropped (tail drop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Anything.
    Unlimited,
    /// At most this many bytes.
    Bytes(usize),
    /// At most this many packets.
    Packets(usize),
}

/// CoDel's two parameters (RFC 8289 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// A packet may wait so long without harm.
    pub target: Duration,
    /// Packets must have waited longer for so long before one is dropped.
    pub interval: Duration,
}

impl Default for CodelConfig {
    /// 5 ms and 100 ms (RFC 8289 §4.4).
    fn default() -> Self {
        CodelConfig { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// Which packets are lost. Every field is a probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// None.
    None,
    /// Each packet for itself (Bernoulli).
    Uniform(f64),
    /// Gilbert and Elliott's two-state chain, which takes a step before each packet.
    GilbertElliott {
        /// From the good state to the bad one.
        good_to_bad: f64,
        /// From the bad state to the good one.
        bad_to_good: f64,
        /// Of losing a packet in the bad state.
        loss_in_bad: f64,
        /// Of losing a packet in the good state.
        loss_in_good: f64,
    },
    /// Uniform loss made bursty: a lost packet raises the next one's probability (Cohen & Cohen
    /// 2002, §3 and §5). The mean loss is `first / (1 - after_loss + first)`.
    Bursty {
        /// For a packet that follows one which got through.
        first: f64,
        /// For a packet that follows a lost one.
        after_loss: f64,
    },
}
