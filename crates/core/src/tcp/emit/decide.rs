//! The decision: a pure function of the connection, the time, the path, and the room that is left
//! in this turn.

use super::{Emission, Run, Why};
use crate::config::WindowProbe;
use crate::flow::Seq;
use crate::ip::path::Path;
use crate::tcp::SocketOptions;
use crate::tcp::connection::{Step, Synchronized};
use crate::tcp::ecn::Echo;
use crate::tcp::send::SendHalf;
use crate::tcp::send::frto::Frto;
use crate::tcp::send::recovery::Mode;

impl Step<'_> {
    /// What to send next, if anything.
    pub(super) fn decide(&self, path: &Path, room: usize) -> Option<Emission> {
        let s = &*self.s;
        if is_quiet(s) {
            return None;
        }
        if let Some(past) = s.send.congestion.echo().and_then(Echo::past) {
            return Some(Emission::PastEcho(past));
        }
        if s.recv.ack.duplicates > 0 {
            return Some(Emission::DuplicateAck);
        }
        self.next_run(path, room)
            .map(Emission::Text)
            .or_else(|| self.probe())
            .or_else(|| pure_ack(s))
    }

    /// Text or FIN.
    fn next_run(&self, path: &Path, room: usize) -> Option<Run> {
        let send = &self.s.send;
        if has_sent_all(send) {
            return None;
        }
        let segment = segment_bytes(self.s);
        if send.owes_probe() {
            let new = self.new_text(path, 1, segment, segment);
            let (seq, len) = send.probe_again(segment);
            return new.or_else(|| Some(run(send, seq, len, Why::Lost)));
        }
        let window = send.window_now(self.cx.now, &self.cx.config);
        let allowed = send.allowance(self.cx.now, segment, window);
        let new_text = || self.new_text(path, room, segment, allowed);
        match send.sent.next_lost(send.una, segment) {
            Some(lost) if send.frto().prefers_new() => {
                new_text().or_else(|| lost_text(send, lost, allowed))
            }
            // What is lost goes before anything new, even if it has to wait for the window.
            Some(lost) => lost_text(send, lost, allowed),
            None => (self.path_probe(path, segment, allowed))
                .or_else(new_text)
                .or_else(|| speculative_text(send, segment, allowed)),
        }
    }

    /// New data in a segment larger than the path is known to carry.
    fn path_probe(&self, path: &Path, segment: u32, allowed: u32) -> Option<Run> {
        if path.probe == 0 || self.s.ecn.is_some_and(|ecn| ecn.cwr_due) {
            return None;
        }
        let send = &self.s.send;
        let options = option_bytes(self.s) as u32;
        let len = send.path_probe(self.cx.now, path.probe_mss(), options, segment)?;
        (len <= allowed).then(|| run(send, send.nxt, len, Why::PathProbe))
    }

    /// New data and FIN, within the peer's window and the congestion window, and worth sending.
    fn new_text(&self, path: &Path, room: usize, segment: u32, allowed: u32) -> Option<Run> {
        let s = &*self.s;
        let send = &s.send;
        // Less than nothing if FIN has been sent.
        let sent = send.flight();
        let queued = (send.buffer.len() as u32).saturating_sub(sent);
        if queued == 0 {
            return lone_fin(send);
        }
        let usable = send.window.saturating_sub(sent);
        // What goes out at once: cut by the device, or one frame after the other by ourselves.
        let alike = send.urgent().is_none() && !s.recv.has_sack_blocks();
        let large = match path.device.checksum {
            true => path.large_payload(header_bytes(s), segment as usize) as u32,
            false if alike => segment.saturating_mul(room.max(1) as u32),
            false => segment,
        };
        // Text of the next record goes into another segment, and no more comes into this one.
        let record = send.within_record(send.nxt, queued);
        let mut len = record.min(usable).min(allowed).min(large);
        if s.ecn.is_some_and(|ecn| ecn.cwr_due) {
            // CWR is sent once, on one packet.
            len = len.min(segment);
        }
        let is_worth_it = |len, left| {
            let is_ended = len == left && record < queued;
            is_ended || is_small_worth_it(s, &self.common.options, len, left)
        };
        let tail = len % segment;
        let cuts_tail = |tail| len < record || !path.device.checksum || !is_worth_it(tail, tail);
        if len > segment && tail > 0 && cuts_tail(tail) {
            // Whether the short one may follow is decided once they are out.
            len -= tail;
        }
        if len == 0 || (len < segment && !is_worth_it(len, record)) {
            return None;
        }
        let fin = send.fin_queued && len == queued && sent + len < send.window;
        Some(Run { seq: send.nxt, len, fin, why: Why::New })
    }

    /// How many segments that is, and whether they have data.
    pub(super) fn segments_of(&self, emission: &Emission) -> (u64, bool) {
        let Emission::Text(Run { len, why, .. }) = *emission else { return (1, false) };
        let segment = if why == Why::PathProbe { len } else { segment_bytes(self.s) };
        (len.div_ceil(segment.max(1)).max(1).into(), len > 0)
    }

    fn probe(&self) -> Option<Emission> {
        let s = &*self.s;
        if s.probe_due && self.cx.config.quirks.window_probe == WindowProbe::Byte {
            return Some(Emission::Text(run(&s.send, s.send.nxt, 1, Why::Probe)));
        }
        (s.probe_due || s.keepalive_due).then_some(Emission::EmptyProbe)
    }
}

/// True if it plainly has nothing to send; else [`Step::decide`] finds out.
fn is_quiet(s: &Synchronized) -> bool {
    let has_ack = s.recv.ack.is_due() || s.wants_window_update();
    has_sent_all(&s.send) && !has_ack && !s.probe_due && !s.keepalive_due
}

/// True if nothing is new, and nothing lost or probed for.
fn has_sent_all(send: &SendHalf) -> bool {
    send.queued_end() == send.nxt && send.mode() == Mode::Open && !send.owes_probe()
}

/// FIN, when all data has been sent, and the peer's window has room for its number.
fn lone_fin(send: &SendHalf) -> Option<Run> {
    let due = send.fin_queued && send.nxt == send.data_end();
    let fits = send.nxt.before(send.window_edge());
    (due && fits).then(|| run(send, send.nxt, 0, Why::New))
}

/// RFC 9293 §3.8.6.2.1: when less than a full segment may leave. `len` bytes could, of `queued`.
#[inline(always)]
pub(super) fn is_small_worth_it(
    s: &Synchronized,
    options: &SocketOptions,
    len: u32,
    queued: u32,
) -> bool {
    let send = &s.send;
    let whole = len == queued;
    let held_by_nagle = !options.nodelay
        && !send.fin_queued
        && send.small_end.after(send.una)
        && send.urgent().is_none();
    let corked = options.cork && !send.fin_queued;
    if s.push_due {
        return true;
    }
    (whole && !held_by_nagle && !corked) || len >= (send.max_window / 2).max(1)
}

/// Bytes of the option of timestamps.
pub(super) const STAMP_BYTES: usize = 12;

/// Bytes of the options on a segment with text.
fn option_bytes(s: &Synchronized) -> usize {
    let stamps = if s.stamps.is_some() { STAMP_BYTES } else { 0 };
    let others = stamps + usize::from(s.naming);
    if !s.send.has_sack() || !s.recv.has_sack_blocks() {
        return others;
    }
    let blocks = s.recv.sack_blocks(None).len();
    // Two bytes of filler, two of kind and length, eight a block; three blocks beside timestamps.
    let room = 40_usize.saturating_sub(others + 4) / 8;
    let blocks = blocks.min(room);
    if blocks == 0 { others } else { others + 4 + 8 * blocks }
}

/// Bytes of the TCP header on a segment with text.
fn header_bytes(s: &Synchronized) -> usize {
    20 + option_bytes(s)
}

/// Payload of a full segment: the MSS counts no options, so they come off (RFC 6691 §3).
pub(super) fn segment_bytes(s: &Synchronized) -> u32 {
    segment_beside(s, option_bytes(s))
}

/// Payload of a full segment with so many bytes of options.
pub(super) fn segment_beside(s: &Synchronized, options: usize) -> u32 {
    u32::from(s.send.mss).saturating_sub(options as u32).max(1)
}

/// A run of `len` numbers from `seq`; the last number may be FIN's.
fn run(send: &SendHalf, seq: Seq, len: u32, why: Why) -> Run {
    let data = send.data_end().distance(seq).max(0) as u32;
    let len = len.min(data);
    let reaches_end = len == data;
    let fin_fits = match why {
        Why::New | Why::PathProbe => (seq + len).before(send.window_edge()),
        Why::Lost => (seq + len).before(send.nxt),
        Why::Probe => len == 0,
    };
    Run { seq, len, fin: send.fin_queued && reaches_end && fin_fits, why }
}

/// What is lost, if so much is `allowed`, and it need not wait for what new segments tell.
fn lost_text(send: &SendHalf, (seq, len): (Seq, u32), allowed: u32) -> Option<Run> {
    let waits = send.frto() == Frto::Watching;
    let len = send.within_record(seq, len);
    (allowed >= len && !waits).then(|| run(send, seq, len, Why::Lost))
}

/// RFC 6675 §4, NextSeg rules 3 and 4, when nothing else may be sent and a segment is `allowed`.
fn speculative_text(send: &SendHalf, segment: u32, allowed: u32) -> Option<Run> {
    let (seq, len) = send.next_speculative(segment).filter(|_| allowed >= segment)?;
    Some(run(send, seq, send.within_record(seq, len), Why::Lost))
}

fn pure_ack(s: &Synchronized) -> Option<Emission> {
    (s.recv.ack.now || s.wants_window_update()).then_some(Emission::Ack)
}
