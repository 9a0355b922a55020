//! Follows every input to a connection: its user hears what has become possible, the connection
//! joins the list of those to be flushed, and a connection that is over makes room.

use super::Host;
use super::parts::Live;
use super::time_wait::Entrance;
use crate::config::TimeWaitState;
use crate::event::{ConnectionId, Event, Readiness};
use crate::fifo::Fifo;
use crate::tcp::Connection;
use crate::tcp::block_pool::BlockPool;
use crate::tcp::connection::Context;
use crate::tcp::slot::{Slot, Slots};
use crate::tcp::timers::Timers;
use crate::time::Instant;

impl Host {
    /// The next thing the shard should know, oldest first. What becomes ready on one connection
    /// before it is asked for comes as one event.
    pub fn event(&mut self) -> Option<Event> {
        while !self.events.is_empty() {
            let event = self.next_event();
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The oldest event, unless it is of a connection that is gone.
    fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        let Event::Ready(id, _) = event else { return Some(event) };
        let (slot, generation) = self.slots.named_mut(id.index)?;
        let is_current = generation == id.generation;
        is_current.then(|| Event::Ready(id, core::mem::take(&mut slot.announced)))
    }

    /// A connection was touched: publishes what it has to tell, and puts it on the ready list.
    pub(super) fn after_input(&mut self, now: Instant, index: u32) {
        let slot = self.slots.get(index);
        if !slot.is_some_and(|slot| slot.ready && slot.awake().is_some_and(has_nothing_to_publish))
        {
            self.change(now, index, |_, _| {});
        }
    }

    /// Lets `act` change a connection, and publishes what comes of it.
    pub(super) fn change(
        &mut self,
        now: Instant,
        index: u32,
        act: impl FnOnce(&mut Connection, &mut Context),
    ) {
        let Some((slot, generation)) = self.slots.named_mut(index) else {
            return;
        };
        let id = ConnectionId { index, generation };
        act(slot.connection_mut(), self.shared.at(now));
        if publish(slot, id, &mut self.live.ready, &mut self.events) {
            self.reap(now, index);
        }
    }

    /// Makes the record of a connection that is over. Frees it at once if nothing waits for it and
    /// nothing is left of it here.
    pub(super) fn reap(&mut self, now: Instant, index: u32) {
        self.forget_stall(index);
        let stays_whole = self.shared.config.time_wait.state == TimeWaitState::Full;
        let Host { slots, live: Live { timers, demux, block_pool, orphans, ready, .. }, .. } = self;
        let fin_wait_2 = &mut self.closed.fin_wait_2;
        let (shared, ip, isns) = (&mut self.shared, &self.ip, &self.opening.isns);
        let (records, replies) = (&mut self.closed.time_wait, &mut self.replies);
        let mut whole = None;
        let goes = |slot: &mut Slot| {
            if core::mem::take(&mut slot.listed) {
                // What is left of it is found elsewhere from here on.
                let hash = slot.tuple_hash;
                if core::mem::take(&mut slot.woken) {
                    fin_wait_2.end(hash, &slot.tuple);
                }
                demux.remove(hash, index);
                if stays_whole && slot.enters_time_wait() {
                    whole = slot.connection_mut().take_final_state();
                    if whole.is_some() {
                        return false;
                    }
                }
                if let Some(final_state) = slot.awake().and_then(Connection::final_state) {
                    let mut entrance = Entrance { shared, ip, isns, records, replies };
                    entrance.enter(now, hash, &slot.tuple, final_state);
                    slot.connection_mut().keep_final_state(None);
                }
            }
            if slot.ready {
                return false;
            }
            let is_finished = slot.awake().is_some_and(Connection::is_finished);
            if !is_finished {
                slot.ready = true;
                ready.push_back(index);
            }
            is_finished
        };
        empty_slot(slots, index, timers, block_pool, orphans, goes);
        if let Some(final_state) = whole {
            self.enter_whole(now, index, &final_state);
            self.reap(now, index);
        }
    }

    /// Frees the slot of a connection that its user has left and that has nothing more to send.
    pub(super) fn free_connection(&mut self, index: u32) {
        self.forget_stall(index);
        let Host { slots, live: Live { timers, demux, block_pool, orphans, .. }, .. } = self;
        let goes = |slot: &mut Slot| {
            if slot.listed {
                demux.remove(slot.tuple_hash, index);
            }
            true
        };
        empty_slot(slots, index, timers, block_pool, orphans, goes);
    }

    /// Tells the user of that connection what it has to tell, and nothing else.
    pub(super) fn tell_notices(&mut self, id: ConnectionId) {
        let Some(slot) = self.slots.get_mut(id.index) else { return };
        let connection = slot.connection_mut();
        let notices = connection.take_notices();
        if !connection.orphan {
            tell(&mut self.events, slot, id, notices);
        }
    }

    pub(super) fn make_ready(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            make_ready(slot, index, &mut self.live.ready);
        }
    }
}

/// Empties slot `index` if the connection in it `goes`. Its entry among the timers stays there.
fn empty_slot(
    slots: &mut Slots,
    index: u32,
    timers: &mut Timers,
    block_pool: &mut BlockPool,
    orphans: &mut usize,
    goes: impl FnOnce(&mut Slot) -> bool,
) {
    let leave = |slot: &mut Slot, timers: &mut Timers| {
        if !goes(slot) {
            return None;
        }
        *orphans -= usize::from(slot.is_orphan());
        slot.leave(block_pool);
        Some(timers.hand_on(index, slot.filed))
    };
    slots.leave(index, timers, leave, |index, filed, timers| timers.forget_left(index, filed));
}

/// True if there is nothing to report about the connection, and it goes on.
fn has_nothing_to_publish(connection: &Connection) -> bool {
    connection.notices.is_empty() && !connection.is_over()
}

/// Publishes what comes of a change to the connection in `slot`, and puts it on the ready list.
/// True if it is over: then that is for [`Host::reap`].
#[inline(always)]
pub(super) fn publish(
    slot: &mut Slot,
    id: ConnectionId,
    ready: &mut Fifo<u32>,
    events: &mut Fifo<Event>,
) -> bool {
    let connection = slot.connection_mut();
    let notices = connection.take_notices();
    let (is_over, is_orphan) = (connection.is_over(), connection.orphan);
    if !is_orphan {
        tell(events, slot, id, notices);
    }
    if !is_over {
        make_ready(slot, id.index, ready);
    }
    is_over
}

/// Puts the connection in `slot`, which is number `index`, among those that are to be flushed.
pub(super) fn make_ready(slot: &mut Slot, index: u32, ready: &mut Fifo<u32>) {
    if !slot.ready {
        slot.ready = true;
        ready.push_back(index);
    }
}

/// Tells the user of the connection in `slot`, once it is accepted, of `notices`.
#[inline(always)]
fn tell(events: &mut Fifo<Event>, slot: &mut Slot, id: ConnectionId, notices: Readiness) {
    if notices.is_empty() || slot.accepting.is_some() {
        return;
    }
    if slot.announced.is_empty() {
        events.push_back(Event::Ready(id, Readiness::EMPTY));
    }
    slot.announced |= notices;
}
