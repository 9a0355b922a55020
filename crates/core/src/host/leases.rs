//! Limits that move between the shards of one host.
//!
//! Each shard begins with its [part](crate::Limits::part) of what connections need. One that has
//! little room left asks the others. Each that has more room gives away an equal part of the
//! difference: it never has less left than the one that asked.
//!
//! ```text
//!   shard 0: 2 of 100 left          shards 1 to 3: 80 of 100 left
//!           ── Want { left: 2 } ──▶         (80 - 2) / 4 = 19
//!           ◀── Grant { 19 } ──             61 of 81 left
//!   59 of 157 left
//! ```
//!
//! The limits of all shards, and what is on its way between them, add up to the host's. A grant
//! that is lost goes back to the shard that sent it. Limits on rates are divided and do not move.

use super::Host;
use super::parts::{Closed, half_open};
use crate::config::lease::{Grant, Leased};
use crate::config::{Config, Limits};
use crate::ip::shards::Content;
use crate::time::{Duration, Instant};

/// Between an ask and the next, where the last has brought something, or more is needed since.
const WAIT_MIN: Duration = Duration::from_millis(5);
/// Between an ask and the next at most: where the others have nothing to give, they are asked
/// after twice as long each time.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A shard gives where it has so large a part of its limit more than the one that asks: small
/// differences do not move.
const PART_LEAST: usize = 64;

/// What this shard may use now, and when it asks for more.
#[derive(Debug)]
pub(super) struct Leases {
    limits: Limits,
    asks: [Ask; Leased::ALL.len()],
    /// Bytes of receive windows that go with a page.
    window_bytes_per_page: u64,
}

/// When the other shards are asked again.
#[derive(Clone, Copy, Debug)]
struct Ask {
    at: Instant,
    wait: Duration,
    /// What was left when they were asked last.
    left: usize,
}

impl Ask {
    /// Lets the others be asked soon, and as soon again.
    fn hurry(&mut self, now: Instant) {
        (self.at, self.wait) = (self.at.min(now + WAIT_MIN), WAIT_MIN);
    }
}

impl Leases {
    pub(super) fn new(config: &Config) -> Leases {
        let limits = config.limits.clone();
        let window_bytes_per_page = limits.receive_window_bytes / limits.pages.max(1) as u64;
        let asks = [Ask { at: Instant::ZERO, wait: WAIT_MIN, left: 0 }; Leased::ALL.len()];
        Leases { limits, asks, window_bytes_per_page }
    }

    /// What this shard may use now.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// How much of a limit is left, and how much there is.
#[derive(Clone, Copy, Debug)]
struct Room {
    left: usize,
    limit: usize,
}

impl Room {
    fn of(limit: usize, used: usize) -> Room {
        Room { left: limit.saturating_sub(used), limit }
    }

    /// True if others are to be asked. An idle shard has all of its limit left.
    fn is_little(self) -> bool {
        self.left <= self.limit / 4
    }
}

impl Host {
    /// What this shard may use now: its part of the limits that are configured, more what other
    /// shards have given it, less what it has given them.
    pub fn limits(&self) -> &Limits {
        self.leases.limits()
    }

    fn room(&self, what: Leased) -> Room {
        let limits = self.limits();
        match what {
            Leased::Connections => Room::of(limits.connections, self.connections()),
            Leased::SynCache => Room::of(limits.syn_cache, self.opening.syn_cache.unproven()),
            Leased::TimeWait => {
                let Closed { time_wait, fin_wait_2, whole_blocks } = &self.closed;
                let records = time_wait.len().max(fin_wait_2.records().len());
                Room::of(limits.time_wait, records.max(whole_blocks.len()))
            }
            Leased::Memory => {
                let (pool, budget) = (&self.shared.pool, &self.shared.budget);
                let pages = pool.left_to_all();
                let windows = budget.left().checked_div(self.leases.window_bytes_per_page);
                let left = windows.map_or(pages, |windows| pages.min(windows as usize));
                Room { left, limit: pool.limit() }
            }
        }
    }

    /// Asks the other shards for what is short here, if it is time to.
    pub(super) fn ask_for_room(&mut self, now: Instant) {
        for what in Leased::ALL {
            let room = self.room(what);
            let ask = &mut self.leases.asks[what as usize];
            if !room.is_little() || what == Leased::TimeWait && self.config.limits.time_wait == 0 {
                // The next shortage is a new one.
                ask.hurry(now);
                continue;
            }
            if room.left < ask.left {
                // More is needed since.
                ask.hurry(now);
            }
            if now < ask.at {
                continue;
            }
            ask.left = room.left;
            ask.at = now + ask.wait;
            ask.wait = (ask.wait * 2).min(WAIT_MAX);
            self.ip.shards.send_to_others(|| Content::Want { what, left: room.left });
        }
    }

    /// When to ask again, though no segment may come until then. Connections may wait for memory.
    /// For the rest the others are asked on while they give.
    pub(super) fn lease_deadline(&self) -> Option<Instant> {
        if self.config.member.is_alone() {
            return None;
        }
        let is_due = |what: &Leased| {
            let ask = &self.leases.asks[*what as usize];
            (*what == Leased::Memory || ask.wait == WAIT_MIN && ask.at > Instant::ZERO)
                && self.room(*what).is_little()
        };
        let asks = Leased::ALL.into_iter().filter(is_due);
        asks.map(|what| self.leases.asks[what as usize].at).min()
    }

    /// Shard `from` has so much left of its limit, and wants more.
    pub(super) fn on_wanted(&mut self, from: u16, what: Leased, left: usize) {
        let room = self.room(what);
        let more = room.left.saturating_sub(left);
        if more < (room.limit / PART_LEAST).max(2) || !self.ip.shards.has_room() {
            return;
        }
        let amount = (more / usize::from(self.config.member.of)).max(1);
        let window_bytes = match what {
            Leased::Memory => amount as u64 * self.leases.window_bytes_per_page,
            _ => 0,
        };
        let grant = Grant { what, amount, window_bytes };
        let limits = &mut self.leases.limits;
        *grant.limit_in(limits) -= amount;
        limits.receive_window_bytes -= window_bytes;
        self.follow_limits();
        self.shared.counters.limits_moved += 1;
        self.ip.shards.send(from, Content::Grant(grant));
    }

    /// A part of a limit has come.
    pub(super) fn on_granted(&mut self, now: Instant, grant: Grant) {
        self.take_grant(grant);
        self.leases.asks[grant.what as usize].hurry(now);
    }

    /// A part of a limit comes, or comes back because it was lost on its way.
    pub(super) fn take_grant(&mut self, grant: Grant) {
        let limits = &mut self.leases.limits;
        *grant.limit_in(limits) += grant.amount;
        limits.receive_window_bytes += grant.window_bytes;
        self.follow_limits();
    }

    /// Lets all that keeps a limit of its own follow.
    fn follow_limits(&mut self) {
        let limits = &self.leases.limits;
        self.opening.syn_cache.set_limits(half_open(limits));
        self.closed.time_wait.set_limit(limits.time_wait);
        self.closed.fin_wait_2.set_limit(limits.time_wait);
        self.shared.pool.set_limit(limits.pages);
        self.shared.budget.set_limit(limits.receive_window_bytes);
    }
}
