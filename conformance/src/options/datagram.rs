//! The options of sockets for datagrams, and those of the engine that they stand for.

use libc::c_int;
use lightwait_core::udp::UdpOptions;

use super::{Name, Options, within};
use crate::address::Family;
use crate::errno::Errno;

/// Options that are kept and reported. Those at the end have no effect, as in Linux without traffic
/// control; what the engine cannot do is not among them.
pub(super) const KEPT: &[Name] = &[
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::SOL_UDP, libc::UDP_GRO),
    (libc::SOL_UDP, libc::UDP_SEGMENT),
    (libc::SOL_SOCKET, libc::SO_DEBUG),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
];

/// What the caller wants to hear of each datagram in control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reports {
    /// IP_PKTINFO.
    pub(crate) address: bool,
    /// IPV6_RECVPKTINFO.
    pub(crate) address_v6: bool,
    /// IP_RECVTOS.
    pub(crate) tos: bool,
    /// IPV6_RECVTCLASS.
    pub(crate) traffic_class: bool,
}

impl Options {
    fn is_on(&self, level: c_int, name: c_int) -> bool {
        self.kept.get(&(level, name)).is_some_and(|value| *value != 0)
    }

    /// IPV6_V6ONLY.
    pub(crate) fn only_ipv6(&self) -> bool {
        self.is_on(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
    }

    /// UDP_SEGMENT: bytes of each datagram that a call sends.
    pub(crate) fn segment(&self) -> Option<usize> {
        let set = self.kept.get(&(libc::SOL_UDP, libc::UDP_SEGMENT));
        set.and_then(|bytes| usize::try_from(*bytes).ok()).filter(|bytes| *bytes > 0)
    }

    /// The control messages that are wanted.
    pub(crate) fn reports(&self) -> Reports {
        Reports {
            address: self.is_on(libc::IPPROTO_IP, libc::IP_PKTINFO),
            address_v6: self.is_on(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            tos: self.is_on(libc::IPPROTO_IP, libc::IP_RECVTOS),
            traffic_class: self.is_on(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        }
    }

    /// The options of the engine that they stand for; `defaults` has what no option says.
    pub(crate) fn of_engine(&self, defaults: UdpOptions) -> UdpOptions {
        UdpOptions {
            receive_bytes: self.receive_buffer.unwrap_or(defaults.receive_bytes),
            send_bytes: self.send_buffer.unwrap_or(defaults.send_bytes),
            broadcast: self.is_on(libc::SOL_SOCKET, libc::SO_BROADCAST),
            only_ipv6: self.only_ipv6(),
            dont_fragment: self.discovers_path_mtu_by(libc::IP_PMTUDISC_DO),
            traffic_class: self.traffic_class as u8,
            hop_limit: self.hop_limit(),
            joined: self.is_on(libc::SOL_UDP, libc::UDP_GRO),
            ..defaults
        }
    }
}

/// Checks the value of an option of a socket for datagrams, which has a port if `has_port`.
///
/// # Errors
/// `ENOPROTOOPT` for an option of IPv6 on a socket without it. `EINVAL` for what Linux refuses, and
/// for what the engine cannot do: leave DF out, ignore the path's MTU, send with a hop limit of 0.
pub(super) fn check(
    family: Family,
    has_port: bool,
    (level, name): Name,
    value: c_int,
) -> Result<(), Errno> {
    match (level, name) {
        (libc::IPPROTO_IPV6, _) if family == Family::Inet => return Err(Errno::ENOPROTOOPT),
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
        | (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => {
            within(libc::IP_PMTUDISC_WANT..=libc::IP_PMTUDISC_DO, value)?;
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)
            if value != -1 =>
        {
            within(1..=255, value)?;
        }
        (libc::SOL_UDP, libc::UDP_SEGMENT) => {
            within(0..=0xffff, value)?;
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if has_port => return Err(Errno::EINVAL),
        _ => {}
    }
    Ok(())
}
