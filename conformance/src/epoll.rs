//! `epoll(7)`: level-triggered, edge-triggered and one-shot.
//!
//! A level-triggered file is reported while any requested bit is set. An edge-triggered one is
//! reported once for each piece of news about it, and a one-shot one once until it is armed again.

mod calls;

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use libc::{c_int, c_short};
use lightwait_core::Readiness;

use crate::errno::Errno;

/// Bits that set the mode, and are never reported.
const STEERING: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;

/// Bits that are reported whether requested or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// An event as `epoll_wait` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The bits that are set.
    pub events: u32,
    /// The caller's data for this file.
    pub data: u64,
}

/// A watched file.
#[derive(Clone, Copy, Debug)]
struct Watched {
    wanted: u32,
    data: u64,
    /// There is news that has not been reported.
    has_news: bool,
    /// The bits when they were last looked at.
    before: u32,
    /// One-shot, and it has been reported.
    is_disarmed: bool,
}

/// An epoll instance.
#[derive(Debug, Default)]
pub struct Epoll {
    watched: BTreeMap<RawFd, Watched>,
    /// Where the next report begins, so that no file keeps the others out.
    next: RawFd,
}

impl Epoll {
    /// `fd` is closed.
    pub fn forget(&mut self, fd: RawFd) {
        self.watched.remove(&fd);
    }

    /// The host has news of `fd`.
    pub fn on_notice(&mut self, fd: RawFd, readiness: Readiness) {
        if let Some(watched) = self.watched.get_mut(&fd)
            && bits_of(readiness) & (watched.wanted | ALWAYS) != 0
        {
            watched.has_news = true;
        }
    }

    fn watch(&mut self, op: c_int, fd: RawFd, wanted: u32, data: u64) -> Result<(), Errno> {
        let fresh = Watched { wanted, data, has_news: true, before: 0, is_disarmed: false };
        match (op, self.watched.contains_key(&fd)) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno::EEXIST),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => return Err(Errno::ENOENT),
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _) => {
                self.watched.insert(fd, fresh);
            }
            (libc::EPOLL_CTL_DEL, _) => {
                self.watched.remove(&fd);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

/// The bits that an event of the host may concern.
fn bits_of(readiness: Readiness) -> u32 {
    let bits = [
        (Readiness::READABLE, libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLRDHUP),
        (Readiness::WRITABLE, libc::EPOLLOUT | libc::EPOLLWRNORM),
        (Readiness::URGENT, libc::EPOLLPRI),
        (Readiness::CLOSED, libc::EPOLLERR | libc::EPOLLHUP),
    ];
    bits.iter()
        .filter(|(bit, _)| readiness.contains(*bit))
        .fold(0, |all, (_, bits)| all | *bits as u32)
}

impl Watched {
    /// The bits to report when `bits` are set.
    fn report(&mut self, bits: c_short) -> Option<Report> {
        // The bits of poll and of epoll have the same values.
        let events = u32::from(bits as u16) & ((self.wanted & !STEERING) | ALWAYS);
        self.has_news |= events & !self.before != 0;
        self.before = events;
        let is_edge = self.wanted & libc::EPOLLET as u32 != 0;
        if events == 0 || self.is_disarmed || (is_edge && !self.has_news) {
            return None;
        }
        Some(Report { events, data: self.data })
    }

    fn on_reported(&mut self) {
        self.has_news = false;
        self.is_disarmed = self.wanted & libc::EPOLLONESHOT as u32 != 0;
    }
}
