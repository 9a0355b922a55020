//! SYN cookies: an ISN that remembers a handshake, so that we need not (RFC 4987 §3.6; Bernstein
//! 1996).
//!
//! ```text
//!    31     27 26    24 23                          0
//!   ┌─────────┬────────┬─────────────────────────────┐
//!   │ minute  │  MSS   │ MAC of the ends, the peer's │   all of it + F(tuple, secret)
//!   │ (64 s)  │ class  │ ISN, the minute, the facts  │
//!   └─────────┴────────┴─────────────────────────────┘
//! ```
//!
//! If the peer uses timestamps, what else its SYN said lies in the low bits of our TSval, which
//! comes back as TSecr; without timestamps there is no place for it, and our SYN-ACK must not
//! pretend otherwise: see `CookieFacts::carried`. The MAC covers these bits too.
//!
//! The MAC also covers whether our SYN-ACK named us as the holder of TIME-WAIT, for which there is
//! no place at all. The check of an ACK tries both where we may have named ourselves.

use crate::flow::keyed::KeyedHash;
use crate::flow::{Seq, Tuple};
use crate::time::Instant;

/// One step of the counter, in ns.
const STEP_NS: u64 = 64_000_000_000;

/// The counter's bits that are in the cookie.
const STEP_MASK: u64 = 0x1f;

/// A cookie holds in the step it was made in and so many more: for 64 to 128 s.
const LATER_STEPS: u64 = 1;

/// The largest of these that is not above the peer's MSS is remembered: the least we take
/// (`TcpConfig::mss_min`), IPv4's default, IPv6's least, two tunnels, Ethernet with IPv6 and with
/// IPv4, and jumbo frames.
pub(crate) const MSS_CLASSES: [u16; 8] = [88, 536, 1220, 1360, 1400, 1440, 1460, 8940];

/// Low bits of TSval that carry facts. The timestamp goes back by at most 31 ms for them.
const STAMP_BITS: u32 = 5;

/// No window scale.
const NO_SCALE: u32 = 15;

/// What a cookie remembers of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CookieFacts {
    /// The peer's MSS; from a cookie, one of [`MSS_CLASSES`].
    pub mss: u16,
    /// The peer's window scale, at most 14.
    pub window_scale: Option<u8>,
    /// The peer permits selective acknowledgements.
    pub sack: bool,
    /// The peer uses timestamps.
    pub timestamps: bool,
    /// Our SYN-ACK named us as the holder of TIME-WAIT.
    pub names_us: bool,
}

impl CookieFacts {
    /// These facts as a cookie can carry them: the SYN-ACK must offer nothing beyond.
    #[must_use]
    pub(crate) fn carried(self) -> CookieFacts {
        CookieFacts {
            mss: MSS_CLASSES[self.mss_class()],
            window_scale: self.window_scale.filter(|_| self.timestamps).map(|scale| scale.min(14)),
            sack: self.sack && self.timestamps,
            ..self
        }
    }

    /// The TSval that carries them, at or just before `clock`, the connection's timestamp clock
    /// with its offset.
    pub(crate) fn stamp(self, clock: u32) -> u32 {
        let mask = (1 << STAMP_BITS) - 1;
        let stamp = clock & !mask | self.carried().stamp_bits();
        if stamp & mask > clock & mask { stamp.wrapping_sub(1 << STAMP_BITS) } else { stamp }
    }

    fn mss_class(self) -> usize {
        MSS_CLASSES.iter().rposition(|class| *class <= self.mss).unwrap_or(0)
    }

    fn stamp_bits(self) -> u32 {
        u32::from(self.sack) << 4 | self.window_scale.map_or(NO_SCALE, u32::from)
    }

    fn from_parts(mss_class: usize, ts_echo: Option<u32>) -> CookieFacts {
        let scale = ts_echo.map_or(NO_SCALE, |stamp| stamp & 0xf);
        CookieFacts {
            mss: MSS_CLASSES[mss_class],
            window_scale: Some(scale as u8).filter(|_| scale != NO_SCALE),
            sack: ts_echo.is_some_and(|stamp| stamp & 0x10 != 0),
            timestamps: ts_echo.is_some(),
            names_us: false,
        }
    }
}

/// Makes cookies and checks them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SynCookies {
    /// Hides what the cookie holds.
    mask: KeyedHash,
    /// Proves that we made it.
    proof: KeyedHash,
}

impl SynCookies {
    /// The cookies that belong to this secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        SynCookies {
            mask: KeyedHash::new(secret, "syn cookie mask"),
            proof: KeyedHash::new(secret, "syn cookie proof"),
        }
    }

    /// The ISN that answers a SYN of `tuple` with sequence number `peer_isn`, remembering
    /// `facts` as far as they can be [carried](CookieFacts::carried).
    pub(crate) fn encode(
        &self,
        now: Instant,
        tuple: &Tuple,
        peer_isn: Seq,
        facts: CookieFacts,
    ) -> Seq {
        let (step, facts) = (step(now), facts.carried());
        let place = ((step & STEP_MASK) << 27) as u32 | (facts.mss_class() as u32) << 24;
        let proof = self.proof(tuple, peer_isn, step, facts);
        self.mask(tuple) + (place | proof)
    }

    /// What the SYN said, if `cookie` (SEG.ACK - 1) is an ISN that we gave, at most two minutes
    /// ago, to a SYN of `tuple` with sequence number `peer_isn` (SEG.SEQ - 1). `ts_echo`: the
    /// TSecr of the ACK, if it has timestamps. `may_name_us`: the SYN-ACK may have named us as the
    /// holder of TIME-WAIT.
    pub(crate) fn check(
        &self,
        now: Instant,
        tuple: &Tuple,
        peer_isn: Seq,
        cookie: Seq,
        (ts_echo, may_name_us): (Option<u32>, bool),
    ) -> Option<CookieFacts> {
        let plain = cookie.since(self.mask(tuple));
        let age = step(now).wrapping_sub(u64::from(plain >> 27)) & STEP_MASK;
        let made_in = step(now).checked_sub(age).filter(|_| age <= LATER_STEPS)?;
        let facts = CookieFacts::from_parts((plain >> 24 & 7) as usize, ts_echo);
        let is_proven = |facts: &CookieFacts| {
            plain & 0x00ff_ffff == self.proof(tuple, peer_isn, made_in, *facts)
        };
        let naming_us = may_name_us.then_some(CookieFacts { names_us: true, ..facts });
        Some(facts).filter(is_proven).or_else(|| naming_us.filter(is_proven))
    }

    fn mask(&self, tuple: &Tuple) -> Seq {
        Seq(self.mask.of_tuple(tuple) as u32)
    }

    /// 24 bits that only we can make.
    fn proof(&self, tuple: &Tuple, peer_isn: Seq, step: u64, facts: CookieFacts) -> u32 {
        let facts_byte = facts.mss_class() as u8
            | u8::from(facts.timestamps) << 3
            | u8::from(facts.names_us) << 4;
        let [a, b, c, d] = peer_isn.0.to_be_bytes();
        // 2^16 steps last for 48 days; the cookie's own bits tell steps apart within that.
        let [e, f] = (step as u16).to_be_bytes();
        let more = [a, b, c, d, e, f, facts_byte, facts.stamp_bits() as u8];
        self.proof.of_tuple_and(tuple, u64::from_be_bytes(more)) as u32 & 0x00ff_ffff
    }
}

fn step(now: Instant) -> u64 {
    now.as_nanos() / STEP_NS
}

#[cfg(test)]
mod tests;
