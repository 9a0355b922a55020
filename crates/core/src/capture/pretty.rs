//! One line of text for each frame, for people.
//!
//! ```text
//!   10.0.0.1:1234 > 10.0.0.2:80: S 1:1(0) win 65535 <mss 1460,sackOK,TS val 7 ecr 0,wscale 7>
//!   [fd00::1]:80 > [fd00::2]:1234: P. 1:1449(1448) ack 77 win 502 <TS val 9 ecr 7>
//!   ARP who-has 10.0.0.2 tell 10.0.0.1
//! ```
//!
//! The numbers are those of the wire: nothing is remembered from one line to the next. Checksums of
//! TCP are not looked at, since they may have been left to a device.

use core::fmt::{self, Display, Formatter};
use core::net::{IpAddr, SocketAddr};

use crate::frame::Medium;
use crate::wire::ethernet::{Frame, Mac, TAGS_MAX, ethertype};
use crate::wire::icmpv4::Echo;
use crate::wire::ip::{Packet, protocol};
use crate::wire::options::Options;
use crate::wire::quoted::Quoted;
use crate::wire::tcp::{Flags, Segment};
use crate::wire::udp::Datagram;
use crate::wire::{Malformed, arp, icmpv4, icmpv6, mld, ndp};

/// A frame whose [`Display`] is its line, without a line break. It never fails: what cannot be read
/// is said to be malformed.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The frame's first header.
    pub medium: Medium,
    /// The whole frame.
    pub bytes: &'a [u8],
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Err(reason) = self.frame(f)? {
            write!(f, "malformed: {reason} ({} bytes)", self.bytes.len())?;
        }
        Ok(())
    }
}

/// What a layer could be read as, beside the formatter's own word: an outer error is the
/// formatter's, an inner one the frame's.
type Written = Result<Result<(), Malformed>, fmt::Error>;

/// The value, or the function's end with the reason as the frame's fault.
macro_rules! or_malformed {
    ($parsed:expr) => {
        match $parsed {
            Ok(parsed) => parsed,
            Err(reason) => return Ok(Err(reason)),
        }
    };
}

impl Line<'_> {
    fn frame(&self, f: &mut Formatter<'_>) -> Written {
        if self.medium == Medium::Ip {
            return ip(self.bytes, f);
        }
        let mut frame = or_malformed!(Frame::parse(self.bytes));
        for _ in 0..TAGS_MAX {
            let Some((vlan, inner)) = or_malformed!(frame.behind_tag()) else { break };
            write!(f, "vlan {vlan} ")?;
            frame = inner;
        }
        match frame.ethertype {
            ethertype::ARP => arp(frame.payload, f),
            ethertype::IPV4 | ethertype::IPV6 => ip(frame.payload, f),
            other => {
                let (from, to) =
                    (HardwareAddress(frame.source), HardwareAddress(frame.destination));
                write!(f, "{from} > {to}: ethertype {other:#06x}, {} bytes", frame.payload.len())
                    .map(Ok)
            }
        }
    }
}

fn arp(bytes: &[u8], f: &mut Formatter<'_>) -> Written {
    let packet = or_malformed!(arp::Packet::parse(bytes));
    match packet.operation {
        arp::Operation::Request => {
            write!(f, "ARP who-has {} tell {}", packet.target, packet.sender)?;
        }
        arp::Operation::Reply => {
            write!(f, "ARP {} is-at {}", packet.sender, HardwareAddress(packet.sender_mac))?;
        }
    }
    Ok(Ok(()))
}

fn ip(bytes: &[u8], f: &mut Formatter<'_>) -> Written {
    let packet = or_malformed!(Packet::parse(bytes));
    let (source, destination) = (packet.source, packet.destination);
    if let Some(fragment) = packet.fragment {
        let more = if fragment.more { "+" } else { "" };
        let (len, offset) = (packet.payload.len(), fragment.offset);
        write!(f, "{source} > {destination}: fragment {:#x} {offset}:{len}{more}", fragment.id)?;
        return Ok(Ok(()));
    }
    match packet.protocol {
        protocol::TCP => tcp(&packet, f),
        protocol::UDP => udp(&packet, f),
        protocol::ICMPV4 => {
            let message = or_malformed!(icmpv4::Message::parse(packet.payload));
            write!(f, "{source} > {destination}: ICMP ")?;
            icmpv4(&message, f).map(Ok)
        }
        protocol::ICMPV6 => {
            let message = or_malformed!(icmpv6::Message::parse(&packet));
            write!(f, "{source} > {destination}: ICMP6 ")?;
            icmpv6(&message, f).map(Ok)
        }
        other => {
            let len = packet.payload.len();
            write!(f, "{source} > {destination}: protocol {other}, {len} bytes").map(Ok)
        }
    }
}

fn udp(packet: &Packet<'_>, f: &mut Formatter<'_>) -> Written {
    let datagram = or_malformed!(Datagram::parse(packet.payload));
    let source = SocketAddr::new(packet.source, datagram.source_port);
    let destination = SocketAddr::new(packet.destination, datagram.destination_port);
    write!(f, "{source} > {destination}: UDP, {} bytes", datagram.payload.len()).map(Ok)
}

fn tcp(packet: &Packet<'_>, f: &mut Formatter<'_>) -> Written {
    let segment = or_malformed!(Segment::parse(packet.payload));
    let source = SocketAddr::new(packet.source, segment.source_port);
    let destination = SocketAddr::new(packet.destination, segment.destination_port);
    let (flags, len) = (segment.flags, segment.payload.len());
    write!(f, "{source} > {destination}: {flags}")?;
    if len > 0 || flags.intersects(Flags::SYN | Flags::FIN | Flags::RST) {
        let end = segment.seq + len as u32;
        write!(f, " {:?}:{end:?}({len})", segment.seq)?;
    }
    if flags.contains(Flags::ACK) {
        write!(f, " ack {:?}", segment.ack)?;
    }
    write!(f, " win {}", segment.window)?;
    if flags.contains(Flags::URG) {
        write!(f, " urg {}", segment.urgent)?;
    }
    options(&segment.options, f).map(Ok)
}

fn options(options: &Options, f: &mut Formatter<'_>) -> fmt::Result {
    let mut before = " <";
    let mut write = |text: fmt::Arguments<'_>| {
        f.write_str(before)?;
        before = ",";
        f.write_fmt(text)
    };
    if let Some(mss) = options.mss {
        write(format_args!("mss {mss}"))?;
    }
    if options.sack_permitted {
        write(format_args!("sackOK"))?;
    }
    if let Some(stamps) = options.timestamps {
        write(format_args!("TS val {} ecr {}", stamps.value, stamps.echo))?;
    }
    if let Some(shift) = options.window_scale {
        write(format_args!("wscale {shift}"))?;
    }
    for block in options.sack.iter() {
        write(format_args!("sack {:?}:{:?}", block.start, block.end))?;
    }
    for (kind, data) in options.experimental.iter() {
        write(format_args!("exp-{kind} {}", Hex(data)))?;
    }
    if before == "," { f.write_str(">") } else { Ok(()) }
}

fn icmpv4(message: &icmpv4::Message<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    use icmpv4::Message;
    match *message {
        Message::EchoRequest(echo) => echo_line("request", echo, f),
        Message::EchoReply(echo) => echo_line("reply", echo, f),
        Message::Unreachable { code, next_hop_mtu, quoted } => {
            write!(f, "unreachable (code {code})")?;
            if code == icmpv4::unreachable_code::FRAGMENTATION_NEEDED {
                write!(f, " mtu {next_hop_mtu}")?;
            }
            about(quoted, f)
        }
        Message::TimeExceeded { code, quoted } => {
            write!(f, "time exceeded (code {code})")?;
            about(quoted, f)
        }
        Message::ParameterProblem { pointer, quoted } => {
            write!(f, "parameter problem at {pointer}")?;
            about(quoted, f)
        }
        Message::Other { kind, code } => write!(f, "type {kind} (code {code})"),
    }
}

fn icmpv6(message: &icmpv6::Message<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    use icmpv6::Message;
    match *message {
        Message::EchoRequest(echo) => echo_line("request", echo, f),
        Message::EchoReply(echo) => echo_line("reply", echo, f),
        Message::Unreachable { code, quoted } => {
            write!(f, "unreachable (code {code})")?;
            about(quoted, f)
        }
        Message::PacketTooBig { mtu, quoted } => {
            write!(f, "packet too big, mtu {mtu}")?;
            about(quoted, f)
        }
        Message::TimeExceeded { code, quoted } => {
            write!(f, "time exceeded (code {code})")?;
            about(quoted, f)
        }
        Message::ParameterProblem { code, pointer, quoted } => {
            write!(f, "parameter problem (code {code}) at {pointer}")?;
            about(quoted, f)
        }
        Message::Ndp(message) => ndp(&message, f),
        Message::Mld(mld::Message::Report) => f.write_str("listener report"),
        Message::Mld(mld::Message::Query { group, max_response_ms, .. }) => {
            write!(f, "listener query for {group} within {max_response_ms} ms")
        }
        Message::Other { kind, code } => write!(f, "type {kind} (code {code})"),
    }
}

fn ndp(message: &ndp::Message, f: &mut Formatter<'_>) -> fmt::Result {
    let link_layer = match message {
        ndp::Message::RouterSolicit { link_layer } => {
            f.write_str("router solicitation")?;
            link_layer
        }
        ndp::Message::RouterAdvertisement(router) => {
            write!(f, "router advertisement, lifetime {} s", router.router_lifetime_s)?;
            if let Some(mtu) = router.mtu {
                write!(f, ", mtu {mtu}")?;
            }
            for prefix in router.prefixes.iter() {
                write!(f, ", prefix {}/{}", prefix.prefix, prefix.prefix_len)?;
            }
            &router.link_layer
        }
        ndp::Message::NeighbourSolicit { target, link_layer, .. } => {
            write!(f, "who has {target}")?;
            link_layer
        }
        ndp::Message::NeighbourAdvertisement { target, link_layer, solicited, .. } => {
            let unasked = if *solicited { "" } else { ", unsolicited" };
            write!(f, "I have {target}{unasked}")?;
            link_layer
        }
    };
    match link_layer {
        Some(mac) => write!(f, ", from {}", HardwareAddress(*mac)),
        None => Ok(()),
    }
}

fn echo_line(what: &str, echo: Echo<'_>, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "echo {what}, id {}, seq {}, {} bytes", echo.id, echo.seq, echo.data.len())
}

/// The packet that an error is about.
fn about(quoted: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    let Ok(quoted) = Quoted::parse(quoted) else { return f.write_str(", about something") };
    let socket = |address: IpAddr, port: u16| SocketAddr::new(address, port);
    if let Some((ours, theirs)) = quoted.udp() {
        let (source, destination) =
            (socket(quoted.source, ours), socket(quoted.destination, theirs));
        return write!(f, ", about {source} > {destination}");
    }
    let Some(tcp) = quoted.tcp() else {
        return write!(f, ", about {} > {}", quoted.source, quoted.destination);
    };
    let source = socket(quoted.source, tcp.source_port);
    let destination = socket(quoted.destination, tcp.destination_port);
    write!(f, ", about {source} > {destination} at {:?}", tcp.seq)
}

/// A hardware address in its usual form.
struct HardwareAddress(Mac);

impl Display for HardwareAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests;
