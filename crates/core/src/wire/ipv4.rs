//! The IPv4 header (RFC 791 §3.1). Options are skipped: a host need not act on any of them
//! (RFC 1122 §3.2.1.8).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::checksum::{sum, sum_of};
use super::ip::packet::{Fragment, Header, Packet};
use super::{Malformed, checksum};

/// Bytes of a header without options.
pub(crate) const MIN_HEADER_BYTES: usize = 20;

/// Don't fragment, in the 16 bits of flags and offset.
const DF: u16 = 0x4000;
/// More fragments.
const MF: u16 = 0x2000;
/// The fragment's offset, in units of 8 bytes.
const OFFSET: u16 = 0x1fff;

/// The packet that `bytes` begin with: lengths and header checksum are right (RFC 1122 §3.2.1.2).
pub(crate) fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let fixed = bytes.first_chunk::<MIN_HEADER_BYTES>().ok_or(Malformed::Ipv4Length)?;
    if fixed[0] >> 4 != 4 {
        return Err(Malformed::IpVersion);
    }
    let header_len = usize::from(fixed[0] & 0x0f) * 4;
    if header_len < MIN_HEADER_BYTES {
        return Err(Malformed::Ipv4HeaderLength);
    }
    let header = bytes.get(..header_len).ok_or(Malformed::Ipv4HeaderLength)?;
    let sound = match header {
        _ if header_len == MIN_HEADER_BYTES => sum_of(fixed).is_valid(),
        header => sum(header).is_valid(),
    };
    if !sound {
        return Err(Malformed::Ipv4Checksum);
    }
    let field = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let bytes = bytes.get(..usize::from(field(2))).ok_or(Malformed::Ipv4TotalLength)?;
    let payload = bytes.get(header_len..).ok_or(Malformed::Ipv4TotalLength)?;
    let flags = field(6);
    let fragment =
        Fragment { id: u32::from(field(4)), offset: (flags & OFFSET) * 8, more: flags & MF != 0 };
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *fixed;
    Ok(Packet {
        source: Ipv4Addr::new(s0, s1, s2, s3).into(),
        destination: Ipv4Addr::new(d0, d1, d2, d3).into(),
        protocol: fixed[9],
        hop_limit: fixed[8],
        traffic_class: fixed[1],
        dont_fragment: flags & DF != 0,
        fragment: if flags & (MF | OFFSET) == 0 {
            None
        } else {
            Some(fragment.check(payload.len(), header_len)?)
        },
        payload,
        bytes,
    })
}

/// Appends what `header` says, between these addresses.
pub(super) fn emit(header: &Header, source: Ipv4Addr, destination: Ipv4Addr, out: &mut Vec<u8>) {
    let total_len = header.payload_len() + MIN_HEADER_BYTES as u16;
    let flags = if header.dont_fragment { DF } else { 0 };
    let (identification, flags) = match header.fragment {
        None => (header.identification, flags),
        Some(Fragment { id, offset, more }) => {
            (id as u16, flags | (offset / 8) | if more { MF } else { 0 })
        }
    };
    let octets = |a: u8, b: u8| u32::from(a) << 24 | u32::from(b) << 16;
    let mut words = [
        octets(0x45, header.traffic_class) | u32::from(total_len),
        u32::from(identification) << 16 | u32::from(flags),
        octets(header.hop_limit, header.protocol),
        source.to_bits(),
        destination.to_bits(),
    ];
    words[2] |= u32::from(checksum::of_words(&words));
    let mut fixed = [0; MIN_HEADER_BYTES];
    for (bytes, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    out.extend_from_slice(&fixed);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A packet with these flags and this offset in bytes, its checksum right.
    pub(crate) fn fragment(id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut header = Header::new(a, b, 17, payload.len()).unwrap();
        header.identification = id;
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        let flags = (offset / 8) | if more { MF } else { 0 };
        bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        seal(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Makes the header checksum right.
    fn seal(bytes: &mut [u8]) {
        let header_len = usize::from(bytes[0] & 0x0f) * 4;
        bytes[10..12].fill(0);
        checksum::fill(&mut bytes[..header_len], 0, 10, checksum::Sum::ZERO);
    }

    #[test]
    fn lengths_are_checked_at_both_ends() {
        let good = fragment(0, 0, false, &[1, 2, 3]);
        assert_eq!(parse(&good).unwrap().payload, [1, 2, 3]);
        assert_eq!(parse(&good[..19]), Err(Malformed::Ipv4Length));
        assert_eq!(parse(&good[..22]), Err(Malformed::Ipv4TotalLength));

        let mut short_header = good.clone();
        short_header[0] = 0x44;
        assert_eq!(parse(&short_header), Err(Malformed::Ipv4HeaderLength));
        let mut long_header = good.clone();
        long_header[0] = 0x46;
        assert_eq!(parse(&long_header), Err(Malformed::Ipv4HeaderLength));

        let mut total = good.clone();
        total[3] = 19;
        seal(&mut total);
        assert_eq!(parse(&total), Err(Malformed::Ipv4TotalLength));
        total[3] = 20;
        seal(&mut total);
        assert!(parse(&total).unwrap().payload.is_empty());
    }

    #[test]
    fn options_are_skipped() {
        let mut bytes = fragment(0, 0, false, &[1, 1, 1, 0, 7]);
        bytes[0] = 0x46;
        seal(&mut bytes);
        assert_eq!(parse(&bytes).unwrap().payload, [7]);
    }

    #[test]
    fn a_wrong_checksum_or_version_is_malformed() {
        let mut bytes = fragment(0, 0, false, &[]);
        bytes[8] ^= 1;
        assert_eq!(parse(&bytes), Err(Malformed::Ipv4Checksum));
        bytes[0] = 0x55;
        assert_eq!(parse(&bytes), Err(Malformed::IpVersion));
    }

    #[test]
    fn fragments_say_where_they_belong() {
        let first = fragment(7, 0, true, &[0; 8]);
        let expected = Fragment { id: 7, offset: 0, more: true };
        assert_eq!(parse(&first).unwrap().fragment, Some(expected));
        let last = fragment(7, 8, false, &[0; 3]);
        let expected = Fragment { id: 7, offset: 8, more: false };
        assert_eq!(parse(&last).unwrap().fragment, Some(expected));
    }

    #[test]
    fn fragments_that_cannot_be_are_malformed() {
        assert_eq!(parse(&fragment(7, 0, true, &[0; 7])), Err(Malformed::FragmentLength));
        assert_eq!(parse(&fragment(7, 0, true, &[])), Err(Malformed::FragmentLength));
        // 20 + 65,512 + 3 = 65,535.
        assert!(parse(&fragment(7, 65_512, false, &[0; 3])).is_ok());
        assert_eq!(parse(&fragment(7, 65_512, false, &[0; 4])), Err(Malformed::FragmentEnd));
    }
}
