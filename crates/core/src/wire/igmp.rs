//! Internet group management: telling routers and switches which IPv4 groups we listen to
//! (IGMPv3 RFC 3376; IGMPv2 RFC 2236; IGMPv1 RFC 1112).
//!
//! We listen to whole groups, never to chosen sources: a report is a list of groups.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::checksum::{Sum, fill, sum};
use super::ip::protocol;
use super::mld::{Change, MAX_RECORDS};
use super::{Malformed, u16_at};

/// Where version 3 reports go (RFC 3376 §4.2.14).
pub(crate) const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Where it is said that we have left a group, in version 2 (RFC 2236 §9).
pub(crate) const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// All hosts: everyone listens, and nobody reports it (RFC 3376 §6).
pub(crate) const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// Version 1 queries give no time: hosts take this long (RFC 2236 §4).
const V1_RESPONSE_MS: u32 = 10_000;

/// Which version a querier speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V1,
    V2,
    V3,
}

/// A message that has arrived. Others' reports and leave messages say nothing to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Asks which hosts listen to `group`; if that is unspecified, to any. They answer at some
    /// random time within `max_response_ms`.
    Query { version: Version, group: Ipv4Addr, max_response_ms: u32 },
    /// Any other message.
    Other,
}

impl Message {
    /// The message that is an IP packet's whole payload.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        let group = bytes.get(4..).and_then(<[u8]>::first_chunk::<4>);
        let (Some(group), Some(word)) = (group, u16_at(bytes, 0)) else {
            return Err(Malformed::IgmpLength);
        };
        if !sum(bytes).is_valid() {
            return Err(Malformed::IgmpChecksum);
        }
        let [kind, code] = word.to_be_bytes();
        if kind != QUERY {
            return Ok(Message::Other);
        }
        // RFC 3376 §7.1: the length tells the versions apart, and lengths between are ignored.
        let (version, max_response_ms) = match (bytes.len(), code) {
            (8, 0) => (Version::V1, V1_RESPONSE_MS),
            (8, code) => (Version::V2, u32::from(code) * 100),
            (12.., code) => (Version::V3, max_response_tenths(code) * 100),
            _ => return Err(Malformed::IgmpLength),
        };
        Ok(Message::Query { version, group: Ipv4Addr::from(*group), max_response_ms })
    }
}

/// The maximum response time behind a version 3 code: above 127 it is a floating-point number
/// (RFC 3376 §4.1.1).
const fn max_response_tenths(code: u8) -> u32 {
    if code < 0x80 {
        return code as u32;
    }
    let (exponent, mantissa) = ((code >> 4) & 7, code & 0x0f);
    (mantissa as u32 | 0x10) << (exponent + 3)
}

/// Appends a whole IPv4 packet with a version 3 report of at most [`MAX_RECORDS`] records: the rest
/// is left out.
pub(crate) fn emit_report(source: Ipv4Addr, records: &[(Change, Ipv4Addr)], out: &mut Vec<u8>) {
    let records = &records[..records.len().min(MAX_RECORDS)];
    let mut message = Vec::with_capacity(8 + 8 * records.len());
    message.extend_from_slice(&[REPORT_V3, 0, 0, 0, 0, 0, 0, records.len() as u8]);
    for (change, group) in records {
        message.extend_from_slice(&[change.record_type(), 0, 0, 0]);
        message.extend_from_slice(&group.octets());
    }
    emit_packet(source, ALL_V3_ROUTERS, message, out);
}

/// Appends a whole IPv4 packet with the message for a group that an older querier understands, and
/// returns where it goes. `None`: version 1 has none, for a group that we have left.
pub(crate) fn emit_old_report(
    source: Ipv4Addr,
    (change, group): (Change, Ipv4Addr),
    version: Version,
    out: &mut Vec<u8>,
) -> Option<Ipv4Addr> {
    let (kind, destination) = match (change, version) {
        (Change::Left, Version::V1) => return None,
        (Change::Left, Version::V2 | Version::V3) => (LEAVE, ALL_ROUTERS),
        (Change::Listening | Change::Joined, Version::V1) => (REPORT_V1, group),
        (Change::Listening | Change::Joined, Version::V2 | Version::V3) => (REPORT_V2, group),
    };
    let mut message = Vec::from([kind, 0, 0, 0]);
    message.extend_from_slice(&group.octets());
    emit_packet(source, destination, message, out);
    Some(destination)
}

/// An IPv4 packet with a router alert (RFC 2113), TTL 1, internetwork control (RFC 3376 §4), and
/// the message.
fn emit_packet(source: Ipv4Addr, destination: Ipv4Addr, mut message: Vec<u8>, out: &mut Vec<u8>) {
    const HEADER_BYTES: usize = 24;
    const INTERNETWORK_CONTROL: u8 = 0xc0;
    fill(&mut message, 0, 2, Sum::ZERO);
    let start = out.len();
    let [high, low] = ((HEADER_BYTES + message.len()) as u16).to_be_bytes();
    out.extend_from_slice(&[0x46, INTERNETWORK_CONTROL, high, low, 0, 0, 0x40, 0]);
    out.extend_from_slice(&[1, protocol::IGMP, 0, 0]);
    out.extend_from_slice(&source.octets());
    out.extend_from_slice(&destination.octets());
    out.extend_from_slice(&[0x94, 4, 0, 0]);
    fill(out, start, 10, Sum::ZERO);
    out.extend_from_slice(&message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ip::Packet;

    const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        fill(&mut bytes, 0, 2, Sum::ZERO);
        bytes
    }

    #[test]
    fn a_report_is_a_whole_packet_with_a_router_alert() {
        let mut bytes = Vec::new();
        emit_report(US, &[(Change::Joined, GROUP), (Change::Listening, GROUP)], &mut bytes);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.hop_limit, packet.protocol), (1, protocol::IGMP));
        assert_eq!(packet.destination, ALL_V3_ROUTERS);
        assert_eq!(bytes[20..24], [0x94, 4, 0, 0]);
        assert_eq!(packet.payload[0], 0x22);
        assert_eq!(packet.payload[4..12], [0, 0, 0, 2, 4, 0, 0, 0]);
        assert_eq!(packet.payload[12..17], [224, 0, 0, 251, 2]);
        assert_eq!(Message::parse(packet.payload), Ok(Message::Other));
    }

    #[test]
    fn older_queriers_get_their_own_messages() {
        let sent = |change, version| {
            let mut bytes = Vec::new();
            let to = emit_old_report(US, (change, GROUP), version, &mut bytes)?;
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!((packet.destination, packet.payload.len()), (to.into(), 8));
            assert_eq!(packet.payload[4..], GROUP.octets());
            Some((packet.payload[0], to))
        };
        assert_eq!(sent(Change::Joined, Version::V1), Some((0x12, GROUP)));
        assert_eq!(sent(Change::Listening, Version::V2), Some((0x16, GROUP)));
        assert_eq!(sent(Change::Left, Version::V2), Some((0x17, ALL_ROUTERS)));
        assert_eq!(sent(Change::Left, Version::V1), None);
    }

    #[test]
    fn queries_are_told_apart_by_length_and_code() {
        let query = |version, max_response_ms| {
            Ok(Message::Query { version, group: GROUP, max_response_ms })
        };
        let bytes = |code: u8, more: usize| {
            let mut bytes = std::vec![0x11, code, 0, 0, 224, 0, 0, 251];
            bytes.resize(8 + more, 0);
            sealed(&bytes)
        };
        assert_eq!(Message::parse(&bytes(0, 0)), query(Version::V1, 10_000));
        assert_eq!(Message::parse(&bytes(100, 0)), query(Version::V2, 10_000));
        assert_eq!(Message::parse(&bytes(0x7f, 4)), query(Version::V3, 12_700));
        assert_eq!(Message::parse(&bytes(0x80, 4)), query(Version::V3, 12_800));
        assert_eq!(Message::parse(&bytes(0xff, 4)), query(Version::V3, (0x1f << 10) * 100));
        for more in 1..4 {
            assert_eq!(Message::parse(&bytes(1, more)), Err(Malformed::IgmpLength));
        }
        assert_eq!(Message::parse(&bytes(1, 0)[..7]), Err(Malformed::IgmpLength));
        let mut damaged = bytes(1, 0);
        damaged[7] ^= 1;
        assert_eq!(Message::parse(&damaged), Err(Malformed::IgmpChecksum));
        assert_eq!(Message::parse(&sealed(&[0x16, 0, 0, 0, 1, 2, 3, 4])), Ok(Message::Other));
    }

    #[test]
    fn the_record_beyond_the_limit_is_left_out() {
        for given in [MAX_RECORDS, MAX_RECORDS + 1] {
            let mut bytes = Vec::new();
            emit_report(US, &std::vec![(Change::Joined, GROUP); given], &mut bytes);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.payload.len(), 8 + 8 * MAX_RECORDS);
            assert_eq!(usize::from(packet.payload[7]), MAX_RECORDS);
        }
    }
}
