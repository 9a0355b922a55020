//! ICMP messages as scripts name them (RFC 792, 4443).

use std::net::IpAddr;

use super::{Body, Datagram, Tuple, wire};
use crate::ast::{IcmpSpec, Quoted};

const V4_TYPES: &[(u8, &str)] = &[
    (0, "echo_reply"),
    (3, "unreachable"),
    (4, "source_quench"),
    (5, "redirect"),
    (8, "echo_request"),
    (11, "time_exceeded"),
    (12, "parameter_problem"),
    (13, "timestamp_request"),
    (14, "timestamp_reply"),
    (15, "information_request"),
    (16, "information_reply"),
    (17, "address_mask_request"),
    (18, "address_mask_reply"),
];

const V4_UNREACHABLE: &[&str] = &[
    "net_unreachable",
    "host_unreachable",
    "protocol_unreachable",
    "port_unreachable",
    "frag_needed",
    "source_route_failed",
    "net_unknown",
    "host_unknown",
    "source_host_isolated",
    "net_prohibited",
    "host_prohibited",
    "net_unreachable_for_tos",
    "host_unreachable_for_tos",
    "packet_filtered",
    "precedence_violation",
    "precedence_cutoff",
];

const V6_TYPES: &[(u8, &str)] = &[
    (1, "unreachable"),
    (2, "packet_too_big"),
    (3, "time_exceeded"),
    (4, "parameter_problem"),
    (128, "echo_request"),
    (129, "echo_reply"),
];

const V6_UNREACHABLE: &[&str] =
    &["no_route", "admin_prohibited", "not_neighbour", "address_unreachable", "port_unreachable"];

const V6_EXCEEDED: &[&str] = &["exceeded_hop_limit", "exceeded_frag_time"];

const V6_PARAMETER: &[&str] = &["header_field", "unknown_next_header", "unknown_option"];

/// The message that `spec` describes. The quoted packet has no ports yet: see [`quote`].
pub(super) fn build(spec: &IcmpSpec, source: IpAddr, destination: IpAddr) -> Result<Body, String> {
    let (kind, code) = numbers(spec, source.is_ipv4())?;
    let mut rest = vec![0; 4];
    if let Some(mtu) = spec.mtu {
        let in_v4 = source.is_ipv4() && (kind, code) == (3, 4) && mtu <= 0xffff;
        let in_v6 = !source.is_ipv4() && (kind, code) == (2, 0);
        if !in_v4 && !in_v6 {
            return Err("an ICMP MTU where there is none, or out of range".into());
        }
        rest = mtu.to_be_bytes().to_vec();
    }
    if spec.echo_id > 0 {
        rest[..2].copy_from_slice(&spec.echo_id.to_be_bytes());
    }
    match spec.quoted {
        Quoted::Raw(length) if length < 8 => return Err("smaller than an ICMP header".into()),
        Quoted::Raw(length) => rest.resize(usize::from(length) - 4, 0),
        Quoted::Tcp { seq, length } => rest.extend(quoted_packet(
            (super::TCP, 20, length),
            [0u32.to_be_bytes(), seq.to_be_bytes()].concat(),
            (destination, source),
        )),
        Quoted::Udp { length, .. } => {
            let mut head = vec![0; 8];
            head[4..6].copy_from_slice(&length.saturating_add(8).to_be_bytes());
            rest.extend(quoted_packet((super::UDP, 8, length), head, (destination, source)));
        }
    }
    Ok(Body::Icmp { kind, code, rest })
}

/// An IP header, eight bytes of the header behind it, and as many zeros as it carried.
fn quoted_packet(
    (protocol, header_bytes, length): (u8, usize, u16),
    head: Vec<u8>,
    (source, destination): (IpAddr, IpAddr),
) -> Vec<u8> {
    let body = if protocol == super::TCP {
        Body::Tcp(super::Segment::default())
    } else {
        Body::Udp { ports: (0, 0), payload: Vec::new() }
    };
    let frame = Datagram {
        source,
        destination,
        tos: 0,
        ttl: 255,
        flow_label: 0,
        dont_fragment: false,
        header_bytes: 0,
        body,
    };
    let mut bytes = wire::ip_header(&frame, header_bytes + usize::from(length));
    if source.is_ipv4() {
        // The original leaves it out.
        bytes[10..12].fill(0);
    }
    bytes.extend(head);
    bytes.resize(bytes.len() + usize::from(length), 0);
    bytes
}

/// Write the addresses and ports of the quoted packet, which went the other way than `inbound`, and
/// add `seq_offset` to its sequence number.
pub(crate) fn quote(rest: &mut [u8], inbound: Tuple, seq_offset: u32) {
    let header_bytes = if inbound.source.is_ipv4() { 20 } else { 40 };
    let protocol_at = 4 + if inbound.source.is_ipv4() { 9 } else { 6 };
    let at = 4 + header_bytes;
    if rest.len() < at + 8 {
        return;
    }
    match (inbound.destination.ip(), inbound.source.ip()) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            rest[16..20].copy_from_slice(&ours.octets());
            rest[20..24].copy_from_slice(&theirs.octets());
        }
        (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
            rest[12..28].copy_from_slice(&ours.octets());
            rest[28..44].copy_from_slice(&theirs.octets());
        }
        _ => {}
    }
    rest[at..at + 2].copy_from_slice(&inbound.destination.port().to_be_bytes());
    rest[at + 2..at + 4].copy_from_slice(&inbound.source.port().to_be_bytes());
    if rest[protocol_at] == super::TCP {
        let seq = super::word(rest, at + 4).wrapping_add(seq_offset);
        rest[at + 4..at + 8].copy_from_slice(&seq.to_be_bytes());
    }
}

/// Whether a message of the stack quotes the datagram that the script says: its length, protocol,
/// addresses, ports, and as many of its bytes as there are. The original does not look.
pub(crate) fn check_quote(expected: &[u8], actual: &[u8], is_v4: bool) -> Result<(), String> {
    let fields: &[(&str, std::ops::Range<usize>)] = match is_v4 {
        true => &[
            ("version", 0..1),
            ("length", 2..4),
            ("protocol", 9..10),
            ("addresses", 12..20),
            ("ports", 20..24),
            ("UDP length", 24..26),
        ],
        false => &[
            ("length", 4..6),
            ("protocol", 6..7),
            ("addresses", 8..40),
            ("ports", 40..44),
            ("UDP length", 44..46),
        ],
    };
    for (name, range) in fields {
        let place = range.start + 4..range.end + 4;
        let (wanted, found) = (expected.get(place.clone()), actual.get(place));
        if wanted != found {
            return Err(format!("quoted {name}: expected {wanted:02x?}, quoted is {found:02x?}"));
        }
    }
    let payload = actual.get(4 + if is_v4 { 28 } else { 48 }..).unwrap_or_default();
    if payload == super::pattern(payload.len()) {
        Ok(())
    } else {
        Err("the quoted payload is another".into())
    }
}

fn numbers(spec: &IcmpSpec, is_v4: bool) -> Result<(u8, u8), String> {
    let types = if is_v4 { V4_TYPES } else { V6_TYPES };
    let named = types.iter().find(|(_, name)| *name == spec.kind).map(|(kind, _)| *kind);
    let kind = named
        .or_else(|| spec.kind.strip_prefix("type_")?.parse().ok())
        .ok_or_else(|| format!("bad ICMP type {}", spec.kind))?;
    let Some(code) = &spec.code else { return Ok((kind, 0)) };
    let codes = match (is_v4, kind) {
        (true, 3) => V4_UNREACHABLE,
        (false, 1) => V6_UNREACHABLE,
        (false, 3) => V6_EXCEEDED,
        (false, 4) => V6_PARAMETER,
        _ => &[],
    };
    let named = if !is_v4 && kind == 1 && code == "net_unreachable" {
        Some(0)
    } else {
        codes.iter().position(|name| name == code)
    };
    let code = named
        .and_then(|code| u8::try_from(code).ok())
        .or_else(|| code.strip_prefix("code_")?.parse().ok())
        .ok_or_else(|| format!("bad ICMP code {code}"))?;
    Ok((kind, code))
}
