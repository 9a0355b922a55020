use crate::ip::route::*;
use proptest::prelude::*;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn routes() -> Routes {
    Routes::new(
        &[cidr("10.9.0.2/24"), cidr("192.168.7.1/16"), cidr("fd00::2/64")],
        &[cidr("10.20.0.0/16")],
        &[addr("10.9.0.1"), addr("fd00::1")],
        1500,
    )
}

fn advertisement(lifetime_s: u16, prefixes: &[(&str, u8, u32)]) -> RouterAdvertisement {
    let mut advertisement =
        RouterAdvertisement { router_lifetime_s: lifetime_s, ..RouterAdvertisement::default() };
    for (prefix, prefix_len, valid_s) in prefixes {
        advertisement.prefixes.push(ndp::Prefix {
            prefix: v6(prefix),
            prefix_len: *prefix_len,
            on_link: true,
            autonomous: false,
            valid_s: *valid_s,
            preferred_s: 0,
        });
    }
    advertisement
}

fn hop(routes: &Routes, destination: &str) -> Option<NextHop> {
    routes.next_hop(addr(destination))
}

fn neighbour(address: &str) -> Option<NextHop> {
    Some(NextHop::Neighbour(addr(address)))
}

#[test]
fn packets_go_to_us_to_neighbours_to_gateways_or_to_groups() {
    let routes = routes();
    for ours in ["10.9.0.2", "fd00::2", "10.20.0.0", "10.20.255.255"] {
        assert_eq!(hop(&routes, ours), Some(NextHop::Ourselves), "{ours}");
    }
    assert_eq!(hop(&routes, "10.9.0.77"), neighbour("10.9.0.77"));
    assert_eq!(hop(&routes, "10.9.1.77"), neighbour("10.9.0.1"));
    assert_eq!(hop(&routes, "192.168.200.1"), neighbour("192.168.200.1"));
    assert_eq!(hop(&routes, "10.21.0.0"), neighbour("10.9.0.1"), "one beyond the range");
    assert_eq!(hop(&routes, "fd00::77"), neighbour("fd00::77"));
    assert_eq!(hop(&routes, "2001:db8::1"), neighbour("fd00::1"));
    assert_eq!(hop(&routes, "fe80::77"), neighbour("fe80::77"));
    for (group, mac) in [
        ("255.255.255.255", ethernet::BROADCAST),
        ("10.9.0.255", ethernet::BROADCAST),
        ("224.0.0.1", [1, 0, 0x5e, 0, 0, 1]),
        ("ff02::1", [0x33, 0x33, 0, 0, 0, 1]),
    ] {
        assert_eq!(hop(&routes, group), Some(NextHop::Group(mac)), "{group}");
    }
    for nowhere in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "::", "::1"] {
        assert_eq!(hop(&routes, nowhere), None, "{nowhere}");
    }
}

#[test]
fn without_a_gateway_there_is_no_way_beyond_the_link() {
    let routes = Routes::new(&[cidr("10.9.0.2/24")], &[], &[], 1500);
    assert_eq!(hop(&routes, "10.9.0.3"), neighbour("10.9.0.3"));
    assert_eq!(hop(&routes, "10.9.1.3"), None);
    assert_eq!(hop(&routes, "2001:db8::1"), None);
}

#[test]
fn the_longest_prefix_wins() {
    let configured = [cidr("10.0.0.1/8"), cidr("10.9.0.2/24")];
    let mut routes = Routes::new(&configured, &[], &[addr("10.9.0.1")], 1500);
    routes.routes.push(Route {
        prefix: cidr("10.9.0.128/25"),
        gateway: Some(addr("10.9.0.5")),
        until: Instant::FAR_FUTURE,
    });
    assert_eq!(hop(&routes, "10.9.0.127"), neighbour("10.9.0.127"));
    assert_eq!(hop(&routes, "10.9.0.128"), neighbour("10.9.0.5"));
    assert_eq!(hop(&routes, "11.0.0.1"), neighbour("10.9.0.1"));
}

#[test]
fn only_a_single_other_host_is_an_acceptable_source() {
    let routes = routes();
    for good in ["10.9.0.1", "8.8.8.8", "fe80::1", "2001:db8::1", "169.254.1.1"] {
        assert!(routes.is_acceptable_source(addr(good)), "{good}");
    }
    for (bad, class) in [
        ("10.9.0.2", Class::Ours),
        ("10.20.1.2", Class::Ours),
        ("fd00::2", Class::Ours),
        ("0.0.0.1", Class::Unspecified),
        ("::", Class::Unspecified),
        ("127.3.0.1", Class::Loopback),
        ("::1", Class::Loopback),
        ("10.9.0.255", Class::Broadcast),
        ("192.168.255.255", Class::Broadcast),
        ("255.255.255.255", Class::Broadcast),
        ("239.1.1.1", Class::Multicast),
        ("ff05::1", Class::Multicast),
    ] {
        assert_eq!(routes.class(addr(bad)), class, "{bad}");
        assert!(!routes.is_acceptable_source(addr(bad)), "{bad}");
    }
}

#[test]
fn we_listen_to_all_nodes_and_to_questions_for_our_addresses() {
    let routes = routes();
    for (group, ours) in [
        ("224.0.0.1", true),
        ("224.0.0.2", false),
        ("ff02::1", true),
        ("ff02::2", false),
        ("ff02::1:ff00:2", true),
        ("ff02::1:ff00:3", false),
    ] {
        assert_eq!(routes.is_our_group(addr(group)), ours, "{group}");
    }
}

#[test]
fn the_source_has_the_version_the_scope_and_the_prefix() {
    let mut routes = routes();
    assert_eq!(routes.source_for(addr("10.9.0.9")), Some(addr("10.9.0.2")));
    assert_eq!(routes.source_for(addr("192.168.9.9")), Some(addr("192.168.7.1")));
    assert_eq!(routes.source_for(addr("192.168.7.1")), Some(addr("192.168.7.1")));
    assert_eq!(routes.source_for(addr("2001:db8::1")), Some(addr("fd00::2")));
    routes.set_address(cidr("fe80::2/64"), Standing::Preferred);
    routes.set_address(cidr("2001:db8:1::2/64"), Standing::Preferred);
    for (destination, source) in [
        ("fe80::1", "fe80::2"),
        ("ff02::1", "fe80::2"),
        ("fd00::9", "fd00::2"),
        ("2001:db8::1", "2001:db8:1::2"),
    ] {
        assert_eq!(routes.source_for(addr(destination)), Some(addr(source)), "{destination}");
    }
    // Rule 3 comes before rule 8.
    routes.set_address(cidr("2001:db8:1::2/64"), Standing::Reluctant);
    assert_eq!(routes.source_for(addr("2001:db8::1")), Some(addr("fd00::2")));
    routes.remove_address(addr("fd00::2"));
    assert_eq!(routes.source_for(addr("2001:db8::1")), Some(addr("2001:db8:1::2")));
    routes.remove_address(addr("2001:db8:1::2"));
    assert_eq!(routes.source_for(addr("2001:db8::1")), Some(addr("fe80::2")));
    routes.remove_address(addr("fe80::2"));
    assert_eq!(routes.source_for(addr("2001:db8::1")), None);
}

#[test]
fn a_range_gives_a_source_only_where_no_address_does() {
    let ranges = [cidr("10.20.0.0/16")];
    let routes = Routes::new(&[cidr("fd00::2/64")], &ranges, &[], 1500);
    assert_eq!(routes.source_for(addr("10.9.0.1")), Some(addr("10.20.0.1")));
}

#[test]
fn a_router_is_used_for_as_long_as_it_says() {
    let mut routes = Routes::new(&[], &[], &[], 1500);
    let (first, second) = (v6("fe80::1"), v6("fe80::2"));
    routes.on_router_advertisement(at(0), first, &advertisement(10, &[]));
    routes.on_router_advertisement(at(0), second, &advertisement(20, &[]));
    assert_eq!(hop(&routes, "2001:db8::1"), neighbour("fe80::1"));
    routes.on_gateway_failed(first.into());
    assert_eq!(hop(&routes, "2001:db8::1"), neighbour("fe80::2"));
    routes.on_router_advertisement(at(5), second, &advertisement(0, &[]));
    assert_eq!(hop(&routes, "2001:db8::1"), neighbour("fe80::1"));
    assert_eq!(routes.deadline(), Some(at(10)));
    routes.on_time(at(10) - Duration::from_nanos(1));
    assert!(hop(&routes, "2001:db8::1").is_some());
    routes.on_time(at(10));
    assert_eq!((hop(&routes, "2001:db8::1"), routes.deadline()), (None, None));
}

#[test]
fn prefixes_are_on_the_link_for_as_long_as_the_router_says() {
    let mut routes = Routes::new(&[], &[], &[], 1500);
    let router = v6("fe80::1");
    let prefixes = [
        ("2001:db8::5", 64, 30),
        ("2001:db8:1::", 64, u32::MAX),
        ("fe80::", 64, 9),
        ("ff02::", 8, 9),
    ];
    routes.on_router_advertisement(at(0), router, &advertisement(0, &prefixes));
    assert_eq!(routes.routes.len(), 2, "no router, no link-local prefix, no group");
    assert_eq!(hop(&routes, "2001:db8::77"), neighbour("2001:db8::77"));
    // Prolonged, then ended at once.
    routes.on_router_advertisement(at(20), router, &advertisement(0, &[("2001:db8::", 64, 30)]));
    routes.on_time(at(49));
    assert_eq!(hop(&routes, "2001:db8::77"), neighbour("2001:db8::77"));
    routes.on_router_advertisement(at(49), router, &advertisement(0, &[("2001:db8::", 64, 0)]));
    assert_eq!(hop(&routes, "2001:db8::77"), None);
    routes.on_time(at(3_000_000_000));
    assert_eq!(hop(&routes, "2001:db8:1::77"), neighbour("2001:db8:1::77"), "for ever");
}

#[test]
fn what_is_learnt_is_bounded_and_replaces_nothing_configured() {
    let mut routes = Routes::new(&[cidr("fd00::2/64")], &[], &[addr("fd00::1")], 1500);
    for n in 0..=MAX_ROUTERS as u16 {
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n);
        routes.on_router_advertisement(at(0), router, &advertisement(10, &[]));
    }
    let learnt = |routes: &Routes| routes.routes.iter().filter(|r| r.is_learnt()).count();
    assert_eq!(learnt(&routes), MAX_ROUTERS);
    assert_eq!(hop(&routes, "2001:db8::1"), neighbour("fd00::1"));
    for n in 0..=MAX_PREFIXES as u16 {
        let prefix = Ipv6Addr::new(0x2001, n, 0, 0, 0, 0, 0, 0);
        let text = std::format!("{prefix}");
        let advertisement = advertisement(10, &[(&text, 64, 10)]);
        routes.on_router_advertisement(at(0), v6("fe80::"), &advertisement);
    }
    assert_eq!(learnt(&routes), MAX_ROUTERS + MAX_PREFIXES);
    let configured = advertisement(0, &[("fd00::", 64, 0)]);
    routes.on_router_advertisement(at(0), v6("fd00::1"), &configured);
    routes.on_time(at(1000));
    assert_eq!(hop(&routes, "fd00::9"), neighbour("fd00::9"));
    assert_eq!(hop(&routes, "2001:db8::1"), neighbour("fd00::1"));
}

#[test]
fn the_routers_mtu_and_hop_limit_are_taken_within_reason() {
    let mut routes = Routes::new(&[], &[], &[], 1500);
    let said = |mtu, hop_limit| RouterAdvertisement {
        mtu: Some(mtu),
        hop_limit,
        ..RouterAdvertisement::default()
    };
    for (mtu, expected) in
        [(1279, 1500), (1280, 1280), (1500, 1500), (1501, 1500), (0x1_0500, 1500)]
    {
        routes.on_router_advertisement(at(0), v6("fe80::1"), &said(mtu, 0));
        assert_eq!(routes.ipv6_mtu(), expected, "{mtu}");
    }
    assert_eq!(routes.ipv6_hop_limit(), 64);
    routes.on_router_advertisement(at(0), v6("fe80::1"), &said(0, 9));
    assert_eq!(routes.ipv6_hop_limit(), 9);
}

proptest! {
    #[test]
    fn every_address_has_a_class_and_only_others_need_a_route(bits: u128, six: bool) {
        let address: IpAddr =
            if six { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() };
        let routes = routes();
        match routes.class(address) {
            Class::Other => {
                prop_assert!(matches!(routes.next_hop(address), Some(NextHop::Neighbour(_))));
            }
            Class::Ours => prop_assert!(routes.is_local(address)),
            _ => prop_assert!(!routes.is_local(address)),
        }
        let source = routes.source_for(address).unwrap();
        prop_assert!(routes.is_local(source) && source.is_ipv6() == six);
    }
}
