//! What a connection sends when nothing is lost and nothing unusual is asked for can be told
//! beforehand: one segment with timestamps, in it all that is queued, and FIN; or an ACK alone. It
//! is written here in one go. Whatever is not of this kind is decided and built step by step.

use super::build::on_new_sent;
use crate::tcp::connection::{Connection, Context, Shape, Stamps, Synchronized, stamp_at};
use crate::tcp::egress::Egress;
use crate::wire::options::Timestamps;
use crate::wire::tcp::Flags;
use crate::wire::usual::Stamped;

/// The last segment that this turn calls for.
struct Predicted {
    /// Bytes of text, all that are queued, at SND.NXT.
    len: u32,
    /// FIN follows them.
    fin: bool,
    /// Bytes of text that a full segment holds.
    segment: u32,
    stamps: Stamps,
}

impl Connection {
    /// Sends the one segment that is predicted, after which nothing is left to send; else nothing
    /// has happened, and it is false.
    #[inline]
    pub(super) fn emit_predicted(&mut self, cx: &mut Context<'_>, egress: &mut Egress<'_>) -> bool {
        if !egress.way.path.is_usual() || !egress.has_room() {
            return false;
        }
        let Some(Predicted { len, fin, segment, stamps }) = self.predict(cx) else { return false };
        let Shape::Synchronized(s) = &mut self.shape else { return false };
        let offset = s.send.flight() as usize;
        let Some(text) = s.send.buffer.halves(offset, len as usize) else { return false };
        let mut flags = Flags::ACK;
        if len > 0 {
            flags |= Flags::PSH;
        }
        if fin {
            flags |= Flags::FIN;
        }
        let unread = s.recv.buffer.len() as u32;
        let header = Stamped {
            ports: self.ports,
            seq: s.send.nxt,
            ack: s.recv.nxt,
            flags,
            window: s.recv.window.announce(s.recv.nxt, unread, s.recv.mss),
            stamps: Timestamps { value: stamp_at(cx.now, stamps.offset), echo: stamps.recent },
        };
        if !egress.send_stamped(&header, text) {
            return false;
        }
        cx.counters.segments_out += 1;
        s.recv.on_acknowledged(&mut self.deadlines);
        if len > 0 || fin {
            on_new_sent(s, s.send.nxt + len + u32::from(fin), segment, cx.now);
        }
        true
    }

    #[inline]
    fn predict(&self, cx: &Context<'_>) -> Option<Predicted> {
        let Shape::Synchronized(s) = &self.shape else { return None };
        let stamps = s.stamps.filter(|_| self.reset_due.is_none() && is_calm(s))?;
        let send = &s.send;
        let segment = super::decide::segment_bytes(s);
        // All but FIN, if that has been sent.
        let flight = send.flight();
        let len = (send.buffer.len() as u32).saturating_sub(flight);
        let fin = send.fin_queued && flight <= send.buffer.len() as u32;
        if len == 0 && !fin {
            let is_due = s.recv.ack.now || s.wants_window_update();
            return is_due.then_some(Predicted { len, fin, segment, stamps });
        }
        let fits = len + u32::from(fin) <= send.window.saturating_sub(flight);
        let is_one = len <= segment
            && (flight == 0 || len <= send.congestion.window().saturating_sub(flight))
            && (len == 0 || len == segment || self.is_small_worth_it(s, len, len));
        let goes = fits && is_one && !send.has_idled(cx.now, cx.config);
        goes.then_some(Predicted { len, fin, segment, stamps })
    }
}

/// True if nothing is lost, out of order, urgent, marked or probed.
#[inline]
fn is_calm(s: &Synchronized) -> bool {
    let (send, recv) = (&s.send, &s.recv);
    send.recovery.is_none()
        && recv.disorder.is_none()
        && send.urgent.is_none()
        && !send.fin_again
        && s.ecn.is_none()
        && !s.probe_due
        && !s.keepalive_due
}

#[cfg(test)]
mod tests;
