//! A TCP segment that has come in, as the host looks for what it belongs to.
//!
//! ```text
//!   frame ─┬─ wire::fast ─▶ Hinted ─┬─▶ the connection that its hash leads to
//!          │                        └─┐
//!          └─ IP ─▶ Delivery ─────────┴─▶ take_segment ─┬─▶ a connection
//!                                                       └─▶ Incoming ─▶ dispatch
//! ```
//!
//! Nearly every segment has the fast layout and belongs to the connection that its hash leads to,
//! which takes it at once. For any other the host looks up what it belongs to, whether
//! [`Received`] is by words or by fields. A segment that belongs to no connection becomes an
//! [`Incoming`]. A wrong checksum is counted only if the addresses are ours.

use alloc::borrow::Cow;

use super::Host;
use crate::flow::{Seq, Tuple};
use crate::frame::RxChecksum;
use crate::ip::input::{Delivery, Origin, Transport};
use crate::tcp::arrive::Facts;
use crate::tcp::syn_cache::Standing;
use crate::time::Instant;
use crate::wire::Malformed;
use crate::wire::fast::FastSegment;
use crate::wire::received::Received;
use crate::wire::tcp::{Plain, Segment, verify_checksum};

/// A segment of the fast layout, and where what it belongs to may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hinted<'a> {
    pub(super) fast: FastSegment<'a>,
    /// The hash of its tuple.
    pub(super) hash: u64,
    /// The number of what it belongs to, if it belongs to anything, if that has not changed, and
    /// nothing else has such a hash.
    pub(super) hint: u32,
}

/// The mistake in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Checksum,
    Malformed(Malformed),
}

/// A sound segment that belongs to no connection.
pub(super) struct Incoming<'a> {
    pub(super) tuple: &'a Tuple,
    /// The hash of the tuple.
    pub(super) hash: u64,
    /// The segment without its options.
    pub(super) head: Plain<'a>,
    pub(super) received: Received<'a>,
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

/// The segment that IP has handed over, which `bytes` are.
pub(super) fn parse<'a>(delivery: &Delivery<'_>, bytes: &'a [u8]) -> Result<Segment<'a>, Fault> {
    let &Delivery { source, destination, checksum, .. } = delivery;
    if checksum != RxChecksum::Good && !verify_checksum(bytes, source, destination) {
        return Err(Fault::Checksum);
    }
    Segment::parse(bytes).map_err(Fault::Malformed)
}

/// A segment of the fast layout as IP hands over any other, for another shard. Its checksum was
/// found right.
pub(super) fn delivery_of(fast: &FastSegment<'_>, incoming: &Incoming<'_>) -> Delivery<'static> {
    Delivery {
        transport: Transport::Tcp,
        source: incoming.tuple.remote_ip(),
        destination: incoming.tuple.local_ip(),
        traffic_class: fast.traffic_class(),
        packet: Cow::Owned(fast.bytes()),
        start: 0,
        checksum: RxChecksum::Good,
        segment_size: incoming.facts.piece,
        origin: if incoming.is_ours { Origin::Ourselves } else { Origin::Link(None) },
    }
}

impl Host {
    /// The segment in `packet`, if that is of the fast layout.
    #[inline(always)]
    pub(super) fn hinted<'a>(&self, packet: &'a [u8]) -> Option<Hinted<'a>> {
        let fast = FastSegment::parse(packet)?;
        let hash = self.live.hasher.hash(&fast.tuple());
        Some(Hinted { fast, hash, hint: self.live.demux.first_guess(hash) })
    }

    pub(super) fn note_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Checksum => self.shared.counters.checksum_errors += 1,
            Fault::Malformed(reason) => self.note_malformed(reason),
        }
    }
}
