//! System calls of the kernel, for file descriptors that are not ours, and to close those that are.
#![allow(unsafe_code, reason = "descriptors that others own are used as C does")]

use std::ffi::c_void;
use std::os::fd::RawFd;

use libc::{c_int, c_short, c_ulong, off_t, socklen_t};

use crate::errno::Errno;

/// The last error of a system call.
pub(super) fn last_error() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

fn checked(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| last_error())
}

/// Closes `fd`.
///
/// # Errors
/// Those of `close(2)`.
pub fn close(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: a number cannot be misused; the caller has taken it out of our table.
    checked(unsafe { libc::close(fd) } as isize).map(drop)
}

/// Reads from `fd`.
///
/// # Errors
/// Those of `read(2)`.
pub fn read(fd: RawFd, out: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for its length.
    checked(unsafe { libc::read(fd, out.as_mut_ptr().cast(), out.len()) })
}

/// Writes to `fd`.
///
/// # Errors
/// Those of `write(2)`.
pub fn write(fd: RawFd, data: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for its length.
    checked(unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) })
}

/// Every bit of `poll(2)` that is set for `fd` now.
pub fn poll(fd: RawFd) -> c_short {
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
    let mut file = libc::pollfd { fd, events: all, revents: 0 };
    // SAFETY: one valid entry.
    match unsafe { libc::poll(&raw mut file, 1, 0) } {
        1 => file.revents,
        _ => 0,
    }
}

/// A pipe: the end to read from, the end to write to.
///
/// # Errors
/// Those of `pipe(2)`.
pub fn pipe() -> Result<[RawFd; 2], Errno> {
    let mut ends = [-1; 2];
    // SAFETY: room for two.
    checked(unsafe { libc::pipe(ends.as_mut_ptr()) } as isize)?;
    Ok(ends)
}

/// `fcntl` with a number.
///
/// # Errors
/// Those of `fcntl(2)`.
pub fn fcntl(fd: RawFd, command: c_int, argument: c_ulong) -> Result<c_int, Errno> {
    // SAFETY: only commands that take a number, or none, are passed here.
    let result = unsafe { libc::fcntl(fd, command, argument) };
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

/// Bytes that can be read from a pipe.
///
/// # Errors
/// Those of `ioctl(2)`.
pub fn readable_bytes(fd: RawFd) -> Result<usize, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: FIONREAD stores an int.
    checked(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) } as isize)?;
    Ok(bytes.max(0) as usize)
}

/// `ioctl`, unchanged.
///
/// # Safety
/// `argument` must be what the request wants.
pub(super) unsafe fn ioctl(
    fd: RawFd,
    request: c_ulong,
    argument: *mut c_void,
) -> Result<c_int, Errno> {
    // SAFETY: promised by the caller.
    let result = unsafe { libc::ioctl(fd, request, argument) };
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

/// `getsockopt` of the kernel itself, past the function of that name, which may be ours.
///
/// # Safety
/// As for `getsockopt(2)`.
pub(super) unsafe fn getsockopt(
    fd: RawFd,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int }
}

/// True if `fd` is open on the null device, as all of ours are. The caller may have closed one
/// behind our back, and another file may have the number by now.
pub(super) fn is_null_device(fd: RawFd) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: filled in, since the call succeeded.
    let status = unsafe { status.assume_init() };
    status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 3)
}

/// Reads from `fd`, at the given offset or at the file's own position.
pub(super) fn read_at(fd: RawFd, out: &mut [u8], at: Option<off_t>) -> Result<usize, Errno> {
    match at {
        None => read(fd, out),
        // SAFETY: the slice is valid for its length.
        Some(at) => checked(unsafe { libc::pread(fd, out.as_mut_ptr().cast(), out.len(), at) }),
    }
}

/// Gives back `len` bytes that were read at the file's position.
pub(super) fn step_back(fd: RawFd, len: usize, stands: bool) {
    if stands && len > 0 {
        // SAFETY: plain numbers. A file that cannot seek has lost them, as with `splice`.
        let _lost = unsafe { libc::lseek(fd, -(len as off_t), libc::SEEK_CUR) };
    }
}
