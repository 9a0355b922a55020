//! Packets that arrive in fragments.

use super::Host;
use super::input::Origin;
use crate::frame::RxFrame;
use crate::ip::reassembly::{Outcome, Reason};
use crate::time::Instant;
use crate::wire::ip;

impl Host {
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
}
