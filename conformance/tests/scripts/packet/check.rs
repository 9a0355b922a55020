//! Compares a packet with the one that a script expects: the fields that packetdrill compares, in
//! its order and with its messages.

use super::{Body, Datagram, Segment, Tuple, flag, options};
use crate::ast::TosSpec;

/// A packet that a script expects, in the script's numbers, and which of its fields matter.
pub(crate) struct Expectation {
    pub(crate) datagram: Datagram,
    pub(crate) tos: TosSpec,
    pub(crate) ttl: Option<u8>,
    /// The DF bit matters.
    pub(crate) dont_fragment: bool,
    pub(crate) window: bool,
    pub(crate) options: bool,
    /// `wscale *`
    pub(crate) any_wscale: bool,
    /// The ECN flags are one number.
    pub(crate) ace: bool,
}

/// Ticks of the timestamp clock, where a script asks that they be checked.
pub(crate) struct StampTolerance {
    pub(crate) tick_usecs: i64,
    pub(crate) tolerance_usecs: i64,
    /// The echo is what the script says, too. (The original never looks.)
    pub(crate) exact_echo: bool,
}

/// Compares `actual`, mapped into the script's numbers, with the expected packet.
pub(crate) fn check(
    expected: &Expectation,
    actual: &Datagram,
    stamps: &StampTolerance,
) -> Result<(), String> {
    check_headers(expected, actual, true)?;
    if let (Some(wanted), Some(segment)) = (expected.datagram.segment(), actual.segment())
        && expected.options
    {
        check_options(wanted, segment, expected.any_wscale, stamps)?;
    }
    if expected.datagram.payload() == actual.payload() {
        Ok(())
    } else {
        Err("incorrect outbound data payload".into())
    }
}

/// Whether `current` continues `previous` as a piece of one large segment.
pub(crate) fn check_fragment(previous: &Datagram, current: &Datagram) -> Result<(), String> {
    let expected = Expectation {
        datagram: previous.clone(),
        tos: TosSpec::Unchecked,
        ttl: Some(previous.ttl),
        dont_fragment: false,
        window: true,
        options: true,
        any_wscale: false,
        ace: false,
    };
    check_headers(&expected, current, false)
}

fn field(name: &str, expected: impl Into<u64>, actual: impl Into<u64>) -> Result<(), String> {
    let (expected, actual) = (expected.into(), actual.into());
    if expected == actual {
        return Ok(());
    }
    Err(format!(
        "live packet field {name}: expected: {expected} ({expected:#x}) vs actual: {actual} \
         ({actual:#x})"
    ))
}

fn check_headers(expected: &Expectation, actual: &Datagram, strict: bool) -> Result<(), String> {
    let wanted = &expected.datagram;
    let version = |datagram: &Datagram| if datagram.source.is_ipv4() { 4u64 } else { 6 };
    field("ip_version", version(wanted), version(actual))?;
    field("ip_protocol", wanted.protocol(), actual.protocol())?;
    if actual.source.is_ipv4() {
        field("ipv4_header_length", words(wanted.header_bytes), words(actual.header_bytes))?;
    }
    let allowance = match actual.segment() {
        Some(segment) if !expected.options => segment.options.len(),
        _ => 0,
    };
    if strict {
        let length = wanted.body.payload_bytes() + allowance;
        field("ip_payload_length", length as u64, actual.body.payload_bytes() as u64)?;
    }
    check_tos(expected.tos, actual.tos)?;
    if let Some(ttl) = expected.ttl {
        field("ttl", ttl, actual.ttl)?;
    }
    if expected.dont_fragment {
        field("ip_df", wanted.dont_fragment, actual.dont_fragment)?;
    }
    match (&wanted.body, &actual.body) {
        (Body::Tcp(segment), Body::Tcp(live)) => {
            field(
                "tcp_data_offset",
                words(segment.options.len() + allowance),
                words(live.options.len()),
            )?;
            check_tcp(expected, segment, live, strict)
        }
        (Body::Icmp { kind, code, .. }, Body::Icmp { kind: live_kind, code: live_code, .. }) => {
            field("icmp_type", *kind, *live_kind)?;
            field("icmp_code", *code, *live_code)
        }
        _ => Ok(()),
    }
}

/// Whether a packet goes between the ends that it should. A port of 0 may be any, and the
/// unspecified address, too.
pub(crate) fn check_ends(expected: Tuple, actual: Tuple) -> Result<(), String> {
    let (wanted, found) = (expected.source, actual.source);
    if wanted.ip() != found.ip() && !wanted.ip().is_unspecified() {
        return Err(format!("live packet from {}, expected from {}", found.ip(), wanted.ip()));
    }
    if wanted.port() != 0 {
        field("source_port", wanted.port(), found.port())?;
    }
    let (wanted, found) = (expected.destination, actual.destination);
    if wanted.ip() != found.ip() {
        return Err(format!("live packet to {}, expected to {}", found.ip(), wanted.ip()));
    }
    if wanted.port() != 0 {
        field("destination_port", wanted.port(), found.port())?;
    }
    Ok(())
}

fn words(bytes: usize) -> u64 {
    bytes as u64 / 4
}

fn check_tos(expected: TosSpec, actual: u8) -> Result<(), String> {
    match expected {
        TosSpec::Unchecked => Ok(()),
        TosSpec::Ecn(ecn) => field("ip_ecn", ecn, actual & 3),
        TosSpec::Whole(tos) => field("tos", tos, actual),
        TosSpec::Ect01 if matches!(actual & 3, 1 | 2) => Ok(()),
        TosSpec::Ect01 => Err(format!(
            "live packet field ip_ecn: expected: 0x1 or 0x2 vs actual: {:#x}",
            actual & 3
        )),
    }
}

fn check_tcp(
    expected: &Expectation,
    wanted: &Segment,
    actual: &Segment,
    strict: bool,
) -> Result<(), String> {
    let bit = |name: &str, flag: u16| {
        field(name, u64::from(wanted.has(flag)), u64::from(actual.has(flag)))
    };
    if strict {
        bit("tcp_fin", flag::FIN)?;
    }
    bit("tcp_syn", flag::SYN)?;
    bit("tcp_rst", flag::RST)?;
    if strict {
        bit("tcp_psh", flag::PSH)?;
    }
    bit("tcp_ack", flag::ACK)?;
    bit("tcp_urg", flag::URG)?;
    if expected.ace {
        let ace = |segment: &Segment| {
            u64::from(segment.has(flag::AE)) << 2
                | u64::from(segment.has(flag::CWR)) << 1
                | u64::from(segment.has(flag::ECE))
        };
        field("tcp_ace", ace(wanted), ace(actual))?;
    } else {
        bit("tcp_ece", flag::ECE)?;
        if strict {
            bit("tcp_cwr", flag::CWR)?;
        }
        bit("tcp_ae", flag::AE)?;
    }
    field("tcp_reserved_bits", wanted.flags & flag::RESERVED, actual.flags & flag::RESERVED)?;
    let next = if strict { 0 } else { wanted.payload.len() };
    let seq = u32::try_from(next).map_or(0, |next| wanted.seq.wrapping_add(next));
    field("tcp_seq", seq, actual.seq)?;
    field("tcp_ack_seq", wanted.ack, actual.ack)?;
    if expected.window {
        field("tcp_window", wanted.window, actual.window)?;
    }
    field("tcp_urg_ptr", wanted.urgent, actual.urgent)
}

/// Checks that the options are equal and in the same order. It compares the value of a timestamp
/// and its echo where the script asks for that.
fn check_options(
    wanted: &Segment,
    actual: &Segment,
    any_wscale: bool,
    stamps: &StampTolerance,
) -> Result<(), String> {
    let (wanted_places, _) = options(&wanted.options);
    let (actual_places, _) = options(&actual.options);
    let kinds =
        |places: &[super::OptionPlace]| places.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    if kinds(&wanted_places) != kinds(&actual_places) {
        return Err("bad outbound TCP options".into());
    }
    for ((kind, wanted_at), (_, actual_at)) in wanted_places.into_iter().zip(actual_places) {
        let (expected, found) = (&wanted.options[wanted_at.clone()], &actual.options[actual_at]);
        match kind {
            0 | 1 => {}
            3 if any_wscale => {}
            8 => {
                check_stamp(super::word(expected, 2), super::word(found, 2), stamps)?;
                if stamps.exact_echo {
                    field("tcp_ts_ecr", super::word(expected, 6), super::word(found, 6))?;
                }
            }
            _ if expected.len() != found.len() => {
                return Err(format!("bad lengths for outbound TCP option {kind}"));
            }
            _ if expected != found => {
                return Err(format!("bad value outbound TCP option {kind}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_stamp(expected: u32, actual: u32, stamps: &StampTolerance) -> Result<(), String> {
    let ticks = i64::from(actual.wrapping_sub(expected).cast_signed());
    if stamps.tick_usecs != 0 && ticks.abs() * stamps.tick_usecs > stamps.tolerance_usecs {
        return Err(format!(
            "bad outbound TCP timestamp value, tolerance {}",
            stamps.tolerance_usecs
        ));
    }
    Ok(())
}
