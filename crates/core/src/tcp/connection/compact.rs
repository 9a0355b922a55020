//! An established connection on which nothing moves: what must be kept of it until something does.
//!
//! A busy connection takes some 540 bytes, and needs most of them only for what is under way:
//! buffers, what is in flight or lost or out of order, what is owed. An idle connection has none of
//! that, and many of its numbers are equal. A million idle connections take a third of the memory
//! of a million busy ones. A connection comes back from rest exactly as it went.
//!
//! ```text
//!   bytes   0  SACK, SHUT_RD, ECN; TIME-WAIT's holder, and if
//!              the peer knows it; scale, MSS both ways  8
//!           8  options, its timer, history        24
//!          32  last sent, last heard              16
//!          48  timestamps                         16
//!          64  SND.UNA, its window                20
//!          84  how much has passed                 8
//!          92  congestion window, its usage       20
//!         112  RCV.NXT, receive window            48
//!         160  delayed ACKs                        8
//!         168  RTT                                20
//!         188  reordering                          8
//!         196  ECN                                 4
//!         200
//! ```

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::{Blocked, Common, Connection, Identity, Passage, Synchronized};
use crate::config::TcpConfig;
use crate::event::Readiness;
use crate::flow::Seq;
use crate::flow::stamp::Stamps;
use crate::tcp::congestion::Congestion;
use crate::tcp::ecn::EcnState;
use crate::tcp::recv::buffer::RecvBuffer;
use crate::tcp::recv::{RecvHalf, ack, window};
use crate::tcp::send::pair::PacketPair;
use crate::tcp::send::rack::Reordering;
use crate::tcp::send::rare::Rare;
use crate::tcp::send::recovery::{Detection, Recovery};
use crate::tcp::send::{SendHalf, rtt};
use crate::tcp::time_wait::negotiate::Holder;
use crate::tcp::timers::{Deadlines, Timer};
use crate::tcp::{SocketOptions, State};
use crate::time::Instant;

/// A connection at rest. 200 bytes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Compact {
    traits: Traits,
    holder: Holder,
    naming: u8,
    scale: u8,
    send_mss: u16,
    recv_mss: u16,
    options: Arc<SocketOptions>,
    /// When the one timer fires that it may have.
    keepalive_at: Instant,
    history: Option<Box<History>>,
    last_sent: Instant,
    last_heard: Instant,
    stamps: Option<Stamps>,
    una: Seq,
    window: u32,
    max_window: u32,
    wl1: Seq,
    wl2: Seq,
    /// Acknowledged and received, as far as 32 bits count.
    passed: [u32; 2],
    congestion: Congestion,
    rcv_nxt: Seq,
    recv_window: window::AtRest,
    ack: ack::AtRest,
    rtt: rtt::AtRest,
    reordering: Reordering,
    /// When the window was last reduced, if ECN is used.
    ecn_reduced_at: Seq,
}

/// Facts about a connection, a bit for each.
#[derive(Clone, Copy, Debug)]
struct Traits(u8);

impl Traits {
    const SACK: u8 = 1;
    const READ_SHUT: u8 = 2;
    const ECN: u8 = 4;
    const RACK: u8 = 8;

    fn new(all: [(u8, bool); 4]) -> Traits {
        Traits(all.iter().map(|(bit, is_so)| bit * u8::from(*is_so)).sum())
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// What few connections have: a recovery that is not behind, gigabytes that have passed, enough
/// segments in a burst to tell the rate of the path, or what else is rare.
#[derive(Debug)]
struct History {
    /// The point of the last recovery.
    point: Option<Seq>,
    /// What has passed, acknowledged and received, in units of 4 GiB.
    passed: [u32; 2],
    pair: PacketPair,
    rare: Option<Box<Rare>>,
}

impl SendHalf {
    /// True if nothing is sent, waits or is owed.
    fn is_at_rest(&self) -> bool {
        let is_sent = self.una == self.nxt && self.nxt == self.max && self.buffer.is_empty();
        is_sent
            && self.misses_nothing()
            && self.probes == 0
            && !self.fin_queued
            && self.silent_since == Instant::FAR_FUTURE
    }
}

impl Synchronized {
    fn history(&self) -> Option<Box<History>> {
        let SendHalf { pair, rare, una, recovery, .. } = &self.send;
        let point = recovery.as_ref().map(|recovery| recovery.point);
        let point = point.filter(|point| !point.before(*una));
        let Passage { acknowledged, received } = self.passed;
        let passed = [acknowledged, received].map(|bytes| (bytes >> 32) as u32);
        let rare = rare.as_ref().filter(|rare| !rare.is_of_reordering_alone());
        let is_blank = point.is_none() && passed == [0; 2] && pair.is_blank() && rare.is_none();
        let (pair, rare) = (pair.clone(), rare.map(|rare| rare.at_rest()));
        (!is_blank).then(|| Box::new(History { point, passed, pair, rare }))
    }
}

impl RecvHalf {
    /// True if nothing is unread, out of order or owed.
    fn is_at_rest(&self) -> bool {
        self.fin.is_none() && self.disorder.is_none() && self.buffer.is_empty()
    }
}

impl Common {
    /// True if the connection shall rest when nothing moves for a while, and no timer is set for
    /// that yet.
    pub(crate) fn may_rest(&self, config: &TcpConfig) -> bool {
        !self.deadlines.is_set(Timer::Rest) && self.is_waiting() && config.rest_after().is_some()
    }

    /// True if it may be long until something moves: established, or left by its user and waiting
    /// for the peer's FIN.
    pub fn is_waiting(&self) -> bool {
        match self.state() {
            State::Established => !self.orphan,
            State::FinWait2 => self.orphan,
            _ => false,
        }
    }
}

impl Connection {
    /// When something moved last.
    pub(crate) fn last_moved(&self) -> Instant {
        self.synchronized().map_or(Instant::ZERO, |s| s.last_heard.max(s.send.last_sent))
    }

    /// True if nothing waits for anything but its rest, and a timer that may be set for long.
    pub(super) fn is_at_rest(&self, s: &Synchronized) -> bool {
        // An orphan's peer is asked nothing any more.
        let is_asked = s.keepalive_probes > 0 && !self.orphan;
        let is_owed = s.probe_due || s.keepalive_due || s.push_due || is_asked;
        let is_blocked = self.blocked == Blocked::ForRoom || self.blocked.is_in_line();
        let is_waited_for = is_blocked || s.send.has_more_to_come() || self.close_early;
        let is_well = self.soft_error().is_none() && !self.is_unreachable();
        // An orphan has its own time to wait.
        let waits = [Timer::FinWait2, Timer::KeepAlive, Timer::Rest];
        let only = |timer| waits.contains(&timer) || !self.deadlines.is_set(timer);
        let ecn_is_even = s.ecn.is_none_or(|ecn| !ecn.echo && !ecn.cwr_due);
        self.is_waiting()
            && self.notices == Readiness::EMPTY
            && s.send.is_at_rest()
            && s.recv.is_at_rest()
            && !is_owed
            && !is_waited_for
            && is_well
            && self.reset_due.is_none()
            && ecn_is_even
            && Timer::ALL.into_iter().all(only)
    }

    /// What is to be kept of it, if it is established and nothing moves.
    pub(crate) fn rest(&self) -> Option<Compact> {
        let s = self.synchronized().filter(|s| !self.orphan && self.is_at_rest(s))?;
        let (send, recv) = (&s.send, &s.recv);
        Some(Compact {
            options: self.options.clone(),
            keepalive_at: self.deadlines.at(Timer::KeepAlive),
            history: s.history(),
            last_sent: send.last_sent,
            last_heard: s.last_heard,
            stamps: s.stamps,
            una: send.una,
            window: send.window,
            max_window: send.max_window,
            wl1: send.wl1,
            wl2: send.wl2,
            passed: [s.passed.acknowledged, s.passed.received].map(|bytes| bytes as u32),
            congestion: send.congestion.at_rest(),
            rcv_nxt: recv.nxt,
            recv_window: recv.window.at_rest()?,
            ack: recv.ack.at_rest(recv.nxt)?,
            rtt: send.rtt.at_rest()?,
            reordering: send.reordering,
            ecn_reduced_at: s.ecn.map_or(send.una, |ecn| ecn.reduced_at),
            send_mss: send.mss,
            recv_mss: recv.mss,
            scale: send.scale,
            traits: Traits::new([
                (Traits::SACK, send.has_sack()),
                (Traits::RACK, send.detection == Detection::Rack),
                (Traits::READ_SHUT, self.read_shut),
                (Traits::ECN, s.ecn.is_some()),
            ]),
            holder: s.holder,
            naming: s.naming,
        })
    }
}

impl Compact {
    /// The connection as it was, of that `identity`.
    pub(crate) fn wake(&self, identity: Identity) -> Connection {
        let synchronized = Synchronized {
            send: self.send_half(),
            recv: self.recv_half(),
            passed: self.passage(),
            stamps: self.stamps,
            ecn: self.traits.has(Traits::ECN).then(|| EcnState::new(self.ecn_reduced_at)),
            holder: self.holder,
            naming: self.naming,
            keepalive_probes: 0,
            last_heard: self.last_heard,
            probe_due: false,
            keepalive_due: false,
            push_due: false,
        };
        let options = self.options.clone();
        let mut connection = Connection::established(identity, options, synchronized);
        connection.read_shut = self.traits.has(Traits::READ_SHUT);
        connection.deadlines = self.deadlines();
        connection
    }

    /// When its timers fire: the one that it may have.
    pub(crate) fn deadlines(&self) -> Deadlines {
        let mut deadlines = Deadlines::NONE;
        deadlines.set(Timer::KeepAlive, self.keepalive_at);
        deadlines
    }

    fn detection(&self) -> Detection {
        match (self.traits.has(Traits::SACK), self.traits.has(Traits::RACK)) {
            (false, _) => Detection::Duplicates,
            (true, false) => Detection::Count,
            (true, true) => Detection::Rack,
        }
    }

    fn passage(&self) -> Passage {
        let high = self.history.as_ref().map_or([0; 2], |history| history.passed);
        let bytes = |at: usize| u64::from(high[at]) << 32 | u64::from(self.passed[at]);
        Passage { acknowledged: bytes(0), received: bytes(1) }
    }

    fn send_half(&self) -> SendHalf {
        let (rtt, congestion) = (self.rtt.estimator(), self.congestion.clone());
        let mut send = SendHalf {
            window: self.window,
            max_window: self.max_window,
            wl1: self.wl1,
            wl2: self.wl2,
            scale: self.scale,
            detection: self.detection(),
            reordering: self.reordering,
            last_sent: self.last_sent,
            ..SendHalf::new(self.una, self.send_mss, congestion, rtt)
        };
        if let Some(history) = &self.history {
            (send.pair, send.rare) = (history.pair.clone(), history.rare.clone());
            send.recovery = history.point.and_then(|point| Recovery::after(point, self.una));
        }
        send
    }

    fn recv_half(&self) -> RecvHalf {
        RecvHalf {
            nxt: self.rcv_nxt,
            buffer: RecvBuffer::default(),
            disorder: None,
            window: self.recv_window.window(),
            ack: self.ack.state(self.rcv_nxt),
            mss: self.recv_mss,
            fin: None,
        }
    }
}

// The table at the head. A million of them rest.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use core::mem::offset_of;

    assert!(offset_of!(Compact, traits) == 0);
    assert!(offset_of!(Compact, options) == 8);
    assert!(offset_of!(Compact, last_sent) == 32);
    assert!(offset_of!(Compact, stamps) == 48);
    assert!(offset_of!(Compact, una) == 64);
    assert!(offset_of!(Compact, passed) == 84);
    assert!(offset_of!(Compact, congestion) == 92);
    assert!(offset_of!(Compact, rcv_nxt) == 112);
    assert!(offset_of!(Compact, ack) == 160);
    assert!(offset_of!(Compact, rtt) == 168);
    assert!(offset_of!(Compact, reordering) == 188);
    assert!(offset_of!(Compact, ecn_reduced_at) == 196);
    assert!(size_of::<Compact>() == 200);
};
