//! What this module reads and writes is what the others would.

use super::*;
use crate::wire::checksum::append_and_sum;
use crate::wire::options::Options;
use crate::wire::tcp::{CHECKSUM_OFFSET, checksum};
use crate::wire::{ip, peek, tcp};
use proptest::collection::vec;
use proptest::prelude::*;

/// The packet as the other modules write it.
fn plain(envelope: &Envelope, header: &Header, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (envelope.source.into(), envelope.destination.into());
    let len = header.header_len() + payload.len();
    let mut ip = ip::Header::new(source, destination, PROTOCOL, len).unwrap();
    ip.traffic_class = envelope.traffic_class;
    ip.hop_limit = envelope.hop_limit;
    ip.dont_fragment = true;
    let mut bytes = Vec::new();
    ip.emit(&mut bytes);
    header.emit(&mut bytes);
    let value = checksum(source, destination, &bytes[20..], sum(payload), payload.len());
    bytes[IP_BYTES + CHECKSUM_OFFSET..][..2].copy_from_slice(&value.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn any_envelope() -> impl Strategy<Value = Envelope> {
    any::<([u8; 8], u8, u8)>().prop_map(|(addresses, class, hops)| {
        let [a, b, c, d, e, f, g, h] = addresses;
        Envelope {
            source: Ipv4Addr::new(a, b, c, d),
            destination: Ipv4Addr::new(e, f, g, h),
            traffic_class: class,
            hop_limit: hops,
        }
    })
}

fn any_header() -> impl Strategy<Value = Header> {
    any::<((u16, u16), (u32, u32), u8, (u16, u16), (u32, u32), Option<(u16, u8)>)>().prop_map(
        |(ports, numbers, flags, words, stamps, syn)| Header {
            source_port: ports.0.max(1),
            destination_port: ports.1.max(1),
            seq: Seq(numbers.0),
            ack: Seq(numbers.1),
            flags: Flags(flags),
            window: words.0,
            urgent: words.1,
            options: Options {
                timestamps: Some(Timestamps { value: stamps.0, echo: stamps.1 }),
                mss: syn.map(|syn| syn.0),
                window_scale: syn.map(|syn| syn.1),
                sack_permitted: syn.is_some(),
                ..Options::NONE
            },
        },
    )
}

proptest! {
    #[test]
    fn it_is_read_as_by_the_others(
        envelope in any_envelope(), header in any_header(), payload in vec(any::<u8>(), 0..200),
        padding in 0usize..4,
    ) {
        let mut bytes = plain(&envelope, &header, &payload);
        bytes.resize(bytes.len() + padding, 0xee);
        let fast = FastSegment::parse(&bytes).unwrap();
        prop_assert!(fast.verify_checksum());
        prop_assert_eq!(fast.traffic_class(), envelope.traffic_class);
        let ends = (fast.tuple().remote_ip(), fast.tuple().local_ip());
        prop_assert_eq!(ends, (envelope.source.into(), envelope.destination.into()));
        let packet = ip::Packet::parse(&bytes).unwrap();
        prop_assert_eq!(fast.segment(), Segment::parse(packet.payload).unwrap());
    }

    #[test]
    fn a_stamped_header_is_written_as_any_other(
        envelope in any_envelope(), header in any_header(), stamps: (u32, u32),
        payload in vec(any::<u8>(), 0..200),
    ) {
        let stamps = Timestamps { value: stamps.0, echo: stamps.1 };
        let options = Options { timestamps: Some(stamps), ..Options::NONE };
        let header = Header { urgent: 0, options, ..header };
        let stamped = Stamped::of(&header).unwrap();
        let text = Text { len: payload.len(), sum: sum(&payload) };
        let mut bytes = Vec::new();
        prop_assert!(emit_stamped(&envelope.template(), &stamped, text, &[], &mut bytes));
        let mut around = std::vec![7];
        let append = |out: &mut Vec<u8>| append_and_sum(out, &payload);
        let len = payload.len();
        prop_assert!(emit_around(&envelope.template(), &stamped, len, append, &mut around));
        prop_assert_eq!(&around[1..=HEAD_BYTES], &bytes);
        prop_assert_eq!(&around[1 + HEAD_BYTES..], &payload);
        bytes.extend_from_slice(&payload);
        prop_assert_eq!(&bytes, &plain(&envelope, &header, &payload));
    }

    #[test]
    fn a_syn_is_written_as_any_other(
        envelope in any_envelope(), header in any_header(), mss: u16, scale: u8, stamps: (u32, u32),
    ) {
        let Header { source_port, destination_port, seq, ack, flags, window, .. } = header;
        let stamps = Some(Timestamps { value: stamps.0, echo: stamps.1 });
        let ports = u32::from(source_port) << 16 | u32::from(destination_port);
        let (scale, sack, layout) = (Some(scale), true, Layout::default());
        let syn = Syn { ports, seq, ack, flags, window, mss, scale, sack, stamps, layout };
        let mut bytes = Vec::new();
        prop_assert!(emit_syn(&envelope.template(), &syn, &mut bytes));
        prop_assert_eq!(&bytes, &plain(&envelope, &syn.header(), &[]));
        for other in [Syn { scale: None, ..syn }, Syn { sack: false, ..syn }] {
            prop_assert!(!emit_syn(&envelope.template(), &other, &mut bytes));
        }
    }

    /// Whatever one flipped bit makes of it: what is taken for fast is read the same way, and
    /// what is not sound is left to the others.
    #[test]
    fn a_damaged_one_is_read_as_the_others_read_it(
        envelope in any_envelope(), header in any_header(), payload in vec(any::<u8>(), 0..50),
        flip in 0usize..8 * 100, cut in 0usize..60,
    ) {
        let mut bytes = plain(&envelope, &header, &payload);
        let at = flip / 8 % bytes.len();
        bytes[at] ^= 1 << (flip % 8);
        bytes.truncate(bytes.len() - cut.saturating_sub(30).min(bytes.len()));
        if let Some(fast) = FastSegment::parse(&bytes) {
            let packet = ip::Packet::parse(&bytes).unwrap();
            prop_assert_eq!(Segment::parse(packet.payload), Ok(fast.segment()));
            let good = tcp::verify_checksum(packet.payload, packet.source, packet.destination);
            prop_assert_eq!(fast.verify_checksum(), good);
            prop_assert_eq!(Some((fast.tuple(), fast.flags())), peek::at(&bytes));
            prop_assert!(packet.fragment.is_none() && packet.protocol == PROTOCOL);
        }
    }
}

#[test]
fn a_packet_one_byte_too_long_is_not_written() {
    let envelope = Envelope {
        source: Ipv4Addr::LOCALHOST,
        destination: Ipv4Addr::LOCALHOST,
        traffic_class: 0,
        hop_limit: 1,
    };
    let header = Stamped {
        ports: 1 << 16 | 2,
        seq: Seq(0),
        ack: Seq(0),
        flags: Flags::ACK,
        window: 0,
        stamps: Timestamps::default(),
    };
    let fits = 65_535 - HEAD_BYTES;
    for (len, written) in [(fits, true), (fits + 1, false)] {
        let mut out = Vec::new();
        let text = Text { len, sum: Sum::ZERO };
        let done = emit_stamped(&envelope.template(), &header, text, &[], &mut out);
        assert_eq!((done, out.is_empty()), (written, !written));
    }
}
