//! `getsockname(2)` and `getpeername(2)`, which packetdrill's interface lacks.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use super::{Kind, Role};
use crate::errno::Errno;
use crate::world::World;

impl World {
    /// `getsockname(2)`: the bytes of our end.
    ///
    /// # Errors
    /// Those of [`World::socket`].
    pub fn local_name(&self, fd: RawFd) -> Result<Vec<u8>, Errno> {
        let socket = self.socket(fd)?;
        let of_engine = match &socket.kind {
            Kind::Stream(stream) => match stream.role {
                Role::Idle => None,
                Role::Listening(id) => self.host.listener_address(id).ok(),
                Role::Connecting(id) | Role::Connected(id) => self.host.local_address(id).ok(),
            },
            Kind::Datagram(datagrams) => datagrams.local(&self.host),
        };
        let local = of_engine.or(socket.local);
        Ok(socket.family.encode(local.unwrap_or(socket.family.unspecified())))
    }

    /// `getpeername(2)`: the bytes of the peer's end.
    ///
    /// # Errors
    /// `ENOTCONN` without a peer, and those of [`World::socket`].
    pub fn peer_name(&self, fd: RawFd) -> Result<Vec<u8>, Errno> {
        let socket = self.socket(fd)?;
        let peer: Option<SocketAddr> = match &socket.kind {
            Kind::Stream(stream) => match stream.role {
                Role::Connected(id) if !stream.is_over() => self.host.peer_address(id).ok(),
                _ => None,
            },
            Kind::Datagram(datagrams) => datagrams.peer(&self.host),
        };
        peer.map(|peer| socket.family.encode(peer)).ok_or(Errno::ENOTCONN)
    }
}
