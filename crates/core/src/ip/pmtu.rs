//! Path MTUs, for those destinations whose path is narrower than the link: those that ICMP has
//! reported (RFC 1191, RFC 8201), and those that were searched for, because large packets vanish
//! and no report comes (RFC 4821, RFC 8899).
//!
//! A report is hearsay: the caller checks it against a connection first (RFC 5927 §7). An entry
//! ends ten minutes after it was last lowered, and the link's MTU is tried again (RFC 1191 §6.3).
//!
//! ```text
//!   link MTU ── large packets vanish ─▶ base ── a probe arrives ─▶ its size, and a larger probe
//!                                         └──── three are lost ─▶ no more probes for ten minutes
//! ```
//!
//! A search begins at a size that nearly every path carries, and goes up by the sizes that links
//! have. So three probes of a search are lost at most. What was found stays, and is searched beyond
//! again after ten minutes (RFC 4821 §7.3), as long as somebody probes.
//!
//! IPv4 allows paths down to 68 bytes, where a few forged messages would make us send hundreds of
//! packets for one. We go no lower than `IPV4_FLOOR`, and send packets of that size without DF
//! when a path is said to be narrower still: routers may fragment them. IPv6 promises 1,280, and
//! less is not believed (RFC 8201 §4).

use alloc::collections::VecDeque;
use core::net::IpAddr;
use hashbrown::HashMap;

use crate::flow::keyed::KeyedHash;
use crate::time::{Duration, Instant};
use crate::wire::ipv6;

/// The least IPv4 path MTU that we take, in bytes: 512 of payload and 40 of headers.
pub(crate) const IPV4_FLOOR: u16 = 552;

/// How long an estimate lasts (RFC 1191 §6.3, RFC 8201 §4).
pub(crate) const LIFETIME: Duration = Duration::from_secs(600);

/// Where a search begins: BASE_PLPMTU (RFC 8899 §5.1.2). IPv6 promises more.
const IPV4_BASE: u16 = 1200;

/// The sizes of probes: the least of IPv6; tunnels of several kinds over Ethernet; PPP over it,
/// itself, and links with larger packets. The link's own is the last.
const PROBES: [u16; 12] =
    [IPV4_BASE, 1280, 1340, 1380, 1400, 1420, 1450, 1480, 1492, 1500, 4352, 9000];

/// MAX_PROBES (RFC 8899 §5.1.2): a path that loses much may lose a probe that it would carry.
const LOST_MAX: u8 = 3;

/// What paths are likely to carry, for routers that do not say (RFC 1191 §7.1).
const PLATEAUS: [u16; 9] = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, IPV4_FLOOR];

/// The greatest packet of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathMtu {
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Send with DF: false only on an IPv4 path narrower than we care to go.
    pub dont_fragment: bool,
    /// The size of the next probe; 0: nothing is searched for.
    pub probe: u16,
}

impl PathMtu {
    fn told(mtu: u16, dont_fragment: bool) -> PathMtu {
        PathMtu { mtu, dont_fragment, probe: 0 }
    }

    /// A path that carries packets of `mtu` bytes, and none larger than `most`.
    fn searched(mtu: u16, most: u16) -> PathMtu {
        let sizes = PROBES.into_iter().chain([most]);
        let probe = sizes.filter(|size| *size > mtu && *size <= most).min().unwrap_or(0);
        PathMtu { mtu, dont_fragment: true, probe }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    path: PathMtu,
    until: Instant,
    /// The path is searched, and somebody has probed since the search began.
    is_searched: bool,
    /// Probes of the next size that were lost.
    lost: u8,
}

/// The path MTUs of one host.
#[derive(Debug)]
pub(crate) struct PathMtus {
    link_mtu: u16,
    limit: usize,
    entries: HashMap<IpAddr, Entry, KeyedHash>,
    /// Every entry once, by a time at or before its end.
    order: VecDeque<(Instant, IpAddr)>,
    /// How often the entries have changed.
    changes: u64,
}

impl PathMtus {
    /// At most `limit` estimates below `link_mtu`, the link's own.
    pub(crate) fn new(link_mtu: u16, limit: usize, secret: &[u8; 32]) -> Self {
        PathMtus {
            link_mtu,
            limit: limit.max(1),
            entries: HashMap::with_hasher(KeyedHash::new(secret, "path mtus")),
            order: VecDeque::new(),
            changes: 0,
        }
    }

    /// What the path to `destination` carries.
    pub(crate) fn path(&self, destination: IpAddr) -> PathMtu {
        let link = PathMtu::told(self.link_mtu, true);
        self.entries.get(&destination).map_or(link, |entry| entry.path)
    }

    /// How often an answer of [`PathMtus::path`] may have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// A router says that a packet of ours, `packet_len` bytes long, was too large for its next
    /// link, which carries `next_hop_mtu` bytes (0: it does not say how many). Returns what the
    /// path carries now if that is less than before.
    pub(crate) fn on_too_big(
        &mut self,
        now: Instant,
        destination: IpAddr,
        next_hop_mtu: u32,
        packet_len: u32,
    ) -> Option<PathMtu> {
        let before = self.path(destination);
        let path = estimate(destination, next_hop_mtu, packet_len)?;
        let gives_up_df = before.dont_fragment && !path.dont_fragment && path.mtu == before.mtu;
        if path.mtu >= before.mtu && !gives_up_df {
            return None;
        }
        self.keep(destination, Entry { path, until: now + LIFETIME, is_searched: false, lost: 0 });
        Some(path)
    }

    fn keep(&mut self, destination: IpAddr, entry: Entry) {
        self.changes += 1;
        if let Some(known) = self.entries.get_mut(&destination) {
            *known = entry;
        } else {
            while self.entries.len() >= self.limit {
                self.evict();
            }
            self.entries.insert(destination, entry);
            self.order.push_back((entry.until, destination));
        }
    }

    /// Packets of `packet_len` bytes to `destination` vanish, and no router says why (RFC 4821
    /// §7.7); `again`: that has lasted for so long that the path may be very narrow. True if the
    /// path is taken for narrower now.
    pub(crate) fn on_black_hole(
        &mut self,
        now: Instant,
        destination: IpAddr,
        packet_len: u16,
        again: bool,
    ) -> bool {
        let before = self.path(destination);
        let below: &[u16] = match (destination, again) {
            (IpAddr::V6(_), _) => &[ipv6::MIN_MTU],
            (IpAddr::V4(_), false) => &[IPV4_BASE],
            (IpAddr::V4(_), true) => &[IPV4_BASE, IPV4_BASE / 2, IPV4_FLOOR],
        };
        let most = packet_len.min(before.mtu);
        let path = match below.iter().find(|mtu| **mtu < most) {
            Some(mtu) => PathMtu::searched(*mtu, self.link_mtu),
            None if again && destination.is_ipv4() && before.dont_fragment => {
                PathMtu::told(IPV4_FLOOR.min(before.mtu), false)
            }
            None => return false,
        };
        self.keep(
            destination,
            Entry { path, until: now + LIFETIME, is_searched: path.probe > 0, lost: 0 },
        );
        true
    }

    /// A probe of `size` bytes has arrived at `destination`, or not.
    pub(crate) fn on_probed(
        &mut self,
        now: Instant,
        destination: IpAddr,
        size: u16,
        arrived: bool,
    ) {
        let Some(entry) = self.entries.get_mut(&destination) else { return };
        // Another connection's probe may have told the same, or more.
        if entry.path.probe != size {
            return;
        }
        let lost = if arrived { 0 } else { entry.lost + 1 };
        let path = match arrived {
            true => PathMtu::searched(size, self.link_mtu),
            false if lost < LOST_MAX => entry.path,
            false => PathMtu { probe: 0, ..entry.path },
        };
        self.keep(destination, Entry { path, until: now + LIFETIME, is_searched: true, lost });
    }

    /// Forgets the estimates that have ended by `now`: packets of the link's MTU may be tried
    /// again.
    pub(crate) fn on_time(&mut self, now: Instant) {
        while let Some(&(at, destination)) = self.order.front() {
            if at > now {
                break;
            }
            self.order.pop_front();
            match self.entries.get_mut(&destination) {
                // Lowered again since it was filed.
                Some(entry) if entry.until > now => {
                    self.order.push_back((entry.until, destination));
                }
                Some(entry) if entry.is_searched => {
                    let path = PathMtu::searched(entry.path.mtu, self.link_mtu);
                    // Without a probe until then, nobody needs the path any more.
                    *entry = Entry { path, until: now + LIFETIME, is_searched: false, lost: 0 };
                    self.order.push_back((entry.until, destination));
                    self.changes += 1;
                }
                _ => {
                    self.changes += 1;
                    self.entries.remove(&destination);
                }
            }
        }
    }

    /// When [`PathMtus::on_time`] next has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(at, _)| *at)
    }

    /// The one filed longest ago goes: packets to it will be found too large once more.
    fn evict(&mut self) {
        if let Some((_, destination)) = self.order.pop_front() {
            self.entries.remove(&destination);
        }
    }
}

/// What the path to `destination` carries by a router's word; `None` if that cannot be true.
fn estimate(destination: IpAddr, next_hop_mtu: u32, packet_len: u32) -> Option<PathMtu> {
    let told = u16::try_from(next_hop_mtu).ok()?;
    if u32::from(told) >= packet_len {
        return None; // It would have fitted.
    }
    if destination.is_ipv6() {
        return (told >= ipv6::MIN_MTU).then_some(PathMtu::told(told, true));
    }
    let mtu = match told {
        0 => *PLATEAUS.iter().find(|plateau| u32::from(**plateau) < packet_len).unwrap_or(&0),
        told => told,
    };
    Some(PathMtu::told(mtu.max(IPV4_FLOOR), mtu >= IPV4_FLOOR))
}

#[cfg(test)]
mod tests;
