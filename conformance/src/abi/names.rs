//! `getsockname` and `getpeername` of the C library, for callers that have preloaded this one.
#![allow(unsafe_code, reason = "takes the place of functions of the C library")]

use std::ffi::{c_int, c_long};

use libc::{sockaddr, socklen_t};

use super::buffers::{give, result};
use super::doors::door_of;
use super::kernel;
use crate::errno::Errno;
use crate::world::World;

/// `getsockname(2)`: of a socket of ours, or else of the kernel's.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { tell(libc::SYS_getsockname, World::local_name, fd, name, len) }
}

/// `getpeername(2)`: of a socket of ours, or else of the kernel's.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { tell(libc::SYS_getpeername, World::peer_name, fd, name, len) }
}

/// # Safety
/// As for the system call `number`.
unsafe fn tell(
    number: c_long,
    name_of: fn(&World, c_int) -> Result<Vec<u8>, Errno>,
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(door) = door_of(fd).filter(|_| kernel::is_null_device(fd)) else {
        // SAFETY: promised by the caller.
        return unsafe { libc::syscall(number, fd, name, len) as c_int };
    };
    let found = door.call_now(|world| name_of(world, fd));
    // SAFETY: promised by the caller.
    result(found.and_then(|found| unsafe { give(&found, name.cast(), len, false) }).map(|()| 0))
}
