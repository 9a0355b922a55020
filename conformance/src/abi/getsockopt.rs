//! `getsockopt` of the C library, for callers that have preloaded this one.
#![allow(unsafe_code, reason = "takes the place of a function of the C library")]

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use super::buffers::{give, result};
use super::doors::door_of;
use super::kernel;
use crate::door::Door;
use crate::errno::Errno;

/// `getsockopt(2)`: of a socket of ours, or else of the kernel's.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    match door_of(fd).filter(|_| kernel::is_null_device(fd)) {
        // SAFETY: promised by the caller.
        Some(door) => result(unsafe { option(&door, fd, level, name, value, len) }),
        // SAFETY: promised by the caller.
        None => unsafe { kernel::getsockopt(fd, level, name, value, len) },
    }
}

/// Gives the caller the value of an option.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn option(
    door: &Door,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<c_int, Errno> {
    if len.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, and valid by the caller's promise.
    let room = unsafe { *len } as usize;
    if room > c_int::MAX as usize {
        return Err(Errno::EINVAL);
    }
    let bytes = door.call_now(|world| world.option(fd, level, name, room))?;
    // SAFETY: promised by the caller.
    unsafe { give(&bytes, value, len, true) }?;
    Ok(0)
}
