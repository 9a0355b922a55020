//! Finds what is lost, and recovers from it: after each ACK, and when the timer fires.

use super::SendHalf;
use super::frto::{Frto, Heard, Proof};
use super::prr::{Progress, Prr};
use super::recovery::{Detection, Mode, Pending, Probe};
use super::undo::Undo;
use crate::config::LossDetection;
use crate::flow::Seq;
use crate::tcp::Settings;
use crate::tcp::congestion::{AckOutcome, Loss};
use crate::tcp::send::rack::News;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Flags, Segment};

/// A peer that is there may answer so late, on the shortest path: Linux delays an ACK by 40 ms and
/// a tick at least, and a process waits for its turn.
const LATE_ACK_NS: u64 = 60_000_000;

/// RFC 5681 §3.2: duplicate ACKs that show a loss.
const DUP_ACKS: u32 = 3;
/// RFC 7765 §4, rrthr: with so many segments out or queued an ACK restarts the timer as ever.
const RESTART_SEGMENTS: u32 = 4;
/// RFC 4015 §3.2: segments that may leave at once when a reduction is undone (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;

impl SendHalf {
    /// An ACK has brought `news` while something is missing: finds what is lost, and goes on with
    /// the recovery.
    pub(super) fn recover(
        &mut self,
        now: Instant,
        news: &News,
        outcome: &mut AckOutcome,
        segment: &Segment<'_>,
    ) {
        let lost_before = self.sent.lost(self.una);
        if self.detection == Detection::Rack {
            self.hear(now, news, outcome);
            self.end_probe(now, outcome, segment);
        }
        let is_spurious = self.judge_timeout(news, outcome, segment);
        // RFC 4015 §3.1, step 9: not if the ACK itself tells of congestion.
        if !segment.flags.contains(Flags::ECE) {
            self.undo_if_not_needed(news, is_spurious, outcome);
        }
        outcome.entered = self.find_losses(now);
        outcome.reduced |= outcome.entered;
        if outcome.entered {
            self.begin_reduction(outcome.delivered);
        }
        outcome.lost = self.sent.lost(self.una).saturating_sub(lost_before);
        let is_safe = outcome.progress && outcome.lost == 0;
        self.pace_recovery(outcome.delivered, is_safe);
        self.end_recovery();
    }

    /// Takes in what an ACK shows of times and of reordering (RFC 8985 §6.2, steps 2 to 4).
    fn hear(&mut self, now: Instant, news: &News, outcome: &AckOutcome) {
        let (una, nxt) = (self.una, self.nxt);
        let Some(recovery) = &mut self.recovery else { return };
        if let Some(rtt_ns) = recovery.rack.on_news(news) {
            self.reordering.on_sample(rtt_ns, now);
        }
        self.reordering.seen |= news.is_reordered;
        // A probe in vain says that the ACK was late, and nothing of how the path reorders.
        let is_told = outcome.duplicate.is_some() && !recovery.is_of_probe(outcome.duplicate);
        if is_told && recovery.rack.on_dsack(una, nxt) {
            self.reordering.widen();
        }
    }

    /// Bytes that proportional rate reduction lets out after an ACK in a recovery.
    fn pace_recovery(&mut self, delivered: u32, is_safe: bool) {
        let (pipe, mss) = (self.pipe(), u32::from(self.mss));
        let threshold = self.congestion.threshold();
        if let Some(prr) = self.recovery.as_mut().and_then(|recovery| recovery.prr.as_mut()) {
            prr.on_ack(Progress { delivered, is_safe, pipe, threshold, mss });
        }
    }

    /// While something is missing, `acked` bytes are acknowledged.
    pub(super) fn on_recovery_progress(&mut self, acked: u32) {
        let mss = u32::from(self.mss);
        let Some(recovery) = &mut self.recovery else { return };
        let mode = recovery.mode;
        let over = recovery.advance_to(self.una);
        match mode {
            Mode::Fast if over => recovery.dup_acks = 0,
            Mode::Fast if self.detection == Detection::Duplicates => {
                // RFC 6582 §3.2 step 3: a partial ACK shows the next hole at SND.UNA.
                recovery.force = true;
                let others = (acked / mss).saturating_sub(1);
                recovery.dup_acks = recovery.dup_acks.saturating_sub(others);
                self.lose_to((self.una + mss).min(self.nxt));
            }
            Mode::Fast => {}
            Mode::Open | Mode::Timeout => recovery.dup_acks = 0,
        }
        if over {
            self.on_recovered();
        }
    }

    fn on_recovered(&mut self) {
        self.congestion.on_recovered();
        if self.detection == Detection::Rack {
            self.reordering.on_recovered();
            let nxt = self.nxt;
            if let Some(undo) = self.recovery.as_mut().and_then(|recovery| recovery.undo.as_mut()) {
                // A D-SACK of the last retransmission comes a round trip after it.
                undo.until = nxt;
            }
        } else {
            self.sent.forget_lost();
        }
    }

    /// What is on its way below `edge` is lost, but for what was sent again.
    fn lose_to(&mut self, edge: Seq) {
        let Some(recovery) = &mut self.recovery else { return };
        if edge.after(recovery.judged) {
            self.sent.lose(self.una, (recovery.judged, edge), recovery.high_rxt);
            recovery.judged = edge;
        }
    }

    /// Begins a recovery.
    fn enter(&mut self, mode: Mode) {
        let (una, nxt) = (self.una, self.nxt);
        self.recovery_mut().enter(mode, una, nxt);
    }

    /// The reduction of a recovery begins, by an ACK that has delivered so much.
    fn begin_reduction(&mut self, delivered: u32) {
        if self.reduces_in_proportion() {
            let flight = self.flight().saturating_sub(self.sent.sacked()) + delivered;
            self.recovery_mut().prr = Some(Prr::new(flight));
        }
    }

    /// Forgets the recovery, if it says no more than a new one would.
    fn end_recovery(&mut self) {
        let una = self.una;
        if self.misses_nothing() && self.recovery.as_ref().is_some_and(|r| r.is_behind(una)) {
            self.recovery = None;
        }
    }

    /// Starts or extends a recovery from what is sacked, or what duplicate ACKs show. True if one
    /// has begun.
    fn find_losses(&mut self, now: Instant) -> bool {
        match self.detection {
            Detection::Rack => self.find_losses_by_time(now),
            Detection::Count | Detection::Duplicates => self.find_losses_by_count(now),
        }
    }

    /// By how much is sacked (RFC 6675), or how many duplicate ACKs have come (RFC 6582).
    fn find_losses_by_count(&mut self, now: Instant) -> bool {
        let (una, mss, flight) = (self.una, u32::from(self.mss), self.flight());
        let Some(recovery) = &self.recovery else { return false };
        let mut edge = una;
        if self.has_sack() {
            edge = self.sent.lost_edge(mss).unwrap_or(una);
        }
        // RFC 6675 §5 step 1, as well: few or small segments may never show enough bytes.
        if recovery.dup_acks >= DUP_ACKS && recovery.mode == Mode::Open {
            let hole = self.sent.next_hole(una, una + mss.min(flight));
            edge = edge.max(hole.map_or(una, |hole| hole.1));
        }
        match recovery.mode {
            Mode::Fast if self.has_sack() => self.lose_to(edge),
            Mode::Fast | Mode::Timeout => {}
            // Without SACK the duplicates of a finished recovery must not start another (RFC 6582
            // §3.2 step 1): more than `point` must have been acknowledged.
            Mode::Open if !self.has_sack() && una.at_or_before(recovery.point) => {}
            Mode::Open if edge.after(una) => {
                self.suspect_probe(now, Mode::Fast);
                self.enter_reduced(now);
                self.lose_to(edge);
                return true;
            }
            Mode::Open => {}
        }
        false
    }

    /// By when it left (RFC 8985 §6.2, step 5).
    fn find_losses_by_time(&mut self, now: Instant) -> bool {
        let lost_before = self.sent.lost(self.una);
        if self.sent.is_reneged() {
            self.sent.forget_sacked();
            self.sent.lose(self.una, (self.una, self.nxt), self.una);
        }
        let window_ns = self.reordering_window_ns();
        let Some(recovery) = &mut self.recovery else { return false };
        if let Some((latest, wait_ns)) = recovery.rack.judgement(window_ns) {
            recovery.rack.due = self.sent.lose_late(self.una, latest, wait_ns, now);
        }
        let (mode, is_spared) = (recovery.mode, recovery.is_spared);
        let lost = self.sent.lost(self.una);
        match mode {
            Mode::Open if lost == 0 => return false,
            Mode::Open if self.blames_path(now) => {
                self.enter(Mode::Fast);
                self.recovery_mut().is_spared = true;
                return false;
            }
            Mode::Open => {}
            // The probe was lost alone, and now something else is (RFC 4821 §4).
            Mode::Fast if is_spared && lost > lost_before => {}
            Mode::Fast | Mode::Timeout => return false,
        }
        self.enter_reduced(now);
        true
    }

    /// RACK.reo_wnd (RFC 8985 §6.2, step 4).
    fn reordering_window_ns(&self) -> u64 {
        let Some(recovery) = &self.recovery else { return 0 };
        let has_many =
            || recovery.dup_acks >= DUP_ACKS || self.sent.lost_edge(self.mss.into()).is_some();
        if !self.reordering.seen && (recovery.mode != Mode::Open || has_many()) {
            return 0;
        }
        self.reordering.window_ns(self.rtt.srtt_ns())
    }

    /// How long a range may be late before it is held lost; 0 if losses are not found by time.
    pub(crate) fn patience_ns(&self) -> u64 {
        match (self.detection, &self.recovery) {
            (Detection::Rack, Some(_)) => self.reordering_window_ns(),
            (Detection::Rack, None) => self.reordering.window_ns(self.rtt.srtt_ns()),
            _ => 0,
        }
    }

    /// Something is lost that was in flight: a recovery begins, and the window is reduced.
    fn enter_reduced(&mut self, now: Instant) {
        let flight = self.flight();
        let flight = self.recovery.as_ref().map_or(flight, |r| r.flight_before(flight));
        let before = self.kept_for_undo();
        let loss = Loss { now, flight, is_marked: false };
        self.congestion.on_loss(loss, self.mss.into());
        self.enter(Mode::Fast);
        self.recovery_mut().undo = before;
        self.congestion.on_recovery();
    }

    /// What undoes the recovery that begins, if anything can.
    fn kept_for_undo(&self) -> Option<Undo> {
        let may_tell = self.detection == Detection::Rack;
        may_tell.then(|| Undo::new(self.congestion.kept(), self.una, self.nxt))
    }

    /// F-RTO (RFC 5682). True if an ACK shows that the timeout before it was spurious.
    fn judge_timeout(&mut self, news: &News, outcome: &AckOutcome, segment: &Segment<'_>) -> bool {
        let (una, by_sack) = (self.una, self.has_sack());
        let can_send = self.queued_end().after(self.nxt) && self.window_edge().after(self.nxt);
        let Some(recovery) = &mut self.recovery else { return false };
        if recovery.frto == Frto::Off {
            return false;
        }
        let blocks = segment.options.sack.iter().filter(|_| by_sack);
        let highest = blocks.fold(una, |highest, block| highest.max(block.end));
        let (advances, repeats) = (outcome.progress, news.is_repeated);
        let sacks = by_sack && outcome.delivered > 0;
        let heard = Heard { una, highest, advances, sacks, repeats, by_sack, can_send };
        recovery.frto.on_ack(recovery.point, heard)
    }

    /// How far a timeout has been judged.
    pub(crate) fn frto(&self) -> Frto {
        self.recovery.as_ref().map_or(Frto::Off, |recovery| recovery.frto)
    }

    /// If an ACK shows that what was sent again had arrived, gives the window back. Where something
    /// is lost all the same, the reduction stands; but what a timeout has taken for lost, the ACK
    /// shows on its way.
    fn undo_if_not_needed(&mut self, news: &News, is_spurious: bool, outcome: &mut AckOutcome) {
        let Some(recovery) = &mut self.recovery else { return };
        let Some(undo) = &mut recovery.undo else { return };
        let una = self.una - (outcome.freed as u32 + u32::from(outcome.fin));
        let is_shown = outcome.progress && undo.is_answer_to_the_first(news.evidence, una);
        let is_told =
            outcome.duplicate.is_some_and(|block| undo.on_duplicate(block.start, block.end));
        let by_timeout = recovery.mode == Mode::Timeout;
        if !(is_spurious || is_shown || is_told) || (!by_timeout && self.sent.lost(self.una) > 0) {
            return;
        }
        let undo = recovery.undo.take();
        recovery.end();
        if by_timeout {
            // RFC 5682 §2.1: duplicates may begin a fast recovery at once.
            recovery.point = self.una - 1;
            self.sent.forget_lost();
            if is_spurious {
                recovery.rack.on_spurious(news);
            }
        } else {
            self.reordering.seen = true;
            if !news.is_reordered {
                self.note_reordering(0);
            }
        }
        if let Some(Undo { before, .. }) = undo {
            let pipe = self.pipe();
            self.congestion.on_undo(&before, pipe, INITIAL_SEGMENTS * u32::from(self.mss));
        }
        outcome.undone = true;
    }

    // ---- what is sent

    /// The time whose timestamp a retransmission at `now` carries. A receiver with PAWS drops what
    /// is older than what it has acknowledged last (RFC 7323 §5.3). On a path that reorders, text
    /// that is late would be dropped behind a retransmission of earlier text, and be sent again in
    /// its turn, without end on a fast path. A retransmission is thus dated back by as much as text
    /// may be late, but not beyond another one. It is still newer than what has arrived: by RACK a
    /// round trip and as much have passed since the range left.
    pub(crate) fn stamped_again(&self, now: Instant) -> Instant {
        let oldest = self.recovery.as_ref().map_or(Instant::ZERO, |recovery| recovery.stamped);
        (now - Duration::from_nanos(self.backdating_ns())).max(oldest)
    }

    /// By how much a retransmission is dated back.
    pub(super) fn backdating_ns(&self) -> u64 {
        let is_late = self.detection == Detection::Rack && self.reordering.seen;
        if is_late { self.reordering.window_ns(self.rtt.srtt_ns()) } else { 0 }
    }

    /// The bytes from `start` to `end` were sent again at `now`. The rescue, which lies above all
    /// that is lost or sacked, says nothing of what lies below it (RFC 6675 §4, NextSeg rule 4).
    pub(crate) fn on_sent_again(&mut self, start: Seq, end: Seq, now: Instant) {
        let stamped = self.stamped_again(now);
        self.forget_probe_in(start, end);
        let Some(recovery) = &mut self.recovery else { return };
        let is_judged = start.before(recovery.judged);
        let is_below = self.sent.highest_sacked().is_some_and(|highest| start.before(highest));
        if is_judged || is_below {
            recovery.high_rxt = recovery.high_rxt.max(end);
        } else {
            recovery.rescued = true;
        }
        recovery.frto.on_sent_again(end);
        recovery.on_sent_again(start, end, stamped);
        recovery.note_probe(self.nxt, true);
        let is_on_suspicion = self.detection == Detection::Count && is_below && !is_judged;
        self.sent.on_sent_again(self.una, (start, end), now, is_on_suspicion);
        let data = self.data_end().distance(start).clamp(0, end.distance(start));
        let tally = self.tally_mut();
        tally.retransmits = tally.retransmits.saturating_add(1);
        tally.resent_bytes += data as u64;
    }

    /// So much new data has left in a recovery, or as a loss probe.
    pub(crate) fn note_new_sent(&mut self, len: u32) {
        let nxt = self.nxt;
        if let Some(recovery) = &mut self.recovery {
            recovery.frto.on_new_sent();
            recovery.on_new_sent(len);
            recovery.note_probe(nxt, false);
        }
    }

    /// When nothing is known lost and nothing new can be sent: a hole under the highest sacked byte
    /// (RFC 6675 §4, NextSeg rule 3), or once the last segment of all (rule 4).
    pub(crate) fn next_speculative(&self, mss: u32) -> Option<(Seq, u32)> {
        let is_counted = self.detection == Detection::Count && self.mode() == Mode::Fast;
        let recovery = self.recovery.as_ref().filter(|_| is_counted)?;
        let from = recovery.high_rxt.max(self.una);
        let highest = self.sent.highest_sacked();
        if let Some((start, end)) = highest.and_then(|highest| self.sent.next_hole(from, highest)) {
            return Some((start, end.since(start).min(mss)));
        }
        let tail = from.max(self.last_segment(mss));
        let (start, end) = self.sent.next_hole(tail, self.nxt).filter(|_| !recovery.rescued)?;
        Some((start, end.since(start)))
    }

    /// Where the last segment in flight begins.
    fn last_segment(&self, mss: u32) -> Seq {
        self.last_record_start(self.nxt - mss.min(self.flight()), self.nxt)
    }

    // ---- the timer

    /// What the retransmission timer waits for, and until when, if not for the timeout: for a range
    /// that is late (RFC 8985 §6.2, step 5), or to probe for a tail.
    #[inline(always)]
    pub(crate) fn pending(&self, config: &Settings) -> Option<(Pending, Instant)> {
        if let Some(recovery) = &self.recovery {
            let late = recovery.rack.due;
            if late != Instant::FAR_FUTURE {
                return Some((Pending::Late, late));
            }
            if !recovery.may_probe() || !self.misses_nothing() {
                return None;
            }
        }
        let is_lone = self.flight() <= u32::from(self.mss);
        if !is_lone {
            return Some((Pending::Tail, self.tail_due(config)?));
        }
        // The ACK of a lone segment may be delayed: its probe waits longer.
        let wait_ns = self.rtt.lone_probe_ns(LATE_ACK_NS, &config.rto_bounds)?;
        let due = self.last_sent.max(self.silent_since).plus_nanos(wait_ns);
        // Nearly always it has left since the peer was heard last. Else RFC 7765's timeout counts.
        let is_sooner = self.sent.all_left_at(self.silent_since) || due < self.lone_timeout(config);
        (is_sooner && self.detection == Detection::Rack).then_some((Pending::Tail, due))
    }

    /// When the tail of what is in flight is probed for (RFC 8985 §7.2): two round trips after it
    /// was sent, or an ACK came, and not before [`LATE_ACK_NS`] has passed, unless the timeout is
    /// sooner.
    fn tail_due(&self, config: &Settings) -> Option<Instant> {
        let srtt_ns = self.rtt.srtt_ns();
        if self.detection != Detection::Rack || srtt_ns == 0 || !self.rtt.is_fresh() {
            return None;
        }
        let wait_ns = (2 * srtt_ns).max(LATE_ACK_NS);
        let due = self.last_sent.max(self.silent_since).plus_nanos(wait_ns);
        let timeout = self.silent_since.plus_nanos(self.rtt.rto_ns(&config.rto_bounds));
        (due < timeout).then_some(due)
    }

    /// When a lone segment times out (RFC 7765).
    fn lone_timeout(&self, config: &Settings) -> Instant {
        let rto_ns = self.rtt.rto_ns(&config.rto_bounds);
        self.restart_from(self.silent_since, rto_ns, config).plus_nanos(rto_ns)
    }

    /// Since when a timeout of `rto_ns` counts that is set anew at `now`: with few segments out and
    /// nothing missing since the oldest of them left (RFC 7765 §4). A loss among so few brings too
    /// few ACKs to be found by, and an ACK is no reason to wait longer for the next segment. What a
    /// loss probe is due for has its probe, which is sooner.
    pub(crate) fn timeout_from(&self, now: Instant, rto_ns: u64, config: &Settings) -> Instant {
        // Nearly always nothing was out before what has just left, or much is.
        let is_many = || self.flight() >= RESTART_SEGMENTS * u32::from(self.mss);
        if self.sent.all_left_at(now) || is_many() {
            return now;
        }
        self.restart_from(now, rto_ns, config)
    }

    fn restart_from(&self, now: Instant, rto_ns: u64, config: &Settings) -> Instant {
        let by_time = config.detection == LossDetection::Rack;
        // What is queued counts too: it brings more ACKs. Three segments, whatever their options.
        let most = (RESTART_SEGMENTS - 1) * u32::from(self.mss);
        let is_few = self.queued_end().since(self.una) <= most;
        if !by_time || !is_few || self.recovery.is_some() {
            return now;
        }
        let oldest = self.sent.oldest().unwrap_or(now);
        if oldest.plus_nanos(rto_ns) > now { oldest } else { now }
    }

    /// The timer fired that waits for what is late. True if a recovery begins.
    pub(crate) fn on_late(&mut self, now: Instant) -> bool {
        let lost_before = self.sent.lost(self.una);
        let begins = self.find_losses(now);
        if begins {
            self.begin_reduction(0);
        }
        let lost = self.sent.lost(self.una).saturating_sub(lost_before);
        self.note_lost(now, lost);
        if lost > 0 {
            // What is found lost lets a segment go, as if it had arrived.
            self.pace_recovery(self.mss.into(), false);
        }
        self.end_recovery();
        begins
    }

    /// The timer fired that probes for a lost tail: a segment is due, new or the last one again
    /// (RFC 8985 §7.3).
    pub(crate) fn on_tail_timer(&mut self) {
        self.rtt.stale();
        self.recovery_mut().probe = Probe::Due;
    }

    /// True if a loss probe is due.
    pub(crate) fn owes_probe(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.probe == Probe::Due)
    }

    /// The loss probe where there is nothing new to send: the last segment in flight.
    pub(crate) fn probe_again(&self, segment: u32) -> (Seq, u32) {
        let start = self.last_segment(segment);
        (start, self.nxt.since(start))
    }

    /// RFC 8985 §7.4: an ACK beyond a loss probe shows whether a loss was repaired by it.
    fn end_probe(&mut self, now: Instant, outcome: &mut AckOutcome, segment: &Segment<'_>) {
        let Some(recovery) = &mut self.recovery else { return };
        if outcome.progress && recovery.probe == Probe::Due {
            recovery.probe = Probe::None;
        }
        let Probe::Sent { end, again } = recovery.probe else { return };
        if segment.ack.before(end) {
            return;
        }
        // The probe arrived, and what it repeated had: the first ACK was only late.
        let is_plain = !outcome.progress && segment.options.sack.is_empty();
        let is_spared = again && (recovery.is_of_probe(outcome.duplicate) || is_plain);
        let is_repaired = again && !is_spared && segment.ack.after(end);
        if again && !is_spared && !is_repaired {
            return;
        }
        if is_spared {
            self.rtt.note_late_ack();
        }
        recovery.probe = Probe::None;
        if is_repaired {
            outcome.reduced = true;
            let loss = Loss { now, flight: outcome.flight, is_marked: false };
            self.congestion.on_loss(loss, self.mss.into());
        }
    }

    /// The retransmission timer fired (RFC 6298 §5.4–5.6). Counting, all that is in flight is lost,
    /// and what was sacked is forgotten (RFC 2018 §8). By time, only what is old is lost (RFC 8985
    /// §6.3), and what was sacked stays so unless the receiver shows that it is not. `proof`
    /// is to tell whether the timeout was spurious, unless a recovery was under way.
    pub(crate) fn on_timeout(&mut self, now: Instant, proof: Proof) {
        let (flight, lost_before) = (self.flight(), self.sent.lost(self.una));
        let again = self.rtt.backoff() > 0;
        // What was sent again may be lost again: a second sign of congestion (RFC 5681 §4.3).
        let has_window = self.mode() != Mode::Timeout;
        let limit = if has_window { self.congestion.window() } else { u32::MAX };
        let loss = Loss { now, flight: flight.min(limit), is_marked: false };
        let undo = self.undo_of_timeout(again, proof);
        self.suspect_probe(now, Mode::Timeout);
        self.congestion.on_timeout(loss, again, self.mss.into());
        self.rtt.back_off();
        let tally = self.tally_mut();
        tally.timeouts = tally.timeouts.saturating_add(1);
        let (srtt_ns, window_ns) = (self.rtt.srtt_ns(), self.reordering_window_ns());
        let by_time = self.detection == Detection::Rack && !self.sent.is_reneged();
        if !by_time {
            self.sent.forget_sacked();
        }
        self.recovery_mut().dup_acks = 0;
        self.enter(Mode::Timeout);
        self.doubt(undo, proof);
        if by_time {
            self.lose_to((self.una + u32::from(self.mss)).min(self.nxt));
            let rack = &mut self.recovery_mut().rack;
            rack.due = Instant::FAR_FUTURE;
            let wait_ns = rack.wait_ns(srtt_ns, window_ns);
            self.sent.lose_old(wait_ns, now);
        } else {
            self.lose_to(self.nxt);
        }
        self.note_timed_out(now, self.sent.lost(self.una).saturating_sub(lost_before));
    }

    /// What undoes a timeout, if it was not needed. A further timeout of the same segment does not
    /// replace it (RFC 3522 §3.2).
    fn undo_of_timeout(&mut self, again: bool, proof: Proof) -> Option<Undo> {
        let (una, nxt) = (self.una, self.nxt);
        let can_undo = proof != Proof::None;
        match self.mode() {
            Mode::Open if !again && can_undo => Some(Undo::new(self.congestion.kept(), una, nxt)),
            Mode::Timeout if again => self.recovery.as_mut()?.undo.take(),
            _ => None,
        }
    }

    /// Step 1 of F-RTO (RFC 5682 §2.1), unless a recovery was under way: what that sent again would
    /// pass for old data that arrives.
    fn doubt(&mut self, undo: Option<Undo>, proof: Proof) {
        let una = self.una;
        let recovery = self.recovery_mut();
        if undo.is_some() && proof == Proof::Arrivals {
            recovery.frto = Frto::Resent { end: una };
        }
        recovery.undo = undo;
    }

    /// What is out is sent again, since the path takes smaller segments.
    pub(super) fn recover_all(&mut self) {
        self.enter(Mode::Fast);
        // No round trip has passed since it left.
        self.recovery_mut().stamped = self.last_sent;
        self.lose_to(self.nxt);
    }
}
