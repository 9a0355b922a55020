//! The multicast groups that sockets listen to, and when routers and switches are told of them
//! (RFC 3376 §5, RFC 3810 §6).
//!
//! What has changed is reported at once and once more, at a random time within a second. A query is
//! answered at a random time within what it allows; answers that are due together go together. A
//! querier of an older version is answered in its own (RFC 3376 §7.2.1, RFC 3810 §8.2.1).
//!
//! The first shard of a host reports. A replica tells it instead, as often.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::Config;
use crate::error::Error;
use crate::flow::keyed::KeyedHash;
use crate::time::{Duration, Instant};
use crate::wire::mld::Change;
use crate::wire::{igmp, mld, ndp};

/// Groups of a host at most, those that it has left and must still report with them.
pub(crate) const GROUPS_MAX: usize = 256;

/// How often a change is reported: the Robustness Variable (RFC 3376 §8.1, RFC 3810 §9.1).
const ROBUSTNESS: u8 = 2;

/// A change is reported again within this: the Unsolicited Report Interval (RFC 3376 §8.11,
/// RFC 3810 §9.11).
const AGAIN_WITHIN: Duration = Duration::from_secs(1);

/// How long a query of an older version makes us speak that: the Older Version Querier Present
/// Timeout (RFC 3376 §8.12, RFC 3810 §9.12).
const OLD_QUERIER: Duration = Duration::from_secs(260);

/// A group that somebody listens to, or that was left a moment ago.
#[derive(Clone, Copy, Debug)]
struct Group {
    address: IpAddr,
    /// Sockets of this shard that listen to it.
    sockets: u32,
    /// The shards with such sockets, a bit each, but for the first.
    replicas: u64,
    /// How often the last change is still to be reported, and when next.
    reports: u8,
    report_at: Instant,
    /// When a query is to be answered.
    answer_at: Instant,
}

impl Group {
    fn is_heard(&self) -> bool {
        self.sockets > 0 || self.replicas != 0
    }

    fn deadline(&self) -> Instant {
        self.report_at.min(self.answer_at)
    }

    /// Its listeners were none, or are none now.
    fn on_change(&mut self) {
        self.answer_at = Instant::FAR_FUTURE;
        if is_reported(self.address) {
            (self.reports, self.report_at) = (ROBUSTNESS, Instant::ZERO);
        }
    }
}

/// The groups of one shard, and of all its host on the first.
#[derive(Debug)]
pub(crate) struct Groups {
    all: Vec<Group>,
    hash: KeyedHash,
    /// Random numbers that were drawn.
    drawn: u64,
    /// Until when each older version is spoken.
    igmp_v1_until: Instant,
    igmp_v2_until: Instant,
    mld_v1_until: Instant,
    deadline: Instant,
}

impl Groups {
    pub(crate) fn new(config: &Config) -> Groups {
        Groups {
            all: Vec::new(),
            hash: KeyedHash::new(&config.secret, "groups"),
            drawn: 0,
            igmp_v1_until: Instant::ZERO,
            igmp_v2_until: Instant::ZERO,
            mld_v1_until: Instant::ZERO,
            deadline: Instant::FAR_FUTURE,
        }
    }

    /// True if a socket of the host listens to the group.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.all.iter().any(|group| group.address == address && group.is_heard())
    }

    /// A socket begins to listen to a group.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if there are as many as may be.
    pub(crate) fn join(&mut self, address: IpAddr) -> Result<(), Error> {
        let group = self.entry(address).ok_or(Error::Limit("groups"))?;
        let was_heard = group.is_heard();
        group.sockets += 1;
        if !was_heard {
            group.on_change();
        }
        self.refresh_deadline();
        Ok(())
    }

    /// A socket that has listened to a group ceases to.
    pub(crate) fn leave(&mut self, address: IpAddr) {
        let Some(group) = self.all.iter_mut().find(|group| group.address == address) else {
            return;
        };
        group.sockets -= 1;
        if !group.is_heard() {
            group.on_change();
        }
        self.forget();
    }

    /// A replica says whether a socket of its own listens to a group.
    pub(crate) fn on_told(&mut self, from: u16, address: IpAddr, listens: bool) {
        if !listens && !self.all.iter().any(|group| group.address == address) {
            return;
        }
        let Some(group) = self.entry(address) else { return };
        let (was_heard, bit) = (group.is_heard(), 1 << from);
        group.replicas = if listens { group.replicas | bit } else { group.replicas & !bit };
        if group.is_heard() != was_heard {
            group.on_change();
        }
        self.forget();
    }

    /// The entry of a group, a new one if need be. `None`: there is no room.
    fn entry(&mut self, address: IpAddr) -> Option<&mut Group> {
        if let Some(at) = self.all.iter().position(|group| group.address == address) {
            return self.all.get_mut(at);
        }
        if self.all.len() == GROUPS_MAX {
            // One that was left need not be reported a second time.
            let left = self.all.iter().position(|group| !group.is_heard())?;
            self.all.swap_remove(left);
        }
        let far = Instant::FAR_FUTURE;
        let group =
            Group { address, sockets: 0, replicas: 0, reports: 0, report_at: far, answer_at: far };
        self.all.push(group);
        self.all.last_mut()
    }

    /// A querier asks for listeners to `group`; if that is unspecified, to any.
    pub(crate) fn on_igmp_query(
        &mut self,
        now: Instant,
        (version, group): (igmp::Version, Ipv4Addr),
        max_response_ms: u32,
    ) {
        match version {
            igmp::Version::V1 => self.igmp_v1_until = now + OLD_QUERIER,
            igmp::Version::V2 => self.igmp_v2_until = now + OLD_QUERIER,
            igmp::Version::V3 => {}
        }
        self.on_query(now, group.into(), max_response_ms);
    }

    /// The same, of IPv6.
    pub(crate) fn on_mld_query(
        &mut self,
        now: Instant,
        (version, group): (mld::Version, Ipv6Addr),
        max_response_ms: u32,
    ) {
        if version == mld::Version::V1 {
            self.mld_v1_until = now + OLD_QUERIER;
        }
        self.on_query(now, group.into(), max_response_ms);
    }

    fn on_query(&mut self, now: Instant, asked: IpAddr, max_response_ms: u32) {
        let at = now + self.random(Duration::from_millis(max_response_ms.into()));
        let is_asked = |address: IpAddr| {
            address == asked || asked.is_unspecified() && address.is_ipv4() == asked.is_ipv4()
        };
        for group in &mut self.all {
            if is_asked(group.address) && group.is_heard() && is_reported(group.address) {
                group.answer_at = group.answer_at.min(at);
            }
        }
        self.refresh_deadline();
    }

    /// The version that the queriers of the link understand.
    pub(crate) fn igmp_version(&self, now: Instant) -> igmp::Version {
        match () {
            () if now < self.igmp_v1_until => igmp::Version::V1,
            () if now < self.igmp_v2_until => igmp::Version::V2,
            () => igmp::Version::V3,
        }
    }

    /// The same, of IPv6.
    pub(crate) fn mld_version(&self, now: Instant) -> mld::Version {
        if now < self.mld_v1_until { mld::Version::V1 } else { mld::Version::V2 }
    }

    /// The reports that are due.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(Change, IpAddr)> {
        let again_at = now + self.random(AGAIN_WITHIN).max(Duration::from_millis(1));
        let mut due = Vec::new();
        for group in &mut self.all {
            let change = match group.is_heard() {
                true if group.report_at <= now => Change::Joined,
                true => Change::Listening,
                false => Change::Left,
            };
            if group.deadline() <= now {
                due.push((change, group.address));
            }
            if group.report_at <= now {
                group.reports -= 1;
                group.report_at = if group.reports > 0 { again_at } else { Instant::FAR_FUTURE };
            }
            if group.answer_at <= now {
                group.answer_at = Instant::FAR_FUTURE;
            }
        }
        self.forget();
        due
    }

    /// When reports are due; [`Instant::FAR_FUTURE`] if none are.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// A random time from zero up to `most`.
    fn random(&mut self, most: Duration) -> Duration {
        self.drawn += 1;
        let nanos = most.as_nanos() as u64;
        Duration::from_nanos(self.hash.quick(&self.drawn.to_le_bytes()) % (nanos + 1))
    }

    /// Forgets what was left and reported.
    fn forget(&mut self) {
        self.all.retain(|group| group.is_heard() || group.reports > 0);
        self.refresh_deadline();
    }

    fn refresh_deadline(&mut self) {
        let deadlines = self.all.iter().map(Group::deadline);
        self.deadline = deadlines.min().unwrap_or(Instant::FAR_FUTURE);
    }
}

/// True unless every host hears it, unasked: that of all hosts, and what does not leave one
/// (RFC 3376 §6, RFC 3810 §6).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != igmp::ALL_HOSTS,
        IpAddr::V6(group) => group != ndp::ALL_NODES && group.octets()[1] & 0x0f > 1,
    }
}

#[cfg(test)]
mod tests;
