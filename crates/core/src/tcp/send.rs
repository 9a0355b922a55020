//! The sending half of a synchronized connection: what is queued, what is in flight, and the peer's
//! window.
//!
//! ```text
//!        una           nxt        una + window
//!   ──────┼─────────────┼──────────────┼─────────▶ sequence space (RFC 9293 Figure 3)
//!         │  in flight  │   usable     │ not allowed
//! ```
//!
//! `max` is one past the highest number ever sent: it differs from `nxt` only while a zero-window
//! probe is out, which carries a byte that does not count as sent.

#[doc(hidden)]
pub mod buffer;
pub(crate) mod flight;
pub(crate) mod frto;
#[doc(hidden)]
pub mod los;
mod losses;
mod model;
pub(crate) mod narrow;
mod pace;
#[doc(hidden)]
pub mod pair;
mod prr;
pub(crate) mod rack;
pub(crate) mod rare;
mod record_ends;
#[doc(hidden)]
pub mod recovery;
mod room;
#[doc(hidden)]
pub mod rtt;
pub mod source;
mod undo;

use buffer::SendBuffer;
use flight::{Flight, Taken};
use pair::PacketPair;
use prr::Prr;
use rack::{Evidence, News, Reordering};
use rare::Rare;
use recovery::{Detection, Mode, Pending, Recovery};
use rtt::Rtt;

use alloc::boxed::Box;

use crate::buffer::PagePool;
use crate::flow::Seq;
use crate::tcp::Settings;
use crate::tcp::congestion::{Ack, AckOutcome, Congestion, Idle};
use crate::time::Instant;
use crate::wire::options::SackBlock;
use crate::wire::tcp::{PlainSegment, Segment};

/// Send sequence variables and what belongs to them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SendHalf {
    /// SND.UNA: the oldest number not acknowledged.
    pub una: Seq,
    /// SND.NXT: the next new number.
    pub nxt: Seq,
    /// One past the highest number ever sent.
    pub max: Seq,
    /// SND.WND, in bytes.
    pub window: u32,
    /// SND.WL1: SEG.SEQ of the last window update.
    pub wl1: Seq,
    /// SND.WL2: SEG.ACK of the last window update.
    pub wl2: Seq,
    /// The largest window the peer ever offered.
    pub max_window: u32,
    /// End of the last segment shorter than the MSS (Minshall's variant of Nagle's algorithm).
    pub small_end: Seq,
    /// The largest payload, without options: the peer's MSS within the path's MTU.
    pub mss: u16,
    /// The peer's shift count.
    pub scale: u8,
    /// How losses are found.
    pub detection: Detection,
    /// FIN follows the last byte of the buffer.
    pub fin_queued: bool,
    /// The next ACK repeats our FIN, if that is all that is not acknowledged.
    pub fin_again: bool,
    /// Zero-window probes sent in a row.
    pub probes: u8,
    /// What the retransmission timer is set for.
    pub timer: Pending,
    /// How much may be in flight.
    pub congestion: Congestion,
    /// RCV.NXT when FIN was queued: a peer that acknowledges our FIN has heard that all before this
    /// number arrived.
    pub told_by_fin: Seq,
    /// Recovery of lost segments; not there while none is lost.
    pub recovery: Option<Box<Recovery>>,
    /// Since when the peer has been silent: the first sending of what is in flight, or of a probe,
    /// that it has not answered; [`Instant::FAR_FUTURE`]: nothing waits for an answer.
    pub silent_since: Instant,
    /// When data was last sent.
    pub last_sent: Instant,
    /// Data to be sent, from SND.UNA on.
    pub buffer: SendBuffer,
    /// What is in flight.
    pub sent: Flight,
    /// Round-trip time and RTO.
    pub rtt: Rtt,
    /// The path's reordering.
    pub reordering: Reordering,
    /// The narrowest link's rate.
    pub pair: PacketPair,
    /// What few connections have to keep; not there for the others.
    pub rare: Option<Box<Rare>>,
}

impl SendHalf {
    /// At rest, with everything before `next` acknowledged and nothing known of the peer's window.
    #[inline(always)]
    pub(crate) fn new(next: Seq, mss: u16, congestion: Congestion, rtt: Rtt) -> SendHalf {
        SendHalf {
            una: next,
            nxt: next,
            max: next,
            window: 0,
            wl1: next,
            wl2: next,
            max_window: 0,
            small_end: next,
            mss,
            scale: 0,
            detection: Detection::Duplicates,
            fin_queued: false,
            fin_again: false,
            probes: 0,
            timer: Pending::Timeout,
            congestion,
            told_by_fin: Seq(0),
            recovery: None,
            silent_since: Instant::FAR_FUTURE,
            last_sent: Instant::ZERO,
            buffer: SendBuffer::default(),
            sent: Flight::default(),
            rtt,
            reordering: Reordering::new(false),
            pair: PacketPair::default(),
            rare: None,
        }
    }
}

/// So long a window may be unused before it is less, if bursts are paced: the non-validated period
/// (RFC 7661 §4.4).
const UNUSED_NS: u64 = 300_000_000_000;

/// The state before an acknowledgement came.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// Bytes in flight.
    flight: u32,
    /// Something was missing.
    has_holes: bool,
    /// Whether the congestion window may grow by it.
    may_grow: bool,
}

/// The first block, if it tells of what arrived twice (RFC 2883 §4): it lies below the cumulative
/// acknowledgement, or within the second block.
fn dsack(segment: &Segment<'_>) -> Option<SackBlock> {
    let mut blocks = segment.options.sack.iter();
    let first = blocks.next()?;
    let is_within = |second: SackBlock| {
        first.start.at_or_after(second.start) && first.end.at_or_before(second.end)
    };
    let is_dsack = first.end.at_or_before(segment.ack) || blocks.next().is_some_and(is_within);
    is_dsack.then_some(first)
}

/// When a segment has come.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time of the call.
    pub now: Instant,
    /// When the device got it, perhaps by another clock: compared with other such times alone.
    pub heard: Instant,
}

impl SendHalf {
    /// True if nothing is lost, nor seems to be. (What is lost is so only in a recovery.)
    pub(crate) fn misses_nothing(&self) -> bool {
        let is_calm = |recovery: &Recovery| recovery.is_calm() && self.sent.sacked() == 0;
        self.recovery.as_deref().is_none_or(is_calm)
    }

    /// Why segments are being sent again.
    pub(crate) fn mode(&self) -> Mode {
        self.recovery.as_ref().map_or(Mode::Open, |recovery| recovery.mode)
    }

    /// The recovery, begun if there is none.
    fn recovery_mut(&mut self) -> &mut Recovery {
        let una = self.una;
        self.recovery.get_or_insert_with(|| Box::new(Recovery::new(una)))
    }

    /// True if the peer accepts SACK blocks, and sends them.
    pub(crate) fn has_sack(&self) -> bool {
        self.detection != Detection::Duplicates
    }

    /// Everything in flight, in sequence numbers.
    pub(crate) fn flight(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Bytes believed to be in the network.
    pub(crate) fn pipe(&self) -> u32 {
        let Some(recovery) = &self.recovery else { return self.flight() };
        let pipe = self.flight().saturating_sub(self.sent.out_of_network(self.una));
        if self.has_sack() {
            return pipe;
        }
        // Without SACK each duplicate ACK tells of a segment that left (RFC 5681 §3.2).
        pipe.saturating_sub(recovery.dup_acks.saturating_mul(self.mss.into()))
    }

    /// The congestion window at `now`: less after a silence.
    pub(crate) fn window_now(&self, now: Instant, config: &Settings) -> u32 {
        match self.idled(now, config) {
            Some(idle) => self.congestion.window_after_idle(idle),
            None => self.congestion.window(),
        }
    }

    /// Bytes that congestion control lets out at `now`, with a congestion window of `window`: a
    /// whole `segment` at least if nothing is in the network and the pace allows it.
    pub(crate) fn allowance(&self, now: Instant, segment: u32, window: u32) -> u32 {
        if let Some(recovery) = &self.recovery {
            let room = self.allowance_in(recovery, segment, window);
            return self.paced(now, room, segment);
        }
        let flight = self.flight();
        let room = window.saturating_sub(flight);
        self.paced(now, if flight == 0 { room.max(segment) } else { room }, segment)
    }

    /// While something is missing. The first retransmission of a recovery leaves in any case
    /// (RFC 6675 §5 step 4.3). New text does not: what is lost may be acknowledged before it is
    /// sent again.
    fn allowance_in(&self, recovery: &Recovery, segment: u32, window: u32) -> u32 {
        let pipe = self.pipe();
        let by_window = window.saturating_sub(pipe);
        let room = recovery.prr.as_ref().map_or(by_window, Prr::allowed);
        let is_forced = recovery.force && self.sent.lost(self.una) > 0;
        if pipe == 0 || is_forced { room.max(segment) } else { room }
    }

    /// One past the last byte of data queued; FIN has this number.
    pub(crate) fn data_end(&self) -> Seq {
        self.una + self.buffer.len() as u32
    }

    /// One past the last number queued, FIN included.
    pub(crate) fn queued_end(&self) -> Seq {
        self.data_end() + u32::from(self.fin_queued)
    }

    /// True if our FIN has been sent, and it alone is not acknowledged.
    pub(crate) fn only_fin_in_flight(&self) -> bool {
        self.fin_queued && self.buffer.is_empty() && self.nxt.after(self.una)
    }

    /// One past the last number the peer allows.
    pub(crate) fn window_edge(&self) -> Seq {
        self.una + self.window
    }

    /// RFC 5961 §5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.MAX.
    pub(crate) fn accepts(&self, ack: Seq) -> bool {
        ack.at_or_before(self.max) && self.una.distance(ack) <= self.max_window as i32
    }

    /// Takes in an acceptable acknowledgement: the ESTABLISHED part of the fifth step. `may_grow`:
    /// it does not tell of congestion.
    pub(crate) fn on_ack(
        &mut self,
        times: Times,
        segment: &Segment<'_>,
        evidence: Evidence,
        may_grow: bool,
        pool: &mut PagePool,
    ) -> AckOutcome {
        let flight = self.flight();
        let forward = self.sent.highest_sacked().unwrap_or(self.una);
        let evidence = Evidence { backdating_ns: self.backdating_ns(), ..evidence };
        let mut news = News::new(evidence, times.now, self.reordering.min_rtt_ns(), forward);
        let sacked = self.on_sack_blocks(segment, &mut news);
        let is_duplicate = self.is_duplicate(segment, sacked);
        news.is_repeated =
            self.mode() == Mode::Timeout && (sacked > 0 || self.is_repeated(segment));
        self.update_window(segment.seq, segment.ack, segment.window);
        let mut outcome = AckOutcome { flight, ..AckOutcome::default() };
        let mut sent = None;
        if segment.ack.after(self.una) {
            let before = Before { flight, has_holes: !self.misses_nothing(), may_grow };
            let taken = self.sent.on_ack(segment.ack, &mut news);
            sent = taken.sent;
            outcome = self.on_new_ack(times, segment.ack, taken, before, pool);
        }
        outcome.delivered += sacked;
        if news.is_reordered {
            self.note_reordering(news.overtaken_bytes);
        }
        if is_duplicate {
            let flight = self.flight();
            self.recovery_mut().on_duplicate(flight);
        }
        if self.recovery.is_some() {
            outcome.duplicate = dsack(segment).filter(|_| self.has_sack());
            self.recover(times.now, &news, &mut outcome, segment);
            self.grow_by_sacked(times.now, sacked, may_grow);
        }
        // Where all that was in flight left at once, it is no news.
        let latest = news.latest.map(|departure| departure.at).or(sent);
        self.note_acked(times.now, latest, &outcome);
        outcome
    }

    /// Takes in an acknowledgement where nothing is lost or sacked and the ACK is no duplicate.
    #[inline(always)]
    pub(crate) fn on_predicted_ack(
        &mut self,
        times: Times,
        segment: &PlainSegment<'_>,
        offset: Option<u32>,
        pool: &mut PagePool,
    ) -> AckOutcome {
        if !segment.ack.after(self.una) {
            self.update_window(segment.seq, segment.ack, segment.window);
            return AckOutcome::default();
        }
        let before = Before { flight: self.flight(), has_holes: false, may_grow: true };
        self.set_window(segment.seq, segment.ack, segment.window);
        let taken = self.sent.on_ack_of_one(segment.ack).unwrap_or_else(|| {
            let evidence = Evidence::of(offset, segment.stamps);
            self.sent.on_ack(segment.ack, &mut News::new(evidence, times.now, 0, self.una))
        });
        self.on_new_ack(times, segment.ack, taken, before, pool)
    }

    fn on_sack_blocks(&mut self, segment: &Segment<'_>, news: &mut News) -> u32 {
        if !self.has_sack() || segment.options.sack.is_empty() {
            return 0;
        }
        self.recovery_mut();
        let una = self.una.max(segment.ack);
        segment.options.sack.iter().map(|block| self.on_sack_block(block, una, news)).sum()
    }

    /// Takes in a block that lies beyond `una` and within what is in flight; anything else is
    /// ignored (a D-SACK, RFC 2883, or nonsense). Returns how many bytes are newly sacked.
    fn on_sack_block(&mut self, block: SackBlock, una: Seq, news: &mut News) -> u32 {
        let SackBlock { start, end } = block;
        // Offsets from `una`: a block longer than half the space would pass for one behind it.
        let (from, to) = (start.since(una), end.since(una));
        // An ACK of a window probe's byte leaves `una` ahead of SND.NXT for a moment.
        let flight = self.nxt.distance(una).max(0) as u32;
        let is_sound = from > 0 && from < to && to <= flight;
        if is_sound { self.sent.on_sacked(self.una, (start, end), news) } else { 0 }
    }

    /// RFC 5681 §2; with SACK, RFC 6675 §2: it must tell of data newly arrived, whether it
    /// acknowledges more than before or not. After a timeout none counts: it may answer what was
    /// sent again in vain (RFC 6582 §4).
    fn is_duplicate(&self, segment: &Segment<'_>, sacked: u32) -> bool {
        if self.has_sack() {
            return sacked > 0 && self.mode() == Mode::Open;
        }
        self.mode() != Mode::Timeout && self.is_repeated(segment)
    }

    /// RFC 5681 §2: it says nothing but what an ACK before has said.
    fn is_repeated(&self, segment: &Segment<'_>) -> bool {
        segment.ack == self.una
            && self.flight() > 0
            && segment.sequence_len() == 0
            && u32::from(segment.window) << self.scale == self.window
    }

    /// RFC 9293 §3.10.7.4: only from a segment that is not older than the last one used. One that
    /// acknowledges more than any before is newer, whatever its number says: a retransmission has
    /// an old number and a new window, and moving SND.UNA under the old window would move its edge.
    pub(crate) fn update_window(&mut self, seq: Seq, ack: Seq, window: u16) {
        let newer = ack.after(self.una)
            || self.wl1.before(seq)
            || (self.wl1 == seq && self.wl2.at_or_before(ack));
        if newer && ack.at_or_after(self.una) {
            self.set_window(seq, ack, window);
        }
    }

    fn set_window(&mut self, seq: Seq, ack: Seq, window: u16) {
        self.window = u32::from(window) << self.scale;
        self.max_window = self.max_window.max(self.window);
        self.wl1 = seq;
        self.wl2 = ack;
        if self.window > 0 {
            self.probes = 0;
        }
    }

    /// An `ack` beyond SND.UNA has come.
    #[inline(always)]
    fn on_new_ack(
        &mut self,
        Times { now, heard }: Times,
        ack: Seq,
        Taken { sent, known }: Taken,
        Before { flight, has_holes, may_grow }: Before,
        pool: &mut PagePool,
    ) -> AckOutcome {
        let mss = u32::from(self.mss);
        let fin = self.fin_queued && ack.after(self.data_end());
        let total = ack.since(self.una);
        let freed = (total - u32::from(fin)) as usize;
        let mut rtt_ns = 0;
        if let Some(sent) = sent {
            rtt_ns = now.nanos_since(sent).max(1);
            self.rtt.on_ack(sent, now, flight, mss);
            // A lone segment is not reordered: its sample can be spared.
            if flight > 2 * mss {
                self.reordering.on_sample(rtt_ns, now);
            }
        }
        // What fills a hole acknowledges more than has passed since the ACK before.
        if let Some(previous) = self.pair.on_ack(sent, heard)
            && !has_holes
            && (total >= 2 * mss || self.sent.oldest() == sent)
        {
            self.pair.on_spaced(total, previous, heard, self.rtt.measure_ns());
        }
        // What duplicates told of left the network then, and does not open the window now.
        let told = if has_holes && !self.has_sack() { self.told_by_duplicates() } else { known };
        let delivered = total.saturating_sub(told);
        if freed > 0 {
            self.buffer.advance(freed, pool);
        }
        if fin {
            self.fin_queued = false;
        }
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.small_end = self.small_end.max(ack);
        self.rtt.end_back_off();
        self.silent_since = if self.flight() > 0 { now } else { Instant::FAR_FUTURE };
        self.pass_marks(ack);
        let outcome = AckOutcome {
            flight,
            progress: true,
            freed,
            fin,
            delivered,
            rtt_ns,
            ..AckOutcome::default()
        };
        let mode = if has_holes { self.mode() } else { Mode::Open };
        if has_holes {
            self.on_recovery_progress(total);
        }
        let (una, nxt, srtt_ns) = (ack, self.nxt, self.rtt.srtt_ns());
        self.congestion.on_ack(&outcome, Ack { now, mode, may_grow, una, nxt, srtt_ns }, mss);
        outcome
    }

    /// So many bytes are newly sacked. On a path that reorders they let the window grow, as what
    /// arrives in order does: SND.UNA moves by what is late alone, which is little. While anything
    /// may be lost they do not.
    fn grow_by_sacked(&mut self, now: Instant, sacked: u32, may_grow: bool) {
        let is_reordered = self.reordering.seen && self.mode() == Mode::Open;
        if sacked == 0 || !is_reordered || self.sent.lost(self.una) > 0 {
            return;
        }
        let outcome = AckOutcome { flight: self.flight(), delivered: sacked, ..Default::default() };
        let (mode, una, nxt, srtt_ns) = (Mode::Open, self.una, self.nxt, self.rtt.srtt_ns());
        let ack = Ack { now, mode, may_grow, una, nxt, srtt_ns };
        self.congestion.on_ack(&outcome, ack, self.mss.into());
    }

    /// Bytes that duplicate ACKs have reported as arrived.
    fn told_by_duplicates(&self) -> u32 {
        let dup_acks = self.recovery.as_ref().map_or(0, |recovery| recovery.dup_acks);
        dup_acks.saturating_mul(self.mss.into())
    }

    /// Something that is sent at `now` waits for an answer; since when something does.
    pub(crate) fn wait_from(&mut self, now: Instant) -> Instant {
        if self.silent_since == Instant::FAR_FUTURE {
            self.silent_since = now;
        }
        self.silent_since
    }

    /// The peer has answered. True if something had waited for that.
    pub(crate) fn stop_waiting(&mut self) -> bool {
        core::mem::replace(&mut self.silent_since, Instant::FAR_FUTURE) != Instant::FAR_FUTURE
    }

    /// The silence before `now`, if it was so long that the congestion window is to be less: an
    /// RTO, or [`UNUSED_NS`] where the window leaves in no burst.
    #[inline(always)]
    pub(crate) fn idled(&self, now: Instant, config: &Settings) -> Option<Idle> {
        let silent_ns = now.nanos_since(self.last_sent);
        let may_be_idle = silent_ns > config.rto_bounds.shortest_ns()
            && self.flight() == 0
            && config.congestion.restart_after_idle
            && !self.congestion.has_model();
        let rto_ns = || self.rtt.rto_ns(&config.rto_bounds).max(1);
        let span_ns = || self.pacer().map_or_else(rto_ns, |_| UNUSED_NS);
        let span_ns = may_be_idle.then(span_ns).filter(|span_ns| silent_ns > *span_ns)?;
        Some(Idle {
            spans: u32::try_from(silent_ns / span_ns).unwrap_or(u32::MAX),
            initial_segments: config.congestion.initial_window,
            mss: self.mss.into(),
        })
    }

    /// New data has left after a silence.
    pub(crate) fn on_restart(&mut self, now: Instant, config: &Settings) {
        if let Some(idle) = self.idled(now, config) {
            self.congestion.on_idle(idle);
        }
    }
}

#[cfg(test)]
mod tests;
