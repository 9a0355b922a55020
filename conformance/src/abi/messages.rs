//! The calls that move data, from and to the caller's memory.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::buffers::{address, bytes, copy_out, count, gather, pieces, room, scatter};
use super::doors::door;
use super::kernel;
use crate::door::Door;
use crate::errno::Errno;
use crate::stream::{Read, Reading, Room, Writing};

/// The type of the control message that TCP_INQ asks for; the C library has no name.
const TCP_CM_INQ: c_int = 36;

/// Bytes moved at most in one call to the kernel.
const KERNEL_CHUNK: usize = 1 << 20;

fn receive(door: &Door, fd: c_int, room: Room, flags: c_int) -> Result<Read, Errno> {
    if door.call_now(|world| Ok(!world.has_file(fd)))? {
        let mut bytes = vec![0; room.len.min(KERNEL_CHUNK)];
        let len = kernel::read(fd, &mut bytes)?;
        bytes.truncate(len);
        return if room.is_null && len > 0 { Err(Errno::EFAULT) } else { Ok(Read { bytes, len }) };
    }
    let mut reading = Reading::default();
    door.call(|world| world.read(fd, room, flags, &mut reading))
}

fn transmit(door: &Door, fd: c_int, data: Option<&[u8]>, flags: c_int) -> Result<usize, Errno> {
    if door.call_now(|world| Ok(!world.has_file(fd)))? {
        return kernel::write(fd, data.ok_or(Errno::EFAULT)?);
    }
    let mut writing = Writing::default();
    door.call(|world| world.write(fd, data, flags, &mut writing))
}

// ---- in

pub(super) unsafe extern "C" fn read(
    userdata: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the interface's rules.
    unsafe { recv(userdata, fd, to, len, 0) }
}

pub(super) unsafe extern "C" fn recv(
    userdata: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    let read = receive(door, fd, Room { len, is_null: to.is_null() && len > 0 }, flags);
    count(read.map(|read| {
        // SAFETY: no longer than the room that the caller gave.
        unsafe { copy_out(&read.bytes, to) };
        read.len
    }))
}

pub(super) unsafe extern "C" fn recvfrom(
    userdata: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let received = unsafe { recv(userdata, fd, to, len, flags) };
    if received >= 0 && !from.is_null() && !from_len.is_null() {
        // The bytes of a stream have no address of their own.
        // SAFETY: not null, and valid by the interface's rules.
        unsafe { *from_len = 0 };
    }
    received
}

pub(super) unsafe extern "C" fn readv(
    userdata: *mut c_void,
    fd: c_int,
    vector: *const iovec,
    len: c_int,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    // SAFETY: as above.
    count(unsafe { receive_pieces(door, fd, vector, len as usize, 0) })
}

/// # Safety
/// `vector` must point to `len` pieces, each valid.
unsafe fn receive_pieces(
    door: &Door,
    fd: c_int,
    vector: *const iovec,
    len: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: promised by the caller.
    let pieces = unsafe { pieces(vector, len) }?;
    let read = receive(door, fd, room(pieces), flags)?;
    // SAFETY: as above, and no longer than their room.
    unsafe { scatter(&read.bytes, pieces) };
    Ok(read.len)
}

pub(super) unsafe extern "C" fn recvmsg(
    userdata: *mut c_void,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let (door, message) = unsafe { (door(userdata), message.as_mut()) };
    let Some(message) = message else { return count(Err(Errno::EFAULT)) };
    // SAFETY: as above.
    let received = unsafe { receive_pieces(door, fd, message.msg_iov, message.msg_iovlen, flags) };
    if received.is_ok() {
        let hint = door.look(|world| world.readable_hint(fd));
        message.msg_namelen = 0;
        message.msg_flags = 0;
        // SAFETY: as above.
        unsafe { tell_readable(message, hint) };
    }
    count(received)
}

/// Reports in a control message how much can still be read, if the caller asked for that.
///
/// # Safety
/// The message's control buffer must have room as it says.
unsafe fn tell_readable(message: &mut msghdr, hint: Option<c_int>) {
    let room = std::mem::take(&mut message.msg_controllen);
    let Some(hint) = hint else { return };
    let len = size_of::<c_int>() as u32;
    // SAFETY: only computes.
    let (whole, used) = unsafe { (libc::CMSG_SPACE(len) as usize, libc::CMSG_LEN(len) as usize) };
    if message.msg_control.is_null() || room < whole {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    let mut control = vec![0; whole];
    control[..size_of::<usize>()].copy_from_slice(&used.to_ne_bytes());
    let fields = [libc::IPPROTO_TCP, TCP_CM_INQ, hint].map(c_int::to_ne_bytes).concat();
    control[size_of::<usize>()..used].copy_from_slice(&fields);
    // SAFETY: there is room for it.
    unsafe { copy_out(&control, message.msg_control) };
    message.msg_controllen = whole;
}

// ---- out

pub(super) unsafe extern "C" fn write(
    userdata: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the interface's rules.
    unsafe { send(userdata, fd, from, len, 0) }
}

pub(super) unsafe extern "C" fn send(
    userdata: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let (door, data) = unsafe { (door(userdata), bytes(from, len)) };
    count(transmit(door, fd, data, flags))
}

pub(super) unsafe extern "C" fn sendto(
    userdata: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let (door, data) = unsafe { (door(userdata), bytes(from, len)) };
    if flags & libc::MSG_FASTOPEN != 0 {
        // SAFETY: as above.
        let to = unsafe { address(to, to_len) };
        let sent = to.and_then(|to| connect_and_send(door, fd, data, flags, to));
        return count(sent);
    }
    // A connected stream ignores the address.
    count(transmit(door, fd, data, flags))
}

/// Without TCP Fast Open, MSG_FASTOPEN is a `connect` and a `send`.
fn connect_and_send(
    door: &Door,
    fd: c_int,
    data: Option<&[u8]>,
    flags: c_int,
    to: &[u8],
) -> Result<usize, Errno> {
    let mut is_first = true;
    door.call(|world| world.connect(fd, to, std::mem::take(&mut is_first)))?;
    transmit(door, fd, data, flags & !libc::MSG_FASTOPEN)
}

pub(super) unsafe extern "C" fn writev(
    userdata: *mut c_void,
    fd: c_int,
    vector: *const iovec,
    len: c_int,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    // SAFETY: as above.
    count(unsafe { transmit_pieces(door, fd, vector, len as usize, 0) })
}

/// # Safety
/// `vector` must point to `len` pieces, each valid.
unsafe fn transmit_pieces(
    door: &Door,
    fd: c_int,
    vector: *const iovec,
    len: usize,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: promised by the caller.
    let data = unsafe { gather(pieces(vector, len)?) };
    transmit(door, fd, data.as_deref(), flags)
}

pub(super) unsafe extern "C" fn sendmsg(
    userdata: *mut c_void,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let (door, message) = unsafe { (door(userdata), message.as_ref()) };
    let Some(message) = message else { return count(Err(Errno::EFAULT)) };
    // SAFETY: as above.
    count(unsafe { transmit_pieces(door, fd, message.msg_iov, message.msg_iovlen, flags) })
}
