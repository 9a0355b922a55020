//! The calls on sockets, except those that move data or wait for several.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};

use super::buffers::{address, bytes, give, result};
use super::doors::{door, register, unregister};
use super::{getsockopt as option, kernel};
use crate::errno::Errno;

pub(super) unsafe extern "C" fn socket(
    userdata: *mut c_void,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let fd = door.call_now(|world| world.open_socket(domain, kind, protocol));
    if let Ok(fd) = fd {
        // SAFETY: as above.
        unsafe { register(userdata, fd) };
    }
    result(fd)
}

pub(super) unsafe extern "C" fn bind(
    userdata: *mut c_void,
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the interface's rules.
    let (door, to) = unsafe { (door(userdata), address(to, len)) };
    result(to.and_then(|to| door.call_now(|world| world.bind(fd, to))).map(|()| 0))
}

pub(super) unsafe extern "C" fn listen(userdata: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    result(door.call_now(|world| world.listen(fd, backlog)).map(|()| 0))
}

pub(super) unsafe extern "C" fn accept(
    userdata: *mut c_void,
    fd: c_int,
    peer: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let accepted = match door.call(|world| world.accept(fd)) {
        Ok(accepted) => accepted,
        Err(error) => return result(Err(error)),
    };
    // SAFETY: as above.
    unsafe { register(userdata, accepted.fd) };
    if peer.is_null() {
        return accepted.fd;
    }
    // SAFETY: as above.
    let given = unsafe { give(&accepted.peer, peer.cast(), len, false) };
    result(given.map(|()| accepted.fd))
}

pub(super) unsafe extern "C" fn connect(
    userdata: *mut c_void,
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: the interface's rules.
    let (door, to) = unsafe { (door(userdata), address(to, len)) };
    let mut is_first = true;
    let connected =
        to.and_then(|to| door.call(|world| world.connect(fd, to, std::mem::take(&mut is_first))));
    result(connected.map(|()| 0))
}

pub(super) unsafe extern "C" fn fcntl(
    userdata: *mut c_void,
    fd: c_int,
    command: c_int,
    argument: c_ulong,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    result(door.call_now(|world| world.fcntl(fd, command, argument)))
}

pub(super) unsafe extern "C" fn ioctl(
    userdata: *mut c_void,
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
) -> c_int {
    // A caller that holds requests as `int` may have spread the sign.
    let request = request & 0xffff_ffff;
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    if door.call_now(|world| Ok(!world.has_file(fd))) == Ok(true) {
        // SAFETY: the caller's own request on its own file.
        return result(unsafe { kernel::ioctl(fd, request, argument) });
    }
    let number: *mut c_int = argument.cast();
    // SAFETY: those requests that are served all take a pointer to an int.
    let given = (!number.is_null()).then(|| unsafe { number.read_unaligned() });
    let answer = door.call_now(|world| world.ioctl(fd, request, given));
    result(answer.and_then(|answer| {
        if let Some(answer) = answer {
            if number.is_null() {
                return Err(Errno::EFAULT);
            }
            // SAFETY: as above.
            unsafe { number.write_unaligned(answer) };
        }
        Ok(0)
    }))
}

pub(super) unsafe extern "C" fn close(userdata: *mut c_void, fd: c_int) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    if door.call_now(|world| Ok(!world.has_file(fd))) == Ok(true) {
        return result(kernel::close(fd).map(|()| 0));
    }
    let mut until = None;
    unregister(fd);
    result(door.call(|world| world.close(fd, &mut until)).map(|()| 0))
}

pub(super) unsafe extern "C" fn shutdown(userdata: *mut c_void, fd: c_int, how: c_int) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    result(door.call_now(|world| world.shutdown(fd, how)).map(|()| 0))
}

pub(super) unsafe extern "C" fn getsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    // SAFETY: as above.
    result(unsafe { option::option(door, fd, level, name, value, len) })
}

pub(super) unsafe extern "C" fn setsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the interface's rules.
    let (door, value) = unsafe { (door(userdata), bytes(value, len as usize)) };
    let value = value.ok_or(Errno::EFAULT);
    let set =
        value.and_then(|value| door.call_now(|world| world.set_option(fd, level, name, value)));
    result(set.map(|()| 0))
}
