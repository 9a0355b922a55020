//! ICMP errors about our segments, which IP hands on (RFC 5927).
//!
//! An error is believed only if it quotes a segment that is in flight now (RFC 5927 §4.1). Then a
//! soft one is remembered, and is the reason given if the connection fails; a hard one ends an
//! attempt to open, and is soft for a synchronized connection (RFC 5927 §5.2); a packet too big
//! lowers the path's MTU.

use super::Host;
use crate::error::Error;
use crate::flow::Seq;
use crate::ip::icmp::{Cause, IcmpError};
use crate::ip::shards::Content;
use crate::tcp::State;
use crate::tcp::connection::Shape;
use crate::tcp::send::narrow::{PathNews, Probed};
use crate::time::Instant;

impl Host {
    /// Takes in an error about a segment of ours with this SEG.SEQ, if it is believed.
    pub(super) fn on_icmp_error(&mut self, now: Instant, error: &IcmpError, seq: Seq) {
        let Some(index) = self.connection_of(error, seq) else {
            self.shared.counters.icmp_rejected += 1;
            return;
        };
        self.shared.counters.icmp_accepted += 1;
        match error.cause {
            Cause::TooBig(mtu) => self.lower_path_mtu(now, error, mtu),
            Cause::Soft(error) => self.on_error(now, index, error, false),
            Cause::Hard(error) => self.on_error(now, index, error, true),
        }
        self.after_input(now, index);
    }

    /// Believes that the path takes packets of `mtu` bytes alone.
    pub(super) fn lower_path_mtu(&mut self, now: Instant, error: &IcmpError, mtu: u32) {
        let is_lowered = self.ip.on_too_big(now, error, mtu);
        self.shared.counters.path_mtu_lowered += u64::from(is_lowered);
        if is_lowered {
            // The others have sockets that send to that peer, too.
            self.ip.shards.send_to_others(|| Content::TooBig(*error, mtu));
        }
    }

    /// What the connection in slot `index` has learned of its path, if anything, holds for all
    /// others to that destination.
    pub(super) fn hear_of_path(&mut self, now: Instant, index: u32) {
        let Some(news) = self.shared.path_news.take() else { return };
        let Some(slot) = self.slots.get(index) else { return };
        let (peer, counters) = (slot.tuple.remote_ip(), &mut self.shared.counters);
        let discovers = slot.awake().is_some_and(|c| c.options.path_mtu_discovery);
        match news {
            // Routers cut what is too large for them.
            PathNews::BlackHole { .. } if peer.is_ipv4() && !discovers => {}
            PathNews::BlackHole { payload, again } => {
                let is_lowered = self.ip.on_black_hole(now, peer, payload, again);
                counters.path_black_holes += u64::from(is_lowered);
            }
            PathNews::Probed(Probed { size, arrived }) => {
                counters.path_probes += 1;
                self.ip.on_probed(now, peer, size, arrived);
            }
        }
    }

    /// The slot of the connection whose segment in flight `error` quotes.
    fn connection_of(&self, error: &IcmpError, seq: Seq) -> Option<u32> {
        let index = self.find_connection(self.live.hasher.hash(&error.tuple), &error.tuple)?;
        // One at rest has nothing in flight.
        let connection = self.slots.get(index)?.awake()?;
        // No router complains of what it may cut (RFC 1191 §3).
        let may_be = !matches!(error.cause, Cause::TooBig(_))
            || connection.options.path_mtu_discovery
            || error.tuple.is_ipv6();
        (may_be && connection.is_in_flight(seq)).then_some(index)
    }

    /// The connection in slot `index` hears of an error on the way: a hard one ends an attempt to
    /// open, and any other may pass.
    fn on_error(&mut self, now: Instant, index: u32, error: Error, is_hard: bool) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        if is_hard && matches!(connection.shape, Shape::SynSent(_)) {
            let cx = self.shared.at(now);
            cx.counters.failed_opens += 1;
            connection.end(State::Closed, Some(error), cx);
        } else {
            connection.note_soft_error(error);
        }
    }
}
