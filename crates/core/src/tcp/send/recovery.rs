//! Loss recovery: why segments are being sent again, and how far that has come.
//!
//! One picture serves fast recovery with SACK (RFC 6675), without it (NewReno, RFC 6582) and the
//! slow start after a timeout (RFC 6298 §5). What is lost is marked in the
//! `Flight`; here is kept up to where it has been judged.
//!
//! ```text
//!   una        high_rxt        judged               nxt
//!    │ sent again │ lost, waiting │  still in flight │
//!    ▼            ▼               ▼                  ▼
//! ```
//!
//! A connection has one only from the first sign that something is missing (a block sacked, a
//! duplicate ACK, a timeout) until all of that is behind.

use alloc::boxed::Box;

use super::frto::Frto;
use super::prr::Prr;
use super::rack::Rack;
use super::undo::Undo;
use crate::config::LossDetection;
use crate::flow::Seq;
use crate::tcp::Settings;
pub use crate::tcp::congestion::Mode;
use crate::time::Instant;
use crate::wire::options::SackBlock;

/// How the losses of a connection are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detection {
    /// By duplicate ACKs: the peer sends no SACK blocks (RFC 5681, RFC 6582).
    Duplicates,
    /// By how much is sacked beyond a hole (RFC 6675).
    Count,
    /// By when it left (RFC 8985).
    Rack,
}

impl Detection {
    /// With a peer that sends SACK blocks, or not.
    pub(crate) fn of(sack: bool, config: &Settings) -> Detection {
        match (sack, config.detection) {
            (false, _) => Detection::Duplicates,
            (true, LossDetection::Count) => Detection::Count,
            (true, LossDetection::Rack) => Detection::Rack,
        }
    }
}

/// What the retransmission timer is set for: one timer serves all (RFC 8985 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The retransmission timeout.
    Timeout,
    /// A range that is late.
    Late,
    /// A tail that nobody acknowledges.
    Tail,
}

/// The loss probe of a tail (RFC 8985 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// There is none.
    None,
    /// It is to be sent.
    Due,
    /// It was sent, and is not answered.
    Sent {
        /// TLP.end_seq: SND.NXT behind it.
        end: Seq,
        /// TLP.is_retrans: it was sent before.
        again: bool,
    },
}

/// The recovery of one connection.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Why, if at all.
    pub mode: Mode,
    /// The first retransmission leaves whatever the window says (RFC 6675 §5 step 4.3).
    pub force: bool,
    /// The one rescue retransmission of a recovery is spent (RFC 6675 §4, NextSeg rule 4).
    pub rescued: bool,
    /// The window is not reduced, since a probe of the path was lost and nothing else (RFC 4821
    /// §7.6.2).
    pub is_spared: bool,
    /// Recovery ends when this is acknowledged (RFC 6675's RecoveryPoint, RFC 6582's recover).
    pub point: Seq,
    /// HighRxt: bytes below have been sent again, or are sacked.
    pub high_rxt: Seq,
    /// Bytes below are lost, unless sacked.
    pub judged: Seq,
    /// Duplicate ACKs in a row.
    pub dup_acks: u32,
    /// What was in flight when the duplicates began: what limited transmit adds does not count
    /// towards the threshold (RFC 5681 §3.2 step 2).
    flight_before: u32,
    /// What is known of times.
    pub rack: Rack,
    /// No retransmission carries an older timestamp than this time's.
    pub stamped: Instant,
    /// The loss probe.
    pub probe: Probe,
    /// How the window is reduced, in a recovery by time.
    pub prr: Option<Prr>,
    /// What undoes it, if it was not needed.
    pub undo: Option<Undo>,
    /// How far a timeout has been judged.
    pub frto: Frto,
}

impl Recovery {
    /// Nothing is missing yet; `una` is SND.UNA.
    pub(crate) fn new(una: Seq) -> Self {
        Recovery {
            mode: Mode::Open,
            force: false,
            rescued: false,
            is_spared: false,
            point: una - 1,
            high_rxt: una,
            judged: una,
            dup_acks: 0,
            flight_before: 0,
            rack: Rack::default(),
            stamped: Instant::ZERO,
            probe: Probe::None,
            prr: None,
            undo: None,
            frto: Frto::Off,
        }
    }

    /// What is kept with SND.UNA at `una` of the last recovery, which ended at `point`: nothing
    /// once more than that is acknowledged.
    pub(crate) fn after(point: Seq, una: Seq) -> Option<Box<Recovery>> {
        let is_behind = point.before(una);
        (!is_behind).then(|| Box::new(Recovery { point, ..Recovery::new(una) }))
    }

    /// True if nothing is sent again, and no duplicate ACK has come.
    pub(crate) fn is_calm(&self) -> bool {
        self.mode == Mode::Open && self.dup_acks == 0
    }

    /// Starts a recovery, in which nothing is judged yet; it ends when `nxt` is acknowledged.
    pub(crate) fn enter(&mut self, mode: Mode, una: Seq, nxt: Seq) {
        (self.mode, self.force, self.rescued, self.is_spared) = (mode, true, false, false);
        (self.point, self.high_rxt, self.judged) = (nxt, una, una);
        (self.probe, self.prr, self.undo) = (Probe::None, None, None);
        self.frto = Frto::Off;
    }

    /// True if it says no more than a new one would, where nothing is missing.
    pub(crate) fn is_behind(&self, una: Seq) -> bool {
        let is_probed = self.probe != Probe::None;
        let may_be_undone = self.undo.as_ref().is_some_and(|undo| una.before(undo.until));
        self.point.before(una) && !is_probed && !may_be_undone && !self.rack.has_dsack_round(una)
    }

    /// True if a loss probe may be sent: none is under way, and nothing is recovered.
    pub(crate) fn may_probe(&self) -> bool {
        self.mode == Mode::Open && self.probe == Probe::None
    }

    /// The bytes from `start` to `end` were sent again, with the timestamp of the time `stamped`.
    pub(crate) fn on_sent_again(&mut self, start: Seq, end: Seq, stamped: Instant) {
        (self.force, self.stamped) = (false, stamped);
        self.on_new_sent(end.since(start));
        if let Some(undo) = &mut self.undo {
            undo.on_sent_again(start, end, stamped);
        }
    }

    /// So many bytes of new data have left.
    pub(crate) fn on_new_sent(&mut self, bytes: u32) {
        if let Some(prr) = &mut self.prr {
            prr.on_sent(bytes);
        }
    }

    /// What has left, new or `again`, was the loss probe, if one was due. SND.NXT is `nxt` now.
    pub(crate) fn note_probe(&mut self, nxt: Seq, again: bool) {
        if self.probe == Probe::Due {
            self.probe = Probe::Sent { end: nxt, again };
        }
    }

    /// True if the D-SACK tells that the loss probe was in vain (RFC 8985 §7.4.2, case 1): it ends
    /// where that did, FIN left out or not.
    pub(crate) fn is_of_probe(&self, duplicate: Option<SackBlock>) -> bool {
        let Probe::Sent { end, again: true } = self.probe else { return false };
        duplicate.is_some_and(|block| block.end == end || block.end == end - 1)
    }

    /// True while segments are being sent again.
    pub(crate) fn is_active(&self) -> bool {
        self.mode != Mode::Open
    }

    /// The recovery is over.
    pub(crate) fn end(&mut self) {
        (self.mode, self.force, self.prr) = (Mode::Open, false, None);
        self.frto = Frto::Off;
    }

    /// A duplicate ACK has come, with `flight` bytes out.
    pub(crate) fn on_duplicate(&mut self, flight: u32) {
        if self.dup_acks == 0 {
            self.flight_before = flight;
        }
        self.dup_acks += 1;
    }

    /// What was in flight when the duplicates began, if there are any; else `flight`.
    pub(crate) fn flight_before(&self, flight: u32) -> u32 {
        if self.dup_acks > 0 { flight.min(self.flight_before) } else { flight }
    }

    /// SND.UNA has come to `una`. True if that ends the recovery.
    pub(crate) fn advance_to(&mut self, una: Seq) -> bool {
        if !self.is_active() {
            // The last recovery is behind; an old number would seem ahead after 2 GiB.
            (self.point, self.high_rxt, self.judged) = (una - 1, una, una);
            return false;
        }
        self.high_rxt = self.high_rxt.max(una);
        self.judged = self.judged.max(una);
        let over = una.at_or_after(self.point);
        if over {
            self.end();
        }
        over
    }
}
