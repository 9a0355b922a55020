//! `sendfile` of the C library, for callers that have preloaded this one. packetdrill's interface
//! has no such function, and the null device would swallow the file.
#![allow(unsafe_code, reason = "takes the place of a function of the C library")]

use std::ffi::c_int;

use libc::{off_t, size_t, ssize_t};

use super::buffers::count;
use super::doors::door_of;
use super::kernel;
use crate::door::Door;
use crate::errno::Errno;
use crate::message::Writing;

/// Bytes read from the file at a time.
const CHUNK: usize = 1 << 18;

/// `sendfile(2)`: to a socket of ours, or else the kernel's.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    let Some(door) = door_of(to).filter(|_| kernel::is_null_device(to)) else {
        // SAFETY: promised by the caller.
        return unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, len) as ssize_t };
    };
    // SAFETY: if not null, valid by the caller's promise.
    let mut at = unsafe { offset.as_ref() }.copied();
    let sent = send(&door, to, from, &mut at, len);
    if let (Some(at), false) = (at, offset.is_null()) {
        // SAFETY: as above.
        unsafe { offset.write(at) };
    }
    count(sent)
}

/// `sendfile64(2)`: offsets have 64 bits either way, so it is [`sendfile`].
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    len: size_t,
) -> ssize_t {
    // SAFETY: promised by the caller.
    unsafe { sendfile(to, from, offset, len) }
}

fn send(
    door: &Door,
    to: c_int,
    from: c_int,
    at: &mut Option<off_t>,
    len: usize,
) -> Result<usize, Errno> {
    // Linux makes several datagrams of a file by MSG_MORE.
    door.call_now(|world| world.socket(to)?.stream(Errno::EINVAL).map(drop))?;
    let mut sent = 0;
    while sent < len {
        let mut bytes = vec![0; (len - sent).min(CHUNK)];
        let read = kernel::read_at(from, &mut bytes, *at)?;
        if read == 0 {
            break;
        }
        let mut writing = Writing::default();
        let more = if sent + read < len { libc::MSG_MORE } else { 0 };
        let outcome = door.call(|world| world.write(to, Some(&bytes[..read]), more, &mut writing));
        let written = match outcome {
            Ok(written) => written,
            Err(_) if sent > 0 => 0,
            Err(error) => {
                kernel::step_back(from, read, at.is_none());
                return Err(error);
            }
        };
        sent += written;
        if let Some(at) = at {
            *at += written as off_t;
        }
        if written < read {
            kernel::step_back(from, read - written, at.is_none());
            break;
        }
    }
    Ok(sent)
}
