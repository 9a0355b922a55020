//! Reading and writing datagrams, with the flags and errors of `recvmsg(2)` and `sendmsg(2)`.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use libc::c_int;
use lightwait_core::Error;
use lightwait_core::udp::{Received, Transmit};

use super::control;
use crate::address::{Family, family_of};
use crate::attempt::{Attempt, done};
use crate::errno::Errno;
use crate::message::{Control, Message, Read, Reading, Room, Writing};
use crate::socket::{Kind, Socket};
use crate::world::World;

/// The most bytes of a datagram.
const LEN_MAX: usize = 0xffff;

impl World {
    /// `recv(2)` and its relatives, of a socket for datagrams.
    ///
    /// # Errors
    /// `EAGAIN` if none waits and it must not block, `EFAULT` for a null pointer, or why a datagram
    /// of ours did not arrive.
    pub(crate) fn receive_datagram(
        &mut self,
        fd: RawFd,
        room: Room,
        flags: c_int,
        reading: &mut Reading,
    ) -> Attempt<Read> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            // IP_RECVERR cannot be set, and so nothing is ever in it.
            return Err(Errno::EAGAIN);
        }
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        socket.refresh(host, now);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let mut bytes = vec![0; room.len.min(LEN_MAX)];
        let received = match &socket.kind {
            Kind::Datagram(super::Datagram { id: Some(id) }) => {
                let takes = flags & libc::MSG_PEEK == 0;
                match takes {
                    true => host.udp_receive(*id, &mut bytes),
                    false => host.udp_peek(*id, &mut bytes),
                }
            }
            _ => Err(Error::WouldBlock),
        };
        match received {
            Ok(received) => {
                if room.is_null && received.len > 0 {
                    return Err(Errno::EFAULT);
                }
                bytes.truncate(received.len);
                let (from, control) =
                    (socket.family.encode(received.from), self.reports_on(fd, &received)?);
                let is_cut = received.segment > received.len;
                let (len, flags) = match (is_cut, flags & libc::MSG_TRUNC != 0) {
                    (true, true) => (received.segment, libc::MSG_TRUNC),
                    (true, false) => (received.len, libc::MSG_TRUNC),
                    (false, _) => (received.len, 0),
                };
                done(Read { bytes, len, from, flags, control })
            }
            Err(Error::WouldBlock) => {
                let limit = socket.options.receive_timeout;
                match socket.wait(flags, now, limit, &mut reading.until) {
                    // Linux ends with nothing after SHUT_RD, but only where it would block.
                    Some(_) if socket.read_shut => done(Read::default()),
                    Some(wait) => Ok(wait),
                    None => Err(Errno::EAGAIN),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The control messages about a datagram that its socket asks for.
    fn reports_on(&self, fd: RawFd, received: &Received) -> Result<Vec<Control>, Errno> {
        let reports = self.socket(fd)?.options.reports();
        let is_unicast = self.host.addresses().contains(&received.to)
            || self.host.config().ranges.iter().any(|range| range.contains(received.to));
        let answers_from = match is_unicast {
            true => Some(received.to),
            false => self.source_for(received.from.ip()),
        };
        Ok(control::reports_on(reports, received, answers_from))
    }

    /// `send(2)` and its relatives, of a socket for datagrams.
    ///
    /// # Errors
    /// `EMSGSIZE` if it is too long, `EDESTADDRREQ` without a receiver, `EPIPE` after SHUT_WR,
    /// `EACCES` to a broadcast without SO_BROADCAST, `EOPNOTSUPP` for MSG_OOB and MSG_MORE, or why
    /// an earlier one did not arrive.
    pub(crate) fn send_datagram(
        &mut self,
        fd: RawFd,
        message: &Message<'_>,
        flags: c_int,
        writing: &mut Writing,
    ) -> Attempt<usize> {
        let now = self.now();
        let data = message.data.ok_or(Errno::EFAULT)?;
        if data.len() > LEN_MAX {
            return Err(Errno::EMSGSIZE);
        }
        if flags & (libc::MSG_OOB | libc::MSG_MORE) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let socket = self.socket(fd)?;
        let (family, to) = (socket.family, message.to.map(|to| receiver(socket.family, to)));
        let to = to.transpose()?;
        let connected = match &socket.kind {
            Kind::Datagram(datagrams) => datagrams.peer(&self.host),
            Kind::Stream(_) => None,
        };
        let peer = to.or(connected).ok_or(Errno::EDESTADDRREQ)?;
        let id = self.datagrams_to(fd, peer.ip())?;
        let asked = control::asked(message.control, family, peer.is_ipv4())?;
        let (socket, host) = self.socket_and_host(fd)?;
        socket.refresh(host, now);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.write_shut {
            return Err(Errno::EPIPE);
        }
        let segment = asked.segment.or(socket.options.segment());
        let transmit = Transmit {
            to,
            from: asked.source,
            segment: segment.filter(|segment| (1..data.len()).contains(segment)),
            ..Transmit::default()
        };
        match host.udp_send(now, id, &transmit, data) {
            Ok(()) => done(data.len()),
            Err(Error::WouldBlock) => wait_to_send(socket, flags, now, writing),
            // Linux says so of an address that the caller has named.
            Err(Error::AddressNotAvailable) if asked.source.is_some() => Err(Errno::EINVAL),
            Err(error) => Err(error.into()),
        }
    }
}

fn wait_to_send(
    socket: &Socket,
    flags: c_int,
    now: lightwait_core::Instant,
    writing: &mut Writing,
) -> Attempt<usize> {
    let wait = socket.wait(flags, now, socket.options.send_timeout, &mut writing.until);
    wait.ok_or(Errno::EAGAIN)
}

/// The address that a datagram is sent to. A socket of IPv6 takes one of IPv4, too.
fn receiver(family: Family, to: &[u8]) -> Result<SocketAddr, Errno> {
    match (family, family_of(to)?) {
        (Family::Inet6, libc::AF_INET) => Family::Inet.decode(to),
        _ => family.decode(to),
    }
}
