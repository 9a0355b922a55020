//! The calls that open and close sockets: `socket`, `bind`, `listen`, `accept`, `connect`,
//! `shutdown` and `close`.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use libc::c_int;
use lightwait_core::tcp::State;
use lightwait_core::{AcceptError, ConnectionId, Host, Instant};

use super::{Kind, Role, Socket, Stream, open_descriptor};
use crate::abi::kernel;
use crate::address::{Family, family_of};
use crate::attempt::{Attempt, Progress, done};
use crate::datagram::Datagram;
use crate::errno::Errno;
use crate::options::{Options, TcpOptions};
use crate::world::{File, World};

/// The longest backlog (`net.core.somaxconn`).
const BACKLOG_MAX: c_int = 4096;

/// A connection handed to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The new file descriptor.
    pub fd: RawFd,
    /// The peer, as bytes of its `sockaddr`.
    pub peer: Vec<u8>,
}

impl World {
    /// `socket(2)`.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `ESOCKTNOSUPPORT` or `EPROTONOSUPPORT` if it is neither TCP nor UDP over
    /// IPv4 or IPv6.
    pub fn open_socket(
        &mut self,
        domain: c_int,
        kind: c_int,
        protocol: c_int,
    ) -> Result<RawFd, Errno> {
        let family = match domain {
            libc::AF_INET => Family::Inet,
            libc::AF_INET6 => Family::Inet6,
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        let profile = &self.profile;
        let (options, of_kind) = match kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            libc::SOCK_STREAM => {
                let stream = Stream::new(Role::Idle, TcpOptions::new(profile));
                (Options::of_streams(profile), Kind::Stream(Box::new(stream)))
            }
            libc::SOCK_DGRAM => {
                (Options::of_datagrams(profile), Kind::Datagram(Datagram::default()))
            }
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        if protocol != 0 && protocol != of_kind.protocol() {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let mut socket = Socket::new(family, options, of_kind);
        socket.nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let fd = open_descriptor()?;
        self.add_file(fd, File::Socket(Box::new(socket)));
        Ok(fd)
    }

    /// `bind(2)`.
    ///
    /// # Errors
    /// `EINVAL` if it is bound already, `EADDRINUSE` if another socket is, and those of the
    /// address.
    pub fn bind(&mut self, fd: RawFd, address: &[u8]) -> Result<(), Errno> {
        let socket = self.socket(fd)?;
        let local = socket.family.decode(address)?;
        let Some(role) = socket.role() else { return self.bind_datagrams(fd, local) };
        if role != Role::Idle || socket.local.is_some() {
            return Err(Errno::EINVAL);
        }
        let reuses = socket.options.reuse_address;
        let conflicts = |other: &Socket| {
            let (Some(taken), Some(role)) = (other.local, other.role()) else { return false };
            let meet = taken.ip() == local.ip()
                || taken.ip().is_unspecified()
                || local.ip().is_unspecified();
            let shared =
                reuses && other.options.reuse_address && !matches!(role, Role::Listening(_));
            local.port() != 0 && taken.port() == local.port() && meet && !shared
        };
        let lingers = |known: lightwait_core::host::Socket<'_>| {
            !reuses && known.remote().is_some() && known.local().port() == local.port()
        };
        if self.sockets().any(|(_, other)| conflicts(other)) || self.host.sockets().any(lingers) {
            return Err(Errno::EADDRINUSE);
        }
        self.learn_address(local.ip(), true);
        self.socket_and_host(fd)?.0.local = Some(local);
        Ok(())
    }

    /// `listen(2)`.
    ///
    /// # Errors
    /// `EINVAL` if it is connected, `EADDRINUSE` if another listens there, `EOPNOTSUPP` if it
    /// carries datagrams.
    pub fn listen(&mut self, fd: RawFd, backlog: c_int) -> Result<(), Errno> {
        let (socket, host) = self.socket_and_host(fd)?;
        let Kind::Stream(stream) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        if stream.connection().is_some() {
            return Err(Errno::EINVAL);
        }
        // Linux lets one more wait than was asked for; a negative number is the largest.
        let backlog = if backlog < 0 { BACKLOG_MAX } else { backlog.min(BACKLOG_MAX) };
        stream.backlog = backlog as u32;
        if let Role::Listening(id) = stream.role {
            return Ok(host.set_backlog(id, backlog as usize + 1)?);
        }
        let local = socket.local.unwrap_or(socket.family.unspecified());
        let options = stream.options.engine(&socket.options);
        let id = host.listen_with(local, backlog as usize + 1, options)?;
        socket.local = host.listener_address(id).ok();
        stream.role = Role::Listening(id);
        Ok(())
    }

    /// `accept(2)`.
    ///
    /// # Errors
    /// `EINVAL` if it does not listen, `EAGAIN` if there is nothing and it must not block,
    /// `EOPNOTSUPP` if it carries datagrams.
    pub fn accept(&mut self, fd: RawFd) -> Attempt<Accepted> {
        let (now, inherits) = (self.now(), self.profile.calls.accept_inherits_nonblock);
        let (socket, host) = self.socket_and_host(fd)?;
        let listener = socket.stream(Errno::EOPNOTSUPP)?;
        let Role::Listening(id) = listener.role else { return Err(Errno::EINVAL) };
        let connection = match host.accept(now, id) {
            Ok(connection) => connection,
            Err(AcceptError::WouldBlock) if !socket.nonblocking => {
                return Ok(Progress::Wait(None));
            }
            Err(error) => return Err(error.into()),
        };
        let stream = Stream::new(Role::Connected(connection), listener.options.clone());
        let (family, options) = (socket.family, socket.options.clone());
        let mut accepted = Socket::new(family, options, Kind::Stream(Box::new(stream)));
        accepted.nonblocking = socket.nonblocking && inherits;
        accepted.local = host.local_address(connection).ok();
        let unspecified = accepted.family.unspecified();
        let peer = host.peer_address(connection).unwrap_or(unspecified);
        let peer = accepted.family.encode(peer);
        accepted.refresh(host, now);
        let fd = open_descriptor()?;
        self.add_file(fd, File::Socket(Box::new(accepted)));
        done(Accepted { fd, peer })
    }

    /// `connect(2)`. `is_first`: it is not a repeated attempt of one blocking call.
    ///
    /// # Errors
    /// `EINPROGRESS`, `EALREADY`, `EISCONN`, and why the connection failed. A socket for datagrams
    /// is connected at once.
    pub fn connect(&mut self, fd: RawFd, address: &[u8], is_first: bool) -> Attempt<()> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        if family_of(address)? == libc::AF_UNSPEC {
            socket.disconnect(host, now);
            return done(());
        }
        match socket.role() {
            None => {
                let remote = socket.family.decode(address)?;
                self.connect_datagrams(fd, remote).map(Progress::Done)
            }
            Some(Role::Listening(_) | Role::Connected(_)) => Err(Errno::EISCONN),
            Some(Role::Connecting(_)) => self.go_on_connecting(fd, is_first),
            Some(Role::Idle) => {
                let remote = socket.family.decode(address)?;
                self.begin_connecting(fd, remote)?;
                if self.socket(fd)?.nonblocking {
                    return Err(Errno::EINPROGRESS);
                }
                Ok(Progress::Wait(None))
            }
        }
    }

    pub(crate) fn begin_connecting(&mut self, fd: RawFd, remote: SocketAddr) -> Result<(), Errno> {
        let now = self.now();
        let socket = self.socket(fd)?;
        let local = socket.local.unwrap_or(socket.family.unspecified());
        let ip = if local.ip().is_unspecified() {
            self.source_for(remote.ip()).ok_or(Errno::ENETUNREACH)?
        } else {
            local.ip()
        };
        let (socket, host) = self.socket_and_host(fd)?;
        let Kind::Stream(stream) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        let from = SocketAddr::new(ip, local.port());
        let id = host.connect_with(now, from, remote, stream.options.engine(&socket.options))?;
        socket.local = host.local_address(id).ok();
        stream.role = Role::Connecting(id);
        Ok(())
    }

    fn go_on_connecting(&mut self, fd: RawFd, is_first: bool) -> Attempt<()> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        let Some(Role::Connecting(id)) = socket.role() else { return Err(Errno::EISCONN) };
        socket.refresh(host, now);
        match host.state(id) {
            State::SynSent | State::SynReceived if socket.nonblocking => Err(Errno::EALREADY),
            State::SynSent | State::SynReceived if is_first => Err(Errno::EALREADY),
            State::SynSent | State::SynReceived => Ok(Progress::Wait(None)),
            _ if socket.is_over() => {
                let error = socket.error.take().unwrap_or(Errno::ECONNABORTED);
                socket.disconnect(host, now);
                Err(error)
            }
            _ => {
                socket.stream_mut(Errno::EISCONN)?.role = Role::Connected(id);
                done(())
            }
        }
    }

    /// An address of ours to reach `remote` from: one that the caller has named, else the first of
    /// the ranges.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let of_version = |ip: &IpAddr| ip.is_ipv4() == remote.is_ipv4();
        let told = self.host.addresses().into_iter().find(of_version);
        let ranges = self.host.config().ranges.iter();
        told.or_else(|| ranges.map(|range| range.nth(1)).find(of_version))
    }

    /// `shutdown(2)`.
    ///
    /// # Errors
    /// `ENOTCONN` without a connection, `EINVAL` if `how` makes no sense.
    pub fn shutdown(&mut self, fd: RawFd, how: c_int) -> Result<(), Errno> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        socket.refresh(host, now);
        let id = match &socket.kind {
            Kind::Datagram(datagrams) => {
                // Linux shuts it down though it complains.
                socket.read_shut |= read;
                socket.write_shut |= write;
                return datagrams.peer(host).map(drop).ok_or(Errno::ENOTCONN);
            }
            Kind::Stream(stream) => match stream.role {
                Role::Idle => return Err(Errno::ENOTCONN),
                Role::Listening(_) => {
                    if read {
                        socket.disconnect(host, now);
                    }
                    return Ok(());
                }
                Role::Connecting(id) | Role::Connected(id) => id,
            },
        };
        if socket.is_over() {
            return Err(Errno::ENOTCONN);
        }
        if host.state(id) == State::SynSent {
            // RFC 9293 §3.10.4: the open is given up.
            socket.disconnect(host, now);
            socket.error = Some(Errno::ECONNRESET);
            return Ok(());
        }
        socket.read_shut |= read;
        if read {
            host.shutdown_read(id)?;
        }
        if write && !socket.write_shut {
            socket.write_shut = true;
            host.shutdown_write(now, id)?;
            socket.refresh(host, now);
        }
        Ok(())
    }

    /// `close(2)`. With SO_LINGER it waits until the peer has acknowledged everything.
    /// `linger_until` is kept between attempts.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: RawFd, linger_until: &mut Option<Instant>) -> Attempt<()> {
        let now = self.now();
        if let Ok((socket, host)) = self.socket_and_host(fd)
            && let (Some(id), Some(limit)) = (socket.connection(), socket.options.linger)
            && limit > Duration::ZERO
        {
            let until = *linger_until.get_or_insert(now + limit);
            let has_unread = host.info(id).is_ok_and(|info| info.receive_buffered_bytes > 0);
            if !has_unread && now < until && is_lingering(socket, host, now, id) {
                return Ok(Progress::Wait(Some(until)));
            }
        }
        self.remove_file(fd)?;
        kernel::close(fd)?;
        done(())
    }
}

/// True if our FIN, which leaves now, is not acknowledged yet.
fn is_lingering(socket: &mut Socket, host: &mut Host, now: Instant, id: ConnectionId) -> bool {
    if !socket.write_shut && host.state(id).can_send() {
        socket.write_shut = true;
        // It can only fail because there is nothing to close.
        let _gone = host.shutdown_write(now, id);
    }
    matches!(host.state(id), State::FinWait1 | State::Closing | State::LastAck)
}
