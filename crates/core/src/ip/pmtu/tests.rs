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
fn a_hole_below_the_base_halves_the_path_and_gives_up_df() {
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
