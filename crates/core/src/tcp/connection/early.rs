//! Holds what came with a SYN that crossed ours: it is queued until the connection is established
//! (RFC 9293 §3.10.7.3).
//!
//! The text waits in pages of the pool, and there is never more of it than our SYN has offered. It
//! is not acknowledged before it is taken, so the peer sends again what found no memory.

use alloc::vec;
use alloc::vec::Vec;

use super::Context;
use crate::buffer::PagePool;
use crate::tcp::recv::buffer::RecvBuffer;
use crate::wire::tcp::{Flags, Segment};

/// Text, FIN and urgent data of a SYN without ACK.
#[derive(Debug, Default)]
pub struct Early {
    text: RecvBuffer,
    /// FIN and URG.
    flags: Flags,
    /// SEG.UP, counted from the text on.
    urgent: u16,
}

impl Early {
    /// The text of `syn`, as far as it lies in a window of `offer` bytes. Nothing of it if the
    /// pool is scarce.
    pub fn of(syn: &Segment<'_>, offer: u16, cx: &mut Context) -> Early {
        let mut early = Early::default();
        let text = &syn.payload[..syn.payload.len().min(offer.into())];
        let is_kept =
            text.is_empty() || (!cx.pool.is_scarce() && early.text.append(text, &mut cx.pool));
        if !is_kept {
            cx.counters.receive_pool_empty += 1;
            return Early::default();
        }
        if syn.flags.contains(Flags::FIN) && syn.payload.len() < offer.into() {
            early.flags |= Flags::FIN;
        }
        if syn.flags.contains(Flags::URG) {
            early.flags |= Flags::URG;
            early.urgent = syn.urgent.saturating_sub(1);
        }
        early
    }

    /// True if the SYN carried nothing.
    pub fn is_empty(&self) -> bool {
        self.owns_nothing() && self.flags == Flags::default()
    }

    /// True if it has no memory.
    pub(crate) fn owns_nothing(&self) -> bool {
        self.text.owns_nothing()
    }

    /// The text, FIN and URG, and the urgent pointer. Its pages go back to the pool.
    pub fn take(mut self, pool: &mut PagePool) -> (Vec<u8>, Flags, u16) {
        let mut text = vec![0; self.text.len()];
        self.text.peek(&mut text);
        self.text.clear(pool);
        (text, self.flags, self.urgent)
    }

    /// Gives the text's pages back: no connection will take it.
    pub fn clear(&mut self, pool: &mut PagePool) {
        self.text.clear(pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Purpose;
    use crate::tcp::connection::lone::Lone;
    use crate::tcp::{Seq, Tuple};
    use crate::time::Instant;
    use crate::wire::options::Options;

    #[test]
    fn the_last_quarter_of_the_pool_is_not_for_what_may_come_again() {
        let tuple = Tuple::new(([10, 0, 0, 2].into(), 80), ([10, 0, 0, 1].into(), 4000));
        let syn = Segment {
            source_port: 4000,
            destination_port: 80,
            seq: Seq(7),
            ack: Seq(0),
            flags: Flags::SYN | Flags::FIN,
            window: 0,
            urgent: 0,
            options: Options::NONE,
            payload: b"early",
        };
        for (free, is_kept) in [(16, true), (15, false)] {
            let Lone { mut cx, .. } = Lone::new(Instant::ZERO, tuple, |_, _| {});
            assert!(cx.pool.charge(64 - free, Purpose::Receive));
            let mut early = Early::of(&syn, 1000, &mut cx);
            assert_eq!((early.is_empty(), early.owns_nothing()), (!is_kept, !is_kept));
            early.clear(&mut cx.pool);
            assert_eq!(cx.pool.available(), free);
        }
    }
}
