//! Forged frames, made to hit: segments near those that a connection expects, ICMP errors about
//! packets that were really sent, and packets of any kind.

use std::collections::VecDeque;
use std::net::IpAddr;

use lightwait_core::flow::Seq;
use lightwait_core::frame::Medium;
use lightwait_core::wire::ethernet::{self, ethertype};
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::options::{Options, SackBlock, Timestamps};
use lightwait_core::wire::tcp::{Flags, Header, Segment};
use lightwait_core::wire::{icmpv4, icmpv6};

use super::World;
use super::setup::{self, IPV4, IPV6};
use crate::seal::packet as sealed_packet;
use crate::source::Source;

/// Packets of an end to remember, at most.
const REMEMBERED: usize = 8;

/// The latest packets of an end, the newest first.
#[derive(Debug, Default)]
pub(super) struct Seen {
    segments: VecDeque<Sent>,
    packets: VecDeque<Vec<u8>>,
}

/// A segment that an end has sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: IpAddr,
    to: IpAddr,
    ports: (u16, u16),
    seq: Seq,
    end: Seq,
    ack: Seq,
    timestamps: Option<Timestamps>,
}

impl Seen {
    pub(super) fn note(&mut self, packet: &Packet<'_>) {
        self.packets.truncate(REMEMBERED - 1);
        self.packets.push_front(packet.bytes[..packet.bytes.len().min(1300)].to_vec());
        if packet.protocol != protocol::TCP {
            return;
        }
        if let Ok(segment) = Segment::parse(packet.payload) {
            self.segments.truncate(REMEMBERED - 1);
            self.segments.push_front(Sent {
                from: packet.source,
                to: packet.destination,
                ports: (segment.source_port, segment.destination_port),
                seq: segment.seq,
                end: segment.end(),
                ack: segment.ack,
                timestamps: segment.options.timestamps,
            });
        }
    }

    /// Mostly the latest.
    fn segment(&self, source: &mut Source<'_>) -> Option<Sent> {
        let index = source.below(2 * REMEMBERED).saturating_sub(REMEMBERED);
        self.segments.get(index).or(self.segments.front()).copied()
    }

    fn packet(&self, source: &mut Source<'_>) -> Option<Vec<u8>> {
        let index = source.below(2 * REMEMBERED).saturating_sub(REMEMBERED);
        self.packets.get(index).or(self.packets.front()).cloned()
    }
}

const PAYLOAD_LENGTHS: [usize; 8] = [0, 0, 1, 10, 100, 1000, 1460, 4000];

impl World {
    /// A segment that answers a segment of end `to`, or misses it by a little.
    pub(super) fn forge_segment(&mut self, to: usize, source: &mut Source<'_>) {
        let Some(sent) = self.ends[to].seen.segment(source) else { return };
        const LIKELY: [u8; 12] =
            [0x10, 0x18, 0x11, 0x04, 0x14, 0x02, 0x12, 0x30, 0x19, 0x00, 0x01, 0xd0];
        let flags = match source.u8() {
            n @ 0..=191 => LIKELY[usize::from(n) % LIKELY.len()],
            _ => source.u8(),
        };
        let payload = vec![0xa5; source.pick(&PAYLOAD_LENGTHS)];
        let header = Header {
            source_port: sent.ports.1,
            destination_port: sent.ports.0,
            seq: sent.ack + source.distance(),
            ack: sent.end + source.distance(),
            flags: Flags(flags),
            window: source.pick(&[60_000, 0, 1, 1460, 65_535, 300]),
            urgent: source.pick(&[0, 0, 1, 100, 65_535]),
            options: options(&sent, source),
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        if source.u8() > 240 {
            replace_options(&mut bytes, source);
        }
        bytes.extend_from_slice(&payload);
        if let Some(packet) = sealed_packet(sent.to, sent.from, protocol::TCP, 64, &bytes) {
            let frame = self.frame(to, packet);
            self.inject(to, frame, source);
        }
    }

    /// SYNs from strange addresses, as in a flood.
    pub(super) fn forge_syns(&mut self, to: usize, source: &mut Source<'_>) {
        let (count, ipv6) = (source.below(8) + 1, source.flag());
        let (from, address): (IpAddr, IpAddr) = match ipv6 {
            false => (IPV4[2].into(), IPV4[to].into()),
            true => (IPV6[4].into(), IPV6[to + 2].into()),
        };
        let first_port = 1024 + u16::from(source.u8());
        let destination_port = source.pick(&setup::PORTS[..3]);
        let bits = source.u8();
        for n in 0..count {
            let options = Options {
                mss: (bits & 1 != 0).then_some(u16::from(bits) << 4),
                window_scale: (bits & 2 != 0).then_some(bits >> 4),
                sack_permitted: bits & 4 != 0,
                timestamps: (bits & 8 != 0).then_some(Timestamps { value: 1, echo: 0 }),
                ..Options::default()
            };
            let header = Header {
                source_port: first_port + n as u16,
                destination_port,
                seq: Seq(u32::from(bits) << 24),
                ack: Seq(0),
                flags: Flags::SYN,
                window: 60_000,
                urgent: 0,
                options,
            };
            let mut bytes = Vec::new();
            header.emit(&mut bytes);
            if let Some(packet) = sealed_packet(from, address, protocol::TCP, 64, &bytes) {
                let frame = self.frame(to, packet);
                self.inject(to, frame, source);
            }
        }
    }

    /// An ICMP error about a packet that end `to` has sent.
    pub(super) fn forge_icmp(&mut self, to: usize, source: &mut Source<'_>) {
        let Some(mut quoted) = self.ends[to].seen.packet(source) else { return };
        let Ok(sent) = Packet::parse(&quoted).map(|packet| (packet.source, packet.destination))
        else {
            // A fragment of a large packet: its length says more than was remembered.
            return self.forge_packet(to, source);
        };
        let (kind, code) = (source.below(5), source.below(8) as u8);
        let mtu = source.pick(&[0u16, 68, 296, 576, 1280, 1300, 1400, 65_535]);
        if source.u8() > 200 {
            let (at, mask) = (source.below(quoted.len().min(48)), source.u8());
            quoted[at] ^= mask;
        }
        let len = source.pick(&[usize::MAX, 28, 48, 60, 27, 3]).min(quoted.len());
        let quoted = &quoted[..len];
        let mut payload = Vec::new();
        let protocol = match sent {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                use icmpv4::Message;
                let message = match kind {
                    0 => Message::Unreachable { code: 4, next_hop_mtu: mtu, quoted },
                    1 => Message::TimeExceeded { code, quoted },
                    2 => Message::ParameterProblem { pointer: code, quoted },
                    _ => Message::Unreachable { code, next_hop_mtu: mtu, quoted },
                };
                message.emit(&mut payload);
                protocol::ICMPV4
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                use icmpv6::Message;
                let mtu = u32::from(mtu);
                let message = match kind {
                    0 => Message::PacketTooBig { mtu, quoted },
                    1 => Message::TimeExceeded { code, quoted },
                    2 => Message::ParameterProblem { code, pointer: mtu, quoted },
                    _ => Message::Unreachable { code, quoted },
                };
                message.emit(remote, local, &mut payload);
                protocol::ICMPV6
            }
            _ => return,
        };
        if let Some(packet) = sealed_packet(sent.1, sent.0, protocol, 64, &payload) {
            let frame = self.frame(to, packet);
            self.inject(to, frame, source);
        }
    }

    /// A packet of any protocol, from anywhere.
    pub(super) fn forge_packet(&mut self, to: usize, source: &mut Source<'_>) {
        const PROTOCOLS: [u8; 10] = [6, 1, 58, 17, 0, 44, 60, 43, 2, 59];
        let protocol = source.pick(&PROTOCOLS);
        let from = setup::address(source);
        let address: IpAddr = match (from, source.below(4)) {
            (IpAddr::V4(_), 0) => IPV4[5].into(),
            (IpAddr::V4(_), 1) => IPV4[6].into(),
            (IpAddr::V4(_), _) => IPV4[to].into(),
            (IpAddr::V6(_), 0) => IPV6[6].into(),
            (IpAddr::V6(_), n) => IPV6[to + 2 * (n & 1)].into(),
        };
        let (hop_limit, len) = (source.pick(&[64, 255, 1]), source.below(120));
        let payload = source.take(len).to_vec();
        if let Some(packet) = sealed_packet(from, address, protocol, hop_limit, &payload) {
            let frame = self.frame(to, packet);
            self.inject(to, frame, source);
        }
    }

    /// Bytes.
    pub(super) fn forge_bytes(&mut self, to: usize, source: &mut Source<'_>) {
        let len = source.below(100);
        let bytes = source.take(len).to_vec();
        let frame = if source.flag() { self.frame(to, bytes) } else { bytes };
        self.inject(to, frame, source);
    }

    /// An IP packet as a frame to end `to`.
    pub(super) fn frame(&self, to: usize, packet: Vec<u8>) -> Vec<u8> {
        if self.medium == Medium::Ip {
            return packet;
        }
        let ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ethertype = if ipv6 { ethertype::IPV6 } else { ethertype::IPV4 };
        let mut frame = Vec::new();
        let (destination, source) = (setup::mac(to), setup::mac(1 - to));
        ethernet::Header { destination, source, ethertype }.emit(&mut frame);
        frame.extend_from_slice(&packet);
        frame
    }
}

/// Options that the connection expects, or nearly.
fn options(sent: &Sent, source: &mut Source<'_>) -> Options {
    let mut options = Options::default();
    let kinds = source.u8();
    if let Some(stamps) = sent.timestamps.filter(|_| kinds & 1 == 0) {
        let value = stamps.echo.wrapping_add(if kinds & 8 == 0 { 1 } else { source.distance() });
        let echo = stamps.value.wrapping_add(if kinds & 16 == 0 { 0 } else { source.distance() });
        options.timestamps = Some(Timestamps { value, echo });
    }
    if kinds & 2 != 0 {
        for _ in 0..source.below(4) + 1 {
            let start = sent.seq + source.distance();
            options.sack.push(SackBlock { start, end: start + source.distance() });
        }
    }
    if kinds & 4 != 0 {
        options.mss = Some(source.pick(&[1460, 0, 1, 536, 88, 65_535]));
        options.window_scale = Some(source.pick(&[7, 0, 14, 15, 255]));
        options.sack_permitted = source.flag();
    }
    if kinds & 0xe0 == 0xe0 {
        options.experimental.push(253, &source.u32().to_be_bytes());
    }
    options
}

/// Puts any bytes in the place of a header's options.
fn replace_options(header: &mut Vec<u8>, source: &mut Source<'_>) {
    let len = source.below(11) * 4;
    header.truncate(20);
    let options = source.take(len);
    header.extend_from_slice(options);
    header.resize(20 + len, 1);
    header[12] = ((20 + len) as u8 / 4) << 4 | header[12] & 0x0f;
}
