//! What few connections have to keep: the record of a source, urgent data, ends of records, a
//! narrow path, a pace, an account, and counts of what went wrong. One that never sends anything
//! again, and whose application says nothing, has none.

use alloc::boxed::Box;

use super::SendHalf;
use super::narrow::Narrow;
use super::record_ends::RecordEnds;
use super::source::Source;
use crate::flow::Seq;
use crate::tcp::account::Ledger;
use crate::tcp::congestion::pacer::Pacer;
use crate::time::Instant;

/// In a box of its own, also at rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    /// The record of the source, if the application has described one.
    pub source: Option<Source>,
    /// One past the last urgent byte, while it is ahead of SND.UNA.
    urgent: Option<Seq>,
    /// Where records end that are not acknowledged.
    pub record_ends: Option<Box<RecordEnds>>,
    /// What it counts in, if its socket asks for an account.
    pub ledger: Option<Box<Ledger>>,
    /// When its bursts leave, if it is paced.
    pub pacer: Option<Box<Pacer>>,
    /// What went wrong.
    pub tally: Tally,
    /// The search for what the path carries, if that is less than the peer takes.
    pub narrow: Option<Narrow>,
}

impl Rare {
    /// True if each segment, in and out, is counted or paced.
    fn takes_steps(&self) -> bool {
        self.ledger.is_some() || self.pacer.is_some()
    }

    fn is_marked(&self) -> bool {
        self.urgent.is_some() || self.record_ends.is_some()
    }

    /// Everything before `una` is acknowledged.
    fn pass_marks(&mut self, una: Seq) {
        self.urgent = self.urgent.filter(|urgent| urgent.after(una));
        self.record_ends = self.record_ends.take().and_then(|ends| ends.rest(una));
    }

    /// True if it has nothing but counts of reordering. A path that reorders does so to all, and
    /// none shall be larger at rest for that.
    pub(crate) fn is_of_reordering_alone(&self) -> bool {
        let Rare { source, urgent, record_ends, ledger, pacer, tally, narrow } = self;
        let &Tally { reorderings, overtaken_bytes, .. } = tally;
        let is_alone = source.is_none()
            && urgent.is_none()
            && record_ends.is_none()
            && ledger.is_none()
            && pacer.is_none()
            && narrow.is_none();
        is_alone && *tally == Tally { reorderings, overtaken_bytes, ..Tally::default() }
    }

    /// That of a connection whose account begins at `now`, when it is established.
    pub(crate) fn with_account(now: Instant) -> Box<Rare> {
        let mut ledger = Box::new(Ledger::new(now));
        ledger.on_established();
        Box::new(Rare { ledger: Some(ledger), ..Rare::default() })
    }

    /// What is kept of it while the connection rests.
    pub(crate) fn at_rest(&self) -> Box<Rare> {
        let mut rest = Box::new(self.clone());
        if let Some(ledger) = &mut rest.ledger {
            ledger.rest();
        }
        if let Some(pacer) = &mut rest.pacer {
            pacer.rest();
        }
        rest
    }
}

/// Counts of one connection since it began, as far as can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Segments sent again.
    pub retransmits: u32,
    /// Bytes of data in them.
    pub resent_bytes: u64,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// ACKs that reported a duplicate (RFC 2883).
    pub duplicate_sacks: u32,
    /// Recoveries that were not needed, and undone.
    pub undone: u32,
    /// Segments that arrived out of order.
    pub out_of_order: u32,
    /// ACKs that showed reordering.
    pub reorderings: u32,
    /// Bytes that had overtaken what was late, at most.
    pub overtaken_bytes: u32,
}

impl SendHalf {
    /// What went wrong.
    pub(crate) fn tally(&self) -> Tally {
        self.rare.as_ref().map_or(Tally::default(), |rare| rare.tally)
    }

    /// What went wrong, to be added to.
    pub(crate) fn tally_mut(&mut self) -> &mut Tally {
        &mut self.rare_mut().tally
    }

    /// An ACK shows that the path has reordered; so many bytes had overtaken what was late, as far
    /// as is known.
    pub(super) fn note_reordering(&mut self, overtaken_bytes: u32) {
        let tally = self.tally_mut();
        tally.reorderings = tally.reorderings.saturating_add(1);
        tally.overtaken_bytes = tally.overtaken_bytes.max(overtaken_bytes);
    }

    /// One past the last urgent byte, while it is ahead of SND.UNA.
    pub(crate) fn urgent(&self) -> Option<Seq> {
        self.rare.as_ref()?.urgent
    }

    /// What ends at `end` is urgent.
    pub(crate) fn set_urgent(&mut self, end: Seq) {
        self.rare_mut().urgent = Some(end);
    }

    /// Where records end that are not acknowledged.
    pub(super) fn record_ends(&self) -> Option<&RecordEnds> {
        self.rare.as_ref()?.record_ends.as_deref()
    }

    /// True if urgent data or the end of a record is ahead of SND.UNA: not every segment is like
    /// the others.
    pub(crate) fn is_marked(&self) -> bool {
        self.rare.as_deref().is_some_and(Rare::is_marked)
    }

    /// True if the segments to be sent are not like those of others, or are counted or paced, or
    /// may learn something of a narrow path, which now carries `path_mss`.
    pub(crate) fn is_unusual(&self, path_mss: u16) -> bool {
        let of = |rare: &Rare| rare.is_marked() || rare.takes_steps() || self.heeds_path(path_mss);
        self.rare.as_deref().is_some_and(of)
    }

    /// True if each segment, in and out, is counted or paced.
    pub(crate) fn takes_steps(&self) -> bool {
        self.rare.as_deref().is_some_and(Rare::takes_steps)
    }

    /// Everything before `una` is acknowledged.
    pub(super) fn pass_marks(&mut self, una: Seq) {
        if let Some(rare) = &mut self.rare {
            rare.pass_marks(una);
        }
    }

    /// The record of the source, if the application has described one.
    pub(super) fn source(&self) -> Option<&Source> {
        self.rare.as_ref()?.source.as_ref()
    }

    /// The record of the source, if the application has described one.
    pub(super) fn source_mut(&mut self) -> Option<&mut Source> {
        self.rare.as_mut()?.source.as_mut()
    }

    /// The record of the source, made if there is none.
    pub(super) fn source_or_new(&mut self) -> &mut Source {
        self.rare_mut().source.get_or_insert_default()
    }

    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(Box::default)
    }
}
