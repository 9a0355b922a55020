//! What comes of packets that arrive: those that made no sense, and those that arrived in part.

use super::{Context, Ip};
use crate::ip::outgoing::Outgoing;
use crate::wire::{Malformed, icmpv4, icmpv6};

/// ICMP code "fragment reassembly time exceeded", in both versions.
const REASSEMBLY_TIME_EXCEEDED: u8 = 1;

impl Ip {
    pub(crate) fn note_malformed(&mut self, reason: Malformed) {
        self.malformed[reason.index()] += 1;
    }

    /// Frames dropped because they made no sense, with the reason of each.
    pub(crate) fn malformed(&self) -> impl Iterator<Item = (Malformed, u64)> {
        Malformed::ALL.iter().map(|reason| (*reason, self.malformed[reason.index()]))
    }

    /// Gives up packets whose fragments did not all arrive, and tells their senders (RFC 1122
    /// §3.3.2, RFC 8200 §4.5).
    pub(super) fn on_reassembly_time(&mut self, cx: &mut Context<'_>) {
        self.reassembly.on_time(cx.now);
        while let Some(expired) = self.reassembly.expired() {
            cx.counters.reassembly_failed += 1;
            if !self.is_ours(expired.destination) || !self.may_answer_stranger(cx.now) {
                continue;
            }
            let (code, quoted) = (REASSEMBLY_TIME_EXCEEDED, &expired.quoted[..]);
            let v4 = icmpv4::Message::TimeExceeded { code, quoted };
            let v6 = icmpv6::Message::TimeExceeded { code, quoted };
            self.send(Outgoing::icmp((expired.destination, expired.source), &v4, &v6));
        }
    }
}
