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
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const FOUR: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));
    const SIX: IpAddr = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn cache() -> PathMtus {
        PathMtus::new(9000, 2, &[1; 32])
    }

    fn whole(mtu: u16) -> Option<PathMtu> {
        Some(PathMtu::told(mtu, true))
    }

    #[test]
    fn a_path_is_as_wide_as_the_link_until_told_otherwise() {
        let mut cache = cache();
        assert_eq!(Some(cache.path(FOUR)), whole(9000));
        assert_eq!(cache.on_too_big(at(0), FOUR, 1400, 9000), whole(1400));
        assert_eq!(Some(cache.path(FOUR)), whole(1400));
        assert_eq!(Some(cache.path(SIX)), whole(9000));
        // Wider than known, as wide as known, and wide enough for the packet: not believed.
        for (told, packet_len) in [(1401, 9000), (1400, 9000), (1300, 1300)] {
            assert_eq!(cache.on_too_big(at(0), FOUR, told, packet_len), None);
        }
        assert_eq!(cache.on_too_big(at(0), FOUR, 1399, 1400), whole(1399));
        assert_eq!(cache.on_too_big(at(0), SIX, 9001, 9500), None, "wider than the link");
        assert_eq!(cache.on_too_big(at(0), SIX, 0x1_0500, 0x2_0000), None);
    }

    #[test]
    fn a_router_that_does_not_say_means_the_next_plateau() {
        let mut cache = cache();
        for (packet_len, mtu) in [(9000, 8166), (8166, 4352), (1500, 1492), (1492, 1006)] {
            assert_eq!(cache.on_too_big(at(0), FOUR, 0, packet_len), whole(mtu));
        }
        assert_eq!(cache.on_too_big(at(0), FOUR, 0, 1006), whole(IPV4_FLOOR));
        let fragmented = PathMtu::told(IPV4_FLOOR, false);
        assert_eq!(cache.on_too_big(at(0), FOUR, 0, IPV4_FLOOR.into()), Some(fragmented));
        assert_eq!(cache.on_too_big(at(0), SIX, 0, 9000), None, "IPv6 routers do say");
    }

    #[test]
    fn no_path_is_taken_for_narrower_than_the_floor() {
        let mut cache = cache();
        assert_eq!(cache.on_too_big(at(0), FOUR, IPV4_FLOOR.into(), 1500), whole(IPV4_FLOOR));
        let fragmented = PathMtu::told(IPV4_FLOOR, false);
        assert_eq!(cache.on_too_big(at(0), FOUR, 551, 1500), Some(fragmented));
        assert_eq!(cache.on_too_big(at(0), FOUR, 68, 1500), None, "nothing changes");
        assert_eq!(cache.on_too_big(at(0), FOUR, IPV4_FLOOR.into(), 1500), None, "nor back");
        assert_eq!(cache.on_too_big(at(0), SIX, 1279, 1500), None);
        assert_eq!(cache.on_too_big(at(0), SIX, 1280, 1500), whole(1280));
    }

    #[test]
    fn an_estimate_ends_ten_minutes_after_it_was_lowered() {
        let mut cache = cache();
        cache.on_too_big(at(0), FOUR, 1400, 9000);
        cache.on_too_big(at(100), FOUR, 1300, 9000);
        cache.on_too_big(at(50), SIX, 1300, 9000);
        cache.on_time(at(650) - Duration::from_nanos(1));
        assert_eq!((cache.path(FOUR).mtu, cache.path(SIX).mtu), (1300, 1300));
        cache.on_time(at(650));
        assert_eq!((cache.path(FOUR).mtu, cache.path(SIX).mtu), (1300, 9000));
        assert_eq!(cache.deadline(), Some(at(700)));
        cache.on_time(at(700));
        assert_eq!((Some(cache.path(FOUR)), cache.deadline()), (whole(9000), None));
        assert!(cache.entries.is_empty());
    }

    #[test]
    fn the_estimate_beyond_the_limit_replaces_the_oldest() {
        let mut cache = cache();
        let third: IpAddr = "10.0.0.3".parse().unwrap();
        for (second, destination) in [(0, FOUR), (1, SIX), (2, third)] {
            cache.on_too_big(at(second), destination, 1400, 9000);
        }
        assert_eq!(cache.entries.len(), 2);
        assert_eq!(cache.path(FOUR).mtu, 9000);
        assert_eq!((cache.path(SIX).mtu, cache.path(third).mtu), (1400, 1400));
    }

    #[test]
    fn a_black_hole_is_searched_upwards_until_a_probe_is_lost() {
        let mut cache = PathMtus::new(1500, 2, &[1; 32]);
        assert!(cache.on_black_hole(at(0), FOUR, 1500, false));
        assert!(!cache.on_black_hole(at(0), FOUR, 1500, false), "the base is reached");
        assert!(!cache.on_black_hole(at(0), SIX, 1280, false), "so long as all paths carry");
        assert_eq!((cache.path(FOUR).mtu, cache.path(FOUR).probe), (1200, 1280));
        cache.on_probed(at(1), FOUR, 1280, true);
        assert_eq!((cache.path(FOUR).mtu, cache.path(FOUR).probe), (1280, 1340));
        cache.on_probed(at(1), FOUR, 1280, false);
        assert_eq!(cache.path(FOUR).probe, 1340, "an old probe tells nothing");
        for _ in 0..LOST_MAX {
            assert_eq!(cache.path(FOUR).probe, 1340);
            cache.on_probed(at(2), FOUR, 1340, false);
        }
        assert_eq!((cache.path(FOUR).mtu, cache.path(FOUR).probe), (1280, 0));
        // Ten minutes later it is searched again from where it was, and then given up.
        cache.on_time(at(602));
        assert_eq!((cache.path(FOUR).mtu, cache.path(FOUR).probe), (1280, 1340));
        cache.on_time(at(1202));
        assert_eq!(Some(cache.path(FOUR)), whole(1500));
        assert!(cache.entries.is_empty() && cache.order.is_empty());
    }

    #[test]
    fn a_search_reaches_the_links_mtu_whatever_that_is() {
        for link in [1280, 1500, 1333, 9000] {
            let mut cache = PathMtus::new(link, 2, &[1; 32]);
            assert_eq!(cache.on_black_hole(at(0), SIX, link, false), link > 1280);
            while cache.path(SIX).probe > 0 {
                cache.on_probed(at(0), SIX, cache.path(SIX).probe, true);
            }
            assert_eq!(cache.path(SIX).mtu, link);
        }
    }

    #[test]
    fn a_hole_below_the_base_halves_the_path_down_to_the_floor_and_gives_up_df() {
        let mut cache = PathMtus::new(1500, 2, &[1; 32]);
        let mut seen = std::vec::Vec::new();
        while cache.on_black_hole(at(0), FOUR, 1500, true) {
            seen.push((cache.path(FOUR).mtu, cache.path(FOUR).dont_fragment));
        }
        assert_eq!(seen, [(1200, true), (600, true), (552, true), (552, false)]);
        let mut six = || cache.on_black_hole(at(0), SIX, 1500, true);
        assert!(six() && !six());
    }

    proptest! {
        #[test]
        fn estimates_only_shrink_stay_in_bounds_and_end(
            told in vec((0u8..4, any::<bool>(), 0u32..10_000, 0u32..10_000, 0u64..300), 0..50),
        ) {
            let mut cache = cache();
            let mut now = Instant::ZERO;
            for (n, six, mtu, packet_len, pass) in told {
                let four = IpAddr::from([10, 0, 0, n]);
                let destination = if six { SIX } else { four };
                let before = cache.path(destination);
                let after = cache.on_too_big(now, destination, mtu, packet_len);
                let floor = if six { 1280 } else { IPV4_FLOOR };
                if let Some(path) = after {
                    prop_assert!(path.mtu <= before.mtu && path.mtu >= floor);
                    prop_assert_eq!(cache.path(destination), path);
                }
                prop_assert!(cache.entries.len() <= 2 && cache.entries.len() == cache.order.len());
                now = now + Duration::from_secs(pass);
                cache.on_time(now);
                prop_assert!(cache.deadline().is_none_or(|deadline| deadline > now));
            }
            cache.on_time(now + LIFETIME);
            cache.on_time(now + LIFETIME);
            prop_assert!(cache.entries.is_empty());
        }
    }
}
