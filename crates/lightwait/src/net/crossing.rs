//! What a stream of the application and its task on the shard share: bytes, in pages that change
//! hands, and what each has to tell the other.
//!
//! ```text
//!   any thread                         │ the shard's thread
//!   TcpStream ── write ──▶ outgoing ───┼──▶ Pump ──▶ local::TcpStream
//!             ◀── read ─── incoming ◀──┼─── Pump ◀──
//! ```
//!
//! A direction in which nothing moves holds a kilobyte at most. The lock is held while a lane
//! changes hands, and for copies of less than a page: the shard hardly ever waits for it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use lightwait_core::tcp::SocketOptions;
use lightwait_core::{Error, Readiness};

use super::lane::{Lane, SMALL};
use super::ledger::{Charge, Ledger};
use super::waiting::{Waitable, Waiters};
use crate::error::io_error;
use crate::local;

/// Pages that wait to be read, at most: a peer may send one byte a segment.
const PAGES: usize = 64;

/// A call that the application wants made on the connection, on the shard's thread.
pub(super) type Call = Box<dyn FnOnce(&local::TcpStream) + Send>;

/// The way between a stream and its task.
pub(super) struct Crossing {
    state: Mutex<State>,
    /// What the application has taken, and reads from. The shard does not touch it.
    taken: Mutex<Taken>,
    pump: OnceLock<Waker>,
    addresses: OnceLock<Addresses>,
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

/// What the application reads from.
struct Taken {
    lane: Lane,
    charge: Charge,
}

struct State {
    phase: Phase,
    /// What waits both ways, on the stack's account.
    charge: Charge,
    incoming: Lane,
    incoming_bytes: usize,
    /// The peer's FIN comes after `incoming`.
    is_at_end: bool,
    /// The task has left bytes in the stack, for want of room here.
    wants_room: bool,
    outgoing: Lane,
    /// Bytes written that the send buffer has not taken.
    outgoing_bytes: usize,
    /// Writing is over: FIN comes after `outgoing`.
    is_shut: bool,
    /// The application has dropped the stream.
    close: Option<Close>,
    /// What ended the connection, until somebody is told.
    error: Option<Error>,
    /// Nothing can be written any more; there may be something to read.
    is_broken: bool,
    options: SocketOptions,
    quick_acks: Option<bool>,
    calls: Vec<Call>,
    /// The task is woken, and has not looked yet.
    is_queued: bool,
    waiters: Waiters,
    /// Changes of the readiness by the shard.
    changes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    /// The connection is over.
    Over,
    /// The stack has ended.
    Ended,
}

/// How the application has closed the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Close {
    /// What was written is sent, then FIN.
    Gracefully,
    Reset,
}

/// What the application wants of the task.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) calls: Vec<Call>,
    pub(super) is_shut: bool,
    pub(super) close: Option<Close>,
    /// Bytes that may be brought.
    pub(super) room: usize,
    /// There is more than was taken.
    pub(super) has_more: bool,
}

/// What the task has done since it last said so.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// There are bytes to be read, by [`Crossing::bring`] or [`Crossing::bring_page`].
    pub(super) has_brought: bool,
    pub(super) is_at_end: bool,
    /// There is more to read, for which there was no room.
    pub(super) has_more: bool,
    /// Bytes that the send buffer has taken.
    pub(super) taken: usize,
    /// Why nothing can be written any more.
    pub(super) broken: Option<Error>,
    pub(super) is_open: bool,
    /// The connection is over, in order or by an error.
    pub(super) over: Option<Option<Error>>,
}

impl Crossing {
    /// The way of a connection that is still to open.
    pub(super) fn opening(options: SocketOptions, ledger: &Arc<Ledger>) -> Crossing {
        Crossing::new(Phase::Opening, options, ledger)
    }

    /// The way of a connection that is established.
    pub(super) fn open(options: SocketOptions, ledger: &Arc<Ledger>) -> Crossing {
        Crossing::new(Phase::Open, options, ledger)
    }

    fn new(phase: Phase, options: SocketOptions, ledger: &Arc<Ledger>) -> Crossing {
        let state = State {
            phase,
            charge: Charge::on(ledger),
            incoming: Lane::default(),
            incoming_bytes: 0,
            is_at_end: false,
            wants_room: false,
            outgoing: Lane::default(),
            outgoing_bytes: 0,
            is_shut: false,
            close: None,
            error: None,
            is_broken: false,
            options,
            quick_acks: None,
            calls: Vec::new(),
            // The task looks when it begins.
            is_queued: true,
            waiters: Waiters::default(),
            changes: 0,
        };
        Crossing {
            state: Mutex::new(state),
            taken: Mutex::new(Taken { lane: Lane::default(), charge: Charge::on(ledger) }),
            pump: OnceLock::new(),
            addresses: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Wakes the task, unless it is woken already.
    fn notify(&self, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.is_queued, true) {
            drop(state);
            if let Some(pump) = self.pump.get() {
                pump.wake_by_ref();
            }
        }
    }

    // ---- the application's side

    /// Hands bytes to `sink`, `room` at most, and returns how many; 0 is the stream's end. If there
    /// are none the task of `context` is the one that waits.
    pub(super) fn read(
        &self,
        room: usize,
        context: Option<&Context<'_>>,
        mut sink: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let mut taken = locked(&self.taken);
        let mut read = 0;
        while read < room {
            if taken.lane.is_empty() && !self.refill(&mut taken) {
                if read > 0 || self.end_of_reading(context)? {
                    break;
                }
                continue;
            }
            let first = taken.lane.first();
            let len = first.len().min(room - read);
            sink(&first[..len]);
            taken.lane.advance(len);
            if taken.lane.is_empty() {
                taken.charge.clear();
            }
            read += len;
        }
        Ok(read)
    }

    /// Copies bytes that the next read returns, as [`Crossing::read`] does.
    pub(super) fn peek(
        &self,
        buffer: &mut [u8],
        context: Option<&Context<'_>>,
    ) -> io::Result<usize> {
        let mut taken = locked(&self.taken);
        while taken.lane.is_empty() && !buffer.is_empty() {
            if !self.refill(&mut taken) && self.end_of_reading(context)? {
                return Ok(0);
            }
        }
        let state = self.lock();
        let mut peeked = 0;
        for piece in taken.lane.pieces().chain(state.incoming.pieces()) {
            let len = piece.len().min(buffer.len() - peeked);
            buffer[peeked..peeked + len].copy_from_slice(&piece[..len]);
            peeked += len;
        }
        Ok(peeked)
    }

    /// Takes all that was brought, into an empty lane. False if there is nothing.
    fn refill(&self, taken: &mut Taken) -> bool {
        let mut state = self.lock();
        if state.incoming.is_empty() {
            return false;
        }
        std::mem::swap(&mut taken.lane, &mut state.incoming);
        let bytes = std::mem::take(&mut state.incoming_bytes);
        taken.charge.take_over(&mut state.charge, bytes);
        if std::mem::take(&mut state.wants_room) {
            self.notify(state);
        }
        true
    }

    /// True at the stream's end, false if there are bytes after all.
    fn end_of_reading(&self, context: Option<&Context<'_>>) -> io::Result<bool> {
        let mut state = self.lock();
        if !state.incoming.is_empty() {
            return Ok(false);
        }
        match state.phase {
            Phase::Ended => Err(stack_ended()),
            Phase::Over => state.error.take().map_or(Ok(true), |error| Err(io_error(error))),
            _ if state.is_at_end => Ok(true),
            _ => {
                if let Some(context) = context {
                    state.waiters.set_reader(context);
                }
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    /// Copies as much of `data` as there is room for, and returns how much. If there is no room the
    /// task of `context` is the one that waits.
    pub(super) fn write(&self, data: &[u8], context: Option<&Context<'_>>) -> io::Result<usize> {
        let mut state = self.lock();
        let len = state.room_for(data.len(), context)?;
        state.outgoing_bytes += len;
        state.charge.add(len);
        if len <= SMALL {
            state.outgoing.append(&data[..len]);
        } else {
            // The shard does not wait for the copy.
            drop(state);
            let page = Bytes::copy_from_slice(&data[..len]);
            state = self.lock();
            state.outgoing.push(page);
        }
        self.notify(state);
        Ok(len)
    }

    /// Writes as [`Crossing::write`] does, but shares the bytes.
    pub(super) fn write_bytes(&self, data: &Bytes) -> io::Result<usize> {
        let mut state = self.lock();
        let len = state.room_for(data.len(), None)?;
        state.outgoing_bytes += len;
        state.charge.add(len);
        state.outgoing.push(data.slice(..len));
        self.notify(state);
        Ok(len)
    }

    /// Ends writing: FIN comes after what was written.
    pub(super) fn shut_down(&self) -> io::Result<()> {
        let mut state = self.lock();
        match state.phase {
            Phase::Ended => return Err(stack_ended()),
            Phase::Over => return Err(io_error(state.error.take().unwrap_or(Error::NotConnected))),
            Phase::Opening | Phase::Open => {}
        }
        state.is_shut = true;
        self.notify(state);
        Ok(())
    }

    /// Has the task call `call`, before it moves what was written later.
    pub(super) fn call(&self, call: Call) -> io::Result<()> {
        let mut state = self.lock();
        if state.phase == Phase::Ended {
            return Err(stack_ended());
        }
        state.calls.push(call);
        self.notify(state);
        Ok(())
    }

    /// True while the connection is opened.
    pub(super) fn is_opening(&self) -> bool {
        self.lock().phase == Phase::Opening
    }

    pub(super) fn options(&self) -> SocketOptions {
        self.lock().options
    }

    pub(super) fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.call(Box::new(move |stream| {
            // A connection that is over has no use for them.
            let _ = stream.set_options(options);
        }))?;
        self.lock().options = options;
        Ok(())
    }

    /// Whether quick ACKs were set last; `None` if they were not.
    pub(super) fn quick_acks(&self) -> Option<bool> {
        self.lock().quick_acks
    }

    pub(super) fn set_quick_acks(&self, quick_acks: bool) -> io::Result<()> {
        self.call(Box::new(move |stream| {
            let _ = stream.set_quickack(quick_acks);
        }))?;
        self.lock().quick_acks = Some(quick_acks);
        Ok(())
    }

    pub(super) fn addresses(&self) -> io::Result<Addresses> {
        self.addresses.get().copied().ok_or_else(|| io_error(Error::NotConnected))
    }

    /// Takes the error that ended the connection, or the error of a stack that has ended.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        let mut state = self.lock();
        let error = state.error.take().map(io_error);
        error.or_else(|| (state.phase == Phase::Ended).then(stack_ended))
    }

    /// True if nothing will be read after what is here.
    #[cfg(feature = "tokio-driver")]
    pub(super) fn is_at_end(&self) -> bool {
        let state = self.lock();
        state.is_at_end || state.is_over()
    }

    /// The application drops the stream.
    pub(super) fn close(&self, how: Close) {
        let mut taken = locked(&self.taken);
        let unread = std::mem::take(&mut taken.lane);
        taken.charge.clear();
        drop(taken);
        let mut state = self.lock();
        let has_unread = !unread.is_empty() || !state.incoming.is_empty();
        let bytes = std::mem::take(&mut state.incoming_bytes);
        state.charge.sub(bytes);
        let how = if has_unread { Close::Reset } else { how };
        state.close = Some(state.close.unwrap_or(how));
        let unused = (std::mem::take(&mut state.incoming), std::mem::take(&mut state.waiters));
        self.notify(state);
        // With nothing locked: a waker may call anything.
        drop((unused, unread));
    }

    // ---- the shard's side

    /// Tells of the task and the connection's ends.
    pub(super) fn begin(&self, pump: Waker, addresses: Addresses) {
        let _ = (self.pump.set(pump), self.addresses.set(addresses));
    }

    /// What the application wants. What it has written moves to `pending`, if that is empty.
    pub(super) fn take(&self, pending: &mut Lane) -> Orders {
        let mut state = self.lock();
        state.is_queued = false;
        if pending.is_empty() {
            std::mem::swap(pending, &mut state.outgoing);
        }
        Orders {
            calls: std::mem::take(&mut state.calls),
            is_shut: state.is_shut,
            close: state.close,
            room: state.room(),
            has_more: !state.outgoing.is_empty(),
        }
    }

    /// Brings a few bytes to be read; the delivery tells of them.
    pub(super) fn bring(&self, piece: &[u8]) {
        let mut state = self.lock();
        state.incoming_bytes += piece.len();
        state.charge.add(piece.len());
        state.incoming.append(piece);
    }

    /// Brings a page to be read; the delivery tells of it.
    pub(super) fn bring_page(&self, page: Vec<u8>) {
        let mut state = self.lock();
        state.incoming_bytes += page.len();
        state.charge.add(page.len());
        state.incoming.push(page.into());
    }

    /// Takes what the task has done, and moves the wakers of those whom it concerns to `woken`.
    /// Returns true if there is room for more after all.
    pub(super) fn deliver(&self, delivery: &Delivery, woken: &mut Vec<Waker>) -> bool {
        let mut state = self.lock();
        let before = (state.phase, state.is_at_end);
        let mut ways = Readiness::EMPTY;
        if delivery.has_brought {
            ways |= Readiness::READABLE;
        }
        state.is_at_end |= delivery.is_at_end;
        state.outgoing_bytes -= delivery.taken;
        state.charge.sub(delivery.taken);
        if delivery.taken > 0 && state.outgoing_bytes <= state.charge.budget() / 2 {
            ways |= Readiness::WRITABLE;
        }
        if delivery.is_open && state.phase == Phase::Opening {
            state.phase = Phase::Open;
        }
        state.is_broken |= delivery.broken.is_some();
        state.error = state.error.or(delivery.broken);
        if let Some(error) = delivery.over {
            state.phase = Phase::Over;
            state.error = state.error.or(error);
        }
        if before != (state.phase, state.is_at_end) || delivery.broken.is_some() {
            ways = Readiness::READABLE | Readiness::WRITABLE;
        }
        let has_room = delivery.has_more && state.has_half_the_room();
        state.wants_room = delivery.has_more && !has_room;
        if !ways.is_empty() {
            state.changes += 1;
            state.waiters.take(ways, woken);
        }
        has_room
    }

    /// The task ends before the connection: the stack does.
    pub(super) fn end(&self, woken: &mut Vec<Waker>) {
        let mut state = self.lock();
        state.phase = Phase::Ended;
        state.changes += 1;
        state.waiters.take(Readiness::READABLE | Readiness::WRITABLE, woken);
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        drop(calls);
    }
}

impl State {
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over | Phase::Ended)
    }

    /// Bytes that may be brought to be read.
    fn room(&self) -> usize {
        let budget = self.charge.budget();
        if self.incoming.pages() >= PAGES { 0 } else { budget.saturating_sub(self.incoming_bytes) }
    }

    fn has_half_the_room(&self) -> bool {
        self.incoming.pages() <= PAGES / 2 && self.incoming_bytes <= self.charge.budget() / 2
    }

    /// How much of `wanted` may be written now.
    fn room_for(&mut self, wanted: usize, context: Option<&Context<'_>>) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(io_error(error));
        }
        match self.phase {
            Phase::Ended => return Err(stack_ended()),
            Phase::Over => return Err(io_error(Error::BrokenPipe)),
            _ if self.is_shut || self.is_broken => return Err(io_error(Error::BrokenPipe)),
            Phase::Opening | Phase::Open => {}
        }
        let room = self.charge.budget().saturating_sub(self.outgoing_bytes);
        if (room == 0 && wanted > 0) || self.phase == Phase::Opening {
            if let Some(context) = context {
                self.waiters.set_writer(context);
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(wanted.min(room))
    }

    fn readiness(&self, has_taken: bool) -> Readiness {
        let mut readiness = Readiness::EMPTY;
        if has_taken || self.is_at_end || !self.incoming.is_empty() {
            readiness |= Readiness::READABLE;
        }
        let is_open = self.phase == Phase::Open;
        let has_room = self.outgoing_bytes < self.charge.budget();
        if is_open && (self.is_shut || self.is_broken || has_room) {
            readiness |= Readiness::WRITABLE;
        }
        if self.is_over() {
            let all = Readiness::READABLE | Readiness::WRITABLE | Readiness::CLOSED;
            readiness |= all;
        }
        readiness
    }
}

impl Waitable for Crossing {
    fn look<R>(&self, look: impl FnOnce(Readiness, u64, &mut Waiters) -> R) -> R {
        // Both locks, in the order of a read: nothing changes hands meanwhile.
        let taken = locked(&self.taken);
        let mut state = self.lock();
        let readiness = state.readiness(!taken.lane.is_empty());
        let changes = state.changes;
        look(readiness, changes, &mut state.waiters)
    }
}

impl fmt::Debug for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crossing").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The application's hold on a crossing: dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) crossing: Arc<Crossing>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.crossing.close(Close::Gracefully);
    }
}

/// The lock. A panic under it leaves nothing half-done.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of every call on a stack that has ended.
pub(super) fn stack_ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the stack of this socket has ended")
}
