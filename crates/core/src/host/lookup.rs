//! The look-up of a TCP segment: where its connection may be, and the segment that has none.
//!
//! ```text
//!   wire::fast ─▶ FastSegment, Guess ─┬─▶ the connection that the guess leads to
//!                                     └─┐
//!   IP ─▶ Packet ───────────────────────┴─▶ take_segment ─┬─▶ a connection
//!                                                         └─▶ UnmatchedSegment ─▶ dispatch
//! ```
//!
//! Nearly every segment has the fast layout and belongs to the connection that its [`Guess`] leads
//! to, which takes it at once. For any other the host looks up what it belongs to, in whichever
//! layout. One that matches no connection is an [`UnmatchedSegment`]: the records, the SYN cache
//! and the listeners are asked for it. A wrong checksum is counted only if the addresses are ours.

use super::Host;
use crate::flow::{Seq, Tuple};
use crate::frame::RxChecksum;
use crate::tcp::arrive::Facts;
use crate::tcp::syn_cache::Standing;
use crate::time::Instant;
use crate::wire::Malformed;
use crate::wire::fast::FastSegment;
use crate::wire::ip::Packet;
use crate::wire::parsed::ParsedSegment;
use crate::wire::tcp::{PlainSegment, Segment, verify_checksum};

/// Where the connection of a segment may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guess {
    /// The hash of its tuple.
    pub(super) hash: u64,
    /// The number of what it belongs to, if it belongs to anything, if that has not changed, and
    /// nothing else has such a hash.
    pub(super) index: u32,
}

/// The mistake in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Checksum,
    Malformed(Malformed),
}

/// A sound segment that matches no connection, and what else it is looked up by.
pub(super) struct UnmatchedSegment<'a> {
    pub(super) tuple: &'a Tuple,
    /// The hash of the tuple.
    pub(super) hash: u64,
    /// The segment without its options.
    pub(super) head: PlainSegment<'a>,
    pub(super) parsed: ParsedSegment<'a>,
    pub(super) facts: Facts,
    /// The peer's address is ours as well.
    pub(super) is_ours: bool,
}

/// What TIME-WAIT knows of the ends of a segment that may open a connection.
#[derive(Clone, Copy)]
pub(super) enum Past {
    /// Nothing.
    Unknown,
    /// Its time is over; the record is still there.
    Over,
    /// It may be cut short: the new ISN lies at or beyond this.
    Living(Seq),
}

/// What a handshake is completed from.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// Its entry in the SYN cache; a cookie has none.
    pub(super) entry: Option<u32>,
    /// When the SYN, ACK was sent first.
    pub(super) answered: Instant,
    /// TIME-WAIT may have a record of its ends.
    pub(super) in_time_wait: bool,
}

impl Past {
    /// The fields that an entry of the SYN cache remembers of it.
    pub(super) fn standing(self) -> Standing {
        match self {
            Past::Unknown => Standing::Unknown,
            Past::Over => Standing::Remembered,
            Past::Living(_) => Standing::Proven,
        }
    }
}

/// The segment in `packet`, whose checksum is in this state.
pub(super) fn parse<'a>(packet: &Packet<'a>, checksum: RxChecksum) -> Result<Segment<'a>, Fault> {
    let &Packet { source, destination, payload, .. } = packet;
    if checksum != RxChecksum::Good && !verify_checksum(payload, source, destination) {
        return Err(Fault::Checksum);
    }
    Segment::parse(payload).map_err(Fault::Malformed)
}

impl Host {
    /// The segment in `packet`, if that is of the fast layout, and where its connection may be.
    #[inline(always)]
    pub(super) fn parse_and_guess<'a>(&self, packet: &'a [u8]) -> Option<(FastSegment<'a>, Guess)> {
        let fast = FastSegment::parse(packet)?;
        let hash = self.live.hasher.hash(&fast.tuple());
        Some((fast, Guess { hash, index: self.live.demux.first_guess(hash) }))
    }

    pub(super) fn note_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Checksum => self.shared.counters.checksum_errors += 1,
            Fault::Malformed(reason) => self.note_malformed(reason),
        }
    }
}
