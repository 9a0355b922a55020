//! Defends our addresses: probes, announces and keeps them (RFC 5227).
//!
//! ```text
//!                3 probes, 1–2 s apart,             2 announcements,
//!               then 2 s without objection            2 s apart
//!   PROBING ───────────────────────────▶ ANNOUNCING ───────────────▶ HELD ──┐
//!      │ another host has or probes it, too     ▲                    ▲      │ a host claims it:
//!      ▼                                        │ verified           └──────┘ one announcement
//!    LOST ◀──────────────────────────────── VERIFYING (IPv6)                  in 10 s at most
//! ```
//!
//! While the link was down, another host may have taken an address. When the link has come up, the
//! address is probed before it is announced: an announcement would draw the other's packets to us.
//! It stays in use, since connections outlive a cable that was pulled; an objection is a claim on
//! an address in use.
//!
//! An IPv6 address is verified by duplicate address detection (RFC 4862), which
//! `autoconfigure` does; from there on both versions are treated alike. An
//! IPv6 address is announced by unsolicited neighbour advertisements (RFC 4861 §7.2.6).
//!
//! An address that was verified is never given up: this is the stack of servers, which are found
//! at their address or not at all (RFC 5227 §2.4 (c)). Addresses are configured, and none is chosen
//! in the place of one that is lost; so there is no rate of new ones to limit (§2.1.1).
//!
//! The time and other hosts' claims come in; a list of [`Output`]s and of [`Conflict`]s goes out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use crate::flow::keyed::KeyedHash;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use crate::wire::ethernet::Mac;

// The constants of RFC 5227 §1.1.

/// The first probe is sent within this time.
pub(crate) const PROBE_WAIT: Duration = Duration::from_secs(1);
/// Probes of an address.
pub(crate) const PROBE_NUM: u8 = 3;
/// The shortest time between two probes.
pub(crate) const PROBE_MIN: Duration = Duration::from_secs(1);
/// The longest time between two probes.
pub(crate) const PROBE_MAX: Duration = Duration::from_secs(2);
/// How long others may object after the last probe.
pub(crate) const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
/// Announcements of an address.
pub(crate) const ANNOUNCE_NUM: u8 = 2;
/// The time between two announcements.
pub(crate) const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// An address is defended once in this time at most.
pub(crate) const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// The longest time that probing an address takes by these constants.
pub const PROBE_LONGEST: Duration = Duration::from_secs(7);

/// Conflicts that wait to be reported; more than these are only counted.
const CONFLICTS_MAX: usize = 16;

/// An action for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask all hosts for this address, without a sender's address (RFC 5227 §2.1.1).
    Probe(Ipv4Addr),
    /// Use this address from now on.
    Use(Ipv4Addr),
    /// Tell all hosts that this address is ours.
    Announce(IpAddr),
}

/// Another host claims an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// The hardware address of the host that claims it.
    pub claimant: Mac,
    /// The address was ours before, and we keep it. Else it is not used.
    pub kept: bool,
}

/// How it stands with the configured addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Some are still being asked for.
    Pending,
    /// All of them are ours.
    All,
    /// The address belongs to another host: it is not used.
    Refused(Conflict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Asked so often; the next probe is due then, or the end of the wait. It is in use since
    /// before the link was down, or not yet.
    Probing { asked: u8, at: Instant, in_use: bool },
    /// Duplicate address detection is under way.
    Verifying,
    /// Told so often; the next announcement is due then.
    Announcing { told: u8, at: Instant },
    /// Ours.
    Held,
    /// Another host has it.
    Lost { claimant: Mac },
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    address: IpAddr,
    stage: Stage,
    /// It is not to be defended before.
    quiet_until: Instant,
}

/// The configured addresses of one host, and how far each is ours.
#[derive(Debug)]
pub struct Claims {
    claims: Vec<Claim>,
    probe: Duration,
    announce: bool,
    rng: Rng,
    outputs: VecDeque<Output>,
    conflicts: VecDeque<Conflict>,
    /// There is something to tell: a conflict, or how it stands has changed.
    news: bool,
    deadline: Option<Instant>,
}

impl Claims {
    /// Claims nothing yet. Probing an address will take `probe` at most, its parts in proportion to
    /// the RFC's; if that is zero, addresses are used unasked. With `announce` they are announced.
    pub fn new(probe: Duration, announce: bool, secret: &[u8; 32]) -> Self {
        Claims {
            claims: Vec::new(),
            probe,
            announce,
            rng: Rng::from_seed(KeyedHash::new(secret, "address claims").quick(&[])),
            outputs: VecDeque::new(),
            conflicts: VecDeque::new(),
            news: false,
            deadline: None,
        }
    }

    /// Claims an address. One of IPv4 is probed, if any is, or announced; one of IPv6 waits for
    /// `Claims::on_verified`.
    pub fn begin(&mut self, now: Instant, address: IpAddr) {
        if self.find(address).is_some() {
            return;
        }
        let stage = if address.is_ipv6() {
            Stage::Verifying
        } else if self.probe.is_zero() {
            self.first_announcement(now)
        } else {
            self.first_probe(now, false)
        };
        self.claims.push(Claim { address, stage, quiet_until: Instant::ZERO });
        self.on_time(now);
    }

    /// The next action, oldest first.
    pub fn output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A conflict that was found, oldest first: each address that was lost, and each time that one
    /// was defended.
    pub fn conflict(&mut self) -> Option<Conflict> {
        self.conflicts.pop_front()
    }

    /// True if there is a conflict to tell, or how it stands has changed, since the last time.
    pub(crate) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// How it stands with all addresses.
    pub fn claimed(&self) -> Claimed {
        let mut claimed = Claimed::All;
        for claim in &self.claims {
            match claim.stage {
                Stage::Lost { claimant } => {
                    let address = claim.address;
                    return Claimed::Refused(Conflict { address, claimant, kept: false });
                }
                Stage::Probing { in_use: false, .. } => claimed = Claimed::Pending,
                // Unasked it is used meanwhile (RFC 4429).
                Stage::Verifying if !self.probe.is_zero() => claimed = Claimed::Pending,
                Stage::Probing { in_use: true, .. }
                | Stage::Verifying
                | Stage::Announcing { .. }
                | Stage::Held => {}
            }
        }
        claimed
    }

    /// `claimant` says that it has `address`. True if we have it, and say so once more.
    pub(crate) fn on_claim(&mut self, now: Instant, address: IpAddr, claimant: Mac) -> bool {
        let Some(claim) = self.find(address) else { return false };
        match claim.stage {
            Stage::Probing { in_use: false, .. } => self.on_lost(address, claimant),
            Stage::Probing { .. } | Stage::Announcing { .. } | Stage::Held
                if claim.quiet_until <= now =>
            {
                claim.quiet_until = now + DEFEND_INTERVAL;
                self.outputs.push_back(Output::Announce(address));
                self.tell(Conflict { address, claimant, kept: true });
                return true;
            }
            Stage::Probing { .. }
            | Stage::Verifying
            | Stage::Announcing { .. }
            | Stage::Held
            | Stage::Lost { .. } => {}
        }
        false
    }

    /// `claimant` asks whether another host has `address`, because it wants it: if we want it, too,
    /// neither may have it (RFC 5227 §2.1.1). If we have it, the host's answer is enough.
    pub(crate) fn on_probe(&mut self, address: IpAddr, claimant: Mac) {
        if let Some(Claim { stage: Stage::Probing { in_use: false, .. }, .. }) = self.find(address)
        {
            self.on_lost(address, claimant);
        }
    }

    /// Duplicate address detection has found no duplicate of `address`.
    pub(crate) fn on_verified(&mut self, now: Instant, address: IpAddr) {
        let first = self.first_announcement(now);
        if let Some(claim) = self.find(address).filter(|claim| claim.stage == Stage::Verifying) {
            claim.stage = first;
            self.news |= !self.probe.is_zero();
            self.on_time(now);
        }
    }

    /// The link has come up again: every address that is ours is announced once more, if addresses
    /// are announced, and one of IPv4 is probed before, if any is (RFC 5227 §2.1).
    pub fn on_link_up(&mut self, now: Instant) {
        for index in 0..self.claims.len() {
            let Claim { address, stage, .. } = self.claims[index];
            match stage {
                Stage::Probing { in_use: true, .. } | Stage::Announcing { .. } | Stage::Held => {
                    let is_probed = address.is_ipv4() && !self.probe.is_zero();
                    self.claims[index].stage = if is_probed {
                        self.first_probe(now, true)
                    } else {
                        self.first_announcement(now)
                    };
                }
                Stage::Probing { in_use: false, .. } | Stage::Verifying | Stage::Lost { .. } => {}
            }
        }
        self.on_time(now);
    }

    /// `claimant` has turned out to have `address`, claimed here or not.
    pub(crate) fn on_lost(&mut self, address: IpAddr, claimant: Mac) {
        if let Some(claim) = self.find(address) {
            claim.stage = Stage::Lost { claimant };
        }
        self.tell(Conflict { address, claimant, kept: false });
        self.refresh_deadline();
    }

    /// Does what is due at `now`.
    pub fn on_time(&mut self, now: Instant) {
        for index in 0..self.claims.len() {
            while self.is_due(index, now) {
                self.claims[index].stage = self.next_stage(now, self.claims[index]);
            }
        }
        self.refresh_deadline();
    }

    /// When [`Claims::on_time`] next has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn is_due(&self, index: usize, now: Instant) -> bool {
        due_at(self.claims[index].stage).is_some_and(|at| at <= now)
    }

    /// The next stage of a claim for which something is due.
    fn next_stage(&mut self, now: Instant, claim: Claim) -> Stage {
        match (claim.stage, claim.address) {
            (Stage::Probing { asked, in_use, .. }, IpAddr::V4(address)) if asked < PROBE_NUM => {
                self.outputs.push_back(Output::Probe(address));
                let last = asked + 1 == PROBE_NUM;
                let pause = if last {
                    self.scaled(ANNOUNCE_WAIT)
                } else {
                    self.random(PROBE_MIN, PROBE_MAX)
                };
                Stage::Probing { asked: asked + 1, at: now + pause, in_use }
            }
            (Stage::Probing { in_use, .. }, IpAddr::V4(address)) => {
                if !in_use {
                    self.outputs.push_back(Output::Use(address));
                    self.news = true;
                }
                self.first_announcement(now)
            }
            (Stage::Announcing { told, .. }, address) => {
                self.outputs.push_back(Output::Announce(address));
                let told = told + 1;
                let at = now + ANNOUNCE_INTERVAL;
                if told < ANNOUNCE_NUM { Stage::Announcing { told, at } } else { Stage::Held }
            }
            (stage, address) => unreachable!("{address}: nothing is due in {stage:?}"),
        }
    }

    fn first_probe(&mut self, now: Instant, in_use: bool) -> Stage {
        let at = now + self.random(Duration::ZERO, PROBE_WAIT);
        Stage::Probing { asked: 0, at, in_use }
    }

    fn first_announcement(&self, now: Instant) -> Stage {
        if self.announce { Stage::Announcing { told: 0, at: now } } else { Stage::Held }
    }

    fn find(&mut self, address: IpAddr) -> Option<&mut Claim> {
        self.claims.iter_mut().find(|claim| claim.address == address)
    }

    fn tell(&mut self, conflict: Conflict) {
        self.news = true;
        if self.conflicts.len() < CONFLICTS_MAX {
            self.conflicts.push_back(conflict);
        }
    }

    /// A time of the RFC's, in proportion to how long probing may take here.
    fn scaled(&self, time: Duration) -> Duration {
        let nanos = time.as_nanos() * self.probe.as_nanos() / PROBE_LONGEST.as_nanos();
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A random time between two of the RFC's, in the same proportion.
    fn random(&mut self, least: Duration, most: Duration) -> Duration {
        let spread = self.scaled(most - least);
        self.scaled(least) + spread.mul_f64(self.rng.unit())
    }

    fn refresh_deadline(&mut self) {
        self.deadline = self.claims.iter().filter_map(|claim| due_at(claim.stage)).min();
    }
}

fn due_at(stage: Stage) -> Option<Instant> {
    match stage {
        Stage::Probing { at, .. } | Stage::Announcing { at, .. } => Some(at),
        Stage::Verifying | Stage::Held | Stage::Lost { .. } => None,
    }
}

#[cfg(test)]
mod tests;
