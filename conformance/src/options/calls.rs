//! `setsockopt(2)` and `getsockopt(2)` on a socket.

use std::os::fd::RawFd;
use std::time::Duration;

use libc::c_int;
use lightwait_core::Host;
use lightwait_core::tcp::State;

use super::{datagram, number, seconds};
use crate::address::Family;
use crate::errno::Errno;
use crate::socket::{Kind, Role, Socket, Stream};
use crate::world::World;

/// The MSS before there is a connection (RFC 9293 MUST-15).
const MSS_DEFAULT: c_int = 536;

impl World {
    /// TCP_INQ: the bytes that can still be read, as `recvmsg` reports them; `None` if the caller
    /// did not ask for that. 1 stands for the end.
    pub fn readable_hint(&self, fd: RawFd) -> Option<c_int> {
        let socket = self.socket(fd).ok()?;
        let asked = socket.options.kept.get(&(libc::IPPROTO_TCP, number::TCP_INQ));
        asked.filter(|asked| **asked != 0)?;
        let id = socket.connection()?;
        match self.host.readable_bytes(id) {
            0 => Some(self.host.is_at_end(id).into()),
            readable => Some(c_int::try_from(readable).unwrap_or(c_int::MAX)),
        }
    }

    /// `setsockopt(2)`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that does not exist, `EINVAL` for a value that it cannot have.
    pub fn set_option(
        &mut self,
        fd: RawFd,
        level: c_int,
        name: c_int,
        value: &[u8],
    ) -> Result<(), Errno> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        let options = &mut socket.options;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let (on, seconds) = (int_at(value, 0)?, int_at(value, 4)?);
                options.linger = (on != 0).then(|| Duration::from_secs(seconds.max(0) as u64));
            }
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
                options.max_pacing_rate = match value.first_chunk() {
                    Some(bytes) => u64::from_ne_bytes(*bytes),
                    // All bits of a shorter one say that there is no bound, too.
                    None => match int_at(value, 0)? as u32 {
                        u32::MAX => u64::MAX,
                        rate => rate.into(),
                    },
                };
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => options.receive_timeout = timeout(value)?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => options.send_timeout = timeout(value)?,
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                socket.stream_mut(Errno::ENOPROTOOPT)?.options.set_congestion(value)?;
            }
            _ => {
                // A single byte will do where a number fits into it.
                let number = match (level, value) {
                    (libc::IPPROTO_IP, [byte]) => c_int::from(*byte),
                    _ => int_at(value, 0)?,
                };
                socket.set_number(level, name, number)?;
            }
        }
        socket.apply_options(host, now);
        if let (Kind::Stream(stream), libc::IPPROTO_TCP, libc::TCP_QUICKACK) =
            (&socket.kind, level, name)
            && let Some(id) = stream.connection()
        {
            // A connection that is gone acknowledges nothing.
            let _gone = host.set_quick_ack(now, id, stream.options.quick_ack == Some(true));
        }
        Ok(())
    }

    /// `getsockopt(2)`: the bytes of the value, to be cut to the caller's room, which is `room`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that does not exist.
    pub fn option(
        &mut self,
        fd: RawFd,
        level: c_int,
        name: c_int,
        room: usize,
    ) -> Result<Vec<u8>, Errno> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        socket.look(host, now);
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => socket.error.take().map_or(0, |error| error.0),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => socket.buffer_sizes(host)[0],
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => socket.buffer_sizes(host)[1],
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                matches!(socket.role(), Some(Role::Listening(_))).into()
            }
            (libc::SOL_SOCKET, libc::SO_TYPE) => socket.kind.number(),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => socket.kind.protocol(),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => match socket.family {
                Family::Inet => libc::AF_INET,
                Family::Inet6 => libc::AF_INET6,
            },
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let linger = socket.options.linger;
                let seconds = linger.map_or(0, seconds);
                return Ok(ints(&[linger.is_some().into(), seconds]));
            }
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) if room >= 8 => {
                return Ok(socket.options.max_pacing_rate.to_ne_bytes().to_vec());
            }
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
                u32::try_from(socket.options.max_pacing_rate).unwrap_or(u32::MAX) as c_int
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                return Ok(timeval(socket.options.receive_timeout));
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                return Ok(timeval(socket.options.send_timeout));
            }
            (libc::IPPROTO_IP, libc::IP_MTU) | (libc::IPPROTO_IPV6, libc::IPV6_MTU) => {
                socket.path_mtu(host)?
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let stream = socket.stream(Errno::ENOPROTOOPT)?;
                let mut name = stream.options.congestion().name().into_bytes();
                name.resize(16, 0);
                return Ok(name);
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => mss(socket.stream(Errno::ENOPROTOOPT)?, host),
            (libc::IPPROTO_TCP, number::TCP_TIMESTAMP) => {
                socket.stream(Errno::ENOPROTOOPT)?;
                now.as_millis() as c_int
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO | libc::TCP_CC_INFO)
            | (libc::SOL_SOCKET, libc::SO_MEMINFO) => {
                return crate::info::report(socket, host, now, name, room);
            }
            _ => socket.number(level, name).ok_or(Errno::ENOPROTOOPT)?,
        };
        if level == libc::IPPROTO_IP && room < 4 && (0..=255).contains(&number) {
            return Ok(vec![number as u8]);
        }
        Ok(ints(&[number]))
    }
}

impl Socket {
    /// Sets an option of a plain number.
    fn set_number(&mut self, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
        match &mut self.kind {
            Kind::Stream(stream) if level == libc::IPPROTO_TCP => {
                if stream.options.set(name, value)? {
                    return Ok(());
                }
            }
            Kind::Stream(_) => {}
            Kind::Datagram(socket) => {
                datagram::check(self.family, socket.has_port(), (level, name), value)?;
            }
        }
        self.options.set(self.family, level, name, value)
    }

    /// The value of an option that is a plain number; `None` if it has none of that name.
    fn number(&self, level: c_int, name: c_int) -> Option<c_int> {
        let of_stream = match &self.kind {
            Kind::Stream(stream) if level == libc::IPPROTO_TCP => stream.options.value(name),
            _ => None,
        };
        of_stream.or_else(|| self.options.value(level, name))
    }

    /// The largest packet that its path carries, as far as is known.
    fn path_mtu(&self, host: &Host) -> Result<c_int, Errno> {
        let mtu = match &self.kind {
            Kind::Stream(stream) => {
                let info = stream.connection().and_then(|id| host.info(id).ok());
                info.map_or(host.config().device.mtu, |info| info.path_mtu_bytes).into()
            }
            Kind::Datagram(socket) => socket.path_mtu(host).ok_or(Errno::ENOTCONN)?,
        };
        Ok(mtu)
    }
}

fn mss(stream: &Stream, host: &Host) -> c_int {
    let state = stream.state(host);
    let asked = c_int::from(stream.options.mss);
    if asked != 0 && matches!(state, State::Closed | State::Listen) {
        return asked;
    }
    let info = stream.connection().and_then(|id| host.info(id).ok());
    match info.map(|info| crate::info::payload_mss(&info) as c_int) {
        Some(mss) if mss > 0 => mss,
        _ => MSS_DEFAULT,
    }
}

/// The number at `offset`.
fn int_at(value: &[u8], offset: usize) -> Result<c_int, Errno> {
    let bytes = value.get(offset..offset + 4).ok_or(Errno::EINVAL)?;
    Ok(c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn ints(values: &[c_int]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// A `struct timeval`; zero stands for ever.
fn timeout(value: &[u8]) -> Result<Option<Duration>, Errno> {
    let long = |at: usize| {
        let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(i64::from_ne_bytes).ok_or(Errno::EINVAL)
    };
    let (seconds, micros) = (long(0)?, long(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    let duration =
        Duration::from_secs(seconds.max(0) as u64) + Duration::from_micros(micros as u64);
    Ok((!duration.is_zero()).then_some(duration))
}

fn timeval(timeout: Option<Duration>) -> Vec<u8> {
    let timeout = timeout.unwrap_or_default();
    let seconds = (timeout.as_secs() as i64).to_ne_bytes();
    let micros = i64::from(timeout.subsec_micros()).to_ne_bytes();
    [seconds, micros].concat()
}
