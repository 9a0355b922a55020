//! UDP (RFC 768; RFC 1122 §4.1; RFC 8085), sans I/O: sockets, how a datagram finds its socket, and
//! the datagrams that wait on either side of it.
//!
//! ```text
//!   datagram ─▶ table: the socket of both ends, of our end, of our port ─▶ incoming queue ─▶ calls
//!   calls    ─▶ outgoing queue ─▶ egress: whole, joined for the device to cut, or in fragments
//! ```
//!
//! A socket has an address and a port, or a port of any of our addresses. `[::]` hears both IP
//! versions unless [`UdpOptions::only_ipv6`] is set; to such a socket an IPv4 peer has an IPv4
//! address. A connected socket hears its remote end alone, and ICMP errors about it. What is sent
//! to a group is heard by the socket of its port that has joined it. Where the user wants that,
//! a datagram that no socket hears makes a connected one, a flow.
//!
//! Every queue is bounded in bytes, and all of them together by a part of the pages
//! ([`PART_OF_DATAGRAMS`](crate::buffer::PART_OF_DATAGRAMS)). What comes beyond that is dropped and
//! counted: nothing waits for a datagram.

pub(crate) mod egress;
pub(crate) mod queue;
pub(crate) mod socket;
pub(crate) mod table;

use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};

use crate::config::{Config, UdpConfig};
use crate::error::Error;
use crate::event::UdpId;
use crate::fifo::Fifo;
use crate::flow::TupleHasher;
use crate::time::Instant;
use egress::Identifications;
use table::Table;

/// Datagrams that one call sends, or that are read as one, at most (Linux: UDP_MAX_SEGMENTS).
pub const SEGMENTS_MAX: usize = 64;

/// Groups that a socket may join, at most (Linux: IP_MAX_MEMBERSHIPS).
pub const GROUPS_MAX: usize = 20;

/// The most bytes of a datagram over IPv4: with its headers it fills a packet (RFC 768, RFC 791
/// §3.1).
pub(crate) const IPV4_PAYLOAD_MAX: usize = 65_535 - 20 - 8;

/// The most bytes of a datagram over IPv6 (RFC 8200 §3).
pub(crate) const IPV6_PAYLOAD_MAX: usize = 65_535 - 8;

/// The options of a UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Bytes of datagrams that wait to be read, at most; each counts for 128 more. A queue that is
    /// empty takes any datagram.
    pub receive_bytes: u32,
    /// Bytes of datagrams that wait to be sent, at most, counted alike.
    pub send_bytes: u32,
    /// May send to broadcast addresses (RFC 1122 §3.3.6).
    pub broadcast: bool,
    /// A socket of `[::]` hears and sends IPv6 alone (RFC 3493 §5.3). Said before it is bound.
    pub only_ipv6: bool,
    /// No datagram is cut into fragments, here or by a router: one that is too large for the path
    /// is refused with [`Error::MessageTooLong`].
    pub dont_fragment: bool,
    /// ICMP errors about what was sent are kept, with the destination of each, whether the socket
    /// is connected or not and whether they may pass or not
    /// ([`Host::udp_error`](crate::Host::udp_error); Linux: IP_RECVERR).
    pub report_errors: bool,
    /// Datagrams of one size from one sender are read together, as many as there is room for
    /// (Linux: UDP_GRO): [`Received::segment`] says where to cut them.
    pub joined: bool,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// TTL or hop limit (RFC 1122 §4.1.4); `None`: the host's.
    pub hop_limit: Option<u8>,
    /// TTL or hop limit of what goes to groups (RFC 1112 §6.1).
    pub multicast_hop_limit: u8,
    /// What goes to groups of IPv4 is heard by the socket of this host that has joined them, too
    /// (RFC 1112 §6.1).
    pub multicast_loop_v4: bool,
    /// The same, of IPv6 (RFC 3493 §5.2).
    pub multicast_loop_v6: bool,
}

impl UdpOptions {
    /// What is sent to groups of that IP version is heard here as well.
    pub(crate) fn loops(&self, ipv6: bool) -> bool {
        if ipv6 { self.multicast_loop_v6 } else { self.multicast_loop_v4 }
    }

    /// The options that a host of this configuration gives a socket.
    pub fn new(config: &UdpConfig) -> Self {
        UdpOptions {
            receive_bytes: config.receive_bytes,
            send_bytes: config.send_bytes,
            broadcast: false,
            only_ipv6: false,
            dont_fragment: false,
            report_errors: false,
            joined: false,
            traffic_class: 0,
            hop_limit: None,
            multicast_hop_limit: 1,
            multicast_loop_v4: true,
            multicast_loop_v6: true,
        }
    }
}

/// Where datagrams go, and what their packets say: for [`Host::udp_send`](crate::Host::udp_send).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Transmit {
    /// The receiver; `None`: the remote end of a connected socket.
    pub to: Option<SocketAddr>,
    /// The address of ours to send from (RFC 1122 §4.1.3.5); `None`: the socket's, or the one that
    /// leads there.
    pub from: Option<IpAddr>,
    /// The ECN bits (RFC 3168 §5); `None`: those of the socket's traffic class.
    pub ecn: Option<u8>,
    /// The bytes are several datagrams of so many bytes each, but for the last, which may have
    /// less: [`SEGMENTS_MAX`] at most. `None`: they are one.
    pub segment: Option<usize>,
}

impl Transmit {
    /// One datagram to `to`.
    pub fn to(to: SocketAddr) -> Self {
        Transmit { to: Some(to), ..Transmit::default() }
    }

    /// Bytes of each datagram of `len` bytes in all: at least one.
    ///
    /// # Errors
    ///
    /// [`Error::MessageTooLong`] if IP has no packet for one of them, and [`Error::InvalidInput`]
    /// if they are more than [`SEGMENTS_MAX`].
    pub fn check(&self, len: usize, is_ipv6: bool) -> Result<usize, Error> {
        let segment = match self.segment {
            Some(0) => return Err(Error::InvalidInput("datagrams of no bytes cannot be joined")),
            Some(segment) if len.div_ceil(segment) > SEGMENTS_MAX => {
                return Err(Error::InvalidInput("more datagrams than one call sends"));
            }
            Some(segment) => segment.min(len).max(1),
            None => len.max(1),
        };
        let largest = if is_ipv6 { IPV6_PAYLOAD_MAX } else { IPV4_PAYLOAD_MAX };
        if segment > largest { Err(Error::MessageTooLong) } else { Ok(segment) }
    }
}

/// What was read, and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes that were written: of one datagram, or of several one behind the other.
    pub len: usize,
    /// Bytes of each datagram but the last. More than `len`: the only one was cut off to what there
    /// was room for, and the rest is lost.
    pub segment: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The address that it was sent to: of ours, a group's, or a broadcast (RFC 1122 §4.1.3.5).
    pub to: IpAddr,
    /// DSCP and ECN bits of the IP header (RFC 1122 §4.1.4, RFC 3168 §5).
    pub traffic_class: u8,
    /// When the device got it, if it knows ([`RxFrame::arrived`](crate::RxFrame::arrived)); else
    /// [`Instant::FAR_FUTURE`].
    pub arrived: Instant,
}

impl Received {
    /// The ECN bits.
    pub fn ecn(&self) -> u8 {
        self.traffic_class & ECN
    }
}

/// The ECN bits of a traffic class.
pub(crate) const ECN: u8 = 3;

/// The UDP of one host.
#[derive(Debug)]
pub(crate) struct Udp {
    pub sockets: Table,
    /// Sockets with something to send, in their order.
    pub ready: Fifo<u32>,
    pub identifications: Identifications,
    pub hasher: TupleHasher,
    pub flows: Flows,
}

/// What becomes of datagrams that no socket hears.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// Each makes a socket, which starts with these; without, its port is unreachable.
    pub options: Option<UdpOptions>,
    /// Sockets made so that the user has not yet taken.
    pub waiting: VecDeque<UdpId>,
}

impl Udp {
    pub(crate) fn new(config: &Config) -> Udp {
        Udp {
            sockets: Table::new(config),
            ready: Fifo::default(),
            identifications: Identifications::new(config),
            hasher: TupleHasher::new(&config.secret),
            flows: Flows::default(),
        }
    }

    /// Puts the socket in slot `index` on the list of those that have something to send.
    pub(crate) fn make_ready(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if !core::mem::replace(&mut socket.is_ready, true) {
            self.ready.push_back(index);
        }
    }
}
