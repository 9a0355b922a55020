//! A route that is kept is the one that a search would find, and no neighbour is doubted, asked or
//! thrown out at another time for it. Two of IP live through the same events, and one of them
//! forgets its routes.

use super::*;
use crate::config::Config;
use crate::counters::Counters;
use crate::ip::link::Route;
use crate::ip::neighbour::Advertisement;
use crate::ip::route::Standing;
use crate::ip::{Context, Ip};
use crate::time::Duration;
use crate::wire::ndp::{Prefix, RouterAdvertisement};
use core::net::Ipv6Addr;
use proptest::prelude::*;
use std::format;
use std::string::String;

#[test]
fn neighbouring_addresses_lie_apart_at_either_end() {
    let first = core::net::Ipv4Addr::new(10, 128, 0, 0).to_bits();
    let far = IpAddr::from([10, 0, 0, 2]);
    let many = |tuple: fn(IpAddr, IpAddr) -> Tuple| {
        let near = (first..).map(|bits| IpAddr::V4(bits.into()));
        let places = near.take(ROUTES / 2).map(|near| RouteIndex::of(&tuple(near, far)).0);
        places.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(many(|near, far| Tuple::new((near, 0), (far, 0))), ROUTES / 2);
    assert_eq!(many(|near, far| Tuple::new((far, 0), (near, 0))), ROUTES / 2);
}

#[derive(Clone, Debug)]
enum Step {
    /// A packet is to leave.
    Look(usize),
    /// A neighbour shows or tells its address.
    Heard(usize, u8),
    Told {
        who: usize,
        mac: u8,
        solicited: bool,
        overrides: bool,
    },
    /// A router on the way, or on the link.
    TooBig(usize, u16),
    Advertised {
        lifetime_s: u16,
        mtu: u32,
        hop_limit: u8,
        valid_s: u32,
    },
    Own(usize, bool),
    GatewayFailed,
    Pass(u64),
}

/// On the link, beyond a gateway, our own, nowhere, a group.
fn address(number: usize) -> IpAddr {
    let texts = [
        "10.9.0.5",
        "10.9.0.6",
        "10.9.0.7",
        "192.168.1.1",
        "192.168.1.2",
        "10.9.0.2",
        "10.9.0.1",
        "224.0.0.5",
        "fd00::5",
        "fd01::6",
        "2001:db8::1",
        "fe80::1",
        "fd00::2",
    ];
    texts[number % texts.len()].parse().unwrap()
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = || 0usize..13;
    prop_oneof![
        20 => who().prop_map(Step::Look),
        3 => (who(), 2u8..5).prop_map(|(who, mac)| Step::Heard(who, mac)),
        5 => (who(), 2u8..5, any::<bool>(), any::<bool>())
            .prop_map(|(who, mac, solicited, overrides)| {
                Step::Told { who, mac, solicited, overrides }
            }),
        2 => (who(), 500u16..1500).prop_map(|(who, mtu)| Step::TooBig(who, mtu)),
        1 => (0u16..40, 1200u32..1600, 0u8..3, 0u32..40).prop_map(
            |(lifetime_s, mtu, hop_limit, valid_s)| {
                Step::Advertised { lifetime_s, mtu, hop_limit, valid_s }
            }
        ),
        1 => (who(), any::<bool>()).prop_map(|(who, ours)| Step::Own(who, ours)),
        1 => Just(Step::GatewayFailed),
        5 => prop_oneof![0u64..3000, 0u64..700_000].prop_map(Step::Pass),
    ]
}

fn ip(medium: Medium) -> Ip {
    let device = Capabilities::plain(medium, 1500);
    let mut config = Config::new(device, "10.9.0.2/24".parse().unwrap(), [7; 32]);
    config.addresses.push("fd00::2/64".parse().unwrap());
    config.gateways = [address(6), address(11)].into();
    config.autoconfigure = true;
    config.limits.neighbours = 3;
    Ip::new(config.into())
}

fn look(ip: &mut Ip, now: Instant, to: usize) -> String {
    let to = address(to);
    let from = if to.is_ipv4() { address(5) } else { address(12) };
    let ends = Tuple::new((from, 1), (to, 2));
    match ip.route(now, &ends) {
        Route::Open(place) => {
            let CachedRoute { path, local, .. } = ip.route_cache.at(place);
            format!("{path:?} {local}")
        }
        Route::Waiting(next_hop) => format!("waiting for {next_hop}"),
        Route::Closed => "closed".into(),
    }
}

fn act(ip: &mut Ip, now: Instant, step: &Step) -> String {
    match *step {
        Step::Look(to) => return look(ip, now, to),
        Step::Heard(who, mac) => ip.neighbours.on_heard(now, address(who), [mac; 6]),
        Step::Told { who, mac, solicited, overrides } => {
            let target = address(who);
            let told = Advertisement { target, mac: Some([2 * mac; 6]), solicited, overrides };
            ip.neighbours.on_advertisement(now, told);
        }
        Step::TooBig(who, mtu) => {
            ip.path_mtus.on_too_big(now, address(who), mtu.into(), 1500);
        }
        Step::Advertised { lifetime_s, mtu, hop_limit, valid_s } => {
            let mut advertisement = RouterAdvertisement {
                router_lifetime_s: lifetime_s,
                mtu: Some(mtu),
                hop_limit,
                ..RouterAdvertisement::default()
            };
            advertisement.prefixes.push(Prefix {
                prefix: Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0),
                prefix_len: 64,
                on_link: true,
                autonomous: false,
                valid_s,
                preferred_s: 0,
            });
            let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
            ip.routes.on_router_advertisement(now, router, &advertisement);
        }
        Step::Own(who, true) => {
            let own = format!("{}/16", address(who)).parse().unwrap();
            ip.routes.set_address(own, Standing::Preferred);
        }
        Step::Own(who, false) => ip.routes.remove_address(address(who)),
        Step::GatewayFailed => ip.routes.on_gateway_failed(address(11)),
        Step::Pass(_) => {
            if !ip.has_begun() {
                ip.begin(now);
            }
            ip.on_autoconfigure_time(now);
            ip.on_time(&mut Context { now, counters: &mut Counters::default() });
            while ip.resolved().is_some() {}
        }
    }
    String::new()
}

proptest! {
    #[test]
    fn a_way_that_is_kept_is_the_one_that_would_be_found(
        steps in proptest::collection::vec(any_step(), 1..80), ethernet: bool,
    ) {
        let medium = if ethernet { Medium::Ethernet } else { Medium::Ip };
        let (mut keeps, mut searches) = (ip(medium), ip(medium));
        let mut now = Instant::from_millis(1000);
        for step in &steps {
            if let Step::Pass(ms) = step {
                now = now + Duration::from_millis(*ms);
            }
            searches.route_cache = RouteCache::default();
            let done = [&mut keeps, &mut searches].map(|ip| act(ip, now, step));
            prop_assert_eq!(&done[0], &done[1], "{:?}", step);
            let state = |ip: &Ip| format!("{:?}", ip.neighbours);
            prop_assert_eq!(state(&keeps), state(&searches), "after {:?}", step);
        }
    }
}

#[test]
fn a_way_is_searched_for_once() {
    let (mut ip, now) = (ip(Medium::Ethernet), Instant::from_millis(1000));
    ip.neighbours.on_heard(now, address(0), [2; 6]);
    assert!(look(&mut ip, now, 0).contains("link: Some"));
    let ends = Tuple::new((address(5), 1), (address(0), 2));
    let changes = ip.route_changes();
    assert!(ip.route_cache.find(&ends, changes, now).is_some());
    assert!(ip.route_cache.find(&ends, changes + 1, now).is_none(), "something has changed");
    let other = Tuple::new((address(5), 1), (address(1), 2));
    assert!(ip.route_cache.find(&other, changes, now).is_none());
}
