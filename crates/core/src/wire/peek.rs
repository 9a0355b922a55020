//! Reads what an IP packet seems to be, at first sight: good for a guess at the memory to read
//! ahead, and for nothing else. Nothing is checked.

use super::tcp::{Flags, PROTOCOL};
use crate::flow::Tuple;

/// Bytes of an IPv4 header without options, and of an IPv6 header without any behind it.
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;

/// The first bytes of a TCP header, up to the flags.
type Head = [u8; 14];

/// The ends, the receiver's first, and the control bits of the segment that seems to be in
/// `packet`, unless it is behind options.
pub(crate) fn at(packet: &[u8]) -> Option<(Tuple, Flags)> {
    match packet.first()? {
        0x45 => {
            let head: &[u8; IPV4_BYTES] = packet.first_chunk()?;
            let tcp: &Head = packet.get(IPV4_BYTES..)?.first_chunk()?;
            if head[9] != PROTOCOL {
                return None;
            }
            let word = |at: usize| {
                u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            Some(peeked(tcp, [0, word(16).into()], [0, word(12).into()], false))
        }
        0x60..=0x6f => {
            let head: &[u8; IPV6_BYTES] = packet.first_chunk()?;
            let tcp: &Head = packet.get(IPV6_BYTES..)?.first_chunk()?;
            if head[6] != PROTOCOL {
                return None;
            }
            let (words, _) = head.as_chunks::<8>();
            let [_, a, b, c, d] = [0, 1, 2, 3, 4].map(|index| u64::from_be_bytes(words[index]));
            Some(peeked(tcp, [c, d], [a, b], true))
        }
        _ => None,
    }
}

/// True if both frames, behind link headers of so many bytes, seem to carry segments between the
/// same ports which acknowledge the same, as those do that bring one connection's text.
pub(crate) fn is_alike(one: &[u8], other: &[u8], link: usize) -> bool {
    let word =
        |frame: &[u8], at: usize| frame.get(link + IPV4_BYTES + at..)?.first_chunk::<4>().copied();
    word(one, 0) == word(other, 0) && word(one, 8) == word(other, 8)
}

fn peeked(tcp: &Head, ours: [u64; 2], theirs: [u64; 2], ipv6: bool) -> (Tuple, Flags) {
    let ports = u32::from_be_bytes([tcp[2], tcp[3], tcp[0], tcp[1]]);
    (Tuple::from_words(ours, theirs, ports, ipv6), Flags(tcp[13]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Seq;
    use crate::wire::ip;
    use crate::wire::options::Options;
    use crate::wire::tcp::Header;
    use core::net::IpAddr;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn segment(ends: [&str; 2], flags: Flags) -> (Vec<u8>, Tuple) {
        let [sender, receiver]: [IpAddr; 2] = ends.map(|end| end.parse().unwrap());
        let header = Header {
            source_port: 4000,
            destination_port: 80,
            seq: Seq(1),
            ack: Seq(2),
            flags,
            window: 3,
            urgent: 0,
            options: Options::default(),
        };
        let mut bytes = Vec::new();
        let len = header.header_len();
        ip::Header::new(sender, receiver, PROTOCOL, len).unwrap().emit(&mut bytes);
        header.emit(&mut bytes);
        (bytes, Tuple::new((receiver, 80), (sender, 4000)))
    }

    #[test]
    fn ends_and_flags_are_seen_in_both_versions() {
        for ends in [["10.0.0.1", "10.0.0.2"], ["fd00::1:2:3:4", "fd00::5:6:7:8"]] {
            for flags in [Flags::SYN, Flags::FIN | Flags::ACK, Flags::ACK, Flags::RST] {
                let (bytes, tuple) = segment(ends, flags);
                assert_eq!(at(&bytes), Some((tuple, flags)));
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_seen_in_less_than_a_header(cut in 0usize..54, flip: u8) {
            let (mut bytes, _) = segment(["fd00::1", "fd00::2"], Flags::SYN);
            bytes.truncate(cut);
            if let Some(first) = bytes.first_mut() {
                *first ^= flip;
            }
            let is_ipv4 = bytes.first() == Some(&0x45);
            prop_assert!(at(&bytes).is_none() || is_ipv4);
        }
    }
}
