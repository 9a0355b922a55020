use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const TARGET: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const UNICAST: Envelope = Envelope { source: ROUTER, destination: TARGET, hop_limit: HOP_LIMIT };

fn emitted(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.emit(&mut out);
    out
}

fn parse(message: &Message, envelope: Envelope) -> Result<Message, Malformed> {
    Message::parse(message.kind(), 0, &emitted(message), envelope).unwrap()
}

fn solicit(link_layer: Option<Mac>) -> Message {
    Message::NeighbourSolicit { target: TARGET, link_layer, nonce: None }
}

#[test]
fn the_solicited_node_group_has_the_last_three_bytes() {
    let address = "fe80::1234:5678:9abc:def0".parse().unwrap();
    assert_eq!(solicited_node(address), "ff02::1:ffbc:def0".parse::<Ipv6Addr>().unwrap());
}

#[test]
fn a_forwarded_message_or_another_code_is_malformed() {
    let message = solicit(None);
    assert_eq!(parse(&message, UNICAST), Ok(message));
    let forwarded = Envelope { hop_limit: 254, ..UNICAST };
    assert_eq!(parse(&message, forwarded), Err(Malformed::NdpHopLimit));
    let coded = Message::parse(message.kind(), 1, &emitted(&message), UNICAST);
    assert_eq!(coded, Some(Err(Malformed::NdpRule)));
    assert_eq!(Message::parse(137, 0, &[], UNICAST), None);
}

#[test]
fn every_message_has_its_least_length() {
    let least = [(133, 4), (134, 12), (135, 20), (136, 20)];
    for (kind, len) in least {
        let body = [0; 20];
        assert!(Message::parse(kind, 0, &body[..len], UNICAST).unwrap().is_ok(), "{kind}");
        let short = Message::parse(kind, 0, &body[..len - 1], UNICAST);
        assert_eq!(short, Some(Err(Malformed::NdpLength)), "{kind}");
    }
}

#[test]
fn a_probe_goes_from_no_address_to_the_group_without_a_mac() {
    let destination = solicited_node(TARGET);
    let probe = Envelope { source: Ipv6Addr::UNSPECIFIED, destination, hop_limit: HOP_LIMIT };
    assert!(parse(&solicit(None), probe).is_ok());
    assert_eq!(parse(&solicit(Some([2; 6])), probe), Err(Malformed::NdpRule));
    let elsewhere = Envelope { destination: ALL_NODES, ..probe };
    assert_eq!(parse(&solicit(None), elsewhere), Err(Malformed::NdpRule));
    let router_solicit = Message::RouterSolicit { link_layer: Some([2; 6]) };
    assert!(parse(&router_solicit, UNICAST).is_ok());
    assert_eq!(parse(&router_solicit, probe), Err(Malformed::NdpRule));
}

#[test]
fn advertisements_that_contradict_themselves_are_malformed() {
    let advertise = |target, solicited| Message::NeighbourAdvertisement {
        target,
        link_layer: None,
        router: false,
        solicited,
        overrides: true,
    };
    let to_all = Envelope { destination: ALL_NODES, ..UNICAST };
    assert!(parse(&advertise(TARGET, false), to_all).is_ok());
    assert!(parse(&advertise(TARGET, true), UNICAST).is_ok());
    assert_eq!(parse(&advertise(TARGET, true), to_all), Err(Malformed::NdpRule));
    assert_eq!(parse(&advertise(ALL_NODES, false), UNICAST), Err(Malformed::NdpRule));
    let routed = Envelope { source: TARGET, ..UNICAST };
    let router = Message::RouterAdvertisement(RouterAdvertisement::default());
    assert!(parse(&router, UNICAST).is_ok());
    assert_eq!(parse(&router, routed), Err(Malformed::NdpRule));
}

#[test]
fn options_of_impossible_length_are_malformed() {
    for (tail, ok) in [
        (&[200, 1, 0, 0, 0, 0, 0, 0][..], true),
        (&[200, 0, 0, 0, 0, 0, 0, 0][..], false),
        (&[200, 2, 0, 0, 0, 0, 0, 0][..], false),
        (&[200][..], false),
    ] {
        let mut body = emitted(&solicit(None));
        body.extend_from_slice(tail);
        let parsed = Message::parse(135, 0, &body, UNICAST).unwrap();
        assert_eq!(parsed, if ok { Ok(solicit(None)) } else { Err(Malformed::NdpOption) });
    }
}

#[test]
fn the_walk_through_the_options_has_a_limit() {
    for (count, result) in
        [(MAX_OPTIONS, Ok(solicit(None))), (MAX_OPTIONS + 1, Err(Malformed::NdpOptionLimit))]
    {
        let mut body = emitted(&solicit(None));
        body.extend_from_slice(&[200, 1, 0, 0, 0, 0, 0, 0].repeat(count));
        assert_eq!(Message::parse(135, 0, &body, UNICAST), Some(result));
    }
}

#[test]
fn an_option_of_wrong_length_and_too_long_a_prefix_are_ignored() {
    let mut body = emitted(&solicit(None));
    body.extend_from_slice(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Message::parse(135, 0, &body, UNICAST), Some(Ok(solicit(None))));
    for (prefix_len, kept) in [(128, 1), (129, 0)] {
        let mut advertisement = RouterAdvertisement::default();
        let prefix = prefix();
        advertisement.prefixes.push(Prefix { prefix_len, ..prefix });
        let parsed = parse(&Message::RouterAdvertisement(advertisement), UNICAST).unwrap();
        let Message::RouterAdvertisement(parsed) = parsed else { panic!() };
        assert_eq!(parsed.prefixes.iter().count(), kept);
    }
}

#[test]
fn the_fifth_prefix_is_refused() {
    let mut prefixes = Prefixes::default();
    assert!((0..MAX_PREFIXES).all(|_| prefixes.push(prefix())));
    assert!(!prefixes.push(prefix()));
}

fn prefix() -> Prefix {
    Prefix {
        prefix: TARGET,
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid_s: 1,
        preferred_s: 1,
    }
}

prop_compose! {
    fn any_prefix()(
        prefix: u128, prefix_len in 0u8..=128, on_link: bool, autonomous: bool, valid_s: u32,
        preferred_s: u32,
    ) -> Prefix {
        let prefix = Ipv6Addr::from(prefix);
        Prefix { prefix, prefix_len, on_link, autonomous, valid_s, preferred_s }
    }
}

prop_compose! {
    fn any_advertisement()(
        hop_limit: u8, flags: (bool, bool), router_lifetime_s: u16, times: (u32, u32),
        link_layer: Option<Mac>, mtu: Option<u32>, prefixes in vec(any_prefix(), 0..=MAX_PREFIXES),
    ) -> Message {
        let mut advertisement = RouterAdvertisement {
            hop_limit,
            managed: flags.0,
            other: flags.1,
            router_lifetime_s,
            reachable_ms: times.0,
            retransmit_ms: times.1,
            link_layer,
            mtu,
            prefixes: Prefixes::default(),
        };
        for prefix in prefixes {
            advertisement.prefixes.push(prefix);
        }
        Message::RouterAdvertisement(advertisement)
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let target = any::<u128>().prop_map(|bits| Ipv6Addr::from(bits & !(1 << 127)));
    let link_layer = any::<Option<Mac>>();
    let nonce = any::<Option<[u8; 6]>>();
    let flags = any::<(bool, bool, bool)>();
    prop_oneof![
        link_layer.clone().prop_map(|link_layer| Message::RouterSolicit { link_layer }),
        any_advertisement(),
        (target.clone(), link_layer.clone(), nonce).prop_map(|(target, link_layer, nonce)| {
            Message::NeighbourSolicit { target, link_layer, nonce }
        }),
        (target, link_layer, flags).prop_map(|(target, link_layer, flags)| {
            let (router, solicited, overrides) = flags;
            Message::NeighbourAdvertisement { target, link_layer, router, solicited, overrides }
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(message in any_message()) {
        prop_assert_eq!(parse(&message, UNICAST), Ok(message));
    }

    #[test]
    fn any_bytes_are_a_message_or_malformed(kind in 133u8..137, body in vec(any::<u8>(), 0..100)) {
        if let Some(Ok(message)) = Message::parse(kind, 0, &body, UNICAST) {
            prop_assert_eq!(message.kind(), kind);
        }
    }
}
