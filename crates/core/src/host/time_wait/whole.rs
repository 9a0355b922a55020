//! TIME-WAIT as 4.4BSD has it: the whole control block stays, in its slot, under its timers, in a
//! demultiplexing table as for live ones. The rules are the same as for a record of few bytes.

use alloc::collections::VecDeque;

use super::super::Host;
use crate::flow::Tuple;
use crate::slab::Key;
use crate::tcp::connection::FinalState;
use crate::tcp::demux::Demux;
use crate::tcp::slot::{self, Slot};
use crate::tcp::time_wait::{Holding, Record};
use crate::tcp::timers::{TimeWaitTerm, Timer};
use crate::time::{Duration, Instant};

/// Names of blocks that are gone, beyond as many as are there, before they are dropped.
const STALE_MAX: usize = 1024;

/// Control blocks in TIME-WAIT.
#[derive(Debug, Default)]
pub(in crate::host) struct WholeBlocks {
    /// Slots by tuple.
    blocks: Demux,
    /// In order of entry.
    order: VecDeque<Key>,
    orphans: usize,
}

impl WholeBlocks {
    /// How many there are.
    pub(in crate::host) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if there is none.
    pub(in crate::host) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Fetches what a look-up of this hash reads first, without waiting for it.
    pub(in crate::host) fn prefetch(&self, hash: u64) {
        self.blocks.prefetch(hash);
    }

    /// The blocks that have no user any more.
    pub(in crate::host) fn orphans(&self) -> usize {
        self.orphans
    }

    /// The user of one has left it.
    pub(in crate::host) fn on_orphan(&mut self) {
        self.orphans += 1;
    }
}

impl Host {
    /// The connection in slot `index` has entered TIME-WAIT and stays whole.
    pub(super) fn keep_whole(&mut self, now: Instant, index: u32, final_state: &FinalState) {
        self.shared.counters.time_wait_entered += 1;
        let is_agreed = final_state.holding == Holding::Agreed;
        self.shared.counters.time_wait_agreed += u64::from(is_agreed);
        if self.limits().time_wait == 0 {
            self.shared.counters.time_wait_evicted += 1;
            return;
        }
        while self.closed.whole_blocks.len() >= self.limits().time_wait && self.evict_whole_block()
        {
            self.shared.counters.time_wait_evicted += 1;
        }
        let generation = self.slots.generation(index);
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.connection_mut().keep_final_state(Some(*final_state));
        let (hash, is_orphan) = (slot.tuple_hash, slot.is_orphan());
        self.closed.whole_blocks.blocks.insert(hash, index, slot::hash_in(&self.slots));
        self.closed.whole_blocks.order.push_back(Key { index, generation });
        if is_orphan {
            self.live.orphans -= 1;
            self.closed.whole_blocks.orphans += 1;
        }
        self.restart_whole_block(now, index, None);
        self.drop_stale_names();
    }

    /// 2·MSL begin, or start over, because of a segment of this TSval if timestamps are used.
    pub(super) fn restart_whole_block(&mut self, now: Instant, index: u32, stamp: Option<u32>) {
        let Some(tuple) = self.slots.get(index).map(|slot| slot.tuple) else { return };
        let duration = self.term(&tuple);
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        if let Some(final_state) = connection.final_state().copied() {
            let stamp = final_state.stamp.and(stamp).or(final_state.stamp);
            connection.keep_final_state(Some(FinalState { stamp, ..final_state }));
        }
        slot.enter_time_wait(&mut self.live.timers, index, TimeWaitTerm { now, duration });
    }

    /// 2·MSL of a connection between the ends of `tuple`.
    fn term(&self, tuple: &Tuple) -> Duration {
        self.shared.config.time_wait_terms()[self.distance(tuple) as usize]
    }

    /// The slot of the block of `tuple`.
    pub(super) fn whole_block_of(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        self.closed.whole_blocks.blocks.find(hash, slot::has_tuple(&self.slots, tuple))
    }

    /// The block of `tuple` as a record, which the rules want.
    pub(super) fn whole_block_record(&self, hash: u64, tuple: &Tuple) -> Option<Record> {
        let index = self.whole_block_of(hash, tuple)?;
        let connection = self.slots.get(index)?.awake()?;
        let final_state = connection.final_state()?;
        let (duration, expires) = (self.term(tuple), connection.deadlines.at(Timer::Lifetime));
        Some(Record::new(*tuple, final_state, expires - duration, duration))
    }

    /// The block in slot `index` leaves TIME-WAIT; without a user it goes.
    pub(in crate::host) fn end_whole_block(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        if connection.take_final_state().is_none() {
            return;
        }
        connection.deadlines.clear();
        self.live.timers.forget(index, &mut slot.filed);
        self.closed.whole_blocks.blocks.remove(slot.tuple_hash, index);
        if slot.is_orphan() {
            self.closed.whole_blocks.orphans -= 1;
            self.live.orphans += 1;
        }
        self.retire(index);
    }

    /// The block that entered first goes; false if there is none.
    fn evict_whole_block(&mut self) -> bool {
        while let Some(key) = self.closed.whole_blocks.order.pop_front() {
            if self.is_in_time_wait(key) {
                self.end_whole_block(key.index);
                return true;
            }
        }
        false
    }

    fn is_in_time_wait(&self, Key { index, generation }: Key) -> bool {
        let slot = self.slots.get(index).filter(|_| self.slots.is_current(index, generation));
        slot.is_some_and(Slot::is_in_time_wait)
    }

    /// Blocks that ended leave their names in the order. They are dropped from its front, two for
    /// one that enters, and when they outnumber those that are there all at once.
    fn drop_stale_names(&mut self) {
        for _ in 0..2 {
            let Some(&key) = self.closed.whole_blocks.order.front() else { return };
            if self.is_in_time_wait(key) {
                break;
            }
            self.closed.whole_blocks.order.pop_front();
        }
        if self.closed.whole_blocks.order.len() <= 2 * self.closed.whole_blocks.len() + STALE_MAX {
            return;
        }
        let mut order = core::mem::take(&mut self.closed.whole_blocks.order);
        order.retain(|key| self.is_in_time_wait(*key));
        self.closed.whole_blocks.order = order;
    }
}
