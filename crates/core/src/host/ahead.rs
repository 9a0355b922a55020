//! Reading ahead: what a burst of frames will touch is fetched for all of them at once.
//!
//! ```text
//!   frames ─▶ hashes ─▶ lines of the indexes ─▶ slots ─▶ connections ─▶ the frames, one by one
//! ```
//!
//! With many connections about, each frame leads to memory that no cache holds: to a line of an
//! index, from there to a slot, and from there to the connection. Frame by frame, all of them would
//! be waited for in turn. Step by step for a whole burst, a dozen come in the time of one.
//!
//! It decides nothing. What was found out of a frame alone is handed over with it; but a frame may
//! open, close or take the place of what a later one looks up, so where that leads is a guess,
//! which is checked when its turn comes.

use super::Host;
use super::demux::{Line, NONE};
use super::slot::Slot;
use crate::frame::{BURST, RxFrame};
use crate::tcp::Tuple;
use crate::wire::glance::{self, Glance};
use crate::wire::usual::Usual;

/// Entries of a table from which on it pays to read ahead: of fewer, the second cache holds most.
/// Tests have no more than some.
const MANY: usize = if cfg!(test) { 4 } else { 1 << 15 };

/// The same for a line of the index alone: of fewer entries, the first cache holds most.
const MANY_LINES: usize = if cfg!(test) { 1 } else { 1 << 11 };

/// What a frame seems to be, before it is taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight<'a> {
    /// The segment of the usual kind in it, if it is that.
    pub(super) usual: Option<Usual<'a>>,
    /// The hash of its tuple.
    pub(super) hash: u64,
    /// The slot that its connection is in, if it is in any, if that has not changed, and no other
    /// has such a hash.
    pub(super) slot: u32,
}

impl Sight<'_> {
    /// Nothing that is known.
    pub(super) const NOTHING: Sight<'static> = Sight { usual: None, hash: 0, slot: 0 };
}

impl Host {
    /// True if some table is so large that what frames touch is likely to lie far away.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.has_many_connections() || self.has_many_records()
    }

    /// The same of connections.
    #[inline]
    fn has_many_connections(&self) -> bool {
        self.demux.len() >= MANY
    }

    /// The same of what is left of those that are closed, or closing.
    #[inline]
    fn has_many_records(&self) -> bool {
        let records = self.time_wait.len().max(self.fin_wait_2.records().len());
        records.max(self.lingering.len()) >= MANY
    }

    /// Fetches what is looked at first where the next connection of ours is likely to begin, if
    /// that lies far away.
    #[inline]
    pub(super) fn read_likely_ahead(&mut self) {
        let with_records = self.has_many_records();
        if self.demux.len() < MANY_LINES && !with_records {
            return;
        }
        let (tuple, hash) = self.ports.foresee(|tuple| self.hasher.hash(tuple));
        self.demux.read_ahead(hash);
        if with_records {
            self.read_records_ahead(hash, &tuple);
        }
    }

    #[inline(never)]
    fn read_records_ahead(&self, hash: u64, tuple: &Tuple) {
        self.time_wait.read_ahead(hash, tuple);
        self.fin_wait_2.records().read_ahead(hash, tuple);
        self.lingering.read_ahead(hash);
    }

    /// What is in a packet.
    #[inline(always)]
    pub(super) fn sight<'a>(&self, packet: &'a [u8]) -> Sight<'a> {
        let Some(usual) = Usual::parse(packet) else { return Sight::NOTHING };
        let hash = self.hasher.hash(&usual.tuple());
        Sight { usual: Some(usual), hash, slot: self.demux.glance(hash) }
    }

    /// Notes what is in each of these frames, [`BURST`] at most, and fetches what they lead to. Of
    /// each it is noted at the place that is as many frames as come behind it.
    #[inline(always)]
    pub(super) fn look_ahead<'a>(&self, frames: &[RxFrame<'a>], seen: &mut [Sight<'a>; BURST]) {
        let mut lines = [None; BURST];
        let seen = &mut seen[..frames.len().min(BURST)];
        if self.has_many_records() {
            self.hash_all::<true>(frames, seen, &mut lines);
        } else {
            self.hash_all::<false>(frames, seen, &mut lines);
        }
        if self.has_many_connections() {
            self.find_all::<true>(seen, &lines);
        } else {
            self.find_all::<false>(seen, &lines);
        }
    }

    /// Hashes what these frames are for, and finds its lines of the index. `RECORDS`: there are
    /// many of closed connections.
    #[inline(always)]
    fn hash_all<'s, 'a, const RECORDS: bool>(
        &'s self,
        frames: &[RxFrame<'a>],
        seen: &mut [Sight<'a>],
        lines: &mut [Option<&'s Line>; BURST],
    ) {
        let link = self.link_bytes();
        for ((sight, line), frame) in seen.iter_mut().rev().zip(lines).zip(frames) {
            let packet = frame.bytes.get(link..);
            match packet.and_then(Usual::parse) {
                Some(usual) => {
                    sight.usual = Some(usual);
                    sight.hash = self.hash_ahead::<RECORDS>(&usual.glance());
                }
                None => sight.hash = self.hash_unusual::<RECORDS>(packet),
            }
            *line = self.demux.read_ahead(sight.hash);
        }
    }

    /// Finds the connections that they are for. `FAR`: of those there are many.
    #[inline(always)]
    fn find_all<const FAR: bool>(&self, seen: &mut [Sight<'_>], lines: &[Option<&Line>; BURST]) {
        for (sight, line) in seen.iter_mut().rev().zip(lines) {
            sight.slot = line.map_or(NONE, |line| line.glance(sight.hash));
            if FAR {
                // The processor goes on to the next frames while it waits for the slot.
                self.slots.read_ahead(sight.slot, 0);
                self.slots.get(sight.slot).into_iter().for_each(Slot::read_ahead);
            }
        }
    }

    /// The hash of what seems to be in a packet; what may be left of its connection is fetched.
    #[inline(always)]
    fn hash_ahead<const RECORDS: bool>(&self, Glance { tuple, turns }: &Glance) -> u64 {
        let hash = self.hasher.hash(tuple);
        if RECORDS && *turns {
            self.read_records_ahead(hash, tuple);
        }
        hash
    }

    #[inline(never)]
    fn hash_unusual<const RECORDS: bool>(&self, packet: Option<&[u8]>) -> u64 {
        let glance = packet.and_then(glance::at);
        glance.map_or(0, |glance| self.hash_ahead::<RECORDS>(&glance))
    }
}
