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
use super::lookup::Guess;
use crate::flow::Tuple;
use crate::frame::{BURST, RxFrame};
use crate::tcp::demux::Bucket;
use crate::tcp::slot::Slot;
use crate::wire::fast::FastSegment;
use crate::wire::peek;
use crate::wire::tcp::Flags;

/// Entries of a table from which on it pays to read ahead: of fewer, the second cache holds most. A
/// power of two.
pub(super) const MANY: usize = 1 << 15;

/// Entries from which on it pays to fetch the index's line alone: of fewer, the first cache holds
/// most.
pub(super) const MANY_LINES: usize = 1 << 11;

/// What is kept of the frames of a burst from when they are looked at until they are taken in: in
/// their order, as far as there are any.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    guesses: [Guess; BURST],
    /// Bytes of the packet; 0 if it does not have the fast layout.
    lens: [u32; BURST],
}

impl Guesses {
    /// The segment in `packet`, which was at `position` in the burst, and its guess.
    #[inline(always)]
    pub(super) fn of<'a>(
        &self,
        position: usize,
        packet: &'a [u8],
    ) -> Option<(FastSegment<'a>, Guess)> {
        let position = position % BURST;
        let fast = FastSegment::of_parsed(packet.get(..self.lens[position] as usize)?)?;
        Some((fast, self.guesses[position]))
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

    /// Guesses what each of these frames is for, [`BURST`] at most, and fetches that.
    pub(super) fn prefetch_burst(&self, frames: &[RxFrame<'_>], guesses: &mut Guesses) {
        let mut lines = [Bucket::NOTHING; BURST];
        let count = frames.len().min(BURST);
        let (frames, lines) = (&frames[..count], &mut lines[..count]);
        if self.has_many_records() {
            self.hash_all::<true>(frames, guesses, lines);
        } else {
            self.hash_all::<false>(frames, guesses, lines);
        }
        if self.has_many_at_work() {
            self.find_all::<true>(guesses, lines);
        } else {
            self.find_all::<false>(guesses, lines);
        }
    }

    /// Hashes what these frames are for, and finds its lines of the index. `RECORDS`: there are
    /// many of closed connections.
    fn hash_all<'s, const RECORDS: bool>(
        &'s self,
        frames: &[RxFrame<'_>],
        guesses: &mut Guesses,
        lines: &mut [&'s Bucket],
    ) {
        let link = self.link_bytes();
        let all = guesses.guesses.iter_mut().zip(&mut guesses.lens);
        for (((guess, len), line), frame) in all.zip(lines).zip(frames) {
            let packet = frame.bytes.get(link..);
            (guess.hash, *len) = match packet.and_then(FastSegment::parse) {
                Some(fast) => {
                    let hash = self.hash_and_prefetch::<RECORDS>(&fast.tuple(), fast.flags());
                    (hash, fast.packet_len())
                }
                None => (self.hash_unusual::<RECORDS>(packet), 0),
            };
            *line = self.live.demux.prefetch(guess.hash);
        }
    }

    /// Finds the connections that they are for. `FAR`: their blocks are fetched.
    fn find_all<const FAR: bool>(&self, guesses: &mut Guesses, lines: &[&Bucket]) {
        for (guess, line) in guesses.guesses.iter_mut().zip(lines) {
            guess.index = line.first_guess(guess.hash);
            if FAR {
                // The processor goes on to the next frames while it waits for the slot.
                self.slots.prefetch(guess.index, 0);
                self.slots.get(guess.index).into_iter().for_each(Slot::prefetch);
            }
        }
    }

    /// The hash of what seems to be in a packet; what may be left of its connection is fetched. A
    /// connection begins or ends with SYN or FIN.
    fn hash_and_prefetch<const RECORDS: bool>(&self, tuple: &Tuple, flags: Flags) -> u64 {
        let hash = self.live.hasher.hash(tuple);
        if RECORDS && flags.intersects(Flags::SYN | Flags::FIN) {
            self.read_records_ahead(hash, tuple);
        }
        hash
    }

    fn hash_unusual<const RECORDS: bool>(&self, packet: Option<&[u8]>) -> u64 {
        let peeked = packet.and_then(peek::at);
        peeked.map_or(0, |(tuple, flags)| self.hash_and_prefetch::<RECORDS>(&tuple, flags))
    }
}
