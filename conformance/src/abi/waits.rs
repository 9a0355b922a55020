//! The calls on time and packets, and those that wait for several files at once.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{epoll_event, nfds_t, off_t, pollfd, size_t, timeval, useconds_t};

use super::buffers::{bytes, copy_out, result};
use super::doors::{door, register};
use super::kernel;
use crate::epoll::Report;
use crate::errno::Errno;
use crate::poll::Polled;

pub(super) unsafe extern "C" fn netdev_send(
    userdata: *mut c_void,
    packet: *const c_void,
    len: size_t,
) -> c_int {
    // SAFETY: the interface's rules.
    let (door, packet) = unsafe { (door(userdata), bytes(packet, len)) };
    result(packet.ok_or(Errno::EFAULT).map(|packet| {
        door.send(packet);
        0
    }))
}

pub(super) unsafe extern "C" fn netdev_receive(
    userdata: *mut c_void,
    to: *mut c_void,
    len: *mut size_t,
    time_usecs: *mut i64,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    if to.is_null() || len.is_null() || time_usecs.is_null() {
        return result(Err(Errno::EFAULT));
    }
    let (packet, at) = match door.receive() {
        Some((packet, at)) => (packet, at),
        None => (Vec::new(), door.look(crate::world::World::now)),
    };
    // SAFETY: not null, and valid by the interface's rules; no more is copied than there is room.
    unsafe {
        let given = &packet[..packet.len().min(*len)];
        copy_out(given, to);
        *len = given.len();
        *time_usecs = (at.as_nanos() / 1_000) as i64;
    }
    0
}

pub(super) unsafe extern "C" fn usleep(userdata: *mut c_void, micros: useconds_t) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    door.pass(Duration::from_micros(micros.into()));
    0
}

pub(super) unsafe extern "C" fn gettimeofday(
    userdata: *mut c_void,
    to: *mut timeval,
    _zone: *mut c_void,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let micros = door.time().as_nanos() / 1_000;
    if !to.is_null() {
        let time = timeval {
            tv_sec: (micros / 1_000_000) as libc::time_t,
            tv_usec: (micros % 1_000_000) as libc::suseconds_t,
        };
        // SAFETY: not null, and valid by the interface's rules.
        unsafe { to.write(time) };
    }
    0
}

pub(super) unsafe extern "C" fn poll(
    userdata: *mut c_void,
    files: *mut pollfd,
    len: nfds_t,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    if files.is_null() && len > 0 {
        return result(Err(Errno::EFAULT));
    }
    let files: &mut [pollfd] = if len == 0 {
        &mut []
    } else {
        // SAFETY: not null, and valid by the interface's rules.
        unsafe { std::slice::from_raw_parts_mut(files, len as usize) }
    };
    let polled = |file: &pollfd| Polled { fd: file.fd, wanted: file.events, found: 0 };
    let mut all: Vec<Polled> = files.iter().map(polled).collect();
    let mut until = None;
    let outcome = door.call(|world| world.poll(&mut all, timeout_ms, &mut until));
    for (file, polled) in files.iter_mut().zip(&all) {
        file.revents = polled.found;
    }
    result(outcome)
}

pub(super) unsafe extern "C" fn epoll_create(userdata: *mut c_void, size: c_int) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let fd = door.call_now(|world| world.open_epoll(size));
    if let Ok(fd) = fd {
        // SAFETY: as above.
        unsafe { register(userdata, fd) };
    }
    result(fd)
}

pub(super) unsafe extern "C" fn epoll_ctl(
    userdata: *mut c_void,
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let event = (!event.is_null()).then(|| {
        // SAFETY: not null, and valid by the interface's rules.
        let event = unsafe { event.read_unaligned() };
        Report { events: event.events, data: event.u64 }
    });
    result(door.call_now(|world| world.epoll_control(epoll, op, fd, event)).map(|()| 0))
}

pub(super) unsafe extern "C" fn epoll_wait(
    userdata: *mut c_void,
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    if events.is_null() {
        return result(Err(Errno::EFAULT));
    }
    let mut until = None;
    let reports = door.call(|world| world.epoll_wait(epoll, room, timeout_ms, &mut until));
    result(reports.map(|reports| {
        for (i, report) in reports.iter().enumerate() {
            let event = epoll_event { events: report.events, u64: report.data };
            // SAFETY: there are no more of them than room, by the interface's rules.
            unsafe { events.add(i).write_unaligned(event) };
        }
        reports.len() as c_int
    }))
}

pub(super) unsafe extern "C" fn pipe(_userdata: *mut c_void, ends: *mut c_int) -> c_int {
    if ends.is_null() {
        return result(Err(Errno::EFAULT));
    }
    result(kernel::pipe().map(|pipe| {
        // SAFETY: not null, and room for two by the interface's rules.
        unsafe {
            ends.write(pipe[0]);
            ends.add(1).write(pipe[1]);
        }
        0
    }))
}

pub(super) unsafe extern "C" fn splice(
    userdata: *mut c_void,
    from: c_int,
    _from_offset: *mut off_t,
    to: c_int,
    _to_offset: *mut off_t,
    len: size_t,
    flags: u32,
) -> c_int {
    // Neither a socket nor a pipe has offsets; the caller passes pointers to zeros for none.
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let moved = door.call(|world| world.splice(from, to, len, flags));
    result(moved.map(|moved| moved as c_int))
}
