//! Time has passed: what each timer does when it fires. Nothing is sent from here either.

use crate::error::Error;
use crate::tcp::State;
use crate::tcp::connection::{Connection, Context, Shape, SynReceived, SynSent};
use crate::tcp::timers::Timer;
use crate::time::Instant;

/// R1 of RFC 9293 §3.8.3: retransmissions in vain after which the user can learn of them.
const R1: u8 = 3;

impl Connection {
    /// Handles every timer that is due at `tick`, the last one of the scheduling clock. The
    /// connection is dirty afterwards.
    pub fn on_time(&mut self, cx: &mut Context, tick: Instant) {
        if self.deadlines.take_due(Timer::Lifetime, tick) {
            self.on_lifetime(cx);
        }
        if self.deadlines.take_due(Timer::Retransmit, tick) {
            self.on_retransmit(cx);
        }
        if self.deadlines.take_due(Timer::DelayedAck, tick)
            && let Shape::Synchronized(s) = &mut self.shape
        {
            s.recv.ack.now = true;
        }
        if self.deadlines.take_due(Timer::Persist, tick) {
            self.on_persist(cx);
        }
        if self.deadlines.take_due(Timer::KeepAlive, tick) {
            self.on_keepalive(cx);
        }
        if self.deadlines.take_due(Timer::FinWait2, tick) && self.state() == State::FinWait2 {
            self.end(State::Closed, Some(Error::TimedOut), cx);
        }
    }

    /// True, once, if it is an orphan and the host's patience with it has ended at `tick`; a linger
    /// is the user's, and ends it whatever moves.
    pub fn has_patience_ended(&mut self, tick: Instant) -> bool {
        let is_patience = self.orphan && self.options.linger.is_none();
        is_patience && self.deadlines.take_due(Timer::Lifetime, tick)
    }

    /// All that an orphan had to send is acknowledged: how long it may hold that is no matter.
    pub fn end_patience_of_orphan(&mut self) {
        if self.options.linger.is_none() {
            self.deadlines.cancel(Timer::Lifetime);
        }
    }

    /// Establishment has taken too long, or a linger is over.
    fn on_lifetime(&mut self, cx: &mut Context) {
        match &self.shape {
            Shape::Synchronized(_) => self.abort(Error::TimedOut, cx),
            Shape::SynSent(_) | Shape::SynReceived(..) => {
                cx.counters.failed_opens += 1;
                self.end(State::Closed, Some(Error::TimedOut), cx);
            }
            Shape::Ended(_) => {}
        }
    }

    /// RFC 6298 §5.4–5.7, RFC 9293 §3.8.3.
    fn on_retransmit(&mut self, cx: &mut Context) {
        let limit = self.patience(&cx.config);
        let is_unreachable = self.is_unreachable();
        match &mut self.shape {
            Shape::SynSent(SynSent { attempts, .. })
            | Shape::SynReceived(SynReceived { attempts, .. }, _) => {
                *attempts = attempts.saturating_add(1);
                self.syn_due = true;
                if *attempts > R1 + 1 {
                    self.note_silence();
                }
            }
            Shape::Synchronized(s) if s.send.flight() > 0 => {
                let since = s.send.wait_from(cx.now);
                if cx.now.since(since) >= limit {
                    cx.counters.connections_timed_out += 1;
                    return self.abort(Error::TimedOut, cx);
                }
                // Without a way nothing was lost: nothing was sent. The host looks for one again.
                if !is_unreachable {
                    cx.counters.timeouts += 1;
                    s.send.on_timeout();
                    if let Some(ecn) = &mut s.ecn {
                        ecn.on_reduced(s.send.nxt);
                    }
                    if s.send.rtt.backoff() > R1 {
                        self.note_silence();
                    }
                }
            }
            Shape::Synchronized(_) | Shape::Ended(_) => {}
        }
    }

    /// Nothing is in flight and something waits: the window is closed, or the sender held a small
    /// segment back.
    fn on_persist(&mut self, cx: &mut Context) {
        let limit = self.patience(&cx.config);
        let Shape::Synchronized(s) = &mut self.shape else { return };
        if s.send.window_edge().after(s.send.nxt) && s.send.probes == 0 {
            s.push_due = true;
            return;
        }
        let since = s.send.wait_from(cx.now);
        if cx.now.since(since) >= limit {
            cx.counters.connections_timed_out += 1;
            self.abort(Error::TimedOut, cx);
        } else {
            s.probe_due = true;
        }
    }

    /// RFC 9293 §3.8.4: an idle peer is probed; one that never answers is given up. An orphan in
    /// FIN-WAIT-2 waits as long as that may last, whether its peer is there or not, as in Linux.
    fn on_keepalive(&mut self, cx: &mut Context) {
        let is_left = self.deadlines.is_set(Timer::FinWait2);
        let Some(keepalive) = self.options.keepalive.filter(|_| !is_left) else { return };
        let Shape::Synchronized(s) = &mut self.shape else { return };
        if s.keepalive_probes >= keepalive.probes {
            cx.counters.connections_timed_out += 1;
            return self.abort(Error::TimedOut, cx);
        }
        // With data in flight the retransmission timer asks already.
        s.keepalive_due = s.send.flight() == 0;
        self.deadlines.set(Timer::KeepAlive, cx.now + keepalive.interval);
    }
}
