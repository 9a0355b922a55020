//! One connection, and what the host knows of it.
//!
//! A busy connection has a block of its own; an idle one lies in its slot, in a third of the bytes.
//! A caller that wants to change an idle connection wakes it.
//!
//! ```text
//!   bytes   0  tuple, its hash                                  48
//!          48  filed (its entry among the timers)               12
//!          60  ready, awaits_neighbour, listed, woken            4
//!          64  the listener that it waits for                   12
//!          76  announced                                         1
//!          77  its route, what is looked at before its segments 2
//!          79  lent: the block is the pool's                     1
//!          80  the block of a busy connection                    8
//!          88  one at rest                                     200
//!         288
//! ```
//!
//! What a frame touches comes first.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;

use lightwait_processor::prefetch_first;

use crate::event::{ConnectionId, ListenerId, Readiness};
use crate::fifo::Fifo;
use crate::flow::Tuple;
use crate::ip::route_cache::RouteIndex;
use crate::slab::{Key, Slab};
use crate::tcp::block_pool::BlockPool;
use crate::tcp::connection::{Compact, Identity};
use crate::tcp::time_wait::negotiate::Holding;
use crate::tcp::timers::bsd::Tick;
use crate::tcp::timers::{Blocks, Filed, TimeWaitTerm, Timer, TimerSet, Timers};
use crate::tcp::{Connection, SocketOptions, State};
use crate::time::Instant;

/// Bytes of a slot that a segment for a busy connection touches.
pub(crate) const TOUCHED: usize = 88;

/// One connection and what the host knows of it. 288 bytes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slot {
    /// The two ends.
    pub(crate) tuple: Tuple,
    /// The tuple under the host's keyed hash.
    pub(crate) tuple_hash: u64,
    /// Its entry among the timers.
    pub(crate) filed: Filed,
    /// On the ready list.
    pub(crate) ready: bool,
    /// Waits for a neighbour.
    pub(crate) awaits_neighbour: bool,
    /// In the demultiplexing table.
    pub(crate) listed: bool,
    /// An orphan that has a record as well.
    pub(crate) woken: bool,
    /// The listener in whose accept queue it waits.
    pub(crate) accepting: Option<ListenerId>,
    /// Notices whose event waits to be fetched.
    pub(crate) announced: Readiness,
    /// Where its route is kept, if it is, and if the usual IP headers will do.
    pub(crate) place: RouteIndex,
    /// Why its segments are not taken in at once, if they are not.
    pub(crate) flags: SlotFlags,
    /// Its block is lent by [`BlockPool`], or adopted; not made for it as it woke a short while
    /// ago.
    lent: bool,
    /// The busy connection. It rests if there is none.
    block: Option<Box<Connection>>,
    rest: Option<Compact>,
}

/// The slots of all connections. What is left in one is its entry among the timers.
pub(crate) type Slots = Slab<Slot, Filed>;

impl Blocks for Slots {
    fn count_down(&mut self, index: u32, tick: Tick) -> TimerSet {
        self.get_mut(index).map_or(TimerSet::EMPTY, |slot| slot.count_down(tick))
    }

    fn prefetch(&self, index: u32) {
        self.prefetch(index, TOUCHED);
    }
}

/// What must be looked at before a connection's segment is taken in, or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotFlags(u8);

impl SlotFlags {
    /// The peer's address is ours as well: what comes from outside is not its.
    pub(crate) const OURSELVES: SlotFlags = SlotFlags(1);
    /// It is being opened in the place of a connection in TIME-WAIT, whose record ends when the
    /// handshake is complete.
    pub(crate) const REUSE: SlotFlags = SlotFlags(2);
    /// It is being opened, and asks which end shall hold TIME-WAIT.
    pub(crate) const ASKS: SlotFlags = SlotFlags(4);

    /// `self` if it is so.
    pub(crate) fn only_if(self, is_so: bool) -> SlotFlags {
        SlotFlags(self.0 * u8::from(is_so))
    }

    /// This, with that or without.
    pub(crate) fn with(self, that: SlotFlags, is_so: bool) -> SlotFlags {
        SlotFlags(self.0 & !that.0 | that.only_if(is_so).0)
    }

    /// True if there is anything.
    pub(crate) fn is_any(self) -> bool {
        self.0 != 0
    }

    /// True if something is to be looked at for a segment that came from there.
    pub(crate) fn is_for(self, is_from_ourselves: bool) -> bool {
        self.is_any()
            && (!is_from_ourselves || self.has(SlotFlags(SlotFlags::REUSE.0 | SlotFlags::ASKS.0)))
    }

    /// True if that is among it.
    pub(crate) fn has(self, that: SlotFlags) -> bool {
        self.0 & that.0 != 0
    }
}

/// A connection as it is, or as it would be if it were awake.
pub(crate) enum View<'a> {
    Awake(&'a Connection),
    Compact(Box<Connection>),
}

impl Deref for View<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            View::Awake(connection) => connection,
            View::Compact(connection) => connection,
        }
    }
}

/// The hash of the tuple in a slot that is used, as a table by that hash asks for it.
pub(crate) fn hash_in(slots: &Slots) -> impl Fn(u32) -> u64 {
    |index| slots.get(index).map_or(0, |slot| slot.tuple_hash)
}

/// The connection of `tuple` and its generation, if it is in slot `index`, to which a look at the
/// hash led, and nothing must be looked at before it takes a segment that came from there.
pub(crate) fn guessed<'a>(
    slots: &'a mut Slots,
    index: u32,
    tuple: &Tuple,
    is_from_ourselves: bool,
) -> Option<(&'a mut Slot, u32)> {
    let is_it =
        |slot: &Slot| slot.tuple == *tuple && slot.listed && !slot.flags.is_for(is_from_ourselves);
    slots.named_mut(index).filter(|(slot, _)| is_it(slot))
}

/// Whether a slot's tuple is `tuple`.
pub(crate) fn has_tuple(slots: &Slots, tuple: &Tuple) -> impl Fn(u32) -> bool {
    |index| slots.get(index).is_some_and(|slot| slot.tuple == *tuple)
}

/// The place of the route of a connection between `ends`; none if the connection asks something of
/// its IP headers.
fn place_of(ends: &Tuple, options: &SocketOptions) -> RouteIndex {
    if options.asks_nothing_of_ip() { RouteIndex::of(ends) } else { RouteIndex::NOWHERE }
}

/// The facts about a new connection that its slot keeps.
#[derive(Clone, Copy)]
pub(crate) struct Seat<'a> {
    /// The two ends.
    pub(crate) tuple: &'a Tuple,
    pub(crate) flags: SlotFlags,
    /// The listener in whose accept queue it will wait.
    pub(crate) accepting: Option<ListenerId>,
}

/// Gives a new connection a slot and a name, and sees to it that it is flushed.
#[inline(always)]
pub(crate) fn take_seat(
    slots: &mut Slots,
    ready: &mut Fifo<u32>,
    block: Box<Connection>,
    seat: Seat<'_>,
) -> ConnectionId {
    let Key { index, generation } = slots.insert_with(move |filed| Slot::new(block, seat, filed));
    ready.push_back(index);
    ConnectionId { index, generation }
}

impl Slot {
    /// A slot for a new connection, which is ready to be flushed. `filed`: the entry that its
    /// predecessor had among the timers.
    pub(crate) fn new(connection: Box<Connection>, seat: Seat<'_>, filed: Filed) -> Slot {
        let Seat { tuple, flags, accepting } = seat;
        Slot {
            place: place_of(tuple, &connection.options),
            tuple: *tuple,
            tuple_hash: connection.identity.hash,
            block: Some(connection),
            rest: None,
            filed,
            accepting,
            ready: true,
            awaits_neighbour: false,
            listed: true,
            woken: false,
            announced: Readiness::EMPTY,
            flags,
            lent: true,
        }
    }

    /// The connection's options are `options` from now on; what they were.
    pub(crate) fn set_options(&mut self, options: SocketOptions) -> Arc<SocketOptions> {
        self.place = place_of(&self.tuple, &options);
        core::mem::replace(&mut self.connection_mut().options, Arc::new(options))
    }

    /// The connection, if it does not rest.
    pub(crate) fn awake(&self) -> Option<&Connection> {
        self.block.as_deref()
    }

    /// The connection, to be changed, if it does not rest.
    pub(crate) fn awake_mut(&mut self) -> Option<&mut Connection> {
        self.block.as_deref_mut()
    }

    /// Fetches the connection, if it does not rest, without waiting for it.
    pub(crate) fn prefetch(&self) {
        if let Some(connection) = self.awake() {
            prefetch_first(connection, Connection::CALM_BYTES);
        }
    }

    /// The connection, to be asked.
    pub(crate) fn view(&self) -> View<'_> {
        self.awake().map_or_else(|| View::Compact(self.awakened()), View::Awake)
    }

    /// The connection, which rests, as it would be if it were awake.
    fn awakened(&self) -> Box<Connection> {
        let rest = self.rest.as_ref().expect("a connection rests or has a block");
        Box::new(rest.wake(Identity { hash: self.tuple_hash, ports: self.tuple.ports() }))
    }

    /// The connection, to be changed: it rests no more.
    #[inline(always)]
    pub(crate) fn connection_mut(&mut self) -> &mut Connection {
        if self.block.is_none() {
            self.wake();
        }
        self.block.as_deref_mut().expect("it was woken")
    }

    fn wake(&mut self) {
        self.block = Some(self.awakened());
        self.rest = None;
        self.lent = false;
    }

    /// True if the connection will be asked for soon.
    pub(crate) fn is_waited_for(&self) -> bool {
        let is_listed = self.ready || self.awaits_neighbour || self.accepting.is_some();
        is_listed || self.announced != Readiness::EMPTY
    }

    /// Lets the connection rest, if it keeps so quiet; its block is one of `block_pool` then.
    pub(crate) fn rest(&mut self, block_pool: &mut BlockPool) -> bool {
        let Some(rest) = self.awake().filter(|_| !self.is_waited_for()).and_then(Connection::rest)
        else {
            return false;
        };
        self.rest = Some(rest);
        self.give_back(block_pool);
        true
    }

    /// It does not rest when it might: its block is one of those in use.
    pub(crate) fn stay_awake(&mut self, block_pool: &mut BlockPool) {
        if !core::mem::replace(&mut self.lent, true) {
            block_pool.adopt();
        }
    }

    /// Gives the block back, and drops what rests: a connection that is gone must not be used any
    /// more.
    #[inline(always)]
    pub(crate) fn leave(&mut self, block_pool: &mut BlockPool) {
        if self.block.is_some() { self.give_back(block_pool) } else { self.rest = None }
    }

    #[inline(always)]
    fn give_back(&mut self, block_pool: &mut BlockPool) {
        if let Some(block) = &mut self.block {
            block.clear();
        }
        if let Some(block) = self.block.take() {
            block_pool.put_back(block, self.lent);
        }
    }

    /// Tells `timers` of the deadlines of this connection, which is number `index`.
    #[inline(always)]
    pub(crate) fn rearm(&mut self, timers: &mut Timers, index: u32, now: Instant) {
        match &mut self.block {
            Some(block) => timers.touched(index, &mut self.filed, &mut block.deadlines, now),
            None => self.rearm_resting(timers, index, now),
        }
    }

    fn rearm_resting(&mut self, timers: &mut Timers, index: u32, now: Instant) {
        if let Some(rest) = &self.rest {
            timers.touched(index, &mut self.filed, &mut rest.deadlines(), now);
        }
    }

    /// Counts its timers down by a tick of 4.4BSD's; whose time has come.
    pub(crate) fn count_down(&mut self, tick: Tick) -> TimerSet {
        match &self.block {
            Some(block) => self.filed.count_down(tick, &block.deadlines),
            None => TimerSet::EMPTY,
        }
    }

    /// Tells `timers` that this control block enters TIME-WAIT, or begins it anew.
    pub(crate) fn enter_time_wait(&mut self, timers: &mut Timers, index: u32, time: TimeWaitTerm) {
        if let Some(block) = &mut self.block {
            block.deadlines.set(Timer::Lifetime, time.now + time.duration);
            timers.enter_time_wait(index, &mut self.filed, &mut block.deadlines, time);
        }
    }

    /// True if its tuple is a connection's, or what is left of one.
    pub(crate) fn is_known(&self) -> bool {
        self.listed || self.is_in_time_wait()
    }

    /// True if it has just entered TIME-WAIT, and the peer does not hold it.
    pub(crate) fn enters_time_wait(&self) -> bool {
        let final_state = self.awake().and_then(Connection::final_state);
        final_state.is_some_and(|final_state| final_state.holding != Holding::ByPeer)
    }

    /// True if it is a whole control block in TIME-WAIT.
    pub(crate) fn is_in_time_wait(&self) -> bool {
        self.awake().is_some_and(|connection| connection.final_state().is_some())
    }

    /// The connection's state.
    pub(crate) fn state(&self) -> State {
        self.awake().map_or(State::Established, |connection| connection.state())
    }

    /// True if its user has left it.
    pub(crate) fn is_orphan(&self) -> bool {
        self.awake().is_some_and(|block| block.orphan)
    }
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use core::mem::offset_of;

    assert!(offset_of!(Slot, tuple) == 0);
    assert!(offset_of!(Slot, filed) == 48);
    assert!(offset_of!(Slot, ready) == 60);
    assert!(offset_of!(Slot, accepting) == 64);
    assert!(offset_of!(Slot, announced) == 76);
    assert!(offset_of!(Slot, place) == 77);
    assert!(offset_of!(Slot, lent) == 79);
    assert!(offset_of!(Slot, block) == 80);
    assert!(offset_of!(Slot, rest) == TOUCHED);
    assert!(size_of::<Slot>() == 288);
};
