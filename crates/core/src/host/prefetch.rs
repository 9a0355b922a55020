//! Prefetching: what a burst of frames will touch is fetched for all of them at once.
//!
//! ```text
//!   frames ─▶ hashes ─▶ lines of the indexes ─▶ slots ─▶ connections ─▶ the frames, one by one
//! ```
//!
//! With many connections about, each frame leads to memory that no cache holds: to a line of an
//! index, from there to a slot, and from there to the connection. Frame by frame, all of them would
//! be waited for in turn. Step by step for a whole burst, a dozen come in the time of one.
//!
//! Where nearly all connections rest, the few busy ones lie in memory that was just used: the walk
//! ends at the index then.
//!
//! A prefetch decides nothing. The facts that were found from a frame alone are handed over with
//! it. But a frame may open, close or take the place of what a later frame looks up, so where that
//! leads is a guess, which is checked when its turn comes.

use super::Host;
use super::inbound::Hinted;
use crate::flow::Tuple;
use crate::frame::{BURST, RxFrame};
use crate::tcp::demux::Bucket;
use crate::tcp::slot::Slot;
use crate::wire::fast::FastSegment;
use crate::wire::peek::{self, Peeked};

/// Entries of a table from which on it pays to read ahead: of fewer, the second cache holds most. A
/// power of two.
pub(super) const MANY: usize = 1 << 15;

/// Entries from which on it pays to fetch the index's line alone: of fewer, the first cache holds
/// most.
pub(super) const MANY_LINES: usize = 1 << 11;

/// What is kept of the frames of a burst from when they are looked at until they are taken in: in
/// their order, as far as there are any.
#[derive(Debug, Default)]
pub(super) struct Notes {
    hashes: [u64; BURST],
    packets: [Noted; BURST],
}

#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    /// The slot that its connection may be in.
    hint: u32,
    /// Bytes of the packet; 0 if it does not have the fast layout.
    len: u32,
}

impl Notes {
    /// The notes about `packet`, which was at `position` in the burst.
    #[inline(always)]
    pub(super) fn hinted<'a>(&self, position: usize, packet: &'a [u8]) -> Option<Hinted<'a>> {
        let position = position % BURST;
        let Noted { hint, len } = self.packets[position];
        let fast = FastSegment::of_parsed(packet.get(..len as usize)?)?;
        Some(Hinted { fast, hash: self.hashes[position], hint })
    }
}

impl Host {
    /// True if some table is so large that what frames touch is likely to lie far away.
    pub(super) fn is_crowded(&self) -> bool {
        self.has_many_connections() || self.has_many_records()
    }

    /// True if the table of connections is so large that what frames touch is likely to lie far
    /// away.
    fn has_many_connections(&self) -> bool {
        self.live.demux.len() >= MANY
    }

    /// True if so many connections are busy that their blocks are likely to lie far away.
    fn has_many_at_work(&self) -> bool {
        self.live.block_pool.in_use() >= MANY
    }

    /// True if the tables of closed and closing connections are so large that their records are
    /// likely to lie far away.
    fn has_many_records(&self) -> bool {
        // Numbers ORed together reach a power of two if one of them does, and only then.
        let records = self.closed.time_wait.len() | self.closed.fin_wait_2.records().len();
        (records | self.closed.whole_blocks.len()) >= MANY
    }

    /// Fetches what is looked at first where the next connection of ours is likely to begin, if
    /// that lies far away.
    pub(super) fn prefetch_likely(&mut self) {
        let with_records = self.has_many_records();
        if self.live.demux.len() < MANY_LINES && !with_records {
            return;
        }
        let (tuple, hash) = self.opening.ports.foresee(|tuple| self.live.hasher.hash(tuple));
        self.live.demux.prefetch(hash);
        if with_records {
            self.read_records_ahead(hash, &tuple);
        }
    }

    fn read_records_ahead(&self, hash: u64, tuple: &Tuple) {
        self.closed.time_wait.prefetch(hash, tuple);
        self.closed.fin_wait_2.records().prefetch(hash, tuple);
        self.closed.whole_blocks.prefetch(hash);
    }

    /// Notes what is in each of these frames, [`BURST`] at most, and fetches what they lead to.
    pub(super) fn prefetch_burst(&self, frames: &[RxFrame<'_>], notes: &mut Notes) {
        let mut lines = [Bucket::NOTHING; BURST];
        let count = frames.len().min(BURST);
        let (frames, lines) = (&frames[..count], &mut lines[..count]);
        if self.has_many_records() {
            self.hash_all::<true>(frames, notes, lines);
        } else {
            self.hash_all::<false>(frames, notes, lines);
        }
        if self.has_many_at_work() {
            self.find_all::<true>(notes, lines);
        } else {
            self.find_all::<false>(notes, lines);
        }
    }

    /// Hashes what these frames are for, and finds its lines of the index. `RECORDS`: there are
    /// many of closed connections.
    fn hash_all<'s, const RECORDS: bool>(
        &'s self,
        frames: &[RxFrame<'_>],
        notes: &mut Notes,
        lines: &mut [&'s Bucket],
    ) {
        let link = self.link_bytes();
        let noted = notes.hashes.iter_mut().zip(&mut notes.packets);
        for (((hash, note), line), frame) in noted.zip(lines).zip(frames) {
            let packet = frame.bytes.get(link..);
            (*hash, note.len) = match packet.and_then(FastSegment::parse) {
                Some(fast) => {
                    (self.hash_and_prefetch::<RECORDS>(&fast.peeked()), fast.packet_len())
                }
                None => (self.hash_unusual::<RECORDS>(packet), 0),
            };
            *line = self.live.demux.prefetch(*hash);
        }
    }

    /// Finds the connections that they are for. `FAR`: their blocks are fetched.
    fn find_all<const FAR: bool>(&self, notes: &mut Notes, lines: &[&Bucket]) {
        let noted = notes.hashes.iter().zip(&mut notes.packets);
        for ((hash, note), line) in noted.zip(lines) {
            note.hint = line.first_guess(*hash);
            if FAR {
                // The processor goes on to the next frames while it waits for the slot.
                self.slots.prefetch(note.hint, 0);
                self.slots.get(note.hint).into_iter().for_each(Slot::prefetch);
            }
        }
    }

    /// The hash of what seems to be in a packet; what may be left of its connection is fetched.
    fn hash_and_prefetch<const RECORDS: bool>(&self, Peeked { tuple, turns }: &Peeked) -> u64 {
        let hash = self.live.hasher.hash(tuple);
        if RECORDS && *turns {
            self.read_records_ahead(hash, tuple);
        }
        hash
    }

    fn hash_unusual<const RECORDS: bool>(&self, packet: Option<&[u8]>) -> u64 {
        let peeked = packet.and_then(peek::at);
        peeked.map_or(0, |peeked| self.hash_and_prefetch::<RECORDS>(&peeked))
    }
}
