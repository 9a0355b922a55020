//! Where a connection is between two requests, and what it has written.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Instant;

use crate::client_close::is_end;
use crate::connection::replay::Record;
use crate::control::{Control, Delivery};

/// Where a connection is between two requests. Shared with the service that answers them.
#[derive(Clone, Debug)]
pub(crate) struct Phase(pub(super) Rc<Marks>);

pub(super) struct Marks {
    pub(super) step: Cell<Step>,
    /// Some of the last request's body has not been read.
    pub(super) unread: Cell<bool>,
    /// The connection reads more of the response only once the transport has room.
    pub(super) waits_for_room: Cell<bool>,
    /// The peer should close before the server does.
    pub(super) yields_close: Cell<bool>,
    pub(super) end: Cell<PeerEnd>,
    /// The connection has the memory that requests need.
    pub(super) awake: Cell<bool>,
    /// It has waited for a request so long that it should free that memory.
    pub(super) rests: Cell<bool>,
    /// It speaks HTTP/2, whose frames say where a request begins.
    pub(super) is_http2: Cell<bool>,
    /// Bytes written since the connection began.
    pub(super) written: Cell<u64>,
    /// The written file data that can be read again; `None` while all of it is delivered.
    pub(super) record: Cell<Option<Box<Record>>>,
    /// What the peer had when the server reset the connection.
    pub(super) last_delivery: Cell<Option<Box<Delivery>>>,
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").field("step", &self.step).finish_non_exhaustive()
    }
}

/// The record of a connection, out of its place while it is used: a counter of borrows would be a
/// word of every connection that waits.
pub(crate) struct RecordMut<'a> {
    place: &'a Cell<Option<Box<Record>>>,
    record: Option<Box<Record>>,
}

impl Deref for RecordMut<'_> {
    type Target = Option<Box<Record>>;

    fn deref(&self) -> &Self::Target {
        &self.record
    }
}

impl DerefMut for RecordMut<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.record
    }
}

impl Drop for RecordMut<'_> {
    fn drop(&mut self) {
        self.place.set(self.record.take());
    }
}

/// The state of the peer's half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PeerEnd {
    #[default]
    Open,
    /// The peer has closed it.
    Closed,
    /// The connection failed, for example by the peer's reset; the peer holds no TIME-WAIT.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A TLS handshake began at that time.
    Handshake(Instant),
    /// Waits for a request since that time.
    Idle(Instant),
    /// A request's first byte came at that time.
    Head(Instant),
    /// A request came at that time and is in progress.
    Busy(Instant),
}

impl Phase {
    pub(crate) fn new(now: Instant) -> Self {
        let (unread, waits_for_room, yields_close, end) = Default::default();
        let (awake, rests, is_http2, written, record, last_delivery) = Default::default();
        let step = Cell::new(Step::Idle(now));
        Phase(Rc::new(Marks {
            step,
            unread,
            waits_for_room,
            yields_close,
            end,
            awake,
            rests,
            is_http2,
            written,
            record,
            last_delivery,
        }))
    }

    /// A TLS handshake begins.
    pub(crate) fn on_handshake(&self, now: Instant) {
        self.0.step.set(Step::Handshake(now));
    }

    /// The TLS handshake is complete; what follows is HTTP/2, or else HTTP/1.
    pub(crate) fn on_secured(&self, now: Instant, is_http2: bool) {
        self.0.step.set(Step::Idle(now));
        self.0.is_http2.set(is_http2);
    }

    /// True if it speaks HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.0.is_http2.get()
    }

    /// A request's head is complete; `has_body`: more of it follows.
    pub(crate) fn on_request(&self, now: Instant, has_body: bool) {
        self.0.step.set(Step::Busy(now));
        self.0.unread.set(has_body);
        if let Some(record) = &mut *self.record_mut() {
            record.on_request();
        }
    }

    /// Something came of HTTP/2 while no request is open, which `idle_since` says; `is_whole`: no
    /// frame and no head is in the middle.
    pub(crate) fn on_frames(&self, is_whole: bool, idle_since: Instant, now: Instant) {
        match self.0.step.get() {
            Step::Idle(_) if !is_whole => self.0.step.set(Step::Head(now)),
            Step::Head(_) if is_whole => self.0.step.set(Step::Idle(idle_since)),
            _ => {}
        }
    }

    /// The request's body was read to its end.
    pub(crate) fn on_body_end(&self) {
        self.0.unread.set(false);
    }

    /// More of the response is read only once the transport has room, or at once.
    pub(crate) fn set_waits_for_room(&self, waits: bool) {
        self.0.waits_for_room.set(waits);
    }

    /// The response is handed to the connection.
    pub(crate) fn on_response(&self, now: Instant) {
        self.0.waits_for_room.set(false);
        self.0.step.set(Step::Idle(now));
    }

    /// The time since when the connection waits for a request, or for the rest of one.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        match self.0.step.get() {
            Step::Handshake(since) | Step::Idle(since) | Step::Head(since) => Some(since),
            Step::Busy(since) => self.0.unread.get().then_some(since),
        }
    }

    /// True while a request is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.0.step.get(), Step::Busy(_))
    }

    /// Lets the peer close before the server does: it said that it closes, or was asked to. The
    /// server waits for that, but no longer than the grace.
    pub(crate) fn yield_close(&self) {
        self.0.yields_close.set(true);
    }

    /// True once the peer has closed its half. A reset does not count.
    pub(crate) fn has_closed(&self) -> bool {
        self.0.end.get() == PeerEnd::Closed
    }

    /// True once nothing more can come: the peer has closed its half, or the connection failed.
    pub(super) fn has_ended(&self) -> bool {
        self.0.end.get() != PeerEnd::Open
    }

    /// Notes that a read has reached the end, or failed. Only the first of them counts.
    pub(super) fn on_end(&self, outcome: &io::Result<()>) {
        if !self.has_ended() {
            let has_closed = outcome.as_ref().map_or_else(is_end, |()| true);
            self.0.end.set(if has_closed { PeerEnd::Closed } else { PeerEnd::Failed });
        }
    }

    /// Notes whether the connection has the memory that requests need. A connection with a entry
    /// calls its [`EvictionEntry`](crate::limits::eviction::EvictionEntry) instead.
    pub(crate) fn set_awake(&self, is_awake: bool) {
        self.0.awake.set(is_awake);
    }

    /// True if it has the memory that requests need.
    pub(crate) fn is_awake(&self) -> bool {
        self.0.awake.get()
    }

    /// True while it waits for a request, and not for the peer to close.
    pub(crate) fn is_idle(&self) -> bool {
        !self.0.yields_close.get() && matches!(self.0.step.get(), Step::Idle(_))
    }

    /// True if it could free that memory at once.
    pub(crate) fn may_rest(&self) -> bool {
        self.is_awake() && self.is_idle() && !self.is_http2()
    }

    /// True, once, when it has waited for a request so long that it should free that memory.
    pub(crate) fn takes_rest(&self) -> bool {
        self.0.rests.take()
    }

    /// The transport took `bytes`, or they are held back.
    pub(crate) fn on_written(&self, bytes: usize) {
        self.0.written.update(|written| written + bytes as u64);
    }

    /// Bytes written since the connection began, with those that were taken back.
    pub(crate) fn written(&self) -> u64 {
        self.0.written.get()
    }

    /// Bytes taken back from the transport, which are to be written again.
    pub(crate) fn taken_back(&self) -> usize {
        self.record_mut().as_ref().map_or(0, |record| record.taken_back())
    }

    /// Resets the connection. The records of its responses still learn what the peer had: a
    /// transport that is reset has forgotten it.
    pub(crate) fn abort(&self, control: &impl Control) {
        if self.last_delivery().is_none() {
            self.0.last_delivery.set(control.delivery().map(Box::new));
        }
        control.abort();
    }

    /// What the peer had when the server reset the connection; `None` before, or if the transport
    /// could not tell.
    pub(crate) fn last_delivery(&self) -> Option<Delivery> {
        let last = self.0.last_delivery.take();
        let delivery = last.as_deref().copied();
        self.0.last_delivery.set(last);
        delivery
    }

    /// The record of written file data.
    pub(crate) fn record_mut(&self) -> RecordMut<'_> {
        RecordMut { place: &self.0.record, record: self.0.record.take() }
    }

    /// True if the peer may still send data of a request.
    pub(super) fn is_owed_more(&self) -> bool {
        self.0.unread.get() || !matches!(self.0.step.get(), Step::Idle(_))
    }
}
