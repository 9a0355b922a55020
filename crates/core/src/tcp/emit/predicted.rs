//! Sends what can be predicted. A connection on which nothing is lost, and that asks for nothing
//! unusual, sends one segment with timestamps, all that is queued and FIN; or an ACK alone; or a
//! SYN. It is written here in one go. Everything else is decided and built step by step.

use super::build::on_new_sent;
use super::decide::{STAMP_BYTES, is_small_worth_it, segment_beside};
use crate::flow::stamp::{Stamps, stamp_at};
use crate::frame::Outbox;
use crate::ip::path::FastPath;
use crate::tcp::connection::{Connection, Shape, SynSent, Synchronized};
use crate::tcp::{Settings, SocketOptions};
use crate::time::Instant;
use crate::wire::fast::Stamped;
use crate::wire::options::Timestamps;
use crate::wire::tcp::Flags;

/// The last segment that this turn calls for.
struct Predicted {
    /// Bytes in flight, behind which it comes.
    flight: u32,
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
    pub(crate) fn emit_predicted(
        &mut self,
        now: Instant,
        config: &Settings,
        path: &FastPath,
        outbox: &mut Outbox,
    ) -> bool {
        self.note_route();
        let Connection { common, shape } = self;
        let Shape::Synchronized(s) = shape else {
            return self.emit_predicted_syn(now, config, path, outbox);
        };
        if path.mss < s.send.mss || common.reset_due.is_some() {
            return false;
        }
        let predicted = predict(s, &common.options, now, config, path.mss);
        let Some(Predicted { flight, len, fin, segment, stamps }) = predicted else { return false };
        let text = s.send.buffer.whole(flight as usize, len as usize);
        let Some(text) = text else { return false };
        let Some(frame) = outbox.push() else { return false };
        let pushed = if len > 0 { Flags::ACK | Flags::PSH } else { Flags::ACK };
        let unread = s.recv.buffer.len() as u32;
        let header = Stamped {
            ports: common.identity.ports,
            seq: s.send.nxt,
            ack: s.recv.nxt,
            flags: if fin { pushed | Flags::FIN } else { pushed },
            window: s.recv.window.announce(s.recv.nxt, unread, s.recv.mss),
            stamps: Timestamps { value: stamp_at(now, stamps.offset), echo: stamps.recent },
        };
        let fits = path.write(frame, &header, text);
        debug_assert!(fits, "no segment is longer than the path carries");
        // Nothing came twice, so there is no duplicate to report.
        s.recv.ack.on_sent(s.recv.nxt, &mut common.deadlines);
        if len > 0 || fin {
            on_new_sent(s, s.send.nxt + len + u32::from(fin), segment, now);
            common.arm_in_flight(&mut s.send, now, config);
        } else {
            common.arm(&mut s.send, now, config);
        }
        true
    }

    /// Sends the predicted segment in SYN-SENT: a SYN.
    fn emit_predicted_syn(
        &mut self,
        now: Instant,
        config: &Settings,
        path: &FastPath,
        outbox: &mut Outbox,
    ) -> bool {
        // One that asks for more than the usual takes longer.
        let opens = matches!(self.shape, Shape::SynSent(SynSent { asks: None, .. }));
        if !opens || self.reset_due.is_some() {
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

fn predict(
    s: &Synchronized,
    options: &SocketOptions,
    now: Instant,
    config: &Settings,
    path_mss: u16,
) -> Option<Predicted> {
    let stamps = s.stamps?;
    if is_asked(s, path_mss) || !s.is_calm() {
        return None;
    }
    let send = &s.send;
    let segment = segment_beside(s, STAMP_BYTES);
    // All but FIN, if that has been sent.
    let (flight, queued) = (send.flight(), send.buffer.len() as u32);
    let len = queued.saturating_sub(flight);
    let fin = send.fin_queued && flight <= queued;
    let predicted = Predicted { flight, len, fin, segment, stamps };
    if len == 0 && !fin {
        let is_due = s.recv.ack.now || s.wants_window_update();
        return is_due.then_some(predicted);
    }
    let end = flight + len;
    if len > segment || end + u32::from(fin) > send.window {
        return None;
    }
    if len > send.allowance(now, segment, send.congestion.window()) {
        return None;
    }
    if len != segment && len > 0 && !is_small_worth_it(s, options, len, len) {
        return None;
    }
    send.idled(now, config).is_none().then_some(predicted)
}

/// True if something else is asked for than what follows from the queues.
fn is_asked(s: &Synchronized, path_mss: u16) -> bool {
    // All at once: hardly ever is one of them so.
    s.send.fin_again | s.probe_due | s.keepalive_due | s.send.is_unusual(path_mss)
}

#[cfg(test)]
mod tests;
