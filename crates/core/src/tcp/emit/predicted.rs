//! What a connection sends when nothing is lost and nothing unusual is asked for can be told
//! beforehand: one segment with timestamps, in it all that is queued, and FIN; or an ACK alone; or
//! a SYN. It is written here in one go. Whatever is not of this kind is decided and built step by
//! step.

use super::build::on_new_sent;
use super::decide::{STAMP_BYTES, is_small_worth_it, segment_beside};
use crate::config::{Settings, TcpConfig};
use crate::frame::Outbox;
use crate::tcp::SocketOptions;
use crate::tcp::connection::{Connection, Shape, Stamps, Synchronized, stamp_at};
use crate::tcp::egress::UsualPath;
use crate::time::Instant;
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
    /// Sends the one segment that is predicted, after which nothing is left to send, and sets the
    /// timers that it calls for. False if another is due, or none, or if there is no room; then
    /// [`Connection::emit`] does what is to be done.
    pub fn emit_predicted(
        &mut self,
        now: Instant,
        config: &Settings,
        path: &UsualPath,
        outbox: &mut Outbox,
    ) -> bool {
        self.note_way();
        let s = match &mut self.shape {
            Shape::Synchronized(s) => s,
            Shape::SynSent(_) => return self.emit_predicted_syn(now, config, path, outbox),
            Shape::SynReceived(_) | Shape::Ended(_) => return false,
        };
        if path.mss < s.send.mss || self.reset_due.is_some() {
            return false;
        }
        let Some(predicted) = predict(s, &self.options, now, config) else { return false };
        let Predicted { len, fin, segment, stamps } = predicted;
        let offset = s.send.flight() as usize;
        let Some(text) = s.send.buffer.whole(offset, len as usize) else { return false };
        let Some(frame) = outbox.push() else { return false };
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
            stamps: Timestamps { value: stamp_at(now, stamps.offset), echo: stamps.recent },
        };
        let fits = path.write(frame, &header, text);
        debug_assert!(fits, "no segment is longer than the path carries");
        s.recv.on_acknowledged(&mut self.deadlines);
        if len > 0 || fin {
            on_new_sent(s, s.send.nxt + len + u32::from(fin), segment, now);
            self.arm_in_flight(now, config);
        } else {
            self.arm(now, config);
        }
        true
    }

    /// The same in SYN-SENT: a SYN.
    #[inline(never)]
    fn emit_predicted_syn(
        &mut self,
        now: Instant,
        config: &Settings,
        path: &UsualPath,
        outbox: &mut Outbox,
    ) -> bool {
        if !self.syn_due || self.reset_due.is_some() {
            return false;
        }
        let Some(header) = self.syn_header(now, config) else { return false };
        let Some(frame) = outbox.push() else { return false };
        if !path.write_syn(frame, &header) {
            outbox.unpush();
            return false;
        }
        self.on_syn_built(now, config);
        true
    }
}

#[inline(always)]
fn predict(
    s: &Synchronized,
    options: &SocketOptions,
    now: Instant,
    config: &TcpConfig,
) -> Option<Predicted> {
    let stamps = s.stamps?;
    if !is_calm(s) {
        return None;
    }
    let send = &s.send;
    let segment = segment_beside(s, STAMP_BYTES);
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
        && (len == 0 || len == segment || is_small_worth_it(s, options, len, len));
    let goes = fits && is_one && !send.has_idled(now, config);
    goes.then_some(Predicted { len, fin, segment, stamps })
}

/// True if nothing is lost, out of order, urgent, marked or probed.
#[inline(always)]
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
