//! Sockets for datagrams: what they have beside other sockets, over a UDP socket of the engine.
//!
//! The engine's socket is made when the caller's gets a port: by `bind`, or by the first `connect`
//! or datagram. Errors that ICMP reports reach connected sockets, as the engine believes them.

mod calls;
pub mod control;
pub mod messages;

use std::net::SocketAddr;

use lightwait_core::{Host, Instant, UdpId};

use crate::errno::Errno;
use crate::options::Options;

/// What only a socket for datagrams has.
#[derive(Debug, Default)]
pub struct Datagram {
    /// The engine's socket, once it has a port.
    id: Option<UdpId>,
}

impl Datagram {
    /// The engine's socket.
    pub fn id(&self) -> Option<UdpId> {
        self.id
    }

    /// True if it has a port, which stays.
    pub fn has_port(&self) -> bool {
        self.id.is_some()
    }

    /// Our end.
    pub fn local(&self, host: &Host) -> Option<SocketAddr> {
        self.id.and_then(|id| host.udp_local_address(id).ok())
    }

    /// The peer of a connected socket.
    pub fn peer(&self, host: &Host) -> Option<SocketAddr> {
        self.id.and_then(|id| host.udp_peer_address(id).ok())
    }

    /// The largest packet that goes to its peer, as far as is known; `None` without a peer.
    pub(crate) fn path_mtu(&self, host: &Host) -> Option<libc::c_int> {
        let peer = self.peer(host)?;
        let headers = if peer.is_ipv4() { 20 + 8 } else { 40 + 8 };
        libc::c_int::try_from(host.udp_payload_max(peer.ip()) + headers).ok()
    }

    /// Bytes of the datagram that the next call reads; 0 if none waits.
    pub(crate) fn next_bytes(&self, host: &mut Host) -> usize {
        let next = self.id.and_then(|id| host.udp_peek(id, &mut []).ok());
        next.map_or(0, |next| next.segment)
    }

    /// Takes from the engine why a datagram did not arrive.
    pub(crate) fn take_error(&self, host: &mut Host) -> Option<Errno> {
        self.id.and_then(|id| host.udp_take_error(id)).map(Errno::from)
    }

    /// Applies its options to the engine's socket.
    pub(crate) fn apply_options(&self, options: &Options, host: &mut Host) {
        if let Some(id) = self.id {
            let options = options.of_engine(host.default_udp_options());
            // Its name lives as long as it, and no option has a value that makes no sense.
            let _never = host.udp_set_options(id, options);
        }
    }

    /// Leaves its peer. A port that was picked for it is free again, and what came there is lost.
    pub(crate) fn disconnect(&mut self, host: &mut Host, now: Instant, is_bound: bool) {
        let Some(id) = self.id else { return };
        if is_bound {
            // Without a peer it has what no other socket has.
            let _never = host.udp_connect(now, id, None);
        } else {
            host.udp_close(id);
            self.id = None;
        }
    }

    /// Notes that its user has closed it.
    pub(crate) fn end(&self, host: &mut Host) {
        if let Some(id) = self.id {
            host.udp_close(id);
        }
    }
}
