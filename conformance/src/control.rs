//! `fcntl(2)` and `ioctl(2)` on a socket.

use std::os::fd::RawFd;

use libc::{c_int, c_ulong};
use lightwait_core::Host;
use lightwait_core::tcp::State;

use crate::abi::kernel;
use crate::errno::Errno;
use crate::socket::{Kind, Role, Socket};
use crate::world::World;

/// Bytes in the send queue that have not been sent (`SIOCOUTQNSD`); the C library has no name.
const SIOCOUTQNSD: c_ulong = 0x894b;
/// Is the next byte the urgent one?
const SIOCATMARK: c_ulong = 0x8905;

impl World {
    /// `fcntl(2)`: O_NONBLOCK is the socket's; everything else is the kernel's.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn fcntl(&mut self, fd: RawFd, command: c_int, argument: c_ulong) -> Result<c_int, Errno> {
        let Ok((socket, _)) = self.socket_and_host(fd) else {
            return kernel::fcntl(fd, command, argument);
        };
        let nonblocking = if socket.nonblocking { libc::O_NONBLOCK } else { 0 };
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | nonblocking),
            libc::F_SETFL => {
                socket.nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => kernel::fcntl(fd, command, argument),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ioctl(2)`, whose requests all concern one number. Returns the new number, if there is one.
    ///
    /// # Errors
    /// `EINVAL` for a request that is not served, or in LISTEN; `ENOTTY` for one that datagrams
    /// do not have.
    pub fn ioctl(
        &mut self,
        fd: RawFd,
        request: c_ulong,
        given: Option<c_int>,
    ) -> Result<Option<c_int>, Errno> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        if request == libc::FIONBIO {
            socket.nonblocking = given.ok_or(Errno::EFAULT)? != 0;
            return Ok(None);
        }
        if socket.is_datagram() {
            // Its error is not the answer.
            socket.refresh(host, now);
        }
        let answer = match &socket.kind {
            Kind::Stream(_) => ask_stream(socket, host, request)?,
            Kind::Datagram(datagrams) => match request {
                libc::FIONREAD => datagrams.next_bytes(host),
                // Each call lets all leave that it sends.
                libc::TIOCOUTQ => 0,
                _ => return Err(Errno::ENOTTY),
            },
        };
        Ok(Some(c_int::try_from(answer).unwrap_or(c_int::MAX)))
    }
}

fn ask_stream(socket: &Socket, host: &Host, request: c_ulong) -> Result<usize, Errno> {
    if matches!(socket.role(), Some(Role::Listening(_))) {
        return Err(Errno::EINVAL);
    }
    let id = socket.connection();
    let info = id.and_then(|id| host.info(id).ok());
    Ok(match request {
        libc::FIONREAD => id.map_or(0, |id| host.readable_bytes(id)),
        libc::TIOCOUTQ => {
            let state = socket.state(host);
            let is_opening = matches!(state, State::SynSent | State::SynReceived);
            // A FIN that is not acknowledged counts as a byte.
            let fin = matches!(state, State::FinWait1 | State::Closing | State::LastAck);
            match info {
                Some(info) if !is_opening => info.send_buffered_bytes as usize + usize::from(fin),
                _ => 0,
            }
        }
        SIOCOUTQNSD => info.map_or(0, |info| info.unsent_bytes as usize),
        SIOCATMARK => usize::from(id.and_then(|id| host.urgent_mark(id)) == Some(1)),
        _ => return Err(Errno::EINVAL),
    })
}
