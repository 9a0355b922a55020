//! What leaves in which frames, and that pieces are what single segments would be.

use super::*;
use crate::buffer::PagePool;
use crate::frame::{Capabilities, Medium};
use crate::ip::path::IpFields;
use crate::wire::ethernet;
use crate::wire::options::{Options, Timestamps};
use crate::wire::tcp::Flags;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;

const PATH: Path = Path {
    source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    link: None,
    mtu: 1500,
    dont_fragment: true,
    probe: 0,
    hop_limit: 64,
    device: Capabilities {
        checksum: true,
        segmentation: 65_535,
        ..Capabilities::plain(Medium::Ip, 1500)
    },
};

/// How many segments of `len` bytes leave within a budget of 8 packets of 1000 bytes.
fn sent(len: usize) -> usize {
    let mut pool = PagePool::new(4);
    let mut buffer = SendBuffer::default();
    buffer.write(&[7; 10_000], &mut pool);
    let header = Header::new(1 << 16 | 2, Seq(0), Seq(0), Flags::ACK);
    let mut outbox = Outbox::new(100);
    let path = PATH.marked(IpFields::default());
    let mut egress = Egress { outbox: &mut outbox, path, budget: 8, frames: 0 };
    loop {
        let payload = Payload { buffer: &mut buffer, offset: 0, len, segment: 1000 };
        if !egress.send(&header, Some(payload).filter(|_| len > 0)) {
            break;
        }
    }
    assert_eq!(
        outbox.frames().filter(|frame| frame.segmentation.is_some()).count() > 0,
        len > 1000
    );
    outbox.len()
}

/// Bytes that are copied into the frame of `len` bytes of text, and slices that are shared.
fn copied_and_shared(len: usize, segment: usize) -> (usize, usize) {
    let mut pool = PagePool::new(8);
    let mut buffer = SendBuffer::default();
    buffer.write(&[7; 20_000], &mut pool);
    let header = Header::new(1 << 16 | 2, Seq(0), Seq(0), Flags::ACK);
    let mut frame = Frame::default();
    // Not from the first byte, so that no page of its own is met.
    let payload = Payload { buffer: &mut buffer, offset: 100, len, segment };
    assert!(write(&mut frame, &PATH.marked(IpFields::default()), &header, Some(payload)));
    assert_eq!(frame.len(), 40 + len);
    (frame.head.len() - 40, frame.tail.len())
}

#[test]
fn a_segment_for_ethernet_is_copied_and_one_to_be_cut_is_shared() {
    assert_eq!(copied_and_shared(1460, 1460), (1460, 0));
    assert_eq!(copied_and_shared(1500, 1500), (1500, 0));
    assert_eq!(copied_and_shared(1501, 1501), (0, 1), "a large MTU");
    assert_eq!(copied_and_shared(2920, 1460), (0, 1), "cut by the device");
}

#[test]
fn a_large_segment_counts_as_the_packets_it_will_be_cut_into() {
    assert_eq!((sent(0), sent(1), sent(1000)), (8, 8, 8));
    assert_eq!((sent(1001), sent(2000), sent(2001)), (4, 4, 3), "3 + 3 + the last of 3");
    assert_eq!((sent(8000), sent(8001)), (1, 1), "one leaves, however large");
}

/// The path of the pieces, and the marks of their packets.
#[derive(Clone, Copy, Debug)]
struct Setting {
    path: Path,
    marks: IpFields,
}

/// Nearly always of the usual kind, for which pieces have a fast path.
fn any_setting() -> impl Strategy<Value = Setting> {
    let rarely = || prop::bool::weighted(0.2);
    (any::<bool>(), rarely(), rarely(), any::<u8>(), any::<u8>()).prop_map(
        |(has_link, ipv6, is_cut, traffic_class, hop_limit)| {
            let (source, destination) = match ipv6 {
                true => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()),
                false => (PATH.source, PATH.destination),
            };
            let link = has_link.then_some(ethernet::Header {
                destination: [2; 6],
                source: [3; 6],
                ethertype: ethernet::ethertype::IPV4,
            });
            let device = Capabilities::plain(Medium::Ip, 1500);
            let path = Path { source, destination, link, dont_fragment: !is_cut, device, ..PATH };
            Setting { path, marks: IpFields { traffic_class, hop_limit: Some(hop_limit) } }
        },
    )
}

fn any_header() -> impl Strategy<Value = Header> {
    let stamps = prop::option::weighted(0.8, any::<(u32, u32)>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (any::<(u16, u16)>(), any::<(u32, u32)>(), flags, any::<u16>(), stamps).prop_map(
        |(ports, (seq, ack), (psh, fin, cwr, ece), window, stamps)| {
            let mut flags = Flags::ACK;
            let wanted =
                [(psh, Flags::PSH), (fin, Flags::FIN), (cwr, Flags::CWR), (ece, Flags::ECE)];
            for (_, flag) in wanted.into_iter().filter(|(is_wanted, _)| *is_wanted) {
                flags |= flag;
            }
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            Header {
                source_port: ports.0,
                destination_port: ports.1,
                seq: Seq(seq),
                ack: Seq(ack),
                flags,
                window,
                urgent: 0,
                options: Options { timestamps, ..Options::NONE },
            }
        },
    )
}

/// The header of the piece of `len` bytes at `begin`, of a text of `total` bytes.
fn of_piece(header: &Header, begin: usize, len: usize, total: usize) -> Header {
    let mut flags = header.flags;
    if begin > 0 {
        flags = flags.without(Flags::CWR);
    }
    if begin + len < total {
        flags = flags.without(Flags::PSH | Flags::FIN);
    }
    Header { flags, seq: header.seq + begin as u32, ..*header }
}

proptest! {
    #[test]
    fn pieces_are_what_single_segments_would_be(
        setting in any_setting(), header in any_header(), writes in vec(1usize..3000, 1..12),
        segment in 1usize..1449, begin in 0usize..1000, budget in 1usize..64,
    ) {
        let mut pool = PagePool::new(64);
        let mut buffer = SendBuffer::default();
        for (number, len) in writes.iter().enumerate() {
            let text: Vec<u8> = (0..*len).map(|at| (at * 7 + number) as u8).collect();
            buffer.write(&text, &mut pool);
        }
        let offset = begin.min(buffer.len() - 1);
        let len = buffer.len() - offset;
        let path = setting.path.marked(setting.marks);
        let mut outboxes = [(); 2].map(|()| Outbox::new(100));
        let [together, single] = &mut outboxes;
        let mut egress = Egress { outbox: together, path, budget, frames: 0 };
        let payload = Payload { buffer: &mut buffer, offset, len, segment };
        let is_sent = egress.send_text(&header, Some(payload));
        prop_assert_eq!(is_sent, len.div_ceil(segment) <= budget);
        let sent = (egress.budget, egress.frames);
        let mut egress = Egress { outbox: single, path, budget, frames: 0 };
        let mut done = 0;
        while is_sent && done < len {
            let piece = segment.min(len - done);
            let header = of_piece(&header, done, piece, len);
            let offset = offset + done;
            let payload = Payload { buffer: &mut buffer, offset, len: piece, segment };
            prop_assert!(egress.send(&header, Some(payload)));
            done += piece;
        }
        prop_assert_eq!(sent, (egress.budget, egress.frames));
        let [together, single] = outboxes.each_ref().map(Outbox::frames);
        prop_assert!(together.map(|frame| &frame.head).eq(single.map(|frame| &frame.head)));
    }
}
