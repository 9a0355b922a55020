//! A router in the middle of a cable, whose next link has a smaller MTU: it cuts IPv4 packets into
//! fragments where it may (RFC 791 §3.2), and tells the sender of others that they are too big
//! (RFC 1191 §4, RFC 8201 §4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lightwait_core::wire::ethernet::{self, HEADER_BYTES, ethertype};
use lightwait_core::wire::ip::{Fragment, Header, Packet, protocol};
use lightwait_core::wire::{icmpv4, icmpv6};

/// The router's addresses, on the network of the hosts of a scenario.
const IPV4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 254);
const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe);

/// ICMPv4 code: fragmentation is needed, and DF is set.
const FRAGMENTATION_NEEDED: u8 = 4;

/// Bytes of a packet that an error quotes.
const QUOTED_BYTES: usize = 128;

/// What becomes of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It fits.
    Passes,
    /// These frames go on in its place.
    Cut(Vec<Vec<u8>>),
    /// It is dropped, and this frame goes back.
    TooBig(Vec<u8>),
}

/// What becomes of a frame before a link that carries packets of at most `mtu` bytes.
pub(super) fn judge(frame: &[u8], mtu: u16) -> Fate {
    let Ok(ethernet::Frame { destination, source, payload, .. }) = ethernet::Frame::parse(frame)
    else {
        return Fate::Passes;
    };
    let Ok(packet) = Packet::parse(payload) else { return Fate::Passes };
    if packet.bytes.len() <= usize::from(mtu) {
        return Fate::Passes;
    }
    if packet.dont_fragment {
        let back = ethernet::Header {
            destination: source,
            source: destination,
            ethertype: if packet.source.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 },
        };
        return Fate::TooBig(too_big(&back, &packet, mtu));
    }
    Fate::Cut(cut(&frame[..HEADER_BYTES], &packet, mtu))
}

fn too_big(link: &ethernet::Header, packet: &Packet<'_>, mtu: u16) -> Vec<u8> {
    let quoted = &packet.bytes[..packet.bytes.len().min(QUOTED_BYTES)];
    let mut frame = Vec::new();
    link.emit(&mut frame);
    match packet.source {
        IpAddr::V4(_) => {
            let mut message = Vec::new();
            let code = FRAGMENTATION_NEEDED;
            icmpv4::Message::Unreachable { code, next_hop_mtu: mtu, quoted }.emit(&mut message);
            let header = Header::new(IPV4.into(), packet.source, protocol::ICMPV4, message.len());
            header.expect("an error is short").emit(&mut frame);
            frame.extend_from_slice(&message);
        }
        IpAddr::V6(source) => {
            let message = icmpv6::Message::PacketTooBig { mtu: mtu.into(), quoted };
            assert!(message.emit_packet(IPV6, source, &mut frame), "an error is short");
        }
    }
    frame
}

/// The fragments of an IPv4 packet, each behind the link header `link`.
fn cut(link: &[u8], packet: &Packet<'_>, mtu: u16) -> Vec<Vec<u8>> {
    let id = u16::from_be_bytes([packet.bytes[4], packet.bytes[5]]).into();
    let whole = Fragment { id, offset: 0, more: false };
    let of = packet.fragment.unwrap_or(whole);
    let header_len = lightwait_core::wire::ip::header_len(packet.source);
    let room = (usize::from(mtu) - header_len) & !7;
    let count = packet.payload.len().div_ceil(room);
    let pieces = packet.payload.chunks(room).enumerate().map(|(number, piece)| {
        let more = of.more || number + 1 < count;
        let offset = of.offset + (number * room) as u16;
        let header = Header::new(packet.source, packet.destination, packet.protocol, piece.len());
        let mut header = header.expect("a piece is shorter than the whole");
        (header.hop_limit, header.traffic_class) = (packet.hop_limit, packet.traffic_class);
        header.dont_fragment = false;
        header.fragment = Some(Fragment { id, offset, more });
        let mut frame = link.to_vec();
        header.emit(&mut frame);
        frame.extend_from_slice(piece);
        frame
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: ethernet::Header = ethernet::Header {
        destination: [2, 0, 0, 0, 0, 2],
        source: [2, 0, 0, 0, 0, 1],
        ethertype: ethertype::IPV4,
    };

    fn frame(addresses: [&str; 2], payload: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let [source, destination] = addresses.map(|text| text.parse().unwrap());
        let mut frame = Vec::new();
        LINK.emit(&mut frame);
        let header = Header::new(source, destination, protocol::UDP, payload.len());
        let mut header = header.unwrap();
        change(&mut header);
        header.emit(&mut frame);
        frame.extend_from_slice(payload);
        frame
    }

    const V4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];

    #[test]
    fn what_may_be_cut_arrives_in_pieces_that_are_the_whole() {
        let payload: Vec<u8> = (0..1480).map(|at| at as u8).collect();
        let begun = Fragment { id: 7, offset: 1480, more: true };
        for fragment in [None, Some(begun)] {
            let frame = frame(V4, &payload, |header| {
                (header.dont_fragment, header.identification) = (false, 7);
                header.fragment = fragment;
            });
            assert_eq!(judge(&frame, 1500), Fate::Passes, "to the last byte");
            let Fate::Cut(pieces) = judge(&frame, 600) else { panic!() };
            let mut whole = Vec::new();
            for (number, piece) in pieces.iter().enumerate() {
                let packet = Packet::parse(&piece[HEADER_BYTES..]).unwrap();
                assert!(packet.bytes.len() <= 600);
                let of = packet.fragment.unwrap();
                let before = fragment.map_or(0, |of| of.offset);
                assert_eq!((of.id, usize::from(of.offset - before)), (7, whole.len()));
                assert_eq!(of.more, fragment.is_some() || number + 1 < pieces.len());
                whole.extend_from_slice(packet.payload);
            }
            assert_eq!(whole, payload);
        }
    }

    #[test]
    fn what_may_not_be_cut_comes_back_as_an_error() {
        for (addresses, protocol) in
            [(V4, protocol::ICMPV4), (["fd00::1", "fd00::2"], protocol::ICMPV6)]
        {
            let asker: IpAddr = addresses[0].parse().unwrap();
            let frame = frame(addresses, &[9; 1400], |_| {});
            let Fate::TooBig(back) = judge(&frame, 1280) else { panic!() };
            assert_eq!(back[..6], LINK.source);
            let error = Packet::parse(&back[HEADER_BYTES..]).unwrap();
            assert_eq!((error.protocol, error.destination), (protocol, asker));
        }
    }
}
