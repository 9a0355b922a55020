use crate::ip::autoconfigure::*;
use crate::wire::ip::Packet;
use proptest::collection::vec;
use proptest::prelude::*;

const NOBODY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn setup(configured: &[Cidr]) -> Setup<'_> {
    Setup {
        hardware: [2, 0, 0, 0, 0, 1],
        configured,
        autoconfigure: false,
        probe: Duration::ZERO,
        secret: &[1; 32],
    }
}

fn started(autoconfigure: bool, configured: &[Cidr]) -> Autoconfigure {
    Autoconfigure::new(at(0), &Setup { autoconfigure, ..setup(configured) })
}

/// What comes out, each output in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Optimistic(Ipv6Addr),
    Preferred(Ipv6Addr),
    Withdrawn(Ipv6Addr),
    Probe(Ipv6Addr),
    RouterSolicit { source: Ipv6Addr },
    Report { source: Ipv6Addr },
}
use Said::{Optimistic, Preferred, Probe, Report, RouterSolicit, Withdrawn};

fn said(auto: &mut Autoconfigure) -> Vec<Said> {
    let mut all = Vec::new();
    while let Some(output) = auto.output() {
        all.push(match output {
            Output::Withdrawn(address) => Withdrawn(address),
            Output::Address(cidr, standing) => {
                let IpAddr::V6(address) = cidr.address() else { panic!() };
                match standing {
                    Standing::Preferred => Preferred(address),
                    Standing::Reluctant => Optimistic(address),
                }
            }
            Output::Packet { destination, bytes } => {
                let packet = Packet::parse(&bytes).unwrap();
                assert_eq!(packet.destination, IpAddr::V6(destination));
                let IpAddr::V6(source) = packet.source else { panic!() };
                match icmpv6::Message::parse(&packet).unwrap() {
                    icmpv6::Message::Mld(mld::Message::Report) => Report { source },
                    icmpv6::Message::Ndp(ndp::Message::RouterSolicit { link_layer }) => {
                        assert_eq!(link_layer.is_some(), source != NOBODY);
                        RouterSolicit { source }
                    }
                    icmpv6::Message::Ndp(ndp::Message::NeighbourSolicit {
                        target, nonce, ..
                    }) => {
                        assert_eq!((source, destination), (NOBODY, solicited_node(target)));
                        assert_eq!(nonce, Some(auto.nonce(target)));
                        Probe(target)
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    all
}

/// The address that the first output makes ours.
fn first_address(said: &[Said]) -> Ipv6Addr {
    match said.first() {
        Some(Optimistic(address)) => *address,
        other => panic!("{other:?}"),
    }
}

/// A host whose link-local address is proved, at second 1.
fn settled(autoconfigure: bool) -> (Autoconfigure, Ipv6Addr) {
    let mut auto = started(autoconfigure, &[]);
    auto.on_time(at(1));
    said(&mut auto);
    let link_local = auto.link_local().unwrap();
    (auto, link_local)
}

fn prefix(text: &str, valid_s: u32, preferred_s: u32) -> Prefix {
    Prefix {
        prefix: text.parse().unwrap(),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_s,
        preferred_s,
    }
}

fn advertisement(prefixes: &[Prefix]) -> RouterAdvertisement {
    let mut advertisement =
        RouterAdvertisement { router_lifetime_s: 1800, ..RouterAdvertisement::default() };
    for prefix in prefixes {
        advertisement.prefixes.push(*prefix);
    }
    advertisement
}

#[test]
fn a_link_local_address_works_at_once_and_is_preferred_later() {
    let mut auto = started(false, &[]);
    let begun = said(&mut auto);
    let address = first_address(&begun);
    assert!(address.is_unicast_link_local());
    assert_eq!(begun, [Optimistic(address), Report { source: NOBODY }, Probe(address)]);
    assert!(auto.is_optimistic(address));
    assert_eq!((auto.link_local(), auto.deadline()), (None, Some(at(1))));
    auto.on_time(at(1) - Duration::from_nanos(1));
    assert_eq!(said(&mut auto), []);
    auto.on_time(at(1));
    assert_eq!(said(&mut auto), [Preferred(address), Report { source: address }]);
    assert_eq!((auto.link_local(), auto.deadline()), (Some(address), None));
    assert!(!auto.is_optimistic(address));
}

#[test]
fn configured_addresses_are_probed_too_and_not_replaced() {
    let cidr: Cidr = "fd00::2/64".parse().unwrap();
    let ipv4: Cidr = "10.0.0.1/24".parse().unwrap();
    let ours: Ipv6Addr = "fd00::2".parse().unwrap();
    let mut auto = started(false, &[ipv4, cidr, cidr]);
    let begun = said(&mut auto);
    assert_eq!(begun[3..], [Optimistic(ours), Report { source: NOBODY }, Probe(ours)]);
    assert!(auto.on_neighbour_advertisement(at(0), ours));
    assert_eq!(said(&mut auto), [Withdrawn(ours), Report { source: NOBODY }]);
    assert!(!auto.is_optimistic(ours) && !auto.on_neighbour_advertisement(at(0), ours));
}

#[test]
fn a_configured_address_that_is_to_be_probed_is_not_used_before() {
    let cidr: Cidr = "fd00::2/64".parse().unwrap();
    let ours: Ipv6Addr = "fd00::2".parse().unwrap();
    for (probe_ms, wait_ms) in [(7000, 1000), (1000, 1000), (70, 70)] {
        let probe = Duration::from_millis(probe_ms);
        let begin = || {
            let mut auto = Autoconfigure::new(at(0), &Setup { probe, ..setup(&[cidr]) });
            let begun = said(&mut auto);
            assert_eq!(begun[3..], [Report { source: NOBODY }, Probe(ours)]);
            assert!(auto.listens_to(solicited_node(ours)));
            auto
        };
        let (end, ns) = (Instant::from_millis(wait_ms), Duration::from_nanos(1));
        let mut unharmed = begin();
        unharmed.on_time(end - ns);
        assert!(!said(&mut unharmed).contains(&Preferred(ours)));
        unharmed.on_time(end);
        assert!(said(&mut unharmed).contains(&Preferred(ours)));
        // Both ways in which it can turn out to be another host's.
        let mut had = begin();
        assert!(had.on_neighbour_advertisement(end - ns, ours));
        let mut wanted = begin();
        assert!(wanted.on_neighbour_solicit(end - ns, NOBODY, ours, None));
        for mut lost in [had, wanted] {
            said(&mut lost);
            lost.on_time(end);
            assert!(!said(&mut lost).contains(&Preferred(ours)));
        }
    }
}

#[test]
fn a_made_address_that_is_taken_is_replaced_a_few_times() {
    let mut auto = started(false, &[]);
    let mut address = first_address(&said(&mut auto));
    let mut seen = Vec::from([address]);
    for _ in 1..MAX_ATTEMPTS {
        assert!(auto.on_neighbour_solicit(at(0), NOBODY, address, None));
        let again = said(&mut auto);
        assert_eq!(again[..2], [Withdrawn(address), Report { source: NOBODY }]);
        address = first_address(&again[2..]);
        assert!(!seen.contains(&address));
        seen.push(address);
    }
    assert!(auto.on_neighbour_solicit(at(0), NOBODY, address, None));
    assert_eq!(said(&mut auto), [Withdrawn(address), Report { source: NOBODY }]);
    assert_eq!(auto.deadline(), None);
}

#[test]
fn only_a_strangers_claim_in_time_takes_an_address_away() {
    let mut auto = started(false, &[]);
    let address = first_address(&said(&mut auto));
    // Our own probe, a host that only wants to talk, and a claim of another address.
    let own = Some(auto.nonce(address));
    assert!(!auto.on_neighbour_solicit(at(0), NOBODY, address, own));
    assert!(!auto.on_neighbour_solicit(at(0), ndp::ALL_NODES, address, None));
    assert!(!auto.on_neighbour_advertisement(at(0), ndp::ALL_NODES));
    assert_eq!(said(&mut auto), []);
    auto.on_time(at(1));
    said(&mut auto);
    assert!(!auto.on_neighbour_solicit(at(2), NOBODY, address, None));
    assert!(!auto.on_neighbour_advertisement(at(2), address));
    assert_eq!(said(&mut auto), []);
    assert_eq!(auto.link_local(), Some(address));
}

#[test]
fn routers_are_asked_for_ever_more_rarely_until_one_answers() {
    let mut auto = started(true, &[]);
    assert!(said(&mut auto).contains(&RouterSolicit { source: NOBODY }));
    auto.on_time(at(1));
    said(&mut auto);
    let source = auto.link_local().unwrap();
    let mut due = 4;
    let mut pause = 8;
    for _ in 0..15 {
        assert_eq!(auto.deadline(), Some(at(due)));
        auto.on_time(at(due));
        assert_eq!(said(&mut auto), [RouterSolicit { source }]);
        due += pause;
        pause = (pause * 2).min(3600);
    }
    let mut none = advertisement(&[]);
    none.router_lifetime_s = 0;
    auto.on_router_advertisement(at(due - 1), &none);
    assert_eq!(auto.deadline(), Some(at(due)), "that was no router to use");
    auto.on_router_advertisement(at(due - 1), &advertisement(&[]));
    assert_eq!((auto.deadline(), said(&mut auto)), (None, Vec::new()));
}

#[test]
fn an_address_is_made_of_a_prefix_and_lives_by_the_router() {
    let (mut auto, source) = settled(true);
    auto.on_router_advertisement(at(10), &advertisement(&[prefix("2001:db8::", 100, 50)]));
    let begun = said(&mut auto);
    let address = first_address(&begun);
    assert_eq!(address.segments()[..4], [0x2001, 0xdb8, 0, 0]);
    assert_eq!(begun, [Optimistic(address), Report { source }, Probe(address)]);
    auto.on_time(at(11));
    assert_eq!(said(&mut auto), [Preferred(address)]);
    assert_eq!(auto.deadline(), Some(at(60)));
    auto.on_time(at(60));
    assert_eq!(said(&mut auto), [Optimistic(address)], "deprecated");
    // Prolonged: preferred once more, and the same address.
    auto.on_router_advertisement(at(61), &advertisement(&[prefix("2001:db8::", 100, 50)]));
    assert_eq!(said(&mut auto), [Preferred(address)]);
    auto.on_time(at(111));
    said(&mut auto);
    auto.on_time(at(161) - Duration::from_nanos(1));
    assert_eq!(said(&mut auto), []);
    auto.on_time(at(161));
    assert_eq!(said(&mut auto), [Withdrawn(address), Report { source }]);
    assert_eq!(auto.deadline(), None);
}

#[test]
fn prefixes_that_may_not_be_used_make_no_address() {
    let good = prefix("2001:db8::", 100, 50);
    let refused = [
        Prefix { autonomous: false, ..good },
        Prefix { prefix_len: 63, ..good },
        Prefix { preferred_s: 101, ..good },
        Prefix { valid_s: 0, preferred_s: 0, ..good },
    ];
    let (mut auto, _) = settled(true);
    auto.on_router_advertisement(at(10), &advertisement(&refused));
    auto.on_router_advertisement(at(10), &advertisement(&[prefix("fe80::", 100, 50)]));
    assert_eq!(said(&mut auto), []);
    let (mut off, _) = settled(false);
    off.on_router_advertisement(at(10), &advertisement(&[good]));
    assert_eq!(said(&mut off), []);
    auto.on_router_advertisement(at(10), &advertisement(&[good]));
    assert_eq!(said(&mut auto).len(), 3);
}

#[test]
fn the_prefix_beyond_the_limit_makes_no_address() {
    let (mut auto, _) = settled(true);
    for n in 0..=MAX_ADDRESSES {
        let text = std::format!("2001:db8:0:{n}::");
        auto.on_router_advertisement(at(10), &advertisement(&[prefix(&text, 100, 50)]));
        assert_eq!(said(&mut auto).is_empty(), n == MAX_ADDRESSES, "{n}");
    }
}

#[test]
fn nobody_on_the_link_can_end_an_address_at_once() {
    let hours = |h: u64| at(h * 3600);
    // Known to end, said to end, in hours; and what is made of it at hour 0.
    for (known, told, end) in
        [(1, 3, 3), (9, 3, 3), (1, 2, 2), (9, 1, 2), (9, 2, 2), (2, 1, 2), (1, 0, 1), (9, 0, 2)]
    {
        assert_eq!(allowed_end(at(0), hours(known), hours(told)), hours(end), "{known} {told}");
    }
}

#[test]
fn identifiers_are_stable_by_prefix_hardware_and_secret() {
    let id = |hardware, secret, text: &str, attempts| {
        let setup = Setup { hardware, secret: &[secret; 32], ..setup(&[]) };
        let auto = Autoconfigure::new(at(0), &setup);
        auto.interface_id(text.parse().unwrap(), attempts)
    };
    let plain = id([2; 6], 1, "2001:db8::/64", 0);
    assert_eq!(plain, id([2; 6], 1, "2001:db8::77/64", 0));
    assert_ne!(plain, id([3; 6], 1, "2001:db8::/64", 0));
    assert_ne!(plain, id([2; 6], 2, "2001:db8::/64", 0));
    assert_ne!(plain, id([2; 6], 1, "2001:db9::/64", 0));
    assert_ne!(plain, id([2; 6], 1, "2001:db8::/64", 1));
}

#[test]
fn queries_are_answered_in_time_and_in_their_version() {
    let (mut auto, source) = settled(false);
    auto.on_listener_query(at(10), Version::V2, ndp::ALL_NODES, 1000);
    assert_eq!(auto.deadline(), None, "a group that is not ours");
    for group in [NOBODY, solicited_node(source)] {
        auto.on_listener_query(at(10), Version::V2, group, 1000);
        let due = auto.deadline().unwrap();
        assert!(due >= at(10) && due <= at(11));
        auto.on_time(due);
        assert_eq!(said(&mut auto), [Report { source }]);
        assert_eq!(auto.deadline(), None);
    }
    auto.on_listener_query(at(20), Version::V1, NOBODY, 0);
    auto.on_time(at(20));
    let Some(Output::Packet { destination, bytes }) = auto.output() else { panic!() };
    assert_eq!((destination, bytes[48]), (solicited_node(source), 131));
    // When version 1 has not been heard for long enough, version 2 is back.
    for (second, kind) in [(279, 131), (280, 143)] {
        auto.on_listener_query(at(second), Version::V2, NOBODY, 0);
        auto.on_time(at(second));
        let Some(Output::Packet { bytes, .. }) = auto.output() else { panic!() };
        assert_eq!(bytes[48], kind, "{second}");
    }
}

proptest! {
    #[test]
    fn whatever_is_said_the_books_balance(
        steps in vec((0u8..6, 0u16..12, 0u32..20_000, 0u32..20_000, 0u64..9000), 0..60),
    ) {
        let mut auto = started(true, &["fd00::2/64".parse().unwrap()]);
        let mut ours = std::collections::BTreeSet::new();
        let mut now = 0;
        for (kind, n, valid_s, preferred_s, pass) in steps {
            now += pass;
            auto.on_time(at(now));
            let any = auto.addresses.get(usize::from(n)).map_or(NOBODY, |own| own.address);
            match kind {
                0 => { auto.on_neighbour_solicit(at(now), NOBODY, any, None); },
                1 => { auto.on_neighbour_advertisement(at(now), any); },
                2 => auto.on_listener_query(at(now), Version::V1, NOBODY, valid_s),
                _ => {
                    let prefix = prefix(&std::format!("2001:db8:0:{n}::"), valid_s, preferred_s);
                    auto.on_router_advertisement(at(now), &advertisement(&[prefix]));
                }
            }
            for said in said(&mut auto) {
                match said {
                    Optimistic(address) | Preferred(address) => {
                        ours.insert(address);
                    }
                    Withdrawn(address) => prop_assert!(ours.remove(&address)),
                    Probe(address) => prop_assert!(ours.contains(&address)),
                    Report { .. } | RouterSolicit { .. } => {}
                }
            }
            let known: std::collections::BTreeSet<_> =
                auto.addresses.iter().map(|own| own.address).collect();
            prop_assert_eq!(&known, &ours);
            prop_assert!(known.len() <= MAX_ADDRESSES + 2);
            prop_assert!(auto.deadline().is_none_or(|deadline| deadline >= at(now)));
        }
    }
}
