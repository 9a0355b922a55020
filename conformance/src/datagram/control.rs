//! Control messages about datagrams: where they were sent to, and how they are marked.

use std::net::IpAddr;

use libc::c_int;
use lightwait_core::udp::Received;

use crate::address::Family;
use crate::errno::Errno;
use crate::message::Control;
use crate::options::Reports;

/// The index of the one device that there is.
const INTERFACE: u32 = 1;

/// Bytes of `struct cmsghdr`, and to what control messages are aligned.
const HEADER_LEN: usize = 16;
const ALIGN: usize = 8;

/// The control messages in C's layout, as far as there is room, and whether some, or parts of one,
/// found none.
pub(crate) fn laid_out(messages: &[Control], room: usize) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    for message in messages {
        let left = room - bytes.len();
        if left < HEADER_LEN {
            return (bytes, true);
        }
        let whole = HEADER_LEN + message.data.len();
        let len = whole.min(left);
        let end = bytes.len() + len;
        bytes.extend(len.to_ne_bytes());
        bytes.extend(message.level.to_ne_bytes());
        bytes.extend(message.kind.to_ne_bytes());
        bytes.extend(&message.data);
        bytes.truncate(end);
        if len < whole {
            return (bytes, true);
        }
        bytes.resize(end.next_multiple_of(ALIGN).min(room), 0);
    }
    (bytes, false)
}

/// The messages about a datagram that `reports` ask for. An answer to it leaves from
/// `answers_from`.
pub(super) fn reports_on(
    reports: Reports,
    received: &Received,
    answers_from: Option<IpAddr>,
) -> Vec<Control> {
    let is_ipv4 = received.from.is_ipv4();
    let mut messages = Vec::new();
    let mut push = |level, kind, data| messages.push(Control { level, kind, data });
    if reports.address_v6 {
        let to = match received.to {
            IpAddr::V4(to) => to.to_ipv6_mapped(),
            IpAddr::V6(to) => to,
        };
        let data = [&to.octets()[..], &INTERFACE.to_ne_bytes()].concat();
        push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, data);
    }
    if let (true, IpAddr::V4(to)) = (reports.address, received.to) {
        let from = match answers_from {
            Some(IpAddr::V4(from)) => from.octets(),
            _ => [0; 4],
        };
        let data = [INTERFACE.to_ne_bytes(), from, to.octets()].concat();
        push(libc::IPPROTO_IP, libc::IP_PKTINFO, data);
    }
    if reports.tos && is_ipv4 {
        push(libc::IPPROTO_IP, libc::IP_TOS, vec![received.traffic_class]);
    }
    if received.len > received.segment {
        // Several are read at once only where UDP_GRO asks for that.
        let data = (received.segment as c_int).to_ne_bytes().to_vec();
        push(libc::SOL_UDP, libc::UDP_GRO, data);
    }
    if reports.traffic_class && !is_ipv4 {
        let data = c_int::from(received.traffic_class).to_ne_bytes().to_vec();
        push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, data);
    }
    messages
}

/// What control messages say of what is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The address to send from.
    pub(super) source: Option<IpAddr>,
    /// Bytes of each datagram; 0: it is one.
    pub(super) segment: Option<usize>,
}

/// Reads control messages, of a message to a receiver of IPv4 if `to_ipv4`.
///
/// # Errors
/// `EINVAL` for one that is malformed, or asks for something else; `ENODEV` for a device that there
/// is not.
pub(super) fn asked(control: &[u8], family: Family, to_ipv4: bool) -> Result<Asked, Errno> {
    let mut asked = Asked::default();
    let mut rest = control;
    while rest.len() >= HEADER_LEN {
        let len = usize::from_ne_bytes(word(rest, 0)?);
        let (level, kind) = (c_int::from_ne_bytes(word(rest, 8)?), word(rest, 12)?);
        let data = rest.get(HEADER_LEN..len).ok_or(Errno::EINVAL)?;
        match (level, c_int::from_ne_bytes(kind)) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if to_ipv4 => {
                check_device(u32::from_ne_bytes(word(data, 0)?))?;
                asked.source = Some(IpAddr::from(word::<4>(data, 4)?));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if family == Family::Inet6 => {
                check_device(u32::from_ne_bytes(word(data, 16)?))?;
                asked.source = Some(IpAddr::from(word::<16>(data, 0)?).to_canonical());
            }
            (libc::SOL_UDP, libc::UDP_SEGMENT) => {
                asked.segment = Some(u16::from_ne_bytes(word(data, 0)?).into());
            }
            // As in Linux, those of another protocol are not looked at.
            (libc::IPPROTO_IPV6, _) if to_ipv4 => {}
            (libc::IPPROTO_IP, _) if !to_ipv4 => {}
            _ => return Err(Errno::EINVAL),
        }
        rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
    }
    asked.source = asked.source.filter(|source| !source.is_unspecified());
    match asked.source {
        Some(source) if source.is_ipv4() != to_ipv4 => Err(Errno::EINVAL),
        _ => Ok(asked),
    }
}

fn check_device(index: u32) -> Result<(), Errno> {
    if index > INTERFACE { Err(Errno::ENODEV) } else { Ok(()) }
}

/// The `N` bytes at `offset`.
fn word<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], Errno> {
    bytes.get(offset..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: c_int, kind: c_int, data: &[u8]) -> Control {
        Control { level, kind, data: data.to_vec() }
    }

    #[test]
    fn messages_are_cut_to_the_room_that_there_is() {
        let messages = [message(1, 2, &[3; 4]), message(4, 5, &[6; 8])];
        let (whole, is_cut) = laid_out(&messages, 100);
        assert_eq!((whole.len(), is_cut), (24 + 24, false));
        assert_eq!(whole[..16], [&20usize.to_ne_bytes()[..], &[1, 0, 0, 0, 2, 0, 0, 0]].concat());
        assert_eq!(laid_out(&messages, 48), (whole.clone(), false));
        let (part, is_cut) = laid_out(&messages, 47);
        assert_eq!((part.len(), is_cut), (47, true));
        assert_eq!(part[24..32], 23usize.to_ne_bytes());
        assert_eq!(laid_out(&messages, 39), (whole[..24].to_vec(), true));
        assert_eq!(laid_out(&messages, 15), (Vec::new(), true));
        assert_eq!(laid_out(&[], 0), (Vec::new(), false));
    }

    #[test]
    fn a_source_is_read_and_anything_else_refused() {
        let v4 = [0, 0, 0, 0, 192, 168, 0, 1, 0, 0, 0, 0];
        let of = |control: &Control, family, to_ipv4| {
            let control = laid_out(std::slice::from_ref(control), 100).0;
            asked(&control, family, to_ipv4).map(|asked| asked.source)
        };
        let info = message(libc::IPPROTO_IP, libc::IP_PKTINFO, &v4);
        let source = Ok(Some(IpAddr::from([192, 168, 0, 1])));
        assert_eq!(of(&info, Family::Inet, true), source);
        assert_eq!(of(&info, Family::Inet6, false), Ok(None), "of the other version");
        let mut far = v4;
        far[0] = 2;
        let far = message(libc::IPPROTO_IP, libc::IP_PKTINFO, &far);
        assert_eq!(of(&far, Family::Inet, true), Err(Errno::ENODEV));
        let short = message(libc::IPPROTO_IP, libc::IP_PKTINFO, &v4[..7]);
        assert_eq!(of(&short, Family::Inet, true), Err(Errno::EINVAL));
        let mut mapped = [0; 20];
        mapped[10..16].copy_from_slice(&[0xff, 0xff, 192, 168, 0, 1]);
        let mapped = message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &mapped);
        assert_eq!(of(&mapped, Family::Inet6, true), source);
        assert_eq!(of(&mapped, Family::Inet6, false), Err(Errno::EINVAL));
        for other in [(libc::IPPROTO_IP, libc::IP_TTL), (libc::SOL_SOCKET, libc::SO_MARK)] {
            let other = message(other.0, other.1, &[1, 0, 0, 0]);
            assert_eq!(of(&other, Family::Inet, true), Err(Errno::EINVAL));
        }
        let mut lies = laid_out(&[info], 100).0;
        lies[0] = 200;
        assert_eq!(asked(&lies, Family::Inet, true), Err(Errno::EINVAL));
        lies[0] = 15;
        assert_eq!(asked(&lies, Family::Inet, true), Err(Errno::EINVAL));
        let segment = message(libc::SOL_UDP, libc::UDP_SEGMENT, &500u16.to_ne_bytes());
        let control = laid_out(&[segment], 100).0;
        let segment = Some(500);
        let wanted = Ok(Asked { segment, ..Asked::default() });
        assert_eq!(asked(&control, Family::Inet, true), wanted);
    }
}
