use super::*;

/// A packet with these flags and this offset in bytes, its checksum right.
pub(crate) fn fragment(id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut header = Header::new(a, b, 17, payload.len()).unwrap();
    header.identification = id;
    let mut bytes = Vec::new();
    header.emit(&mut bytes);
    let flags = (offset / 8) | if more { MF } else { 0 };
    bytes[6..8].copy_from_slice(&flags.to_be_bytes());
    seal(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Makes the header checksum right, and the total length, of bytes long enough for a header.
pub(crate) fn seal_if_long(bytes: &mut [u8]) {
    let len = bytes.len() as u16;
    if bytes
        .first()
        .is_some_and(|first| first >> 4 == 4 && bytes.len() >= usize::from(first & 0x0f) * 4)
    {
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        seal(bytes);
    }
}

/// Makes the header checksum right.
fn seal(bytes: &mut [u8]) {
    let header_len = usize::from(bytes[0] & 0x0f) * 4;
    bytes[10..12].fill(0);
    checksum::fill(&mut bytes[..header_len], 0, 10, checksum::Sum::ZERO);
}

#[test]
fn lengths_are_checked_at_both_ends() {
    let good = fragment(0, 0, false, &[1, 2, 3]);
    assert_eq!(parse(&good).unwrap().payload, [1, 2, 3]);
    assert_eq!(parse(&good[..19]), Err(Malformed::Ipv4Length));
    assert_eq!(parse(&good[..22]), Err(Malformed::Ipv4TotalLength));

    let mut short_header = good.clone();
    short_header[0] = 0x44;
    assert_eq!(parse(&short_header), Err(Malformed::Ipv4HeaderLength));
    let mut long_header = good.clone();
    long_header[0] = 0x46;
    assert_eq!(parse(&long_header), Err(Malformed::Ipv4HeaderLength));

    let mut total = good.clone();
    total[3] = 19;
    seal(&mut total);
    assert_eq!(parse(&total), Err(Malformed::Ipv4TotalLength));
    total[3] = 20;
    seal(&mut total);
    assert!(parse(&total).unwrap().payload.is_empty());
}

/// A packet of this protocol with these options, whose payload is a 7.
fn with_options(protocol: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = fragment(0, 0, false, &[options, &[7]].concat());
    bytes[0] = 0x45 + options.len() as u8 / 4;
    bytes[9] = protocol;
    seal(&mut bytes);
    bytes
}

#[test]
fn options_are_ignored() {
    // A stream identifier (RFC 1122 §3.2.1.8b), a router alert, and one that nobody knows; and
    // behind the end anything.
    for options in [[1, 1, 1, 0], [99, 3, 0, 1], [1, 99, 2, 0], [0, 131, 0, 9]] {
        let bytes = with_options(17, &options);
        assert_eq!(parse(&bytes).unwrap().payload, [7]);
        assert_eq!(problem(&bytes), None);
    }
    let bytes = with_options(17, &[136, 4, 0, 1, 148, 4, 0, 0]);
    assert_eq!(parse(&bytes).unwrap().payload, [7]);
}

#[test]
fn an_option_of_illegal_length_is_malformed_and_told_of() {
    for (options, pointer) in [
        ([99, 0, 0, 0], 21),
        ([99, 1, 0, 0], 21),
        ([1, 99, 4, 0], 22),
        ([1, 1, 1, 99], 23),
        ([131, 2, 0, 0], 21),
    ] {
        let bytes = with_options(17, &options);
        assert_eq!(parse(&bytes), Err(Malformed::Ipv4Option));
        let flaw = Flaw::Field { code: 0, pointer };
        assert_eq!(problem(&bytes).map(|it| (it.flaw, it.packet)), Some((flaw, &bytes[..])));
    }
}

#[test]
fn a_source_route_is_refused_and_told_of_if_it_goes_on() {
    for kind in SOURCE_ROUTES {
        for (pointer, goes_on) in [(4, true), (7, true), (8, false)] {
            let bytes = with_options(6, &[kind, 7, pointer, 10, 0, 0, 9, 0]);
            assert_eq!(parse(&bytes), Err(Malformed::Ipv4SourceRoute));
            let flaw = problem(&bytes).map(|problem| problem.flaw);
            assert_eq!(flaw, goes_on.then_some(Flaw::SourceRoute));
        }
    }
}

#[test]
fn no_icmp_error_and_no_later_fragment_is_answered() {
    let route = [131, 7, 4, 10, 0, 0, 9, 0];
    let mut bytes = with_options(1, &route);
    for (kind, is_answered) in [(8, true), (3, false), (5, false), (11, false), (12, false)] {
        *bytes.last_mut().unwrap() = kind;
        assert_eq!(problem(&bytes).is_some(), is_answered, "{kind}");
    }
    let mut later = with_options(17, &route);
    assert!(problem(&later).is_some());
    later[7] = 1;
    seal(&mut later);
    assert_eq!(problem(&later), None);
    later[7] = 0;
    assert_eq!(problem(&later), None, "the checksum is wrong");
}

#[test]
fn a_wrong_checksum_or_version_is_malformed() {
    let mut bytes = fragment(0, 0, false, &[]);
    bytes[8] ^= 1;
    assert_eq!(parse(&bytes), Err(Malformed::Ipv4Checksum));
    bytes[0] = 0x55;
    assert_eq!(parse(&bytes), Err(Malformed::IpVersion));
}

#[test]
fn fragments_say_where_they_belong() {
    let first = fragment(7, 0, true, &[0; 8]);
    let expected = Fragment { id: 7, offset: 0, more: true };
    assert_eq!(parse(&first).unwrap().fragment, Some(expected));
    let last = fragment(7, 8, false, &[0; 3]);
    let expected = Fragment { id: 7, offset: 8, more: false };
    assert_eq!(parse(&last).unwrap().fragment, Some(expected));
}

#[test]
fn fragments_that_cannot_be_are_malformed() {
    assert_eq!(parse(&fragment(7, 0, true, &[0; 7])), Err(Malformed::FragmentLength));
    assert_eq!(parse(&fragment(7, 0, true, &[])), Err(Malformed::FragmentLength));
    // 20 + 65,512 + 3 = 65,535.
    assert!(parse(&fragment(7, 65_512, false, &[0; 3])).is_ok());
    assert_eq!(parse(&fragment(7, 65_512, false, &[0; 4])), Err(Malformed::FragmentEnd));
}
