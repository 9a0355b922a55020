//! Calls that packetdrill makes through libc even when a stack stands behind the interface.
#![allow(unsafe_code, reason = "libc, as the original calls it")]

use std::ffi::{CString, c_int};
use std::io::Error;

use crate::door::Answer;

fn answer(value: impl Into<i64>) -> Answer {
    Answer { value: value.into(), errno: Error::last_os_error().raw_os_error().unwrap_or(0) }
}

/// Every descriptor is a real one, for it is closed here at the end.
pub(crate) fn close(fd: c_int) -> Result<(), Error> {
    // SAFETY: the caller owns the descriptor.
    if unsafe { libc::close(fd) } == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// The socket options that Python code reads; the library under test answers in libc's place.
pub(crate) fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    length: usize,
) -> Result<Vec<u8>, Error> {
    let mut value = vec![0; length];
    let mut written = libc::socklen_t::try_from(length).unwrap_or(0);
    // SAFETY: `value` has room for `written` bytes.
    let result =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut written) };
    if result < 0 {
        return Err(Error::last_os_error());
    }
    value.truncate(written as usize);
    Ok(value)
}

pub(crate) fn open(path: &str, flags: c_int) -> Answer {
    let Ok(path) = CString::new(path) else { return Answer { value: -1, errno: libc::EINVAL } };
    // SAFETY: a path that ends with NUL.
    answer(unsafe { libc::open(path.as_ptr(), flags) })
}

pub(crate) fn sendfile(to: c_int, from: c_int, mut offset: i64, count: usize) -> Answer {
    // SAFETY: the offset outlives the call.
    let sent = unsafe { libc::sendfile(to, from, &raw mut offset, count) };
    answer(i64::try_from(sent).unwrap_or(-1))
}
