//! A connection: its identity, its state, and the shape that goes with the state.
//!
//! ```text
//!   SYN-SENT ─▶ SynSent ──────────┐
//!      │                          ├─▶ Synchronized ─▶ Ended { unread data }
//!   SYN-RECEIVED ─▶ SynReceived ──┘   ESTABLISHED      CLOSED, TIME-WAIT
//!   (simultaneous open, or a passive    to LAST-ACK
//!    one that was admitted; any other
//!    lives in the SYN cache)
//! ```
//!
//! A field that means nothing in a state does not exist in it. Once a connection is in TIME-WAIT
//! its protocol state is a record in [`time_wait`](crate::tcp::time_wait); what remains here is
//! only what its user has not read yet.

mod awaiting_fin;
mod blocked;
mod common;
mod compact;
mod early;
mod ended;
mod handshake;
mod layout;
#[cfg(test)]
pub(crate) mod lone;
mod step;

pub(crate) use blocked::Blocked;
pub use common::Common;
pub(crate) use common::Identity;
pub(crate) use compact::Compact;
pub use early::Early;
pub use ended::{Ended, FinalState, Reset, Trouble};
#[cfg(test)]
pub(crate) use handshake::peer_mss;
pub(crate) use handshake::{Meaning, OurSyn, Paws, WindowUpdate};
pub use handshake::{SynReceived, SynSent};
pub use step::{Ending, Passed, Step};

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};

use crate::buffer::PagePool;
use crate::config::TcpConfig;
use crate::counters::Counters;
use crate::error::{ReadError, WriteError};
use crate::event::Readiness;
use crate::flow::Seq;
use crate::flow::stamp::{Stamps, stamp_at};
use crate::tcp::challenge::Challenges;
use crate::tcp::ecn::EcnState;
use crate::tcp::recv::RecvHalf;
use crate::tcp::recv::window::WindowBudget;
use crate::tcp::send::SendHalf;
use crate::tcp::send::buffer::SendBuffer;
use crate::tcp::send::narrow::PathNews;
use crate::tcp::time_wait::negotiate::Holder;
use crate::tcp::timers::Timer;
use crate::tcp::{ConnectionInfo, Delivery, Settings, SocketOptions, State};
use crate::time::{Duration, Instant};
use crate::wire::options::Timestamps;

/// The parts of the host that a call into a connection needs. One serves all connections.
#[derive(Debug)]
pub struct Context {
    /// The time of the call.
    pub now: Instant,
    /// When the device got the frame that the call is about; [`Instant::FAR_FUTURE`]: not known.
    pub arrived: Instant,
    /// The host's TCP configuration.
    pub config: Settings,
    /// Buffer memory.
    pub pool: PagePool,
    /// Receive windows promised.
    pub(crate) budget: WindowBudget,
    /// Which connections may still be challenged.
    pub(crate) challenges: Challenges,
    /// Counts of events.
    pub counters: Counters,
    /// What the connection has learned of its path, until the host takes it.
    pub(crate) path_news: Option<PathNews>,
}

impl Context {
    /// This context, for a call at `now`.
    pub fn at(&mut self, now: Instant) -> &mut Context {
        self.now = now;
        self
    }

    /// What the size of a send buffer depends on at `now`.
    pub(crate) fn sizing(&self, now: Instant) -> Sizing<'_> {
        Sizing { now, config: &self.config, pool: &self.pool }
    }
}

/// What the size of a send buffer depends on, beside its connection. The time is the question's
/// own, and not that of the host's last call: LOS counts from a smaller window after a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizing<'a> {
    /// The time of the question.
    pub(crate) now: Instant,
    /// The host's TCP configuration.
    pub(crate) config: &'a Settings,
    /// Buffer memory.
    pub(crate) pool: &'a PagePool,
}

/// ESTABLISHED to LAST-ACK.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Synchronized {
    /// A zero-window probe is due.
    pub probe_due: bool,
    /// A keepalive probe is due.
    pub keepalive_due: bool,
    /// The override timer allows a segment that silly-window avoidance, Nagle or cork held back.
    pub push_due: bool,
    /// Keepalive probes sent since the peer was heard last.
    pub keepalive_probes: u8,
    /// ECN, if both ends use it.
    pub ecn: Option<EcnState>,
    /// Which end holds TIME-WAIT once the connection has closed.
    pub holder: Holder,
    /// Bytes of the option by which each of our segments says that again; 0 once the peer has
    /// heard.
    pub naming: u8,
    /// How much has passed.
    pub passed: Passage,
    /// Timestamps, if both ends use them.
    pub stamps: Option<Stamps>,
    /// When the peer was last heard.
    pub last_heard: Instant,
    /// The receiving half.
    pub recv: RecvHalf,
    /// The sending half.
    pub send: SendHalf,
}

/// Bytes of data since the connection began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passage {
    /// The peer has acknowledged them.
    pub acknowledged: u64,
    /// They have arrived in order.
    pub received: u64,
}

/// The shapes a connection takes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every connection is synchronized")]
pub(crate) enum Shape {
    /// SYN-SENT.
    SynSent(SynSent),
    /// SYN-RECEIVED after a simultaneous open, and what came with the peer's SYN; or after a
    /// passive one that its user has admitted.
    SynReceived(SynReceived, Early),
    /// ESTABLISHED, FIN-WAIT-1, FIN-WAIT-2, CLOSE-WAIT, CLOSING, LAST-ACK.
    Synchronized(Synchronized),
    /// CLOSED or TIME-WAIT.
    Ended(Ended),
}

/// One connection.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    /// Its part in every shape.
    pub common: Common,
    /// Its part in the shape that it has now.
    pub(crate) shape: Shape,
}

impl Deref for Connection {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Synchronized {
    /// The application has read so much that the peer should hear of it.
    pub(crate) fn wants_window_update(&self) -> bool {
        let recv = &self.recv;
        recv.window.wants_update(recv.nxt, recv.buffer.len() as u32, recv.mss)
            && !recv.is_finished()
    }

    /// Nothing is missing on either side, and neither ECN nor TIME-WAIT is being agreed on: what
    /// comes next, and what is due next, can be predicted.
    pub(crate) fn is_calm(&self) -> bool {
        self.send.recovery.is_none()
            && self.recv.disorder.is_none()
            && self.ecn.is_none()
            && self.naming == 0
    }

    /// True if its ACKs tell the peer of marks.
    pub(crate) fn echoes(&self) -> bool {
        let exact = || self.send.congestion.echo().map(|echo| echo.ce);
        self.ecn.is_some_and(|ecn| exact().unwrap_or(ecn.echo))
    }

    /// The RST that ends it (RFC 9293 §3.10.5).
    pub(crate) fn reset(&self, now: Instant) -> Reset {
        let stamps =
            |own: Stamps| Timestamps { value: stamp_at(now, own.offset), echo: own.recent };
        Reset { seq: self.send.nxt, ack: Some(self.recv.nxt), stamps: self.stamps.map(stamps) }
    }
}

impl Connection {
    /// A connection that has ended, between no ends: another may begin in its place.
    pub fn blank(options: Arc<SocketOptions>) -> Self {
        Connection::new(Identity::default(), options, Shape::Ended(Ended::default()))
    }

    /// A blank connection in a block of its own.
    pub fn block(options: &Arc<SocketOptions>) -> Box<Self> {
        Box::new(Connection::blank(options.clone()))
    }

    /// A connection that is CLOSED and goes on to where `shape` belongs.
    fn new(identity: Identity, options: Arc<SocketOptions>, shape: Shape) -> Self {
        Connection { common: Common::new(identity, options), shape }
    }

    /// Makes the connection of [`Connection::new`] in the place of a [clear](Self::clear) one: a
    /// block of so many bytes is not built elsewhere and moved.
    fn begin(&mut self, identity: Identity, options: &Arc<SocketOptions>, shape: Shape) {
        debug_assert!(self.is_hollow());
        self.shape.replace_with(shape);
        self.common.begin(identity, options);
    }

    /// An active open, where a [clear](Self::clear) one lies: the SYN leaves with the next
    /// `emit`. `expected`: when what follows may be due at the earliest.
    pub(crate) fn open(
        &mut self,
        identity: Identity,
        options: &Arc<SocketOptions>,
        syn: SynSent,
        now: Instant,
        expected: Instant,
    ) {
        self.begin(identity, options, Shape::SynSent(syn));
        self.deadlines.expect(expected);
        self.state.transition(State::SynSent);
        self.syn_due = true;
        let limit = self.options.open_timeout;
        self.deadlines.set(Timer::Lifetime, now + limit);
    }

    /// A passive open that its user has admitted, where a [clear](Self::clear) one lies: the SYN,
    /// ACK leaves with the next `emit`.
    pub(crate) fn admit(
        &mut self,
        identity: Identity,
        options: &Arc<SocketOptions>,
        syn: SynReceived,
        now: Instant,
    ) {
        self.begin(identity, options, Shape::SynReceived(syn, Early::default()));
        self.state.transition(State::Listen);
        self.state.transition(State::SynReceived);
        self.syn_due = true;
        let limit = self.options.open_timeout;
        self.deadlines.set(Timer::Lifetime, now + limit);
    }

    /// A passive open that the peer's ACK has completed, where a [clear](Self::clear) one lies.
    pub(crate) fn accept(
        &mut self,
        identity: Identity,
        options: &Arc<SocketOptions>,
        synchronized: Synchronized,
        now: Instant,
    ) {
        self.begin(identity, options, Shape::Synchronized(synchronized));
        self.pass_handshake();
        self.start_keepalive(now);
    }

    /// An established connection without a timer.
    fn established(
        identity: Identity,
        options: Arc<SocketOptions>,
        synchronized: Synchronized,
    ) -> Self {
        let mut connection = Connection::new(identity, options, Shape::Synchronized(synchronized));
        connection.pass_handshake();
        connection
    }

    fn pass_handshake(&mut self) {
        for state in [State::Listen, State::SynReceived, State::Established] {
            self.state.transition(state);
        }
    }

    /// True if a segment that begins at `seq` may be under way: what an ICMP error must quote to be
    /// believed (RFC 5927 §4.1).
    pub(crate) fn is_in_flight(&self, seq: Seq) -> bool {
        match &self.shape {
            Shape::SynSent(syn) => seq == syn.iss && syn.attempts > 0,
            Shape::SynReceived(syn, _) => seq == syn.iss,
            Shape::Synchronized(s) => seq.at_or_after(s.send.una) && seq.before(s.send.max),
            Shape::Ended(_) => false,
        }
    }

    /// True if it waits for the answer to its SYN, and this acknowledgment number is not that.
    pub(crate) fn is_unanswered_by(&self, ack: Seq) -> bool {
        matches!(&self.shape, Shape::SynSent(syn) if ack != syn.iss + 1)
    }

    /// The synchronized shape, if it has that.
    pub(crate) fn synchronized(&self) -> Option<&Synchronized> {
        match &self.shape {
            Shape::Synchronized(synchronized) => Some(synchronized),
            _ => None,
        }
    }

    /// The synchronized shape, to be changed.
    pub(crate) fn synchronized_mut(&mut self) -> Option<&mut Synchronized> {
        match &mut self.shape {
            Shape::Synchronized(synchronized) => Some(synchronized),
            _ => None,
        }
    }

    /// The handshake is complete: takes the synchronized shape.
    #[inline(always)]
    pub(crate) fn establish(&mut self, synchronized: Synchronized, cx: &mut Context) {
        debug_assert!(matches!(self.shape, Shape::SynSent(_) | Shape::SynReceived(..)));
        self.shape.replace_with(Shape::Synchronized(synchronized));
        self.state.transition(State::Established);
        self.deadlines.clear();
        self.start_keepalive(cx.now);
        self.syn_due = false;
        self.go_on();
        self.notices |= Readiness::WRITABLE;
        cx.counters.established += 1;
        if self.close_early {
            self.queue_fin();
        }
    }

    /// FIN follows what was written: the CLOSE call of RFC 9293 §3.10.4.
    pub(crate) fn queue_fin(&mut self) {
        let Shape::Synchronized(synchronized) = &mut self.shape else { return };
        let state = &mut self.common.state;
        match state.get() {
            State::Established => state.transition(State::FinWait1),
            State::CloseWait => state.transition(State::LastAck),
            _ => return,
        }
        synchronized.send.fin_queued = true;
        synchronized.send.told_by_fin = synchronized.recv.nxt;
    }

    /// The calls that are possible now.
    pub(crate) fn readiness(&self, cx: Sizing<'_>) -> Readiness {
        let mut ready = Readiness::EMPTY;
        match &self.shape {
            Shape::SynSent(_) | Shape::SynReceived(..) => {}
            Shape::Ended(_) => {
                ready |= Readiness::READABLE | Readiness::WRITABLE | Readiness::CLOSED;
            }
            Shape::Synchronized(s) => {
                if !s.recv.buffer.is_empty() || s.recv.is_finished() {
                    ready |= Readiness::READABLE;
                }
                let has_room = s.send.room(&self.options, cx) > 0 && !s.send.is_full_of_records();
                if has_room && self.blocked != Blocked::ForPages {
                    ready |= Readiness::WRITABLE;
                }
                if s.recv.urgent().is_some() {
                    ready |= Readiness::URGENT;
                }
            }
        }
        ready
    }

    /// True if something may be written even where memory is scarce, or an error is to be reported.
    pub(crate) fn has_room_where_scarce(&self, cx: Sizing<'_>) -> bool {
        self.synchronized().is_none_or(|s| s.send.room_where_scarce(&self.options, cx) > 0)
    }

    /// The send buffer and how many of `wanted` bytes it has room for, fewer where memory is
    /// scarce; or why nothing may be written.
    pub(crate) fn writable(
        &mut self,
        wanted: usize,
        cx: Sizing<'_>,
    ) -> Result<(&mut SendBuffer, usize), WriteError> {
        let (common, send) = self.sending()?;
        let room = send.room_for(wanted, &common.options, cx);
        Ok((&mut send.buffer, room))
    }

    /// What a write works on; or why nothing may be written.
    fn sending(&mut self) -> Result<(&mut Common, &mut SendHalf), WriteError> {
        let Connection { common, shape } = self;
        match shape {
            Shape::Synchronized(s) if common.state().can_send() => Ok((common, &mut s.send)),
            Shape::SynSent(_) | Shape::SynReceived(..) => {
                common.blocked = Blocked::ForRoom;
                Err(WriteError::WouldBlock)
            }
            Shape::Synchronized(_) => Err(WriteError::BrokenPipe),
            Shape::Ended(ended) => Err(ended.write_error()),
        }
    }

    /// Does the work of [`Connection::writable`] where only the window has to be asked: for a
    /// buffer of [`SendSize::Round`] whose writer waits for nothing. For any other buffer it
    /// reports no room.
    ///
    /// [`SendSize::Round`]: crate::config::SendSize::Round
    pub(crate) fn writable_at_once(
        &mut self,
        wanted: usize,
        is_scarce: bool,
    ) -> Result<(&mut SendBuffer, usize), WriteError> {
        let (common, send) = self.sending()?;
        let room = match common.blocked == Blocked::No {
            true => send.room_of_round_for(wanted, common.options.send_buffer_bytes, is_scarce),
            false => 0,
        };
        Ok((&mut send.buffer, room))
    }

    /// Copies the first bytes that can be read to `out` and returns how many; 0 is the end of the
    /// stream, or an empty `out`; [`ReadError::WouldBlock`] when there is nothing yet.
    pub fn peek(&self, out: &mut [u8]) -> Result<usize, ReadError> {
        match &self.shape {
            Shape::SynSent(_) | Shape::SynReceived(..) => Err(ReadError::WouldBlock),
            Shape::Ended(ended) => Ok(ended.unread.peek(out)),
            Shape::Synchronized(s) => match s.recv.buffer.peek(out) {
                0 if !out.is_empty() && !s.recv.is_finished() => Err(ReadError::WouldBlock),
                n => Ok(n),
            },
        }
    }

    /// Moves the first bytes that can be read to `out`: what [`Connection::peek`] and
    /// [`Connection::consume`] do together. How many they are, and true if the peer should hear of
    /// the room.
    pub fn read(&mut self, out: &mut [u8], cx: &mut Context) -> Result<(usize, bool), ReadError> {
        if let Shape::Synchronized(s) = &mut self.shape
            && s.recv.disorder.is_none()
            && let Some(len) = s.recv.buffer.take_all(out, &mut cx.pool)
        {
            s.recv.window.on_read(len as u32, cx.now, &mut cx.budget);
            return Ok((len, s.wants_window_update()));
        }
        self.read_some(out, cx)
    }

    fn read_some(&mut self, out: &mut [u8], cx: &mut Context) -> Result<(usize, bool), ReadError> {
        if let Shape::Synchronized(s) = &self.shape
            && s.recv.buffer.is_empty()
        {
            let is_over = s.recv.is_finished() || out.is_empty();
            return if is_over { Ok((0, false)) } else { Err(ReadError::WouldBlock) };
        }
        let len = self.peek(out)?;
        Ok((len, len > 0 && self.consume(len, cx)))
    }

    /// Drops the first `n` bytes that can be read. True if the peer should hear of the room.
    pub fn consume(&mut self, n: usize, cx: &mut Context) -> bool {
        match &mut self.shape {
            Shape::Ended(ended) => {
                ended.unread.consume(n, &mut cx.pool);
                ended.unread.trim(&mut cx.pool);
                false
            }
            Shape::Synchronized(s) => {
                s.recv.buffer.consume(n, &mut cx.pool);
                if !s.recv.has_holes() {
                    s.recv.buffer.trim(&mut cx.pool);
                }
                let read_to = s.recv.read_position();
                s.recv.forget_urgent(read_to);
                s.recv.window.on_read(n as u32, cx.now, &mut cx.budget);
                s.wants_window_update()
            }
            Shape::SynSent(_) | Shape::SynReceived(..) => false,
        }
    }

    /// What the peer has of the data written.
    pub(crate) fn delivery(&self) -> Delivery {
        match &self.shape {
            Shape::Synchronized(s) => s.delivery(),
            Shape::Ended(ended) => ended.sent,
            Shape::SynSent(_) | Shape::SynReceived(..) => Delivery::default(),
        }
    }

    /// The connection's state for its user.
    pub fn info(&self, config: &TcpConfig) -> ConnectionInfo {
        let mut info = ConnectionInfo::of_state(self.state());
        if let Shape::SynReceived(syn, _) = &self.shape {
            // Both ends have announced what they can do.
            info.mss_bytes = syn.send_mss(&self.options);
            info.announced_mss_bytes = syn.mss;
            info.timestamps = syn.stamp.is_some();
            (info.sack, info.ecn) = (syn.sack, syn.ecn);
        }
        if let Shape::Ended(ended) = &self.shape {
            info.srtt = ended.sent.srtt;
            info.retransmits = ended.sent.retransmits.into();
            info.send_buffered_bytes = ended.sent.unacknowledged_bytes;
            info.receive_buffered_bytes = ended.unread.len() as u32;
        }
        let Shape::Synchronized(s) = &self.shape else { return info };
        let (send, recv) = (&s.send, &s.recv);
        info.cwnd_bytes = send.congestion.window();
        info.ssthresh_bytes = send.congestion.threshold();
        info.srtt = send.rtt.srtt();
        info.rttvar = send.rtt.rttvar();
        info.rto = send.rtt.rto(config);
        info.latest_rtt = send.rtt.latest();
        info.bottleneck_bytes_per_second = send.pair.estimate();
        info.backoff = send.rtt.backoff().max(send.probes);
        info.in_flight_bytes = send.flight();
        info.recovery = send.mode();
        info.sacked_bytes = send.sent.sacked();
        (info.lost_bytes, info.resent_bytes) =
            (send.sent.lost(send.una), send.sent.resent(send.una));
        info.duplicate_acks = send.recovery.as_ref().map_or(0, |recovery| recovery.dup_acks);
        info.min_rtt = send.rtt.least();
        info.reordering_window = Duration::from_nanos(send.patience_ns());
        info.has_reordered = send.reordering.seen;
        s.count(&mut info);
        info.send_buffered_bytes = send.buffer.len() as u32;
        info.receive_buffered_bytes = recv.buffer.len() as u32;
        info.unsent_bytes = send.data_end().distance(send.nxt).max(0) as u32;
        info.mss_bytes = send.mss;
        info.announced_mss_bytes = recv.mss;
        info.peer_segment_bytes = recv.ack.full_bytes();
        info.quick_acks = recv.ack.quick();
        info.timestamps = s.stamps.is_some();
        info.sack = send.has_sack();
        info.ecn = s.ecn.is_some();
        info.holder = s.holder;
        info.shifts = (send.scale, recv.window.scale());
        info.peer_window_bytes = send.window;
        info.receive_window_bytes = recv.offered();
        info.receive_limit_bytes = recv.window.size();
        info.receiver_rtt = recv.window.rtt();
        (info.delivery, info.model) = (send.delivery(), send.congestion.model());
        (info.pacing_bytes_per_second, info.pace) = (send.pacing_rate(), send.pace());
        (info.last_sent, info.last_heard) = (send.last_sent, s.last_heard);
        info
    }
}

impl Synchronized {
    /// What has happened since the connection began.
    fn count(&self, info: &mut ConnectionInfo) {
        let tally = self.send.tally();
        info.retransmits = tally.retransmits.into();
        info.retransmitted_bytes = tally.resent_bytes;
        info.timeouts = tally.timeouts.into();
        info.duplicate_sacks = tally.duplicate_sacks.into();
        info.recoveries_undone = tally.undone.into();
        info.out_of_order = tally.out_of_order.into();
        info.has_reordered |= tally.reorderings > 0;
        info.reorderings = tally.reorderings.into();
        info.overtaken_bytes = tally.overtaken_bytes;
        info.acknowledged_bytes = self.passed.acknowledged;
        let data = self.send.flight().min(self.send.buffer.len() as u32);
        info.sent_bytes = info.acknowledged_bytes + u64::from(data) + tally.resent_bytes;
        info.received_bytes = self.passed.received;
    }
}
