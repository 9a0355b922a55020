//! Reads segments out of frames.

use std::net::{IpAddr, SocketAddr};

use lightwait_core::ip::shards::Message;
use lightwait_core::wire::{ethernet, ip, tcp};
use lightwait_core::{Frame, Medium, RxFrame};

use super::{Direction, Segment};
use crate::wrap::packets::behind_tags;

/// A segment and its ends, ours first. Its window is still that of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) segment: Segment,
}

/// Bytes of IPv6's header, and where its next header stands.
const IPV6_HEADER: usize = 40;
const IPV6_NEXT: usize = 6;
/// Where IPv4's protocol stands.
const IPV4_PROTOCOL: usize = 9;

/// The segment in a frame that has come.
pub(super) fn received(medium: Medium, frame: &RxFrame<'_>) -> Option<Found> {
    let packet = ip::Packet::parse(behind_link(medium, frame.bytes)?).ok()?;
    if packet.protocol != ip::protocol::TCP || packet.fragment.is_some() {
        return None;
    }
    let segment = tcp::Segment::parse(packet.payload).ok()?;
    let len = segment.payload.len();
    Some(Found {
        local: SocketAddr::new(packet.destination, segment.destination_port),
        remote: SocketAddr::new(packet.source, segment.source_port),
        segment: of(Direction::Inbound, &segment, len, frame.segment_size),
    })
}

/// The segment that another shard hands over.
pub(super) fn handed(message: &Message) -> Option<Found> {
    received(Medium::Ip, &message.packet()?)
}

/// The segment in a frame of ours. A large one's text lies beside its headers.
pub(super) fn sent(medium: Medium, frame: &Frame) -> Option<Found> {
    let packet = behind_link(medium, &frame.head)?;
    let (source, destination, start) = match packet.first()? >> 4 {
        4 if *packet.get(IPV4_PROTOCOL)? == ip::protocol::TCP => {
            let start = usize::from(packet[0] & 15) * 4;
            let address = |at: usize| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok();
            (IpAddr::from(address(12)?), IpAddr::from(address(16)?), start)
        }
        6 if *packet.get(IPV6_NEXT)? == ip::protocol::TCP => {
            let address = |at: usize| <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok();
            (IpAddr::from(address(8)?), IpAddr::from(address(24)?), IPV6_HEADER)
        }
        _ => return None,
    };
    let segment = tcp::Segment::parse(packet.get(start..)?).ok()?;
    let len = segment.payload.len() + (frame.len() - frame.head.len());
    let size = frame.segmentation.map_or(0, |it| it.size);
    Some(Found {
        local: SocketAddr::new(source, segment.source_port),
        remote: SocketAddr::new(destination, segment.destination_port),
        segment: of(Direction::Outbound, &segment, len, size),
    })
}

fn of(direction: Direction, it: &tcp::Segment<'_>, len: usize, size: u16) -> Segment {
    let has_ack = it.flags.contains(tcp::Flags::ACK);
    Segment {
        direction,
        seq: it.seq.0,
        ack: has_ack.then_some(it.ack.0),
        len: len as u32,
        flags: it.flags,
        window: it.window.into(),
        sack: it.options.sack,
        stamps: it.options.timestamps.map(|stamps| (stamps.value, stamps.echo)),
        packets: if size == 0 { 1 } else { len.div_ceil(size.into()).max(1) as u32 },
        again: None,
    }
}

/// The packet in a frame.
fn behind_link(medium: Medium, bytes: &[u8]) -> Option<&[u8]> {
    if medium == Medium::Ip {
        return Some(bytes);
    }
    let frame = behind_tags(bytes)?;
    let is_ip = matches!(frame.ethertype, ethernet::ethertype::IPV4 | ethernet::ethertype::IPV6);
    is_ip.then_some(frame.payload)
}
