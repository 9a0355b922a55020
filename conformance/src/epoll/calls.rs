//! The calls of `epoll(7)`: `epoll_create`, `epoll_ctl` and `epoll_wait`.

use std::os::fd::RawFd;

use libc::c_int;
use lightwait_core::Instant;

use super::{Epoll, Report};
use crate::attempt::{Attempt, done};
use crate::errno::Errno;
use crate::socket::open_descriptor;
use crate::world::{File, World};

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
