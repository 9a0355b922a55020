//! Multicast listener discovery: telling routers and switches which groups we listen to
//! (MLDv2 RFC 3810; MLDv1 RFC 2710).
//!
//! We listen to whole groups, never to chosen sources: a report is a list of groups.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::checksum::{fill, pseudo_header};
use super::ip::{Header, protocol};
use super::ipv6::next_header;
use super::{Malformed, ndp, u16_at};

/// Where version 2 reports go (RFC 3810 §5.2.14).
pub(crate) const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Groups in one report at most: it stays far below the least MTU.
pub(crate) const MAX_RECORDS: usize = 32;

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE_V1: u8 = 132;
const REPORT_V2: u8 = 143;

/// Which version a querier speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 2710: answered group by group.
    V1,
    /// RFC 3810.
    V2,
}

/// A message that has arrived. Others' reports and leave messages say nothing to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Asks for listeners.
    Query {
        /// The querier's version.
        version: Version,
        /// To which group; unspecified: to any.
        group: Ipv6Addr,
        /// Answer at some random time within this.
        max_response_ms: u32,
    },
    /// Another listener's report or leave message.
    Report,
}

impl Message {
    /// The message of type `kind` whose `body` follows the checksum; `None` if the type is not one
    /// of these. The hop limit is 1 and the source link-local (RFC 3810 §5.1.14, §5.2.13; reports
    /// may come from the unspecified address).
    pub(super) fn parse(
        kind: u8,
        body: &[u8],
        envelope: ndp::Envelope,
    ) -> Option<Result<Message, Malformed>> {
        let source = envelope.source;
        let near = source.is_unicast_link_local();
        match kind {
            _ if !matches!(kind, QUERY | REPORT_V1 | DONE_V1 | REPORT_V2) => None,
            _ if envelope.hop_limit != 1 => Some(Err(Malformed::MldRule)),
            QUERY if near => Some(parse_query(body).ok_or(Malformed::MldLength)),
            REPORT_V1 | DONE_V1 | REPORT_V2 if near || source.is_unspecified() => {
                Some(Ok(Message::Report))
            }
            _ => Some(Err(Malformed::MldRule)),
        }
    }
}

fn parse_query(body: &[u8]) -> Option<Message> {
    let code = u16_at(body, 0)?;
    let group = Ipv6Addr::from(*body.get(4..)?.first_chunk::<16>()?);
    // RFC 3810 §8.1: the length tells the versions apart, and lengths between are ignored.
    let (version, max_response_ms) = match body.len() {
        20 => (Version::V1, u32::from(code)),
        24.. => (Version::V2, max_response_ms(code)),
        _ => return None,
    };
    Some(Message::Query { version, group, max_response_ms })
}

/// The maximum response delay behind a version 2 code: above 32,767 it is a floating-point number
/// (RFC 3810 §5.1.3).
const fn max_response_ms(code: u16) -> u32 {
    if code < 0x8000 {
        return code as u32;
    }
    let (exponent, mantissa) = ((code >> 12) & 7, code & 0x0fff);
    (mantissa as u32 | 0x1000) << (exponent + 3)
}

/// Why a group is in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// No change: a query asked.
    Listening,
    /// We have begun to listen.
    Joined,
    /// We have ceased to listen.
    Left,
}

impl Change {
    /// The record's type: a host that listens to all sources excludes none, a host that no longer
    /// listens includes none (RFC 3810 §5.2.12; RFC 3376 §4.2.12).
    pub(super) fn record_type(self) -> u8 {
        match self {
            Change::Listening => 2,
            Change::Joined => 4,
            Change::Left => 3,
        }
    }
}

/// Appends a whole IPv6 packet with a version 2 report of at most [`MAX_RECORDS`] records: the rest
/// is left out. `source`: our link-local address, or unspecified while we have none.
pub(crate) fn emit_report(source: Ipv6Addr, records: &[(Change, Ipv6Addr)], out: &mut Vec<u8>) {
    let records = &records[..records.len().min(MAX_RECORDS)];
    let mut body = Vec::with_capacity(4 + 20 * records.len());
    body.extend_from_slice(&[0, 0, 0, records.len() as u8]);
    for (change, group) in records {
        body.extend_from_slice(&[change.record_type(), 0, 0, 0]);
        body.extend_from_slice(&group.octets());
    }
    emit_packet(source, ALL_MLDV2_ROUTERS, REPORT_V2, &body, out);
}

/// Appends a whole IPv6 packet with the version 1 message for a group: what a version 1 querier
/// understands (RFC 3810 §8.2.1).
pub(crate) fn emit_report_v1(source: Ipv6Addr, change: Change, group: Ipv6Addr, out: &mut Vec<u8>) {
    let (kind, destination) = match change {
        Change::Listening | Change::Joined => (REPORT_V1, group),
        Change::Left => (DONE_V1, ndp::ALL_ROUTERS),
    };
    let mut body = Vec::from([0; 4]);
    body.extend_from_slice(&group.octets());
    emit_packet(source, destination, kind, &body, out);
}

/// An IPv6 packet with a router alert (RFC 2711), hop limit 1, and the ICMPv6 message.
fn emit_packet(source: Ipv6Addr, destination: Ipv6Addr, kind: u8, body: &[u8], out: &mut Vec<u8>) {
    const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
    let message_len = 4 + body.len();
    let (source, destination) = (source.into(), destination.into());
    let total = ROUTER_ALERT.len() + message_len;
    let Some(mut header) = Header::new(source, destination, next_header::HOP_BY_HOP, total) else {
        unreachable!("a report of so few records fits");
    };
    header.hop_limit = 1;
    header.emit(out);
    out.extend_from_slice(&ROUTER_ALERT);
    let start = out.len();
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(body);
    let pseudo = pseudo_header(source, destination, protocol::ICMPV6, message_len as u32);
    fill(out, start, 2, pseudo);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::icmpv6;
    use crate::wire::ip::Packet;

    const US: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 9);
    const ENVELOPE: ndp::Envelope = ndp::Envelope { source: US, destination: GROUP, hop_limit: 1 };

    #[test]
    fn a_report_is_a_whole_packet_with_a_router_alert() {
        let mut bytes = Vec::new();
        emit_report(US, &[(Change::Joined, GROUP), (Change::Listening, GROUP)], &mut bytes);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.hop_limit, packet.protocol), (1, protocol::ICMPV6));
        assert_eq!(bytes[40..48], [58, 0, 5, 2, 0, 0, 1, 0]);
        assert_eq!(icmpv6::Message::parse(&packet), Ok(icmpv6::Message::Mld(Message::Report)));
        assert_eq!(packet.payload[0], 143);
        assert_eq!(packet.payload[4..12], [0, 0, 0, 2, 4, 0, 0, 0]);
        assert_eq!(packet.payload[12..28], GROUP.octets());
        assert_eq!(packet.payload[28], 2);
    }

    #[test]
    fn version_1_messages_go_to_the_group_or_to_the_routers() {
        for (change, kind, destination) in
            [(Change::Joined, 131, GROUP), (Change::Left, 132, ndp::ALL_ROUTERS)]
        {
            let mut bytes = Vec::new();
            emit_report_v1(US, change, GROUP, &mut bytes);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.destination, destination);
            assert_eq!(packet.payload[0], kind);
            assert_eq!(icmpv6::Message::parse(&packet), Ok(icmpv6::Message::Mld(Message::Report)));
        }
    }

    #[test]
    fn the_record_beyond_the_limit_is_left_out() {
        for (given, kept) in [(MAX_RECORDS, MAX_RECORDS), (MAX_RECORDS + 1, MAX_RECORDS)] {
            let mut bytes = Vec::new();
            emit_report(US, &std::vec![(Change::Joined, GROUP); given], &mut bytes);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.payload.len(), 8 + 20 * kept);
            assert_eq!(usize::from(packet.payload[7]), kept);
        }
    }

    #[test]
    fn queries_of_both_versions_are_told_apart_by_length() {
        let mut body = Vec::from([0x80, 0x01, 0, 0]);
        body.extend_from_slice(&GROUP.octets());
        let query = |version, max_response_ms| {
            Some(Ok(Message::Query { version, group: GROUP, max_response_ms }))
        };
        assert_eq!(Message::parse(130, &body, ENVELOPE), query(Version::V1, 0x8001));
        assert_eq!(Message::parse(130, &body[..19], ENVELOPE), Some(Err(Malformed::MldLength)));
        body.extend_from_slice(&[0; 3]);
        assert_eq!(Message::parse(130, &body, ENVELOPE), Some(Err(Malformed::MldLength)));
        body.push(0);
        assert_eq!(Message::parse(130, &body, ENVELOPE), query(Version::V2, 0x1001 << 3));
    }

    #[test]
    fn response_codes_are_linear_and_then_exponential() {
        assert_eq!(max_response_ms(0x7fff), 32_767);
        assert_eq!(max_response_ms(0x8000), 32_768);
        assert_eq!(max_response_ms(0xffff), 0x1fff << 10);
    }

    #[test]
    fn messages_from_afar_are_malformed() {
        let rule = Some(Err(Malformed::MldRule));
        let far = ndp::Envelope { hop_limit: 2, ..ENVELOPE };
        let routed = ndp::Envelope { source: Ipv6Addr::LOCALHOST, ..ENVELOPE };
        let nobody = ndp::Envelope { source: Ipv6Addr::UNSPECIFIED, ..ENVELOPE };
        for envelope in [far, routed, nobody] {
            assert_eq!(Message::parse(QUERY, &[0; 24], envelope), rule);
        }
        for envelope in [far, routed] {
            assert_eq!(Message::parse(REPORT_V2, &[], envelope), rule);
        }
        assert_eq!(Message::parse(REPORT_V2, &[], nobody), Some(Ok(Message::Report)));
        assert_eq!(Message::parse(129, &[], ENVELOPE), None);
    }
}
