//! What a service manager is told that has started the program, such as systemd with `Type=notify`
//! (sd_notify(3)): ready, reloading, stopping; and alive, while every shard makes its turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lightwait::rt;
use lightwait_core::config::Member;
use sd_notify::NotifyState;

/// No manager needs to know it more often.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// The manager, if there is one: without one nothing is told.
#[derive(Debug)]
pub(super) struct Manager {
    /// It ends the program that has not been alive for so long.
    patience: Option<Duration>,
    /// The turns of each shard's task, counted now and then.
    turns: Vec<AtomicU64>,
}

impl Manager {
    /// The manager of this process.
    pub(super) fn new(shards: u16) -> Manager {
        let mut micros = 0;
        let watches = sd_notify::watchdog_enabled(false, &mut micros);
        let patience = watches.then(|| Duration::from_micros(micros));
        Manager { patience, turns: (0..shards).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The server serves. `has_taken`: another process did, which the manager knows.
    pub(super) fn ready(&self, status: &str, has_taken: bool) {
        if has_taken {
            tell(&[NotifyState::MainPid(std::process::id())]);
        }
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// What `reload` does is a reload.
    pub(super) fn reloading(&self, reload: impl FnOnce()) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now]);
        }
        reload();
        tell(&[NotifyState::Ready]);
    }

    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Counts this shard's turns, for ever. The first shard's task tells that all are alive.
    pub(super) async fn watch(self: Arc<Self>, member: Member) {
        let Some(patience) = self.patience else { return };
        let own = usize::from(member.index);
        let mut known = self.counts();
        for round in 1_u64.. {
            rt::sleep((patience / 8).max(LEAST_PAUSE)).await;
            self.turns[own].fetch_add(1, Ordering::Relaxed);
            // Three eighths of the patience: a shard that is late by one has made one since.
            if member.index > 0 || round % 3 > 0 {
                continue;
            }
            let now = self.counts();
            if have_moved(&known, &now) {
                tell(&[NotifyState::Watchdog]);
                known = now;
            }
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect()
    }
}

/// True if each shard has made a turn.
fn have_moved(before: &[u64], now: &[u64]) -> bool {
    before.iter().zip(now).all(|(before, now)| before != now)
}

fn tell(states: &[NotifyState<'_>]) {
    // Whoever asked for it may have gone; the server serves all the same.
    let _ = sd_notify::notify(false, states);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_that_stands_still_is_enough() {
        assert!(have_moved(&[1, 5], &[2, 6]));
        assert!(!have_moved(&[1, 5], &[9, 5]));
    }
}
