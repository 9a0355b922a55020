//! What a link is like: every knob, its unit, and its default, which is a perfect link.

use core::time::Duration;

/// One direction of a link. The default is perfect: no delay, infinitely fast, loses nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// How fast bytes leave the queue, in bits per second; `None`: at once.
    pub rate_bits_per_second: Option<u64>,
    /// Propagation delay.
    pub delay: Duration,
    /// Each packet is late by a uniform part of this. Jitter keeps the order, as a queue further on
    /// would: a packet that would overtake arrives together with the one before it.
    pub jitter: Duration,
    /// What may wait before the serializer, the packet being sent included. Nothing ever waits
    /// while the rate is infinite.
    pub queue: QueueLimit,
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
    /// Bytes on their way at most, whatever the other knobs say: a bound on memory.
    pub in_flight_limit_bytes: usize,
    /// Decides every random choice.
    pub seed: u64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        LinkConfig {
            rate_bits_per_second: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            queue: QueueLimit::Unlimited,
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

/// Which packets are lost. Every field is a probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// None.
    None,
    /// Each packet for itself.
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
