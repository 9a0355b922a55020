//! The path between us and a destination: its MTU, and packets that arrive in fragments.

use core::net::IpAddr;

use super::Host;
use super::input::Origin;
use crate::frame::RxFrame;
use crate::ip::outgoing::Outgoing;
use crate::ip::reassembly::{Outcome, Reason};
use crate::time::Instant;
use crate::wire::{icmpv4, icmpv6, ip};

/// ICMP code "fragment reassembly time exceeded", in both versions.
const REASSEMBLY_TIME_EXCEEDED: u8 = 1;

impl Host {
    /// The largest IP packet to `destination`, and whether routers must not cut it.
    pub(super) fn path_mtu(&self, destination: IpAddr) -> (u16, bool) {
        let link =
            if destination.is_ipv6() { self.ip.routes.ipv6_mtu() } else { self.config.device.mtu };
        let path = self.ip.path_mtus.path(destination);
        (path.mtu.min(link), path.dont_fragment)
    }

    // ---- fragments

    pub(super) fn on_fragment(&mut self, now: Instant, packet: &ip::Packet<'_>, from: Origin) {
        match self.ip.reassembly.on_fragment(now, packet) {
            Outcome::Pending | Outcome::Dropped(Reason::Copy) => {}
            Outcome::Dropped(_) => self.shared.counters.reassembly_failed += 1,
            Outcome::Complete(bytes) => {
                self.shared.counters.reassembled += 1;
                match ip::Packet::parse(&bytes) {
                    // A packet that is a fragment once more is malice.
                    Ok(whole) if whole.fragment.is_some() => {
                        self.shared.counters.reassembly_failed += 1;
                    }
                    Ok(whole) => {
                        self.take_whole_packet(now, &whole, &RxFrame::plain(&bytes), from);
                    }
                    Err(reason) => self.note_malformed(reason),
                }
            }
        }
    }

    /// Gives up packets whose fragments did not all arrive, and tells their senders (RFC 1122
    /// §3.3.2, RFC 8200 §4.5).
    pub(super) fn on_reassembly_time(&mut self, now: Instant) {
        self.ip.reassembly.on_time(now);
        while let Some(expired) = self.ip.reassembly.expired() {
            self.shared.counters.reassembly_failed += 1;
            if !self.ip.is_ours(expired.destination) || !self.ip.may_answer_stranger(now) {
                continue;
            }
            let (code, quoted) = (REASSEMBLY_TIME_EXCEEDED, &expired.quoted[..]);
            let v4 = icmpv4::Message::TimeExceeded { code, quoted };
            let v6 = icmpv6::Message::TimeExceeded { code, quoted };
            self.reply(Outgoing::icmp((expired.destination, expired.source), &v4, &v6).into());
        }
    }
}
