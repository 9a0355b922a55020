use super::*;
use std::vec;

/// A packet whose payload begins with headers of kind `next`.
fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
    let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let mut bytes = Vec::new();
    Header::new(a, b, next, payload.len()).unwrap().emit(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// A fragment of a UDP packet.
pub(crate) fn fragment(id: u32, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut all = vec![17, 0];
    all.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
    all.extend_from_slice(&id.to_be_bytes());
    all.extend_from_slice(payload);
    packet(next_header::FRAGMENT, &all)
}

/// An extension header of 8 bytes that holds only padding.
fn padding(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

#[test]
fn lengths_are_checked_at_both_ends() {
    let good = packet(6, &[1, 2, 3]);
    assert_eq!(parse(&good).unwrap().payload, [1, 2, 3]);
    assert_eq!(parse(&good[..39]), Err(Malformed::Ipv6Length));
    assert_eq!(parse(&good[..42]), Err(Malformed::Ipv6PayloadLength));
    let mut version = good.clone();
    version[0] = 0x70;
    assert_eq!(parse(&version), Err(Malformed::IpVersion));
    assert!(parse(&packet(next_header::NONE, &[])).unwrap().payload.is_empty());
}

#[test]
fn extension_headers_are_walked_to_the_upper_layer() {
    let mut payload = Vec::new();
    payload.extend_from_slice(&[next_header::ROUTING, 0, 5, 2, 0, 0, 1, 0]); // router alert
    payload.extend_from_slice(&[next_header::DESTINATION_OPTIONS, 0, 4, 0, 0, 0, 0, 0]);
    payload.extend_from_slice(&padding(6));
    payload.extend_from_slice(b"tcp");
    let bytes = packet(next_header::HOP_BY_HOP, &payload);
    let packet = parse(&bytes).unwrap();
    assert_eq!((packet.protocol, packet.payload), (6, &b"tcp"[..]));
    assert_eq!(packet.fragment, None);
}

#[test]
fn the_walk_stops_at_its_limits() {
    let chain = |n: usize| {
        let mut payload = padding(next_header::DESTINATION_OPTIONS).repeat(n);
        payload[(n - 1) * 8] = 6;
        packet(next_header::DESTINATION_OPTIONS, &payload)
    };
    assert!(parse(&chain(MAX_EXTENSION_HEADERS)).is_ok());
    let limit = Err(Malformed::Ipv6ExtensionLimit);
    assert_eq!(parse(&chain(MAX_EXTENSION_HEADERS + 1)), limit);

    // 38 bytes of options: so many of padding by single bytes, then one longer option.
    let options = |singles: usize| {
        let mut payload = vec![6, 4];
        payload.resize(2 + singles, 0);
        payload.extend_from_slice(&[1, (36 - singles) as u8]);
        payload.resize(40, 0);
        packet(next_header::DESTINATION_OPTIONS, &payload)
    };
    assert!(parse(&options(MAX_OPTIONS - 1)).is_ok());
    assert_eq!(parse(&options(MAX_OPTIONS)), limit);
}

#[test]
fn extension_headers_cut_short_are_malformed() {
    let short = Err(Malformed::Ipv6Extension);
    assert_eq!(parse(&packet(next_header::DESTINATION_OPTIONS, &[6])), short);
    assert_eq!(parse(&packet(next_header::DESTINATION_OPTIONS, &[6, 0, 0, 0, 0, 0, 0])), short);
    assert_eq!(parse(&packet(next_header::DESTINATION_OPTIONS, &[6, 1, 1, 4, 0, 0, 0, 0])), short);
    // An option that goes beyond its header, and its twin that just fits.
    assert_eq!(parse(&packet(next_header::DESTINATION_OPTIONS, &[6, 0, 1, 5, 0, 0, 0, 0])), short);
    assert!(parse(&packet(next_header::DESTINATION_OPTIONS, &padding(6))).is_ok());
    // An option without its length.
    assert_eq!(parse(&packet(next_header::DESTINATION_OPTIONS, &[6, 0, 1, 3, 0, 0, 0, 1])), short);
    assert_eq!(parse(&fragment(1, 0, true, &[])[..47]), Err(Malformed::Ipv6PayloadLength));
    assert_eq!(parse(&packet(next_header::FRAGMENT, &[6, 0, 0, 1, 0, 0, 0])), short);
}

#[test]
fn hop_by_hop_options_come_first_or_not_at_all() {
    let mut payload = padding(next_header::HOP_BY_HOP).to_vec();
    payload.extend_from_slice(&padding(6));
    let bytes = packet(next_header::DESTINATION_OPTIONS, &payload);
    assert_eq!(parse(&bytes), Err(Malformed::Ipv6ExtensionOrder));
}

#[test]
fn unknown_options_are_treated_as_their_type_asks() {
    let with = |kind: u8| packet(next_header::DESTINATION_OPTIONS, &[6, 0, 0, kind, 2, 0, 0, 0]);
    assert!(parse(&with(0x1e)).is_ok());
    for kind in [0x5e, 0x9e, 0xde] {
        assert_eq!(parse(&with(kind)), Err(Malformed::Ipv6Option));
    }
}

#[test]
fn jumbograms_are_refused() {
    let jumbo = [6, 0, 0xc2, 4, 0, 1, 0, 0];
    assert_eq!(parse(&packet(next_header::HOP_BY_HOP, &jumbo)), Err(Malformed::Ipv6Jumbo));
    let mut zero_length = packet(next_header::HOP_BY_HOP, &jumbo);
    zero_length[4..6].fill(0);
    assert_eq!(parse(&zero_length), Err(Malformed::Ipv6Jumbo));
}

#[test]
fn a_routing_header_with_segments_left_is_refused() {
    for (left, ok) in [(0, true), (1, false)] {
        let bytes = packet(next_header::ROUTING, &[6, 0, 0, left, 0, 0, 0, 0]);
        assert_eq!(parse(&bytes).is_ok(), ok);
    }
}

#[test]
fn fragments_give_their_place_and_an_only_fragment_is_whole() {
    let bytes = fragment(0x0102_0304, 16, true, &[0; 8]);
    let parsed = parse(&bytes).unwrap();
    let expected = Fragment { id: 0x0102_0304, offset: 16, more: true };
    assert_eq!((parsed.fragment, parsed.protocol), (Some(expected), 17));
    assert_eq!(parsed.payload, [0; 8]);
    let bytes = fragment(1, 0, false, &[9; 3]);
    let parsed = parse(&bytes).unwrap();
    assert_eq!((parsed.fragment, parsed.payload), (None, &[9; 3][..]));
}

#[test]
fn a_first_fragment_holds_all_headers() {
    let first = |next: u8, payload: &[u8]| {
        packet(next_header::FRAGMENT, &[&[next, 0, 0, 1, 0, 0, 0, 1][..], payload].concat())
    };
    let cut = Err(Malformed::Ipv6FirstFragment);
    for (upper, least) in [(6, 24), (17, 8), (58, 8), (200, 8)] {
        assert!(parse(&first(upper, &[0; 40][..least])).is_ok(), "{upper}");
        let behind_options = [&padding(upper)[..], &[0; 40][..least]].concat();
        let next = next_header::DESTINATION_OPTIONS;
        assert!(parse(&first(next, &behind_options)).is_ok(), "{upper}");
        let is_known = upper != 200;
        assert_eq!(parse(&first(next, &behind_options[..least])) == cut, is_known, "{upper}");
    }
    assert_eq!(parse(&first(6, &[0; 16])), cut);
    assert_eq!(parse(&first(next_header::ROUTING, &[6, 1, 0, 0, 0, 0, 0, 0])), cut);
    // A chain of fragments has an end.
    let chain = [44, 0, 0, 1, 0, 0, 0, 1].repeat(1000);
    assert_eq!(parse(&first(44, &chain)), cut);
}

#[test]
fn fragments_that_cannot_be_are_malformed() {
    let bytes = fragment(1, 0, true, &[0; 9]);
    assert_eq!(parse(&bytes), Err(Malformed::FragmentLength));
    assert!(parse(&fragment(1, 65_528, false, &[0; 7])).is_ok());
    let bytes = fragment(1, 65_528, false, &[0; 8]);
    assert_eq!(parse(&bytes), Err(Malformed::FragmentEnd));
}
