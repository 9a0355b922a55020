//! The default scheme: deadlines checked in line, and one wake-up entry per connection that is
//! re-armed lazily (Mansley 2004, §4.4 hints at it: a lazily evaluated timing wheel).
//!
//! An entry stays where it is filed while deadlines move later or are cancelled: setting a timer
//! is the store into the connection, and one comparison when the connection is flushed. An entry
//! moves only when a deadline becomes earlier than the slot in which it is filed. One whose slot
//! is reached early is filed again.

use super::slots::{Position, Slots};
use super::{Filed, Ticks};
use crate::time::Instant;

/// Wake-up entries of connections, by slot.
#[derive(Debug)]
pub struct Inline {
    slots: Slots,
    ticks: Ticks,
    /// No slot is reached, and no tick begins, before this.
    quiet_until: Instant,
}

impl Inline {
    /// No entry; deadlines count in whole `ticks`.
    pub fn new(ticks: Ticks) -> Self {
        Inline { slots: Slots::default(), ticks, quiet_until: Instant::ZERO }
    }

    /// No deadline of connection `index` is earlier than `earliest` now.
    pub fn touched(&mut self, index: u32, filed: &mut Filed, earliest: Instant) {
        if earliest < filed.reached() {
            self.file(index, filed, earliest);
        }
    }

    fn file(&mut self, index: u32, filed: &mut Filed, earliest: Instant) {
        let place = filed.place();
        if place != Position::NOWHERE {
            self.slots.remove(index, place);
        }
        let (place, reached) = self.slots.insert(index, self.ticks.at_or_after(earliest));
        // Whatever is due a tick before the slot is reached, or earlier, needs another.
        let before = self.ticks.instant(reached.saturating_sub(1));
        self.quiet_until = self.quiet_until.min(before);
        *filed = Filed::at(before.plus_nanos(1), place);
    }

    /// Connection `index` is gone.
    pub fn forget(&mut self, index: u32, filed: &mut Filed) {
        let place = filed.place();
        if place != Position::NOWHERE {
            self.slots.remove(index, place);
            *filed = Filed::default();
        }
    }

    /// A connection whose slot is reached at `now`; it is filed no more.
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        if self.has_due(now) { self.slots.pop() } else { None }
    }

    /// True if a slot is reached at `now`.
    pub fn has_due(&mut self, now: Instant) -> bool {
        now >= self.quiet_until && self.is_reached(now)
    }

    fn is_reached(&mut self, now: Instant) -> bool {
        let tick = self.ticks.at_or_before(now);
        let is_reached = self.slots.next().is_some_and(|next| next <= tick);
        if !is_reached {
            self.slots.advance(tick);
            self.quiet_until = self.ticks.instant(tick.saturating_add(1));
        }
        is_reached
    }

    /// When the next slot is reached.
    pub fn deadline(&self) -> Option<Instant> {
        self.slots.next().map(|tick| self.ticks.instant(tick))
    }
}

/// The place of a connection's entry. By default it has none: any deadline is earlier, but for one
/// that never comes.
impl Filed {
    fn at(reached: Instant, place: Position) -> Filed {
        let (ns, bits) = (reached.as_nanos(), place.bits());
        Filed([
            ns as u16,
            (ns >> 16) as u16,
            (ns >> 32) as u16,
            (ns >> 48) as u16,
            bits as u16,
            (bits >> 16) as u16,
        ])
    }

    /// A deadline before this needs an earlier entry.
    fn reached(&self) -> Instant {
        let [a, b, c, d, ..] = self.0.map(u64::from);
        Instant::from_nanos(a | b << 16 | c << 32 | d << 48)
    }

    fn place(&self) -> Position {
        let [.., a, b] = self.0.map(u32::from);
        Position::from_bits(a | b << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn inline() -> Inline {
        Inline::new(Ticks::new(Duration::from_millis(1)))
    }

    fn ms(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn an_entry_moves_only_when_its_deadline_precedes_its_slot() {
        let (mut inline, mut filed) = (inline(), Filed::default());
        inline.touched(7, &mut filed, ms(40));
        let first = filed;
        inline.touched(7, &mut filed, ms(40));
        inline.touched(7, &mut filed, ms(5000));
        inline.touched(7, &mut filed, Instant::FAR_FUTURE);
        assert_eq!((filed, inline.deadline()), (first, Some(ms(40))));
        inline.touched(7, &mut filed, ms(39));
        assert_eq!((inline.deadline(), inline.slots.len()), (Some(ms(39)), 1));
    }

    #[test]
    fn a_deadline_within_a_tick_fires_at_its_end() {
        let (mut inline, mut filed) = (inline(), Filed::default());
        inline.touched(0, &mut filed, Instant::from_nanos(5_500_000));
        assert_eq!(inline.due(Instant::from_nanos(5_999_999)), None);
        assert_eq!(inline.due(ms(6)), Some(0));
    }

    #[test]
    fn death_unlinks_the_entry() {
        let (mut inline, mut filed) = (inline(), Filed::default());
        inline.touched(1, &mut filed, ms(10));
        inline.forget(1, &mut filed);
        assert!(inline.slots.len() == 0 && inline.deadline().is_none());
        inline.forget(1, &mut filed);
        inline.touched(1, &mut filed, ms(20));
        assert_eq!(inline.due(ms(20)), Some(1));
    }

    #[test]
    fn an_entry_at_the_origin_is_due_at_the_origin() {
        let (mut inline, mut filed) = (inline(), Filed::default());
        inline.touched(0, &mut filed, Instant::ZERO);
        assert_eq!(inline.due(Instant::ZERO), Some(0));
    }
}
