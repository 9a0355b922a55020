//! Reading and writing a socket's stream, with the flags and errors of `recv(2)` and `send(2)`.
//! Sockets for datagrams have the same calls: see [`datagram`](crate::datagram).

use std::os::fd::RawFd;

use libc::c_int;
use lightwait_core::WriteError;
use lightwait_core::tcp::State;

use crate::attempt::{Attempt, done};
use crate::errno::Errno;
use crate::message::{Message, Read, Reading, Room, Writing};
use crate::socket::{Kind, Role};
use crate::world::World;

impl World {
    /// `recv(2)` and its relatives.
    ///
    /// # Errors
    /// `ENOTCONN` without a connection, `EAGAIN` when there is nothing and it must not block,
    /// `EFAULT` for a null pointer, or why the connection ended.
    pub fn read(
        &mut self,
        fd: RawFd,
        room: Room,
        flags: c_int,
        reading: &mut Reading,
    ) -> Attempt<Read> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        if socket.is_datagram() {
            return self.receive_datagram(fd, room, flags, reading);
        }
        socket.refresh(host, now);
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EINVAL);
        }
        let Some(id) = socket.connection() else {
            let error = socket.error.take();
            return match socket.role() {
                Some(Role::Listening(_)) => Err(Errno::ENOTCONN),
                _ => Err(error.unwrap_or(Errno::ENOTCONN)),
            };
        };
        let keep = flags & libc::MSG_PEEK != 0;
        let waits_for_all = flags & libc::MSG_WAITALL != 0 && !keep;
        let taken = reading.bytes.len() + reading.skipped;
        let available = host.readable_bytes(id).min(room.len - taken);
        if available > 0 {
            let passes_over = flags & libc::MSG_TRUNC != 0;
            if room.is_null && !passes_over {
                return Err(Errno::EFAULT);
            }
            let mut bytes = vec![0; available];
            let n = if keep { host.peek(id, &mut bytes)? } else { host.read(now, id, &mut bytes)? };
            bytes.truncate(n);
            if let (Kind::Stream(stream), false) = (&mut socket.kind, keep) {
                stream.bytes_read += n as u64;
            }
            if passes_over {
                reading.skipped += n;
            } else {
                reading.bytes.append(&mut bytes);
            }
        }
        let len = reading.bytes.len() + reading.skipped;
        let target = match waits_for_all {
            true => room.len,
            false => socket.options.receive_low_water().min(room.len),
        };
        let is_enough = len > 0 && len >= target;
        if is_enough || room.len == 0 {
            return finish(reading);
        }
        let is_connecting = matches!(host.state(id), State::SynSent | State::SynReceived);
        let at_end = !is_connecting && host.is_at_end(id);
        if len > 0 && (at_end || socket.is_over() || socket.read_shut) {
            return finish(reading);
        }
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if at_end || socket.is_over() || socket.read_shut {
            return finish(reading);
        }
        match socket.wait(flags, now, socket.options.receive_timeout, &mut reading.until) {
            Some(wait) => Ok(wait),
            None if len > 0 => finish(reading),
            None => Err(Errno::EAGAIN),
        }
    }

    /// `send(2)` and its relatives: all of `data`, or as much as fits if it must not block.
    /// `written` and `until` are kept between attempts. `data` is `None` for a null pointer.
    ///
    /// # Errors
    /// `EPIPE` if nothing can be sent any more, `EAGAIN` when nothing fits and it must not block,
    /// `EFAULT` for a null pointer, or why the connection ended.
    pub fn write(
        &mut self,
        fd: RawFd,
        data: Option<&[u8]>,
        flags: c_int,
        writing: &mut Writing,
    ) -> Attempt<usize> {
        let now = self.now();
        let (socket, host) = self.socket_and_host(fd)?;
        if socket.is_datagram() {
            return self.send_datagram(fd, &Message::of(data), flags, writing);
        }
        socket.refresh(host, now);
        let part = |writing: &Writing, error: Errno| match writing.written {
            0 => Err(error),
            n => done(n),
        };
        if let Some(error) = socket.error.filter(|_| writing.written == 0) {
            socket.error = None;
            return Err(error);
        }
        let Some(id) = socket.connection() else { return Err(Errno::EPIPE) };
        if socket.is_over() || socket.write_shut {
            return part(writing, Errno::EPIPE);
        }
        let is_connecting = matches!(host.state(id), State::SynSent | State::SynReceived);
        if !is_connecting {
            let Some(data) = data else { return Err(Errno::EFAULT) };
            if let (Kind::Stream(stream), true) = (&socket.kind, flags & libc::MSG_MORE != 0) {
                stream.hold_back(&socket.options, host, now);
            }
            let rest = &data[writing.written..];
            let outcome = if flags & libc::MSG_OOB != 0 {
                host.write_urgent(now, id, rest)
            } else if flags & libc::MSG_EOR != 0 {
                host.write_record(now, id, rest)
            } else {
                host.write(now, id, rest)
            };
            match outcome {
                Ok(n) => {
                    writing.written += n;
                    if let Kind::Stream(stream) = &mut socket.kind {
                        stream.bytes_written += n as u64;
                    }
                }
                Err(WriteError::WouldBlock) => {}
                Err(error) => return part(writing, error.into()),
            }
            if flags & libc::MSG_MORE == 0 {
                socket.apply_options(host, now);
            }
            if writing.written == data.len() {
                return done(writing.written);
            }
        }
        match socket.wait(flags, now, socket.options.send_timeout, &mut writing.until) {
            Some(wait) => Ok(wait),
            None => part(writing, Errno::EAGAIN),
        }
    }

    /// `sendto(2)` and `sendmsg(2)`. A stream has its peer, and sends nothing but bytes.
    ///
    /// # Errors
    /// Those of [`World::write`]. Of a datagram: `EMSGSIZE` if it is too long, `EDESTADDRREQ`
    /// without a receiver, `EACCES` to a broadcast without SO_BROADCAST.
    pub fn send(
        &mut self,
        fd: RawFd,
        message: &Message<'_>,
        flags: c_int,
        writing: &mut Writing,
    ) -> Attempt<usize> {
        if self.socket(fd)?.is_datagram() {
            return self.send_datagram(fd, message, flags, writing);
        }
        self.write(fd, message.data, flags, writing)
    }
}

impl World {
    /// Bytes that a write would take at once.
    ///
    /// # Errors
    /// Those of [`World::socket`].
    pub fn writable_bytes(&self, fd: RawFd) -> Result<usize, Errno> {
        let socket = self.socket(fd)?;
        let Some(id) = socket.connection() else { return Ok(0) };
        let (info, options) = (self.host.info(id)?, self.host.options(id)?);
        if !self.host.state(id).can_send() {
            return Ok(0);
        }
        Ok(options.send_buffer_bytes.saturating_sub(info.send_buffered_bytes) as usize)
    }
}

fn finish(reading: &mut Reading) -> Attempt<Read> {
    let bytes = std::mem::take(&mut reading.bytes);
    let len = bytes.len() + reading.skipped;
    done(Read { bytes, len, ..Read::default() })
}
