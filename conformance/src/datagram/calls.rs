//! `bind` and `connect` of sockets for datagrams.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use lightwait_core::UdpId;

use crate::errno::Errno;
use crate::socket::{Kind, Socket};
use crate::world::World;

impl Socket {
    /// Checks that it may have a peer of that version of IP.
    ///
    /// # Errors
    /// `ENETUNREACH` for IPv4 if it is for IPv6 alone, `EAFNOSUPPORT` if it is bound to an address
    /// of the other version.
    fn check_version(&self, peer: IpAddr) -> Result<(), Errno> {
        if peer.is_ipv4() && self.options.only_ipv6() {
            return Err(Errno::ENETUNREACH);
        }
        let is_bound_apart = |local: SocketAddr| {
            let is_any_ipv6 = local.is_ipv6() && local.ip().is_unspecified();
            local.is_ipv4() != peer.is_ipv4() && !is_any_ipv6
        };
        if self.local.is_some_and(is_bound_apart) {
            return Err(Errno::EAFNOSUPPORT);
        }
        Ok(())
    }
}

impl World {
    /// `bind(2)` of a socket for datagrams.
    ///
    /// # Errors
    /// `EINVAL` if it has a port, or is for IPv6 alone and the address is of IPv4; `EADDRINUSE` if
    /// another socket has the address and port.
    pub(crate) fn bind_datagrams(&mut self, fd: RawFd, local: SocketAddr) -> Result<(), Errno> {
        let socket = self.socket(fd)?;
        let Kind::Datagram(datagrams) = &socket.kind else { return Err(Errno::EOPNOTSUPP) };
        if datagrams.has_port() || (local.is_ipv4() && socket.options.only_ipv6()) {
            return Err(Errno::EINVAL);
        }
        self.learn_address(local.ip(), true);
        let id = self.open_datagrams(fd, local)?;
        let local = self.host.udp_local_address(id)?;
        self.socket_and_host(fd)?.0.local = Some(local);
        Ok(())
    }

    /// Gives a socket for datagrams the port and address of `local`.
    fn open_datagrams(&mut self, fd: RawFd, local: SocketAddr) -> Result<UdpId, Errno> {
        let (socket, host) = self.socket_and_host(fd)?;
        let Kind::Datagram(datagrams) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        let options = socket.options.of_engine(host.default_udp_options());
        let id = host.udp_bind(local, options)?;
        datagrams.id = Some(id);
        Ok(id)
    }

    /// The engine's socket of one that is to send to `peer`, with a port if it had none, and an
    /// address of ours to send from.
    ///
    /// # Errors
    /// `ENETUNREACH` and `EAFNOSUPPORT` if the peer is of the wrong version of IP; `EADDRINUSE` if
    /// no port is left.
    pub(super) fn datagrams_to(&mut self, fd: RawFd, peer: IpAddr) -> Result<UdpId, Errno> {
        let socket = self.socket(fd)?;
        socket.check_version(peer)?;
        if !self.host.addresses().iter().any(|ours| ours.is_ipv4() == peer.is_ipv4()) {
            let ours = self.source_for(peer).ok_or(Errno::ENETUNREACH)?;
            self.learn_address(ours, true);
        }
        let socket = self.socket(fd)?;
        match &socket.kind {
            Kind::Datagram(super::Datagram { id: Some(id) }) => Ok(*id),
            _ => self.open_datagrams(fd, socket.family.unspecified()),
        }
    }

    /// `connect(2)` of a socket for datagrams, connected or not.
    ///
    /// # Errors
    /// `ENETUNREACH` without a way, `EINVAL` for port 0, `EADDRINUSE` if another socket has both
    /// ends.
    pub(crate) fn connect_datagrams(&mut self, fd: RawFd, peer: SocketAddr) -> Result<(), Errno> {
        let now = self.now();
        let id = self.datagrams_to(fd, peer.ip())?;
        Ok(self.host.udp_connect(now, id, Some(peer))?)
    }
}
