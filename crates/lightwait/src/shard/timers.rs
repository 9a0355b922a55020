//! Deadlines of tasks: one ordered set a shard. A dropped sleep removes its deadline at once.

use std::collections::BTreeMap;
use std::task::Waker;

use lightwait_core::Instant;

/// The key of a deadline of a shard; never reused.
pub(crate) type TimerKey = (Instant, u64);

/// The deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: BTreeMap<TimerKey, Waker>,
    next: u64,
}

impl Timers {
    pub(crate) fn add(&mut self, deadline: Instant, waker: Waker) -> TimerKey {
        let key = (deadline, self.next);
        self.next += 1;
        self.deadlines.insert(key, waker);
        key
    }

    /// Replaces a deadline's waker. The deadline must not have passed.
    pub(crate) fn set_waker(&mut self, key: TimerKey, waker: &Waker) {
        if let Some(known) = self.deadlines.get_mut(&key) {
            known.clone_from(waker);
        }
    }

    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<Waker> {
        self.deadlines.remove(&key)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|(&(deadline, _), _)| deadline)
    }

    /// Takes the waker of the earliest deadline that is due by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.deadlines.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}
