//! The events on a file: the bits of `poll(2)`, as Linux sets them in each state.

use std::os::fd::RawFd;
use std::time::Duration;

use libc::{c_int, c_short};
use lightwait_core::tcp::State;
use lightwait_core::{Host, Instant, Readiness};

use crate::abi::kernel;
use crate::attempt::{Attempt, Progress, done};
use crate::datagram::Datagram;
use crate::socket::{Kind, Role, Socket, Stream};
use crate::world::World;

/// Bits that are reported whether requested or not.
pub const ALWAYS: c_short = libc::POLLERR | libc::POLLHUP;

const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM;
const WRITABLE: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// One file to be polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The file descriptor; a negative one is skipped.
    pub fd: RawFd,
    /// The requested bits.
    pub wanted: c_short,
    /// The bits that are set.
    pub found: c_short,
}

impl Socket {
    /// Every bit that is set at `now`.
    pub fn poll_bits(&self, host: &Host, now: Instant) -> c_short {
        let error = if self.error.is_some() { libc::POLLERR } else { 0 };
        let of_kind = match &self.kind {
            Kind::Stream(stream) => self.stream_bits(stream, host, now),
            Kind::Datagram(datagrams) => self.datagram_bits(datagrams, host),
        };
        error | of_kind
    }

    fn stream_bits(&self, stream: &Stream, host: &Host, now: Instant) -> c_short {
        let mut bits = 0;
        let id = match stream.role {
            Role::Idle => return WRITABLE | libc::POLLHUP,
            Role::Listening(id) => {
                let waits = host.accept_queue_len(id) > 0;
                return if waits { READABLE } else { 0 };
            }
            Role::Connecting(id) | Role::Connected(id) => id,
        };
        let state = host.state(id);
        if matches!(state, State::SynSent | State::SynReceived) {
            return bits;
        }
        let peer_is_done = host.is_at_end(id) || !state.can_receive();
        let read_closed = self.read_shut || self.is_over() || peer_is_done;
        let write_closed = self.write_shut || self.is_over();
        if (read_closed && write_closed) || self.is_over() {
            bits |= libc::POLLHUP;
        }
        if read_closed {
            bits |= READABLE | libc::POLLRDHUP;
        }
        if host.readable_bytes(id) >= self.options.receive_low_water() {
            bits |= READABLE;
        }
        let ready = host.readiness(now, id);
        if write_closed || ready.contains(Readiness::WRITABLE) {
            bits |= WRITABLE;
        }
        if ready.contains(Readiness::URGENT) {
            bits |= libc::POLLPRI;
        }
        bits
    }
}

impl Socket {
    /// Its error is taken from the engine already.
    fn datagram_bits(&self, datagrams: &Datagram, host: &Host) -> c_short {
        let ready = datagrams.id().map_or(Readiness::WRITABLE, |id| host.udp_readiness(id));
        let mut bits = 0;
        if ready.contains(Readiness::READABLE) {
            bits |= READABLE;
        }
        if ready.contains(Readiness::WRITABLE) {
            // Linux sets the band of priorities, too, where it sends datagrams.
            bits |= WRITABLE | libc::POLLWRBAND;
        }
        if self.read_shut {
            bits |= READABLE | libc::POLLRDHUP;
        }
        if self.read_shut && self.write_shut {
            bits |= libc::POLLHUP;
        }
        bits
    }
}

impl World {
    /// Every bit that is set for `fd`: a file of ours, or of the kernel's.
    pub fn poll_bits(&mut self, fd: RawFd) -> c_short {
        if !self.has_file(fd) {
            return kernel::poll(fd);
        }
        if self.socket(fd).is_err() {
            return if self.epoll_is_ready(fd) { READABLE } else { 0 };
        }
        let now = self.now();
        match self.socket_and_host(fd) {
            Ok((socket, host)) => {
                socket.refresh(host, now);
                socket.poll_bits(host, now)
            }
            Err(_) => libc::POLLNVAL,
        }
    }

    /// `poll(2)`. `timeout_ms` below zero is for ever; `until` is kept between attempts.
    ///
    /// # Errors
    /// None.
    pub fn poll(
        &mut self,
        files: &mut [Polled],
        timeout_ms: c_int,
        until: &mut Option<Instant>,
    ) -> Attempt<c_int> {
        let mut ready = 0;
        for file in files.iter_mut() {
            file.found = match file.fd {
                ..0 => 0,
                fd => self.poll_bits(fd) & (file.wanted | ALWAYS | libc::POLLNVAL),
            };
            ready += c_int::from(file.found != 0);
        }
        match self.patience(timeout_ms, until) {
            Some(wait) if ready == 0 => Ok(wait),
            _ => done(ready),
        }
    }

    /// How to wait; `None` if the time is over.
    pub(crate) fn patience<T>(
        &self,
        timeout_ms: c_int,
        until: &mut Option<Instant>,
    ) -> Option<Progress<T>> {
        let Ok(timeout_ms) = u64::try_from(timeout_ms) else { return Some(Progress::Wait(None)) };
        let now = self.now();
        let until = *until.get_or_insert(now + Duration::from_millis(timeout_ms));
        (now < until).then_some(Progress::Wait(Some(until)))
    }
}
