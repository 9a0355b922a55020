//! How a connection ends, and what is left of it: the data that its user has not read, the reason
//! why it ended, and what TIME-WAIT must remember. Before the end this module keeps the trouble
//! that holds the connection up, which may become the reason.

use super::{Connection, Context, Ending, Shape, Synchronized};
use crate::buffer::PagePool;
use crate::error::{Error, WriteError};
use crate::event::Readiness;
use crate::flow::Seq;
use crate::flow::stamp::stamp_at;
use crate::tcp::recv::buffer::RecvBuffer;
use crate::tcp::time_wait::negotiate::Holding;
use crate::tcp::{Delivery, State};
use crate::time::Instant;
use crate::wire::options::Timestamps;

/// CLOSED or TIME-WAIT: what is left.
#[derive(Debug, Default)]
pub struct Ended {
    /// Data not read yet by the user.
    pub(crate) unread: RecvBuffer,
    /// Why it ended; reported once.
    pub error: Option<Error>,
    /// The fate of the data that it sent.
    pub(super) sent: Delivery,
    /// On entry to TIME-WAIT: what its record needs. The host takes it, unless the whole control
    /// block is the record. If the peer holds TIME-WAIT: what the last ACK needs, which the host
    /// takes.
    final_state: Option<FinalState>,
}

impl Ended {
    /// Why nothing can be written: why it ended, once.
    pub(super) fn write_error(&mut self) -> WriteError {
        self.error.take().map_or(WriteError::BrokenPipe, WriteError::Failed)
    }
}

/// The troubles that keep a connection from going on, and may pass.
#[derive(Debug, Default)]
pub struct Trouble {
    /// What ICMP, or silence, says of the way to the peer since it was heard last: the reason given
    /// if the connection fails.
    pub soft_error: Option<Error>,
    /// Since when there has been no route to the peer.
    pub unreachable_since: Option<Instant>,
}

/// An RST that a connection owes (RFC 9293 §3.10.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// SEG.SEQ.
    pub seq: Seq,
    /// SEG.ACK; `None`: no ACK bit.
    pub ack: Option<Seq>,
    /// With an abort of our own, if timestamps were agreed on (RFC 7323 §5.2).
    pub stamps: Option<Timestamps>,
}

/// The last state of a connection, for TIME-WAIT to remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalState {
    /// SND.NXT.
    pub snd_nxt: Seq,
    /// RCV.NXT.
    pub rcv_nxt: Seq,
    /// TS.Recent, if timestamps are used.
    pub stamp: Option<u32>,
    /// The offset of the timestamp clock: a function of the tuple, found again when needed.
    pub stamp_offset: Option<u32>,
    /// The window field of the last ACK.
    pub window: u16,
    /// Why we hold TIME-WAIT.
    pub holding: Holding,
    /// An ACK is owed: it leaves from the record.
    pub ack_due: bool,
}

impl Shape {
    /// Goes on to `next`. Its caller has given back to the pool the pages it owned.
    pub(super) fn replace_with(&mut self, next: Shape) {
        debug_assert!(match self {
            Shape::SynSent(_) => true,
            Shape::SynReceived(_, early) => early.owns_nothing(),
            Shape::Synchronized(s) => s.owns_nothing(),
            Shape::Ended(ended) => ended.unread.owns_nothing(),
        });
        *self = next;
    }
}

impl Synchronized {
    /// True if it has no memory beside its own: there is nothing to drop.
    fn owns_nothing(&self) -> bool {
        let (send, recv) = (&self.send, &self.recv);
        recv.buffer.owns_nothing()
            && recv.disorder.is_none()
            && send.buffer.owns_nothing()
            && send.sent.owns_nothing()
            && send.recovery.is_none()
            && send.rtt.owns_nothing()
            && send.pair.owns_nothing()
            && send.rare.is_none()
    }

    /// The fate of the data that it has sent by now.
    pub(super) fn delivery(&self) -> Delivery {
        let send = &self.send;
        Delivery {
            unacknowledged_bytes: send.buffer.len() as u32,
            retransmits: send.tally().retransmits,
            srtt: send.rtt.srtt(),
        }
    }

    /// Its last state, for TIME-WAIT to remember.
    pub(super) fn final_state(&mut self, holding: Holding) -> FinalState {
        let (send, recv) = (&self.send, &mut self.recv);
        let unread = recv.buffer.len() as u32;
        FinalState {
            snd_nxt: send.nxt,
            rcv_nxt: recv.nxt,
            stamp: self.stamps.map(|stamps| stamps.recent),
            stamp_offset: self.stamps.map(|stamps| stamps.offset),
            window: recv.window.announce(recv.nxt, unread, recv.mss),
            holding,
            ack_due: recv.ack.is_owed(),
        }
    }
}

impl Connection {
    /// True if it has ended: CLOSED, or TIME-WAIT.
    pub fn is_over(&self) -> bool {
        matches!(self.shape, Shape::Ended(_))
    }

    /// The connection is over: frees what it holds, keeps unread data, tells its user.
    pub fn end(&mut self, to: State, error: Option<Error>, cx: &mut Context) {
        self.state.transition(to);
        self.deadlines.clear();
        self.syn_due = false;
        // What ICMP has told is a better reason than silence (RFC 1122 §4.2.3.9).
        let error = match error {
            Some(Error::TimedOut) => self.soft_error().or(error),
            error => error,
        };
        let mut sent = Delivery::default();
        let unread = match &mut self.shape {
            Shape::Synchronized(synchronized) => {
                sent = synchronized.delivery();
                synchronized.send.buffer.clear(&mut cx.pool);
                synchronized.recv.window.release(&mut cx.budget);
                core::mem::take(&mut synchronized.recv.buffer)
            }
            Shape::SynReceived(_, early) => {
                early.clear(&mut cx.pool);
                RecvBuffer::default()
            }
            Shape::Ended(_) | Shape::SynSent(_) => RecvBuffer::default(),
        };
        match &mut self.shape {
            Shape::Ended(before) => before.error = before.error.or(error),
            _ => self.shape = Shape::Ended(Ended { unread, error, sent, final_state: None }),
        }
        if self.orphan {
            self.drop_unread(&mut cx.pool);
        }
        self.notices |= Readiness::CLOSED | Readiness::READABLE | Readiness::WRITABLE;
    }

    /// Drops the unread data of a connection that has ended and has no reader any more.
    pub(crate) fn drop_unread(&mut self, pool: &mut PagePool) {
        if let Shape::Ended(ended) = &mut self.shape
            && !ended.unread.owns_nothing()
        {
            ended.unread.clear(pool);
        }
    }

    /// True if it owns nothing but its part of the options.
    pub(super) fn is_hollow(&self) -> bool {
        matches!(&self.shape, Shape::Ended(ended) if ended.unread.owns_nothing())
            && self.reset_due.is_none()
            && self.trouble.is_none()
    }

    /// It is gone: sees to it that another may begin here. Nearly always nothing is left to drop.
    pub(crate) fn clear(&mut self) {
        if !self.is_hollow() {
            self.become_hollow();
        }
    }

    fn become_hollow(&mut self) {
        self.shape = Shape::Ended(Ended::default());
        (self.reset_due, self.trouble) = (None, None);
    }

    /// Ends a synchronized connection. The host makes a record of what TIME-WAIT must remember.
    pub fn finish(&mut self, ending: Ending, cx: &mut Context) {
        match ending {
            Ending::Closed(error) => self.end(State::Closed, error, cx),
            Ending::Aborted(error) => self.abort(error, cx),
            Ending::TimeWait(Holding::ByPeer) => {
                self.close(State::Closed, |s| Some(s.final_state(Holding::ByPeer)), cx);
            }
            Ending::TimeWait(holding) => {
                self.close(State::TimeWait, |s| Some(s.final_state(holding)), cx);
            }
            Ending::LastAck => self.close(State::Closed, |_| None, cx),
        }
    }

    /// Ends a connection that has closed in order: nearly always its user has read all there was,
    /// and the peer has acknowledged all that was sent.
    fn close(
        &mut self,
        to: State,
        final_state: impl FnOnce(&mut Synchronized) -> Option<FinalState>,
        cx: &mut Context,
    ) {
        match &mut self.shape {
            Shape::Synchronized(s) if s.owns_nothing() => {
                let final_state = final_state(s);
                s.recv.window.release(&mut cx.budget);
                let sent = s.delivery();
                let ended = Shape::Ended(Ended { final_state, sent, ..Ended::default() });
                // It owns nothing, as was asked above.
                core::mem::forget(core::mem::replace(&mut self.shape, ended));
                self.state.transition(to);
                self.deadlines.clear();
                self.notices |= Readiness::CLOSED | Readiness::READABLE | Readiness::WRITABLE;
            }
            _ => self.close_with_more(to, final_state, cx),
        }
    }

    fn close_with_more(
        &mut self,
        to: State,
        final_state: impl FnOnce(&mut Synchronized) -> Option<FinalState>,
        cx: &mut Context,
    ) {
        let final_state = self.synchronized_mut().and_then(final_state);
        self.end(to, None, cx);
        self.keep_final_state(final_state);
    }

    /// What TIME-WAIT must remember, if it is kept here.
    pub(crate) fn final_state(&self) -> Option<&FinalState> {
        match &self.shape {
            Shape::Ended(ended) => ended.final_state.as_ref(),
            _ => None,
        }
    }

    /// What TIME-WAIT must remember is the host's from here on.
    pub(crate) fn take_final_state(&mut self) -> Option<FinalState> {
        match &mut self.shape {
            Shape::Ended(ended) => ended.final_state.take(),
            _ => None,
        }
    }

    /// What TIME-WAIT must remember is kept here, or nothing is.
    pub(crate) fn keep_final_state(&mut self, final_state: Option<FinalState>) {
        if let Shape::Ended(ended) = &mut self.shape {
            ended.final_state = final_state;
        }
    }

    /// Why it ended, once.
    pub fn take_error(&mut self) -> Option<Error> {
        match &mut self.shape {
            Shape::Ended(ended) => ended.error.take(),
            _ => None,
        }
    }

    /// Resets the connection: the RST leaves with the next `emit` (RFC 9293 §3.10.5).
    pub fn abort(&mut self, error: Error, cx: &mut Context) {
        if self.is_over() {
            // An RST may be due already.
            return;
        }
        let reset = match &self.shape {
            Shape::Synchronized(s) => Some(s.reset(cx.now)),
            Shape::SynReceived(syn, _) => Some(Reset {
                seq: syn.iss + 1,
                ack: Some(syn.irs + 1),
                stamps: syn
                    .stamp
                    .map(|echo| Timestamps { value: stamp_at(cx.now, syn.stamp_offset), echo }),
            }),
            Shape::SynSent(_) | Shape::Ended(_) => None,
        };
        if let Some(reset) = reset {
            self.owe_reset(reset, cx);
        }
        self.end(State::Closed, Some(error), cx);
    }
}
