//! Reading and writing a socket's stream, with the flags and errors of `recv(2)` and `send(2)`.

use std::os::fd::RawFd;

use libc::c_int;
use lightwait_core::WriteError;
use lightwait_core::tcp::State;

use crate::attempt::{Attempt, Progress, done};
use crate::errno::Errno;
use crate::socket::Role;
use crate::world::World;

/// The room for read bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many bytes fit.
    pub len: usize,
    /// The pointer is null.
    pub is_null: bool,
}

/// The state of a read between attempts.
#[derive(Debug, Default)]
pub struct Reading {
    bytes: Vec<u8>,
    /// Bytes passed over with MSG_TRUNC.
    skipped: usize,
    until: Option<lightwait_core::Instant>,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The bytes for the caller's buffer.
    pub bytes: Vec<u8>,
    /// The return value of the call: with MSG_TRUNC it may exceed the number of bytes.
    pub len: usize,
}

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
        socket.refresh(host, now);
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EINVAL);
        }
        let must_not_block = socket.nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let Some(id) = socket.connection() else {
            let error = socket.error.take();
            return match socket.role {
                Role::Listening(_) => Err(Errno::ENOTCONN),
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
            socket.bytes_read += if keep { 0 } else { n as u64 };
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
        if must_not_block {
            return if len > 0 { finish(reading) } else { Err(Errno::EAGAIN) };
        }
        let limit = socket.options.receive_timeout;
        let until = limit.map(|limit| *reading.until.get_or_insert(now + limit));
        if until.is_some_and(|until| now >= until) {
            return if len > 0 { finish(reading) } else { Err(Errno::EAGAIN) };
        }
        Ok(Progress::Wait(until))
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
        socket.refresh(host, now);
        let must_not_block = socket.nonblocking || flags & libc::MSG_DONTWAIT != 0;
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
            if flags & libc::MSG_MORE != 0 {
                socket.options.hold_back(host, now, id);
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
                    socket.bytes_written += n as u64;
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
        if must_not_block {
            return part(writing, Errno::EAGAIN);
        }
        let limit = socket.options.send_timeout;
        let until = limit.map(|limit| *writing.until.get_or_insert(now + limit));
        if until.is_some_and(|until| now >= until) {
            return part(writing, Errno::EAGAIN);
        }
        Ok(Progress::Wait(until))
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

/// The state of a write between attempts.
#[derive(Debug, Default)]
pub struct Writing {
    /// Bytes taken so far.
    pub written: usize,
    until: Option<lightwait_core::Instant>,
}

fn finish(reading: &mut Reading) -> Attempt<Read> {
    let bytes = std::mem::take(&mut reading.bytes);
    let len = bytes.len() + reading.skipped;
    done(Read { bytes, len })
}
