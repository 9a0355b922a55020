//! Builds the segment of an [`Emission`] in the outbox, and notes what sending it changes.

use super::decide::segment_bytes;
use super::{Emission, Run, Why};
use crate::config::{Push, TcpConfig};
use crate::flow::seq::Seq;
use crate::flow::stamp::{Stamps, stamp_at};
use crate::tcp::congestion::Sent;
use crate::tcp::connection::{Step, Synchronized};
use crate::tcp::ecn::{self, PastEcho};
use crate::tcp::egress::{Egress, Payload};
use crate::tcp::time_wait::negotiate::{Code, End};
use crate::tcp::timers::Timer;
use crate::time::Instant;
use crate::wire::options::Timestamps;
use crate::wire::tcp::{Flags, Header};

impl Step<'_> {
    /// Sends `emission`; false if there was no room, and then it is as due as before.
    pub(super) fn build(&mut self, egress: &mut Egress<'_>, emission: Emission) -> bool {
        match emission {
            Emission::Text(run) => self.build_text(egress, run),
            Emission::EmptyProbe => self.build_empty_probe(egress),
            Emission::PastEcho(past) => self.build_past_echo(egress, past),
            Emission::DuplicateAck => self.build_ack(egress, true),
            Emission::Ack => self.build_ack(egress, false),
        }
    }

    fn build_text(&mut self, egress: &mut Egress<'_>, run: Run) -> bool {
        let Step { cx, common, s } = self;
        let Run { seq, len, fin, why } = run;
        let mut header = Header::new(common.identity.ports, seq, Seq(0), Flags::ACK);
        let is_new = matches!(why, Why::New | Why::PathProbe);
        let stamped = if why == Why::Lost { s.send.stamped_again(cx.now) } else { cx.now };
        complete(&mut header, s, stamped);
        name_holder(&mut header, s, &cx.config, egress);
        if fin {
            header.flags |= Flags::FIN;
        }
        let segment = if why == Why::PathProbe { len } else { segment_bytes(s) };
        let burst = len > segment && egress.path.base.device.checksum;
        let end = seq + len;
        let pushes = end == s.send.data_end()
            || s.send.ends_record(end)
            || (cx.config.quirks.push == Push::Burst && burst);
        if len > 0 && pushes {
            header.flags |= Flags::PSH;
        }
        if let Some(urgent) = s.send.urgent().filter(|urgent| urgent.after(seq)) {
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
        let class = egress.path.traffic_class;
        if let Some(ecn) = s.ecn.as_mut().filter(|_| is_new && len > 0) {
            if ecn.cwr_due {
                header.flags |= Flags::CWR;
            }
            egress.path.traffic_class = class & !ecn::MASK | ecn::ECT0;
        }
        let sent = egress.send_text(&header, (len > 0).then_some(payload));
        egress.path.traffic_class = class;
        if !sent {
            return false;
        }
        if is_new {
            s.send.on_restart(cx.now, &cx.config);
        }
        if let Some(ecn) = s.ecn.as_mut().filter(|_| header.flags.contains(Flags::CWR)) {
            ecn.cwr_due = false;
        }
        s.recv.on_acknowledged(&mut common.deadlines);
        self.on_text_sent(run);
        if why == Why::PathProbe {
            self.s.send.on_path_probe_sent(seq, seq + len, egress.path.base.probe);
        }
        true
    }

    /// Notes that `run` has left.
    fn on_text_sent(&mut self, run: Run) {
        let (seq, end) = (run.seq, run.end());
        let Step { cx, common, s } = self;
        let send = &mut s.send;
        match run.why {
            Why::New | Why::PathProbe => {
                let segment = if run.why == Why::PathProbe { run.len } else { segment_bytes(s) };
                on_new_sent(s, end, segment, cx.now);
                s.send.note_departure(cx.now, end.since(seq));
                s.send.note_new_sent(end.since(seq));
            }
            Why::Lost => {
                send.on_sent_again(seq, end, cx.now);
                send.note_departure(cx.now, end.since(seq));
                cx.counters.retransmits += 1;
                // RFC 6298 §5.1, and RFC 6675 §5: the clock runs from the latest sending.
                common.deadlines.cancel(Timer::Retransmit);
            }
            Why::Probe => self.on_window_probed(),
        }
        let (send, cx) = (&mut self.s.send, &self.cx);
        send.max = send.max.max(end);
        send.last_sent = cx.now;
    }

    /// RFC 9293 §3.8.4: nothing, one number before the window, so that the peer must answer.
    fn build_empty_probe(&mut self, egress: &mut Egress<'_>) -> bool {
        let Step { cx, common, s } = self;
        let mut header = Header::new(common.identity.ports, s.send.nxt - 1, Seq(0), Flags::ACK);
        complete(&mut header, s, cx.now);
        name_holder(&mut header, s, &cx.config, egress);
        if !egress.send(&header, None) {
            return false;
        }
        if s.probe_due {
            self.on_window_probed();
        } else {
            s.keepalive_due = false;
            s.keepalive_probes = s.keepalive_probes.saturating_add(1);
            cx.counters.keepalive_probes += 1;
        }
        true
    }

    /// A zero-window probe has left.
    fn on_window_probed(&mut self) {
        self.s.probe_due = false;
        self.s.send.probes = self.s.send.probes.saturating_add(1);
        self.cx.counters.window_probes += 1;
        self.common.deadlines.cancel(Timer::Persist);
    }

    /// What it leaves out, SACK blocks above all, is in the ACK of the new state, which follows.
    fn build_past_echo(&mut self, egress: &mut Egress<'_>, past: PastEcho) -> bool {
        let Step { cx, common, s } = self;
        let flags = Flags::ACK | if past.ce { Flags::ECE } else { Flags::default() };
        let mut header = Header::new(common.identity.ports, s.send.nxt, past.ack, flags);
        header.window = s.recv.announce(past.ack);
        header.options.timestamps = s.stamps.map(|stamps| timestamps(stamps, cx.now));
        name_holder(&mut header, s, &cx.config, egress);
        if !egress.send(&header, None) {
            return false;
        }
        if let Some(echo) = s.send.congestion.echo_mut() {
            echo.on_past_sent();
        }
        true
    }

    fn build_ack(&mut self, egress: &mut Egress<'_>, duplicate: bool) -> bool {
        let Step { cx, common, s } = self;
        let mut header = Header::new(common.identity.ports, s.send.nxt, Seq(0), Flags::ACK);
        if s.send.fin_again && s.send.only_fin_in_flight() {
            header.seq = s.send.nxt - 1;
            header.flags |= Flags::FIN;
        }
        complete(&mut header, s, cx.now);
        name_holder(&mut header, s, &cx.config, egress);
        let trigger = s.recv.trigger().filter(|_| duplicate && s.send.has_sack());
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
        s.recv.on_acknowledged(&mut common.deadlines);
        true
    }
}

/// The fields that every segment of a synchronized connection carries: ACK, window, timestamps,
/// SACK blocks. Its own timestamp is that of the time `stamped`.
fn complete(header: &mut Header, s: &mut Synchronized, stamped: Instant) {
    header.ack = s.recv.nxt;
    if s.echoes() {
        header.flags |= Flags::ECE;
    }
    header.window = s.recv.announce(s.recv.nxt);
    header.options.timestamps = s.stamps.map(|stamps| timestamps(stamps, stamped));
    if s.send.has_sack() && s.recv.has_sack_blocks() {
        header.options.sack = s.recv.sack_blocks(None);
    }
}

fn timestamps(stamps: Stamps, now: Instant) -> Timestamps {
    Timestamps { value: stamp_at(now, stamps.offset), echo: stamps.recent }
}

/// Names the holder of TIME-WAIT once more, as long as the peer may not have heard it. A SACK block
/// gives way where there is no room for both.
fn name_holder(header: &mut Header, s: &Synchronized, config: &TcpConfig, egress: &Egress<'_>) {
    if let Some(end) = s.holder.named().filter(|_| s.naming > 0) {
        let address = egress.path.base.address(end == End::Ourselves);
        header.options.experimental = Code::of(config).option(address);
    }
}

/// What is new up to `end`, FIN included, has left, in segments of `segment` bytes.
#[inline(always)]
pub(super) fn on_new_sent(s: &mut Synchronized, end: Seq, segment: u32, now: Instant) {
    let send = &mut s.send;
    let (len, was_idle) = (end.since(send.nxt), send.nxt == send.una);
    if len < segment || !len.is_multiple_of(segment) {
        send.small_end = end;
    }
    send.wait_from(now);
    send.nxt = end;
    send.max = send.max.max(end);
    send.last_sent = now;
    send.probes = 0;
    send.sent.on_sent(send.una, end, now);
    send.congestion.on_sent(Sent { now, una: send.una, nxt: end, was_idle });
    s.push_due = false;
}
