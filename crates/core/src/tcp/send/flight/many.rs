//! The records of a connection that has several ranges in flight.

use alloc::collections::VecDeque;
use core::mem;

use super::{Fate, Record, Taken};
use crate::flow::Seq;
use crate::tcp::send::rack::{Departure, News};
use crate::time::Instant;

/// Records kept at most, but for what we send again. Beyond it what is new joins the newest, and
/// what is sacked counts as far as whole records go: both are safe, and only coarser.
pub(super) const RECORDS_MAX: usize = 4096;

/// RFC 6675 §2: discontiguous SACKed ranges, or segments, above a hole that make it lost.
const DUP_THRESH: u32 = 3;

/// The records, and sums over them.
#[derive(Debug)]
pub(crate) struct Many {
    records: VecDeque<Record>,
    /// Where the first one begins: SND.UNA.
    start: Seq,
    sacked: u32,
    lost: u32,
    twice: u32,
    /// One past the highest byte sacked, if one is.
    highest: Seq,
    /// The first lost byte, if one is.
    lost_from: Seq,
    /// When that left which has been found lost since somebody asked, the earliest of it;
    /// [`Instant::FAR_FUTURE`]: nothing has.
    first_lost: Instant,
    /// What was sent once below is judged by its age.
    judged: Seq,
    /// What was sent again, in the order in which it left. Some of it has arrived since.
    order: VecDeque<Resent>,
}

/// A range that was sent again. Its records say so, with this time, until they tell more.
#[derive(Clone, Copy, Debug)]
struct Resent {
    start: Seq,
    departure: Departure,
}

impl Many {
    /// One range, from `start` on.
    pub(super) fn new(start: Seq, one: Record) -> Many {
        let mut records = VecDeque::with_capacity(4);
        records.push_back(one);
        let [sacked, lost, twice] = [0; 3];
        let [highest, lost_from, judged] = [start; 3];
        let (order, first_lost) = (VecDeque::new(), Instant::FAR_FUTURE);
        let mut many = Many {
            records,
            start,
            sacked,
            lost,
            twice,
            highest,
            lost_from,
            first_lost,
            judged,
            order,
        };
        many.count(one.fate, one.end.since(start));
        if one.again {
            many.note_resent(start, one.departure());
        }
        many
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.records.front().map(|record| record.at)
    }

    // ---- what happens

    pub(super) fn push(&mut self, new: Record) {
        let is_full = self.records.len() >= RECORDS_MAX;
        match self.records.back_mut() {
            Some(last) if last.agrees(&new) => last.end = new.end,
            Some(last) if is_full && last.fate == Fate::InFlight && !last.again => *last = new,
            _ => self.records.push_back(new),
        }
    }

    pub(super) fn take_before(&mut self, ack: Seq, news: &mut News) -> Taken {
        let mut taken = Taken::default();
        let mut again = None;
        while let Some(&record) = self.records.front().filter(|_| self.start.before(ack)) {
            let end = record.end.min(ack);
            self.discount(record.fate, end.since(self.start));
            if record.fate == Fate::Sacked {
                taken.known += end.since(self.start);
            }
            news.note_acked(Departure { at: record.at, end }, record.again);
            taken.sent = record.known_at();
            if record.again && taken.sent.is_some() {
                again = taken.sent;
            }
            self.start = end;
            if record.end.at_or_before(ack) {
                self.records.pop_front();
            }
        }
        if self.lost > 0 && self.lost_from.before(self.start) {
            self.find_lost(self.start);
        }
        // Karn's rule: what left twice tells nothing, unless the echo tells which was acknowledged.
        if let (Some(_), Some(at)) = (taken.sent, again) {
            taken.sent = news.answers(at).then_some(at);
        }
        taken
    }

    pub(super) fn on_sacked(&mut self, start: Seq, end: Seq, news: &mut News) -> u32 {
        self.grow_sacked(start, end, news).unwrap_or_else(|| self.sack(start, end, news))
    }

    /// The usual block repeats what is sacked and goes on into the next record: their common end
    /// moves. `None`, and nothing has happened, with any other block.
    fn grow_sacked(&mut self, start: Seq, end: Seq, news: &mut News) -> Option<u32> {
        let index = self.index_of(start);
        let from = self.records.get(index).filter(|record| record.fate == Fate::Sacked)?.end;
        if end.at_or_before(from) {
            return Some(0);
        }
        let next = *self.records.get(index + 1)?;
        if next.fate == Fate::Sacked || end.at_or_after(next.end) {
            return None;
        }
        let bytes = end.since(from);
        news.note_sacked(Departure { at: next.at, end }, next.again);
        self.discount(next.fate, bytes);
        self.sacked += bytes;
        self.records[index].end = end;
        self.highest = self.highest.max(end);
        if self.lost > 0 && self.lost_from == from {
            self.find_lost(end);
        }
        Some(bytes)
    }

    fn sack(&mut self, start: Seq, end: Seq, news: &mut News) -> u32 {
        let (mut start, mut end) = (start, end);
        if self.records.len() >= RECORDS_MAX {
            (start, end) = (self.boundary_after(start), self.boundary_before(end));
        }
        if start.at_or_after(end) {
            return 0;
        }
        let (first, last) = self.divide(start, end);
        let before = self.sacked;
        let mut from = start;
        for i in first..last {
            let record = self.records[i];
            news.note_sacked(record.departure(), record.again);
            self.discount(record.fate, record.end.since(from));
            self.sacked += record.end.since(from);
            from = record.end;
        }
        self.records[first] =
            Record { at: Instant::FAR_FUTURE, end, fate: Fate::Sacked, again: false };
        self.records.drain(first + 1..last);
        self.merge(first, first + 1);
        self.highest = if before == 0 { end } else { self.highest.max(end) };
        if self.lost > 0 && self.lost_from.at_or_after(start) && self.lost_from.before(end) {
            self.find_lost(end);
        }
        self.sacked - before
    }

    pub(super) fn on_sent_again(&mut self, start: Seq, end: Seq, at: Instant, fate: Fate) {
        let (first, last) = self.divide(start, end);
        let mut from = start;
        for i in first..last {
            let Record { fate: old, end, .. } = self.records[i];
            if old != Fate::Sacked {
                self.discount(old, end.since(from));
                self.count(fate, end.since(from));
                self.records[i] = Record { at, end, fate, again: true };
            }
            from = end;
        }
        self.merge(first, last);
        if self.lost > 0 && self.lost_from.at_or_after(start) && self.lost_from.before(end) {
            self.find_lost(end);
        }
        self.note_resent(start, Departure { at, end });
    }

    fn note_resent(&mut self, start: Seq, departure: Departure) {
        let is_full = self.order.len() >= RECORDS_MAX;
        match self.order.back_mut() {
            Some(Resent { departure: last, .. })
                if last.end == start && last.at == departure.at =>
            {
                last.end = departure.end;
            }
            // The timer finds what is lost of the rest.
            _ if is_full => {}
            _ => self.order.push_back(Resent { start, departure }),
        }
    }

    pub(super) fn lose(&mut self, from: Seq, to: Seq, resent: Seq) -> u32 {
        let mut start = from.max(self.start);
        if start.at_or_after(to) {
            return 0;
        }
        let before = self.lost;
        let (first, last) = self.divide(start, to);
        for i in first..last {
            let Record { fate, end, .. } = self.records[i];
            match fate {
                Fate::Sacked | Fate::Lost => {}
                Fate::InFlight | Fate::Twice if start.before(resent) => {
                    self.change(i, start, Fate::InFlight);
                }
                Fate::InFlight | Fate::Twice => self.lose_one(i, start),
            }
            start = end;
        }
        self.merge(first, last);
        self.lost - before
    }

    /// Record `index`, which begins at `start`, is lost.
    fn lose_one(&mut self, index: usize, start: Seq) {
        if self.lost == 0 || start.before(self.lost_from) {
            self.lost_from = start;
        }
        self.first_lost = self.first_lost.min(self.records[index].at);
        self.change(index, start, Fate::Lost);
    }

    pub(super) fn take_first_lost(&mut self) -> Option<Instant> {
        let first = mem::replace(&mut self.first_lost, Instant::FAR_FUTURE);
        (first != Instant::FAR_FUTURE).then_some(first)
    }

    // ---- by age

    pub(super) fn lose_late(&mut self, latest: Departure, wait_ns: u64, now: Instant) -> Instant {
        let first = self.lose_late_once(latest, wait_ns, now);
        first.min(self.lose_late_again(latest, wait_ns, now))
    }

    /// Of what was sent once. It left in the order of its numbers, so the first that is not late
    /// ends the search, and the next one goes on there.
    fn lose_late_once(&mut self, latest: Departure, wait_ns: u64, now: Instant) -> Instant {
        let mut start = self.judged.max(self.start);
        let first = self.index_of(start);
        let (mut next, mut index, lost) = (Instant::FAR_FUTURE, first, self.lost);
        while let Some(&record) = self.records.get(index) {
            if record.fate == Fate::InFlight && !record.again {
                let due = record.at.plus_nanos(wait_ns);
                let is_late = record.departure().is_before(latest);
                if !is_late || due > now {
                    next = if is_late { due } else { next };
                    break;
                }
                self.lose_one(index, start);
            }
            start = record.end;
            index += 1;
        }
        self.judged = start;
        if self.lost != lost {
            self.merge(first, index);
        }
        next
    }

    /// Of what was sent again. It stands in the order of time; of what left together, some may have
    /// arrived before the rest.
    fn lose_late_again(&mut self, latest: Departure, wait_ns: u64, now: Instant) -> Instant {
        let mut index = 0;
        while let Some(&Resent { start, departure }) = self.order.get(index) {
            let Departure { at, end } = departure;
            if self.is_in_flight_since(start, departure) {
                if at > latest.at {
                    break;
                }
                let late = if at < latest.at { end } else { end.min(latest.end) };
                let late = Departure { at, end: late };
                if self.is_in_flight_since(start, late) {
                    // On a link of no delay it would be sent again for ever at one point in time.
                    let due = at.plus_nanos(wait_ns.max(1));
                    if due > now {
                        return due;
                    }
                    self.lose_resent(start, late);
                }
            }
            if index == 0 && !self.is_in_flight_since(start, departure) {
                self.order.pop_front();
            } else {
                index += 1;
            }
        }
        Instant::FAR_FUTURE
    }

    /// True if a part of what begins at `start` left last then, and is in flight.
    fn is_in_flight_since(&self, start: Seq, Departure { at, end }: Departure) -> bool {
        let first = self.index_of(start.max(self.start));
        let range = self.records.range(first..).enumerate();
        let mut overlapping = range
            .take_while(|(i, _)| self.start_of(first + i).before(end))
            .map(|(_, record)| record);
        overlapping.any(|record| record.is_in_flight_since(at))
    }

    fn lose_resent(&mut self, start: Seq, Departure { at, end }: Departure) {
        let mut start = start.max(self.start);
        let (first, last) = self.divide(start, end);
        for i in first..last {
            let record = self.records[i];
            if record.is_in_flight_since(at) {
                self.lose_one(i, start);
            }
            start = record.end;
        }
        self.merge(first, last);
    }

    pub(super) fn lose_old(&mut self, wait_ns: u64, now: Instant) {
        let mut start = self.start;
        for i in 0..self.records.len() {
            let Record { fate, end, at, .. } = self.records[i];
            let is_out = matches!(fate, Fate::InFlight | Fate::Twice);
            if is_out && (at == Instant::FAR_FUTURE || at.plus_nanos(wait_ns) <= now) {
                self.lose_one(i, start);
            }
            start = end;
        }
        self.merge(0, self.records.len());
    }

    pub(super) fn is_reneged(&self) -> bool {
        self.records.front().is_some_and(|record| record.fate == Fate::Sacked)
    }

    pub(super) fn forget_lost(&mut self) {
        let mut start = self.start;
        self.judged = start;
        for i in 0..self.records.len() {
            let Record { fate, end, .. } = self.records[i];
            if matches!(fate, Fate::Lost | Fate::Twice) {
                self.change(i, start, Fate::InFlight);
            }
            start = end;
        }
        self.merge(0, self.records.len());
    }

    pub(super) fn forget_sacked(&mut self) {
        let mut start = self.start;
        for i in 0..self.records.len() {
            let Record { fate, end, .. } = self.records[i];
            if fate == Fate::Sacked {
                self.change(i, start, Fate::InFlight);
                // It may have left several times.
                self.records[i].again = true;
            }
            start = end;
        }
        self.merge(0, self.records.len());
    }

    // ---- what is so

    pub(super) fn out_of_network(&self) -> u32 {
        (self.sacked + self.lost).saturating_sub(self.twice)
    }

    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    pub(super) fn resent(&self) -> u32 {
        let mut start = self.start;
        let mut resent = 0;
        for record in &self.records {
            if record.again && matches!(record.fate, Fate::InFlight | Fate::Twice) {
                resent += record.end.since(start);
            }
            start = record.end;
        }
        resent
    }

    pub(super) fn highest_sacked(&self) -> Option<Seq> {
        (self.sacked > 0).then_some(self.highest)
    }

    pub(super) fn next_lost(&self, most: u32) -> Option<(Seq, u32)> {
        if self.lost == 0 {
            return None;
        }
        let (start, limit) = (self.lost_from, self.lost_from + most);
        let mut end = start;
        for record in self.records.range(self.index_of(start)..) {
            if record.fate != Fate::Lost || end.at_or_after(limit) {
                break;
            }
            end = record.end.min(limit);
        }
        Some((start, end.since(start)))
    }

    pub(super) fn next_hole(&self, from: Seq, to: Seq) -> Option<(Seq, Seq)> {
        let (mut start, mut end) = (from, from);
        for record in self.records.range(self.index_of(from)..) {
            if end.at_or_after(to) {
                break;
            }
            if record.fate != Fate::Sacked {
                end = record.end.min(to);
            } else if start.before(end) {
                break;
            } else {
                (start, end) = (record.end, record.end);
            }
        }
        start.before(end).then_some((start, end))
    }

    pub(super) fn lost_edge(&self, mss: u32) -> Option<Seq> {
        let top = self.index_of(self.highest_sacked()? - 1);
        let (mut ranges, mut bytes) = (0, 0);
        for i in (0..=top).rev() {
            let record = &self.records[i];
            if record.fate == Fate::Sacked {
                let start = self.start_of(i);
                ranges += 1;
                bytes += record.end.since(start);
                if ranges >= DUP_THRESH || bytes > (DUP_THRESH - 1) * mss {
                    return Some(start);
                }
            }
        }
        None
    }

    // ---- parts

    /// The index of the record that holds `seq`. It mostly is among the first: what is sacked has
    /// grown together. The search doubles its reach until it is beyond `seq`, and then halves it.
    fn index_of(&self, seq: Seq) -> usize {
        let is_before = |index: usize| self.records[index].end.at_or_before(seq);
        let (mut low, mut reach) = (0, 1);
        while low + reach <= self.records.len() && is_before(low + reach - 1) {
            low += reach;
            reach *= 2;
        }
        let mut high = (low + reach - 1).min(self.records.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn start_of(&self, index: usize) -> Seq {
        if index == 0 { self.start } else { self.records[index - 1].end }
    }

    /// `seq`, or the end of its record, if that is not sacked and begins before it.
    fn boundary_after(&self, seq: Seq) -> Seq {
        let index = self.index_of(seq);
        match self.records.get(index) {
            Some(record) if record.fate != Fate::Sacked && self.start_of(index) != seq => {
                record.end
            }
            _ => seq,
        }
    }

    /// `seq`, or the start of the record that goes on there, if that is not sacked.
    fn boundary_before(&self, seq: Seq) -> Seq {
        let index = self.index_of(seq);
        match self.records.get(index) {
            Some(record) if record.fate != Fate::Sacked => self.start_of(index),
            _ => seq,
        }
    }

    /// Makes `start` and `end` ends of records. Returns the indices of the first record between
    /// them, and of the first behind them.
    fn divide(&mut self, start: Seq, end: Seq) -> (usize, usize) {
        (self.divide_at(start), self.divide_at(end))
    }

    fn divide_at(&mut self, seq: Seq) -> usize {
        let index = self.index_of(seq);
        let is_within = index < self.records.len() && self.start_of(index).before(seq);
        if !is_within {
            return index;
        }
        let front = Record { end: seq, ..self.records[index] };
        self.records.insert(index, front);
        index + 1
    }

    /// Joins neighbours that agree, of the records from `first` to `last` and those beside them.
    fn merge(&mut self, first: usize, last: usize) {
        let from = first.saturating_sub(1);
        let to = (last + 1).min(self.records.len());
        let mut kept = from;
        for i in from + 1..to {
            let record = self.records[i];
            if self.records[kept].agrees(&record) {
                self.records[kept].end = record.end;
            } else {
                kept += 1;
                self.records[kept] = record;
            }
        }
        if kept + 1 < to {
            self.records.drain(kept + 1..to);
        }
    }

    /// Gives record `index`, which begins at `start`, another fate.
    fn change(&mut self, index: usize, start: Seq, fate: Fate) {
        let Record { fate: old, end, .. } = self.records[index];
        self.discount(old, end.since(start));
        self.count(fate, end.since(start));
        self.records[index].fate = fate;
    }

    fn count(&mut self, fate: Fate, bytes: u32) {
        if let Some(sum) = self.sum(fate) {
            *sum += bytes;
        }
    }

    fn discount(&mut self, fate: Fate, bytes: u32) {
        if let Some(sum) = self.sum(fate) {
            *sum -= bytes;
        }
    }

    fn sum(&mut self, fate: Fate) -> Option<&mut u32> {
        match fate {
            Fate::InFlight => None,
            Fate::Twice => Some(&mut self.twice),
            Fate::Lost => Some(&mut self.lost),
            Fate::Sacked => Some(&mut self.sacked),
        }
    }

    /// Finds the first lost byte, which lies at `from` or behind it.
    fn find_lost(&mut self, from: Seq) {
        let mut start = from;
        for record in self.records.range(self.index_of(from)..) {
            if record.fate == Fate::Lost {
                self.lost_from = start;
                return;
            }
            start = record.end;
        }
    }
}

#[cfg(test)]
mod tests;
