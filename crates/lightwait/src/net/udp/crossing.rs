//! What a UDP socket of the application and its task on the shard share: datagrams both ways, and
//! what each has to tell the other.
//!
//! What the application asks for goes through one queue: an option holds for what is sent behind
//! it, and for nothing before.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Waker};

use lightwait_core::udp::{GROUPS_MAX, Received, Transmit, UdpOptions};
use lightwait_core::{Error, Readiness};

use super::queue::{Queue, cost_of};
use crate::error::io_error;
use crate::local;
use crate::net::crossing::{locked, stack_ended};
use crate::net::ledger::{Charge, Ledger};
use crate::net::waiting::{Waitable, Waiters};

/// ICMP errors that wait to be asked for, as many as in the engine; a later one is dropped.
const REPORTED: usize = 8;

/// A call that the application wants made on the socket, on the shard's thread.
pub(super) type Call = Box<dyn FnOnce(&local::UdpSocket) + Send>;

/// What the application asks for.
pub(super) enum Order {
    Send(Transmit),
    SetOptions(UdpOptions),
    Call(Call),
}

/// The way between a UDP socket and its task.
pub(super) struct Crossing {
    state: Mutex<State>,
    task: OnceLock<Waker>,
}

struct State {
    /// What waits both ways, on the stack's account.
    charge: Charge,
    /// Our end and the remote one.
    ends: Ends,
    options: UdpOptions,
    incoming: Queue<Received>,
    /// The task has left datagrams in the stack, for want of room here.
    wants_room: bool,
    outgoing: Queue<Order>,
    /// What the orders count for that the stack has not taken, here and with the task.
    outgoing_cost: usize,
    /// A send was refused for want of room, and there is none yet.
    is_full: bool,
    /// What ICMP has said of an earlier datagram, for the next call.
    error: Option<Error>,
    /// Why the stack did not send an earlier datagram, for the next call that sends: a peer whose
    /// address leads nowhere must not end a server's loop that reads.
    refusal: Option<Error>,
    reported: VecDeque<(SocketAddr, Error)>,
    /// The groups that the application has joined.
    groups: Vec<IpAddr>,
    /// The application has dropped the socket.
    is_closed: bool,
    /// The stack has ended.
    has_ended: bool,
    /// The task is woken, and has not looked yet.
    is_queued: bool,
    waiters: Waiters,
    changes: u64,
}

/// The ends of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) peer: Option<SocketAddr>,
}

/// What the application wants of the task.
pub(super) struct Orders {
    pub(super) is_closed: bool,
    /// There is more than was taken.
    pub(super) has_more: bool,
    pub(super) has_room: bool,
}

/// What the task has done since it last said so.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// There are datagrams to be read, by [`Crossing::bring`].
    pub(super) has_brought: bool,
    /// There is more to read, for which there was no room.
    pub(super) has_more: bool,
    /// What the orders count for that the stack has taken.
    pub(super) taken: usize,
    pub(super) error: Option<Error>,
    pub(super) refusal: Option<Error>,
    pub(super) reported: Vec<(SocketAddr, Error)>,
}

impl Crossing {
    pub(super) fn new(ends: Ends, options: UdpOptions, ledger: &Arc<Ledger>) -> Crossing {
        let state = State {
            charge: Charge::on(ledger),
            ends,
            options,
            incoming: Queue::default(),
            wants_room: false,
            outgoing: Queue::default(),
            outgoing_cost: 0,
            is_full: false,
            error: None,
            refusal: None,
            reported: VecDeque::new(),
            groups: Vec::new(),
            is_closed: false,
            has_ended: false,
            // The task looks when it begins.
            is_queued: true,
            waiters: Waiters::default(),
            changes: 0,
        };
        Crossing { state: Mutex::new(state), task: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Wakes the task, unless it is woken already.
    fn notify(&self, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.is_queued, true) {
            drop(state);
            if let Some(task) = self.task.get() {
                task.wake_by_ref();
            }
        }
    }

    // ---- the application's side

    /// Hands the oldest datagram to `sink`, `room` bytes at most, or those of its sender and size
    /// behind it if the socket joins them, and removes them if `takes`. If there is none the task
    /// of `context` is the one that waits.
    pub(super) fn read(
        &self,
        room: usize,
        takes: bool,
        context: Option<&Context<'_>>,
        sink: impl FnMut(&[u8]),
    ) -> io::Result<Received> {
        let mut state = self.lock();
        state.fail_if_wrong()?;
        let joined = state.options.joined;
        let Some((received, len)) = state.incoming.oldest() else {
            if state.has_ended {
                return Err(stack_ended());
            }
            if let Some(context) = context {
                state.waiters.set_reader(context);
            }
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let one = received.segment.min(len);
        let all = match joined {
            true if len <= room => len,
            true => (room / received.segment * received.segment).max(one),
            false => one,
        };
        let copied = all.min(room);
        let read = Received { len: copied, segment: received.segment.min(all), ..*received };
        state.incoming.copy(copied, sink);
        if takes {
            let before = state.incoming.cost();
            state.incoming.consume(all);
            let consumed = before - state.incoming.cost();
            state.charge.sub(consumed);
            if state.wants_room && state.has_half_the_room() {
                state.wants_room = false;
                self.notify(state);
            }
        }
        Ok(read)
    }

    /// Takes what is to be sent. If there is no room the task of `context` is the one that waits.
    pub(super) fn send(
        &self,
        transmit: &Transmit,
        bytes: &[u8],
        context: Option<&Context<'_>>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        if state.has_ended {
            return Err(stack_ended());
        }
        state.fail_if_wrong()?;
        if let Some(refusal) = state.refusal.take() {
            return Err(io_error(refusal));
        }
        let to = transmit.to.or(state.ends.peer).ok_or_else(|| io_error(Error::NotConnected))?;
        transmit.check(bytes.len(), to.ip().to_canonical().is_ipv6()).map_err(io_error)?;
        // One that is larger than the room passes alone.
        let cost = cost_of(bytes.len());
        if state.outgoing_cost > 0 && state.outgoing_cost + cost > state.charge.budget() {
            state.is_full = true;
            if let Some(context) = context {
                state.waiters.set_writer(context);
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.outgoing_cost += cost;
        state.charge.add(cost);
        state.outgoing.push(Order::Send(*transmit), bytes);
        self.notify(state);
        Ok(())
    }

    /// Has the task call `call`, between what was sent before and what is sent later.
    pub(super) fn call(&self, call: Call) -> io::Result<()> {
        let mut state = self.lock();
        state.order(Order::Call(call))?;
        self.notify(state);
        Ok(())
    }

    pub(super) fn options(&self) -> UdpOptions {
        self.lock().options
    }

    pub(super) fn set_options(&self, options: UdpOptions) -> io::Result<()> {
        let mut state = self.lock();
        let only_ipv6 = state.options.only_ipv6;
        let options = UdpOptions { only_ipv6, ..options };
        match state.outgoing.newest() {
            // Nothing was sent with those before.
            Some(Order::SetOptions(before)) => *before = options,
            _ => state.order(Order::SetOptions(options))?,
        }
        state.options = options;
        self.notify(state);
        Ok(())
    }

    /// Has the socket join a group, behind what was asked for before.
    pub(super) fn join(self: &Arc<Crossing>, group: IpAddr) -> io::Result<()> {
        let mut state = self.lock();
        let local = state.ends.local;
        let is_any_ipv6 = local.is_ipv6() && local.ip().is_unspecified();
        let speaks = local.is_ipv4() == group.is_ipv4()
            || group.is_ipv4() && is_any_ipv6 && !state.options.only_ipv6;
        if !group.is_multicast() || !speaks {
            let text = "no group that this socket could hear";
            return Err(io_error(Error::InvalidInput(text)));
        }
        if state.groups.contains(&group) {
            return Err(io_error(Error::AddressInUse));
        }
        if state.groups.len() == GROUPS_MAX {
            return Err(io_error(Error::Limit("groups of a socket")));
        }
        let crossing = self.clone();
        state.order(Order::Call(Box::new(move |socket| {
            if let Err(error) = socket.join_group(group) {
                crossing.refuse_group(group, error);
            }
        })))?;
        state.groups.push(group);
        self.notify(state);
        Ok(())
    }

    /// Has the socket leave a group, behind what was asked for before.
    pub(super) fn leave(&self, group: IpAddr) -> io::Result<()> {
        let mut state = self.lock();
        let at = state.groups.iter().position(|joined| *joined == group);
        let at = at.ok_or_else(|| io_error(Error::AddressNotAvailable))?;
        state.order(Order::Call(Box::new(move |socket| {
            // The application's end has joined it.
            let _ = socket.leave(group);
        })))?;
        state.groups.swap_remove(at);
        self.notify(state);
        Ok(())
    }

    /// The stack has not let the socket join a group.
    fn refuse_group(&self, group: IpAddr, error: Error) {
        let mut state = self.lock();
        state.groups.retain(|joined| *joined != group);
        state.refusal = Some(error);
    }

    pub(super) fn ends(&self) -> Ends {
        self.lock().ends
    }

    /// Takes the error that the next call would fail with, or that of a stack that has ended.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        let mut state = self.lock();
        let error = state.error.take().or(state.refusal.take()).map(io_error);
        error.or_else(|| state.has_ended.then(stack_ended))
    }

    pub(super) fn take_reported(&self) -> Option<(SocketAddr, Error)> {
        self.lock().reported.pop_front()
    }

    /// The application drops the socket.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let unread = state.incoming.cost();
        state.charge.sub(unread);
        let unused = (std::mem::take(&mut state.incoming), std::mem::take(&mut state.waiters));
        self.notify(state);
        // With nothing locked: a waker may call anything.
        drop(unused);
    }

    // ---- the shard's side

    /// Tells of the task.
    pub(super) fn begin(&self, task: Waker) {
        let _ = self.task.set(task);
    }

    /// What the application wants. Its orders move to `pending`, if that is empty.
    pub(super) fn take(&self, pending: &mut Queue<Order>) -> Orders {
        let mut state = self.lock();
        state.is_queued = false;
        if pending.is_empty() {
            std::mem::swap(pending, &mut state.outgoing);
        }
        Orders {
            is_closed: state.is_closed,
            has_more: !state.outgoing.is_empty(),
            has_room: state.has_room(),
        }
    }

    /// The socket has connected.
    pub(super) fn set_ends(&self, ends: Ends) {
        self.lock().ends = ends;
    }

    /// Brings what was read; the delivery tells of it. Returns true if there is room for more.
    pub(super) fn bring(&self, received: Received, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        state.incoming.push(received, bytes);
        state.charge.add(cost_of(bytes.len()));
        state.has_room()
    }

    /// Takes what the task has done, and moves the wakers of those whom it concerns to `woken`.
    /// Returns true if there is room for more after all.
    pub(super) fn deliver(&self, delivery: Delivery, woken: &mut Vec<Waker>) -> bool {
        let mut state = self.lock();
        let mut ways = Readiness::EMPTY;
        if delivery.has_brought {
            ways |= Readiness::READABLE;
        }
        state.outgoing_cost -= delivery.taken;
        state.charge.sub(delivery.taken);
        if state.is_full && state.outgoing_cost <= state.charge.budget() / 2 {
            state.is_full = false;
            ways |= Readiness::WRITABLE;
        }
        if delivery.error.is_some() || !delivery.reported.is_empty() {
            ways |= Readiness::READABLE | Readiness::WRITABLE;
        }
        state.error = delivery.error.or(state.error);
        state.refusal = delivery.refusal.or(state.refusal);
        let room = REPORTED - state.reported.len();
        state.reported.extend(delivery.reported.into_iter().take(room));
        let has_room = delivery.has_more && state.has_half_the_room();
        state.wants_room = delivery.has_more && !has_room;
        if !ways.is_empty() {
            state.changes += 1;
            state.waiters.take(ways, woken);
        }
        has_room
    }

    /// The task ends. Before the application has closed the socket, only the stack's end does that.
    pub(super) fn end(&self, woken: &mut Vec<Waker>) {
        let mut state = self.lock();
        state.has_ended = true;
        state.changes += 1;
        state.waiters.take(Readiness::READABLE | Readiness::WRITABLE, woken);
        let orders = std::mem::take(&mut state.outgoing);
        drop(state);
        drop(orders);
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.incoming.cost() < self.charge.budget()
    }

    fn has_half_the_room(&self) -> bool {
        self.incoming.cost() <= self.charge.budget() / 2
    }

    /// Fails with what ICMP has said of an earlier datagram, once.
    fn fail_if_wrong(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), |error| Err(io_error(error)))
    }

    /// Puts an order behind the rest: it waits for no room, since it is none of many.
    fn order(&mut self, order: Order) -> io::Result<()> {
        if self.has_ended {
            return Err(stack_ended());
        }
        self.outgoing_cost += cost_of(0);
        self.charge.add(cost_of(0));
        self.outgoing.push(order, &[]);
        Ok(())
    }

    fn readiness(&self) -> Readiness {
        if self.has_ended {
            return Readiness::READABLE | Readiness::WRITABLE | Readiness::CLOSED;
        }
        let has_error = self.error.is_some() || !self.reported.is_empty();
        let mut readiness = Readiness::EMPTY;
        if has_error || !self.incoming.is_empty() {
            readiness |= Readiness::READABLE;
        }
        if has_error || !self.is_full {
            readiness |= Readiness::WRITABLE;
        }
        readiness
    }
}

impl Waitable for Crossing {
    fn look<R>(&self, look: impl FnOnce(Readiness, u64, &mut Waiters) -> R) -> R {
        let mut state = self.lock();
        let (readiness, changes) = (state.readiness(), state.changes);
        look(readiness, changes, &mut state.waiters)
    }
}

impl fmt::Debug for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crossing").field("ends", &self.ends()).finish_non_exhaustive()
    }
}

/// The application's hold on a crossing: dropping it closes the socket.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) crossing: Arc<Crossing>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.crossing.close();
    }
}
