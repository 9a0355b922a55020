//! `splice(2)` between a socket and a pipe; the pipe is the kernel's own.

use std::os::fd::RawFd;

use crate::abi::kernel;
use crate::attempt::{Attempt, Progress, done};
use crate::errno::Errno;
use crate::message::{Reading, Room, Writing};
use crate::socket::Socket;
use crate::world::World;

/// Bytes moved at most in one call.
const CHUNK: usize = 1 << 20;

impl World {
    /// Moves at most `len` bytes from a socket into a pipe, or from a pipe into a socket.
    ///
    /// # Errors
    /// `EINVAL` if not exactly one of them is a stream of ours; `EAGAIN` if nothing can be moved
    /// and it must not block; those of the socket and of the pipe.
    pub fn splice(&mut self, from: RawFd, to: RawFd, len: usize, flags: u32) -> Attempt<usize> {
        for fd in [from, to] {
            if self.socket(fd).is_ok_and(Socket::is_datagram) {
                return Err(Errno::EINVAL);
            }
        }
        let must_not_block = flags & libc::SPLICE_F_NONBLOCK != 0;
        let dont_wait = if must_not_block { libc::MSG_DONTWAIT } else { 0 };
        match (self.socket(from).is_ok(), self.socket(to).is_ok()) {
            (true, false) => self.splice_out(from, to, len, dont_wait),
            (false, true) => {
                let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
                self.splice_in(from, to, len, dont_wait | more)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn splice_out(&mut self, socket: RawFd, pipe: RawFd, len: usize, flags: i32) -> Attempt<usize> {
        let size = kernel::fcntl(pipe, libc::F_GETPIPE_SZ, 0)? as usize;
        let room = size.saturating_sub(kernel::readable_bytes(pipe)?);
        if room == 0 {
            return Err(Errno::EAGAIN);
        }
        let room = Room { len: len.min(room), is_null: false };
        match self.read(socket, room, flags, &mut Reading::default())? {
            Progress::Done(read) => {
                kernel::write(pipe, &read.bytes)?;
                done(read.len)
            }
            Progress::Wait(until) => Ok(Progress::Wait(until)),
        }
    }

    fn splice_in(&mut self, pipe: RawFd, socket: RawFd, len: usize, flags: i32) -> Attempt<usize> {
        if kernel::poll(pipe) & (libc::POLLIN | libc::POLLHUP) == 0 {
            return Err(Errno::EAGAIN);
        }
        let room = self.writable_bytes(socket)?;
        if room == 0 {
            // Returns the error, or asks to wait.
            return self.write(socket, Some(&[0]), flags, &mut Writing::default());
        }
        let mut bytes = vec![0; len.min(room).min(CHUNK)];
        let n = kernel::read(pipe, &mut bytes)?;
        self.write(socket, Some(&bytes[..n]), flags, &mut Writing::default())
    }
}
