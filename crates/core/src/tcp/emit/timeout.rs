//! Does what each timer asks for when it fires. Nothing is sent from here: the connection is
//! marked, and `emit` sends.

use core::ops::ControlFlow::{Break, Continue};

use crate::config::LossDetection;
use crate::error::Error;
use crate::event::Readiness;
use crate::tcp::State;
use crate::tcp::connection::{
    Connection, Context, Ending, Passed, Shape, Step, SynReceived, SynSent,
};
use crate::tcp::send::frto::Proof;
use crate::tcp::send::narrow::PathNews;
use crate::tcp::send::recovery::Pending;
use crate::tcp::timers::Timer;
use crate::time::Instant;

/// R1 of RFC 9293 §3.8.3: retransmissions in vain after which the user can learn of them.
const R1: u8 = 3;

/// Timeouts in a row after which a path that has carried no large segments passes for narrower. One
/// may be chance. RFC 4821 §7.7 says R1; but after it a user has waited for seconds.
const BLACK_HOLE_TIMEOUTS: u8 = 2;

/// Full segments' bytes that show that the path carries such.
const CARRIED: u64 = 8;

/// `Some` if so many timeouts in a row make a path pass for narrower; true if they have lasted long
/// enough to doubt even what it has carried, which may all have been small. A path seldom becomes
/// narrower, so that one that has carried large segments, and loses much, gets twice as many.
fn black_hole(timeouts: u8, has_carried: bool) -> Option<bool> {
    let first = BLACK_HOLE_TIMEOUTS * if has_carried { 2 } else { 1 };
    let is_due = timeouts >= first && timeouts.is_multiple_of(BLACK_HOLE_TIMEOUTS);
    is_due.then_some(timeouts >= 2 * first)
}

impl Connection {
    /// Handles every timer that is due at `tick`, the last one of the scheduling clock. The
    /// caller puts the connection on the ready list.
    pub fn on_time(&mut self, cx: &mut Context, tick: Instant) {
        if self.deadlines.take_due(Timer::Lifetime, tick) {
            self.on_lifetime(cx);
        }
        let Some(mut step) = self.step(cx) else {
            return self.on_time_unsynchronized(tick);
        };
        let passed = step.on_time(tick);
        self.conclude(passed, cx);
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

    /// The SYN, or SYN, ACK, may not have been answered.
    fn on_time_unsynchronized(&mut self, tick: Instant) {
        if !self.deadlines.take_due(Timer::Retransmit, tick) {
            return;
        }
        let (Shape::SynSent(SynSent { attempts, .. })
        | Shape::SynReceived(SynReceived { attempts, .. }, _)) = &mut self.shape
        else {
            return;
        };
        *attempts = attempts.saturating_add(1);
        if *attempts > R1 + 1 {
            self.common.note_silence();
        }
        self.common.syn_due = true;
    }
}

impl Step<'_> {
    /// What is due at `tick`, one timer after the other, until the connection ends.
    fn on_time(&mut self, tick: Instant) -> Passed {
        if self.common.deadlines.take_due(Timer::Retransmit, tick) {
            self.on_retransmit()?;
        }
        if self.common.deadlines.take_due(Timer::DelayedAck, tick) {
            self.s.recv.ack.now = true;
        }
        if self.common.deadlines.take_due(Timer::Persist, tick) {
            self.on_persist()?;
        }
        if self.common.deadlines.take_due(Timer::KeepAlive, tick) {
            self.on_keepalive()?;
        }
        let is_left = self.common.deadlines.take_due(Timer::FinWait2, tick);
        if is_left && self.common.state() == State::FinWait2 {
            return Break(Some(Ending::Closed(Some(Error::TimedOut))));
        }
        Continue(())
    }

    /// The retransmission timer fired, for whatever it was set (RFC 9293 §3.8.3, RFC 8985 §8).
    fn on_retransmit(&mut self) -> Passed {
        if self.s.send.flight() == 0 {
            return Continue(());
        }
        self.check_patience()?;
        match self.s.send.timer {
            Pending::Timeout => self.on_timeout(),
            Pending::Late => {
                if self.s.send.on_late(self.cx.now) {
                    self.cx.counters.fast_recoveries += 1;
                    if let Some(ecn) = &mut self.s.ecn {
                        ecn.on_reduced(self.s.send.nxt);
                    }
                }
            }
            Pending::Tail => {
                self.cx.counters.loss_probes += 1;
                self.s.send.on_tail_timer();
            }
        }
        Continue(())
    }

    /// RFC 6298 §5.4–5.7.
    fn on_timeout(&mut self) {
        // Without a way nothing was lost: nothing was sent. The host looks for one again.
        if !self.common.is_unreachable() {
            self.cx.counters.timeouts += 1;
            let proof = match (self.cx.config.detection, self.s.stamps) {
                (LossDetection::Count, _) => Proof::None,
                (LossDetection::Rack, Some(_)) => Proof::Echo,
                (LossDetection::Rack, None) => Proof::Arrivals,
            };
            self.s.send.on_timeout(self.cx.now, proof);
            if let Some(ecn) = &mut self.s.ecn {
                ecn.on_reduced(self.s.send.nxt);
            }
            self.suspect_path();
            if self.s.send.rtt.backoff() > R1 {
                self.common.note_silence();
                self.ask_back();
            }
        }
    }

    /// Large segments may vanish on the way, and the reports of that as well.
    fn suspect_path(&mut self) {
        let send = &self.s.send;
        // A peer without room answers no segment, whatever its size.
        if send.window == 0 || !self.cx.config.path_mtu_search {
            return;
        }
        let has_carried = self.s.passed.acknowledged >= CARRIED * u64::from(send.mss);
        if let Some(again) = black_hole(send.rtt.backoff(), has_carried) {
            let payload = send.first_payload();
            self.cx.path_news = Some(PathNews::BlackHole { payload, again });
        }
    }

    /// The peer has not answered: the end, if that has lasted too long.
    fn check_patience(&mut self) -> Passed {
        let since = self.s.send.wait_from(self.cx.now);
        if self.cx.now.since(since) < self.common.patience(&self.cx.config) {
            return Continue(());
        }
        self.time_out()
    }

    fn time_out(&mut self) -> Passed {
        self.cx.counters.connections_timed_out += 1;
        Break(Some(Ending::Aborted(Error::TimedOut)))
    }

    /// Nothing is in flight and something waits: the window is closed, or the sender held a small
    /// segment back.
    fn on_persist(&mut self) -> Passed {
        let send = &self.s.send;
        if send.window_edge().after(send.nxt) && send.probes == 0 {
            self.s.push_due = true;
            return Continue(());
        }
        self.check_patience()?;
        self.s.probe_due = true;
        // The window has been closed for as long as the peer takes to answer.
        if self.s.send.probes == 0 {
            self.ask_back();
        }
        Continue(())
    }

    /// The peer takes nothing: what waits for it in memory can be read again later.
    fn ask_back(&mut self) {
        if self.s.send.ask_back() {
            self.common.notices |= Readiness::WANTED_BACK;
            self.cx.counters.asked_back_for_stall += 1;
        }
    }

    /// RFC 9293 §3.8.4: an idle peer is probed; one that never answers is given up. An orphan in
    /// FIN-WAIT-2 waits as long as that may last, whether its peer is there or not, as in Linux.
    fn on_keepalive(&mut self) -> Passed {
        let is_left = self.common.deadlines.is_set(Timer::FinWait2);
        let Some(keepalive) = self.common.options.keepalive.filter(|_| !is_left) else {
            return Continue(());
        };
        if self.s.keepalive_probes >= keepalive.probes {
            return self.time_out();
        }
        // With data in flight the retransmission timer asks already.
        self.s.keepalive_due = self.s.send.flight() == 0;
        self.common.deadlines.set(Timer::KeepAlive, self.cx.now + keepalive.interval);
        Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_has_carried_gets_twice_as_many_timeouts() {
        let told = |has_carried| core::array::from_fn(|n| black_hole(n as u8, has_carried));
        let (no, first, again) = (None, Some(false), Some(true));
        assert_eq!([no, no, first, no, again, no, again, no, again], told(false));
        assert_eq!([no, no, no, no, first, no, first, no, again], told(true));
    }
}
