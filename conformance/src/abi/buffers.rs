//! The caller's memory: turns pointers and lengths into slices, copies results back, and sets
//! errno.
#![allow(unsafe_code, reason = "the caller's memory is reached by the pointers that it passes")]

use std::ffi::c_void;
use std::os::raw::c_int;

use libc::{iovec, sockaddr, socklen_t, ssize_t};

use crate::errno::Errno;
use crate::message::Room;

/// Converts `result` to C: the value, or -1 with errno set.
pub(super) fn result(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|error| fail(error) as c_int)
}

/// Converts a count of bytes to C: the count, or -1 with errno set.
pub(super) fn count(result: Result<usize, Errno>) -> ssize_t {
    result.map_or_else(fail, |count| count as ssize_t)
}

fn fail(error: Errno) -> ssize_t {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = error.0 };
    -1
}

/// `len` bytes at `start`; `None` if the pointer is null. An empty slice needs no pointer.
///
/// # Safety
/// If not null, `start` must point to `len` initialised bytes that do not change meanwhile.
pub(super) unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    match (start.is_null(), len) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: not null, and the rest is promised by the caller.
        (false, _) => Some(unsafe { std::slice::from_raw_parts(start.cast(), len) }),
    }
}

/// Copies `from` to `to`, which has room for all of it.
///
/// # Safety
/// `to` must point to as much memory that may be written.
pub(super) unsafe fn copy_out(from: &[u8], to: *mut c_void) {
    if !from.is_empty() {
        // SAFETY: promised by the caller; memory of ours and of the caller's do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), from.len()) };
    }
}

/// The pieces of a vector.
///
/// # Safety
/// If not null, `vector` must point to `len` of them.
pub(super) unsafe fn pieces<'a>(vector: *const iovec, len: usize) -> Result<&'a [iovec], Errno> {
    if len > libc::UIO_MAXIOV as usize {
        return Err(Errno::EINVAL);
    }
    match (vector.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EFAULT),
        // SAFETY: not null, and the rest is promised by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(vector, len) }),
    }
}

/// The total room of the pieces.
pub(super) fn room(pieces: &[iovec]) -> Room {
    let is_null = |piece: &iovec| piece.iov_base.is_null() && piece.iov_len > 0;
    Room {
        len: pieces.iter().map(|piece| piece.iov_len).sum(),
        is_null: pieces.iter().any(is_null),
    }
}

/// All bytes of the pieces; `None` if one of the pointers is null.
///
/// # Safety
/// Each must hold as many initialised bytes as it says.
pub(super) unsafe fn gather(pieces: &[iovec]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for piece in pieces {
        // SAFETY: promised by the caller.
        all.extend_from_slice(unsafe { bytes(piece.iov_base, piece.iov_len) }?);
    }
    Some(all)
}

/// Spreads `from` over the pieces, which have room for all of it.
///
/// # Safety
/// Each must point to as much memory that may be written as it says.
pub(super) unsafe fn scatter(mut from: &[u8], pieces: &[iovec]) {
    for piece in pieces {
        let (head, rest) = from.split_at(piece.iov_len.min(from.len()));
        // SAFETY: promised by the caller.
        unsafe { copy_out(head, piece.iov_base) };
        from = rest;
    }
}

/// The bytes of an address.
///
/// # Safety
/// If not null, `address` must point to `len` initialised bytes.
pub(super) unsafe fn address<'a>(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<&'a [u8], Errno> {
    // SAFETY: promised by the caller.
    unsafe { bytes(address.cast(), len as usize) }.ok_or(Errno::EFAULT)
}

/// Copies `value` to a caller that has `*len` bytes of room, cut to that room. `*len` becomes the
/// full length of the value, or with `cut` the length of the copy.
///
/// # Safety
/// `len`, if not null, must be valid, and `to`, if not null, point to that much memory.
pub(super) unsafe fn give(
    value: &[u8],
    to: *mut c_void,
    len: *mut socklen_t,
    cut: bool,
) -> Result<(), Errno> {
    if len.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not null, and the rest is promised by the caller.
    let room = unsafe { *len } as usize;
    let given = &value[..value.len().min(room)];
    if to.is_null() && !given.is_empty() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: `given` is not longer than the room.
    unsafe { copy_out(given, to) };
    let told = if cut { given.len() } else { value.len() };
    // SAFETY: as above.
    unsafe { *len = told as socklen_t };
    Ok(())
}
