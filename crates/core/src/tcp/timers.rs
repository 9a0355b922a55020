//! A connection's timers, and who looks after them.
//!
//! The engine only stores deadlines in the connection: setting or cancelling a timer is one store.
//! When a dirty connection has been flushed, the host tells the scheme once with
//! [`Timers::touched`] the earliest of its deadlines, and that is all a scheme ever hears.
//!
//! The scheme here files one lazily re-armed entry per connection, at or before its earliest
//! deadline: a deadline that moves later leaves the entry where it is, and the entry is filed again
//! when it turns out to be early.

use alloc::collections::BTreeSet;

use crate::time::Instant;

/// The timers of a connection (Aron & Druschel 1999, §2; TIME-WAIT has its own table).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Retransmission of SYN, data or FIN (RFC 6298).
    Retransmit,
    /// A delayed ACK is due.
    DelayedAck,
    /// Zero-window probe, or the sender's override of silly-window avoidance.
    Persist,
    /// The next keepalive probe (RFC 9293 §3.8.4).
    KeepAlive,
    /// An orphan waits in FIN-WAIT-2.
    FinWait2,
    /// The whole life of a phase: establishment, or a linger with a limit.
    Lifetime,
}

/// Timers a connection has.
const TIMERS: usize = 6;

/// When each timer of a connection is due.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    at: [Instant; TIMERS],
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines { at: [Instant::FAR_FUTURE; TIMERS] }
    }
}

impl Deadlines {
    /// Sets `timer` to fire at `at`.
    pub fn set(&mut self, timer: Timer, at: Instant) {
        self.at[timer as usize] = at;
    }

    /// Cancels `timer`.
    pub fn cancel(&mut self, timer: Timer) {
        self.at[timer as usize] = Instant::FAR_FUTURE;
    }

    /// Cancels every timer.
    pub fn clear(&mut self) {
        *self = Deadlines::default();
    }

    /// True if `timer` is set.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.at[timer as usize] != Instant::FAR_FUTURE
    }

    /// When `timer` is due; [`Instant::FAR_FUTURE`] if it is not set.
    pub fn at(&self, timer: Timer) -> Instant {
        self.at[timer as usize]
    }

    /// If `timer` is due at `now`, cancels it and returns true.
    pub fn take_due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.at[timer as usize] <= now;
        if due {
            self.cancel(timer);
        }
        due
    }

    /// The earliest deadline; [`Instant::FAR_FUTURE`] if none is set.
    pub fn earliest(&self) -> Instant {
        self.at.into_iter().fold(Instant::FAR_FUTURE, Instant::min)
    }
}

/// Wake-up entries of all connections, by slot.
#[derive(Debug, Default)]
pub struct Timers {
    entries: BTreeSet<(Instant, u32)>,
}

/// Where a connection's entry is filed; kept in the connection's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filed(Instant);

impl Default for Filed {
    fn default() -> Self {
        Filed(Instant::FAR_FUTURE)
    }
}

impl Timers {
    /// The connection in slot `index` was flushed and its earliest deadline is `earliest`.
    pub fn touched(&mut self, index: u32, filed: &mut Filed, earliest: Instant) {
        if earliest < filed.0 {
            self.forget(index, filed);
            self.entries.insert((earliest, index));
            filed.0 = earliest;
        }
    }

    /// The connection in slot `index` is gone.
    pub fn forget(&mut self, index: u32, filed: &mut Filed) {
        if filed.0 != Instant::FAR_FUTURE {
            self.entries.remove(&(filed.0, index));
            filed.0 = Instant::FAR_FUTURE;
        }
    }

    /// A slot whose entry is due at `now`; its entry is taken out (pass the slot's `Filed` to
    /// [`Timers::on_taken`]).
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        let first = self.entries.first().filter(|entry| entry.0 <= now)?;
        let index = first.1;
        self.entries.pop_first();
        Some(index)
    }

    /// The entry of this slot was taken out by [`Timers::due`].
    pub fn on_taken(filed: &mut Filed) {
        filed.0 = Instant::FAR_FUTURE;
    }

    /// When the earliest entry is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.entries.first().map(|entry| entry.0)
    }

    /// Entries filed: one per connection with a deadline, at most.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no connection has a deadline.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_moves_only_when_the_deadline_becomes_earlier() {
        let mut timers = Timers::default();
        let mut filed = Filed::default();
        timers.touched(7, &mut filed, Instant::from_millis(10));
        timers.touched(7, &mut filed, Instant::from_millis(20));
        assert_eq!(timers.deadline(), Some(Instant::from_millis(10)));
        timers.touched(7, &mut filed, Instant::from_millis(5));
        assert_eq!(timers.len(), 1);
        assert_eq!(timers.due(Instant::from_millis(4)), None);
        assert_eq!(timers.due(Instant::from_millis(5)), Some(7));
    }

    #[test]
    fn death_unlinks_the_entry() {
        let mut timers = Timers::default();
        let mut filed = Filed::default();
        timers.touched(1, &mut filed, Instant::from_millis(10));
        timers.forget(1, &mut filed);
        assert!(timers.is_empty());
        timers.forget(1, &mut filed);
    }
}
