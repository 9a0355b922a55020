//! From an [`Emission`] to a segment in the outbox, and what sending it changes.

use super::decide::segment_bytes;
use super::{Emission, Why};
use crate::config::Push;
use crate::event::Readiness;
use crate::flow::seq::Seq;
use crate::tcp::connection::{Connection, Context, Reset, Shape, Synchronized, stamp_at};
use crate::tcp::egress::{Egress, Payload};
use crate::tcp::timers::{Deadlines, Timer};
use crate::tcp::{Settings, ecn};
use crate::time::Instant;
use crate::wire::options::{Options, Timestamps};
use crate::wire::tcp::{Flags, Header};
use crate::wire::usual::Syn;

impl Connection {
    /// Sends `emission`; false if there was no room, and then it is as due as before.
    pub(super) fn build(
        &mut self,
        cx: &mut Context,
        egress: &mut Egress<'_>,
        emission: Emission,
    ) -> bool {
        match emission {
            Emission::Nothing => true,
            Emission::Reset(reset) => self.build_reset(egress, reset),
            Emission::Syn => self.build_syn(cx, egress),
            Emission::Text { seq, len, fin, why } => {
                self.build_text(cx, egress, (seq, len, fin), why)
            }
            Emission::EmptyProbe => self.build_empty_probe(cx, egress),
            Emission::DuplicateAck => self.build_ack(cx, egress, true),
            Emission::Ack => self.build_ack(cx, egress, false),
        }
    }

    fn header(&self, seq: Seq, ack: Seq, flags: Flags) -> Header {
        Header {
            source_port: (self.ports >> 16) as u16,
            destination_port: self.ports as u16,
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
            options: Options::NONE,
        }
    }

    fn build_reset(&mut self, egress: &mut Egress<'_>, reset: Reset) -> bool {
        let flags = if reset.ack.is_some() { Flags::RST | Flags::ACK } else { Flags::RST };
        let mut header = self.header(reset.seq, reset.ack.unwrap_or_default(), flags);
        header.options.timestamps = reset.stamps;
        let sent = egress.send(&header, None);
        if sent {
            self.reset_due = None;
        }
        sent
    }

    /// SYN in SYN-SENT; SYN, ACK in SYN-RECEIVED. Each sending arms the next (RFC 6298 §5).
    fn build_syn(&mut self, cx: &mut Context, egress: &mut Egress<'_>) -> bool {
        let Some(header) = self.syn_header(cx.now, &cx.config) else { return true };
        if !egress.send(&header.header(), None) {
            return false;
        }
        self.on_syn_built(cx.now, &cx.config);
        true
    }

    /// The header of a SYN, in the handshake.
    pub(super) fn syn_header(&self, now: Instant, config: &Settings) -> Option<Syn> {
        match &self.shape {
            Shape::SynSent(syn) => Some(syn.header(self.ports, now, config)),
            Shape::SynReceived(syn, _) => Some(syn.header(self.ports, now, config)),
            Shape::Synchronized(_) | Shape::Ended(_) => None,
        }
    }

    /// A SYN has left.
    pub(super) fn on_syn_built(&mut self, now: Instant, config: &Settings) {
        self.syn_due = false;
        let attempts = match &mut self.shape {
            Shape::SynSent(syn) => {
                if syn.attempts == 0 {
                    syn.sent_at = now;
                }
                &mut syn.attempts
            }
            Shape::SynReceived(syn, _) => &mut syn.attempts,
            _ => return,
        };
        *attempts = (*attempts).max(1);
        // One that only answers a challenge leaves the timer as it is.
        if !self.deadlines.is_set(Timer::Retransmit) {
            let at = now.plus_nanos(config.rto_bounds.syn_rto_ns(*attempts));
            self.deadlines.set(Timer::Retransmit, at);
        }
    }

    fn build_text(
        &mut self,
        cx: &mut Context,
        egress: &mut Egress<'_>,
        (seq, len, fin): (Seq, u32, bool),
        why: Why,
    ) -> bool {
        let mut header = self.header(seq, Seq(0), Flags::ACK);
        let Shape::Synchronized(s) = &mut self.shape else { return true };
        if why == Why::New {
            s.send.on_restart(cx.now, &cx.config);
        }
        complete(&mut header, s, cx);
        let end = seq + len;
        if fin {
            header.flags |= Flags::FIN;
        }
        let segment = segment_bytes(s);
        let burst = len > segment && egress.way.path.device.checksum;
        let pushes = end == s.send.data_end() || (cx.config.quirks.push == Push::Burst && burst);
        if len > 0 && pushes {
            header.flags |= Flags::PSH;
        }
        if let Some(urgent) = s.send.urgent.filter(|urgent| urgent.after(seq)) {
            header.flags |= Flags::URG;
            header.urgent = urgent.since(seq).min(65_535) as u16;
        }
        let payload = Payload {
            offset: seq.since(s.send.una) as usize,
            buffer: &mut s.send.buffer,
            len: len as usize,
            segment: segment as usize,
        };
        // RFC 3168 §6.1.4, §6.1.5: new data alone may be marked.
        let class = egress.way.traffic_class;
        if let Some(ecn) = s.ecn.as_mut().filter(|_| why == Why::New && len > 0) {
            if ecn.cwr_due {
                header.flags |= Flags::CWR;
            }
            egress.way.traffic_class = class & !ecn::MASK | ecn::ECT0;
        }
        let sent = egress.send_text(&header, (len > 0).then_some(payload));
        egress.way.traffic_class = class;
        if !sent {
            return false;
        }
        if let Some(ecn) = s.ecn.as_mut().filter(|_| header.flags.contains(Flags::CWR)) {
            ecn.cwr_due = false;
        }
        s.recv.on_acknowledged(&mut self.deadlines);
        let cut = (!egress.way.path.device.checksum).then_some(segment);
        self.on_text_sent(cx, (seq, len, fin), cut, why);
        true
    }

    /// `len` bytes from `seq`, and perhaps FIN, have left, in segments of `cut` bytes if it was us
    /// who cut them.
    fn on_text_sent(
        &mut self,
        cx: &mut Context,
        (seq, len, fin): (Seq, u32, bool),
        cut: Option<u32>,
        why: Why,
    ) {
        let end = seq + len + u32::from(fin);
        let Shape::Synchronized(s) = &mut self.shape else { return };
        let send = &mut s.send;
        match why {
            Why::New => {
                if let Some(cut) = cut {
                    // All but the last.
                    let whole = len.saturating_sub(1) / cut;
                    send.sent.on_run_sent(seq, cut as u16, whole, cx.now);
                }
                let segment = segment_bytes(s);
                on_new_sent(s, end, segment, cx.now);
            }
            Why::Lost => {
                let stamp = s.stamps.map_or(0, |stamps| stamp_at(cx.now, stamps.offset));
                if let Some(recovery) = &mut send.recovery {
                    recovery.on_retransmitted(seq, end.since(seq));
                }
                send.sent.on_sent_again(seq, end, cx.now, stamp);
                send.retransmits = send.retransmits.saturating_add(1);
                cx.counters.retransmits += 1;
                // RFC 6298 §5.1, and RFC 6675 §5: the clock runs from the latest sending.
                self.deadlines.cancel(Timer::Retransmit);
            }
            Why::Probe => on_window_probed(s, cx, &mut self.deadlines),
        }
        let send = &mut s.send;
        send.max = send.max.max(end);
        send.last_sent = cx.now;
    }

    /// RFC 9293 §3.8.4: nothing, one number before the window, so that the peer must answer.
    fn build_empty_probe(&mut self, cx: &mut Context, egress: &mut Egress<'_>) -> bool {
        let mut header = self.header(Seq(0), Seq(0), Flags::ACK);
        let Shape::Synchronized(s) = &mut self.shape else { return true };
        header.seq = s.send.nxt - 1;
        complete(&mut header, s, cx);
        if !egress.send(&header, None) {
            return false;
        }
        if s.probe_due {
            on_window_probed(s, cx, &mut self.deadlines);
        } else {
            s.keepalive_due = false;
            s.keepalive_probes = s.keepalive_probes.saturating_add(1);
            cx.counters.keepalive_probes += 1;
        }
        true
    }

    fn build_ack(&mut self, cx: &mut Context, egress: &mut Egress<'_>, duplicate: bool) -> bool {
        let mut header = self.header(Seq(0), Seq(0), Flags::ACK);
        if let Shape::SynReceived(syn, _) = &self.shape {
            let sent = egress.send(&syn.answer(header, cx.now, &cx.config), None);
            self.answer_due &= !sent;
            return sent;
        }
        let Shape::Synchronized(s) = &mut self.shape else { return true };
        header.seq = s.send.nxt;
        if s.send.fin_again && s.send.only_fin_in_flight() {
            header.seq = s.send.nxt - 1;
            header.flags |= Flags::FIN;
        }
        complete(&mut header, s, cx);
        let trigger = s.recv.trigger().filter(|_| duplicate && s.send.sack);
        if trigger.is_some() {
            header.options.sack = s.recv.sack_blocks(trigger);
        }
        if !egress.send(&header, None) {
            return false;
        }
        s.send.fin_again = false;
        if duplicate {
            s.recv.on_duplicate_sent();
        }
        s.recv.on_acknowledged(&mut self.deadlines);
        true
    }

    /// What has become possible since the last call.
    pub fn take_notices(&mut self) -> Readiness {
        core::mem::take(&mut self.notices)
    }
}

/// The fields that every segment of a synchronized connection carries: ACK, window, timestamps,
/// SACK blocks.
fn complete(header: &mut Header, s: &mut Synchronized, cx: &Context) {
    let unread = s.recv.buffer.len() as u32;
    header.ack = s.recv.nxt;
    if s.ecn.is_some_and(|ecn| ecn.echo) {
        header.flags |= Flags::ECE;
    }
    header.window = s.recv.window.announce(s.recv.nxt, unread, s.recv.mss);
    header.options.timestamps = s
        .stamps
        .map(|stamps| Timestamps { value: stamp_at(cx.now, stamps.offset), echo: stamps.recent });
    if s.send.sack && s.recv.has_sack_blocks() {
        header.options.sack = s.recv.sack_blocks(None);
    }
}

/// A zero-window probe has left.
fn on_window_probed(s: &mut Synchronized, cx: &mut Context, deadlines: &mut Deadlines) {
    s.probe_due = false;
    s.send.probes = s.send.probes.saturating_add(1);
    cx.counters.window_probes += 1;
    deadlines.cancel(Timer::Persist);
}

/// What is new up to `end`, FIN included, has left, in segments of `segment` bytes.
#[inline(always)]
pub(super) fn on_new_sent(s: &mut Synchronized, end: Seq, segment: u32, now: Instant) {
    let send = &mut s.send;
    let len = end.since(send.nxt);
    if len < segment || !len.is_multiple_of(segment) {
        send.small_end = end;
    }
    send.wait_from(now);
    send.nxt = end;
    send.max = send.max.max(end);
    send.last_sent = now;
    send.probes = 0;
    send.sent.on_sent(end, now);
    send.note_usage();
    s.push_due = false;
}
