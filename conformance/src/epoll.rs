//! `epoll(7)`: level-triggered, edge-triggered and one-shot.
//!
//! A level-triggered file is reported while any bit that was asked for is set; an edge-triggered
//! one once for each piece of news about it; a one-shot one once until it is armed again.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use libc::{c_int, c_short};
use lightwait_core::{Instant, Readiness};

use crate::door::{Attempt, done};
use crate::errno::Errno;
use crate::socket::open_descriptor;
use crate::world::{File, World};

/// Bits that steer, and are never reported.
const STEERING: u32 =
    (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;

/// Bits that are reported whether they were asked for or not.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// An event as `epoll_wait` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is.
    pub events: u32,
    /// What the caller wants to be told with it.
    pub data: u64,
}

/// One file that is watched.
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

    /// The host had something to tell of `fd`.
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

/// The bits that a notice of the host may concern.
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
    /// What is to be reported when `bits` are set.
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

impl World {
    /// `epoll_create(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a size that is not positive.
    pub fn open_epoll(&mut self, size: c_int) -> Result<RawFd, Errno> {
        if size <= 0 {
            return Err(Errno::EINVAL);
        }
        let fd = open_descriptor()?;
        self.add_file(fd, File::Epoll(Epoll::default()));
        Ok(fd)
    }

    /// `epoll_ctl(2)`.
    ///
    /// # Errors
    /// `EBADF`, `EEXIST`, `ENOENT`, `EINVAL`.
    pub fn epoll_control(
        &mut self,
        epoll: RawFd,
        op: c_int,
        fd: RawFd,
        event: Option<Report>,
    ) -> Result<(), Errno> {
        if epoll == fd {
            return Err(Errno::EINVAL);
        }
        if op != libc::EPOLL_CTL_DEL && self.poll_bits(fd) & libc::POLLNVAL != 0 {
            return Err(Errno::EBADF);
        }
        let event = match event {
            Some(event) => event,
            None if op == libc::EPOLL_CTL_DEL => Report { events: 0, data: 0 },
            None => return Err(Errno::EFAULT),
        };
        self.epoll(epoll)?.watch(op, fd, event.events, event.data)
    }

    /// `epoll_wait(2)`: at most `room` reports. `until` is kept between attempts.
    ///
    /// # Errors
    /// `EINVAL` if `room` is not positive, or `fd` something else.
    pub fn epoll_wait(
        &mut self,
        fd: RawFd,
        room: c_int,
        timeout_ms: c_int,
        until: &mut Option<Instant>,
    ) -> Attempt<Vec<Report>> {
        if room <= 0 {
            return Err(Errno::EINVAL);
        }
        let reports = self.epoll_reports(fd, room as usize, true)?;
        match self.patience(timeout_ms, until) {
            Some(wait) if reports.is_empty() => Ok(wait),
            _ => done(reports),
        }
    }

    /// True if waiting on the epoll instance would report something.
    pub(crate) fn epoll_is_ready(&mut self, fd: RawFd) -> bool {
        self.epoll_reports(fd, 1, false).is_ok_and(|reports| !reports.is_empty())
    }

    fn epoll_reports(
        &mut self,
        fd: RawFd,
        room: usize,
        consume: bool,
    ) -> Result<Vec<Report>, Errno> {
        let epoll = self.epoll(fd)?;
        let first = epoll.next;
        let mut order: Vec<RawFd> = epoll.watched.range(first..).map(|(fd, _)| *fd).collect();
        order.extend(epoll.watched.range(..first).map(|(fd, _)| *fd));
        let mut reports = Vec::new();
        for file in order {
            // An instance that watches another one is looked at one level deep.
            let is_epoll = self.has_file(file) && self.socket(file).is_err();
            let bits = if is_epoll { 0 } else { self.poll_bits(file) };
            let epoll = self.epoll(fd)?;
            let Some(watched) = epoll.watched.get_mut(&file) else { continue };
            let Some(report) = watched.report(bits) else { continue };
            if consume {
                watched.on_reported();
                epoll.next = file.saturating_add(1);
            }
            reports.push(report);
            if reports.len() == room {
                break;
            }
        }
        Ok(reports)
    }
}
