//! The calls that move data, from and to the caller's memory.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::buffers::{address, bytes, copy_out, count, gather, give, pieces, room, scatter};
use super::doors::door;
use super::kernel;
use crate::datagram::control::laid_out;
use crate::door::Door;
use crate::errno::Errno;
use crate::message::{Control, Message, Read, Reading, Room, Writing};
use crate::socket::Socket;

/// The type of the control message that TCP_INQ asks for; the C library has no name.
const TCP_CM_INQ: c_int = 36;

/// Bytes moved at most in one call to the kernel.
const KERNEL_CHUNK: usize = 1 << 20;

fn receive(door: &Door, fd: c_int, room: Room, flags: c_int) -> Result<Read, Errno> {
    if door.call_now(|world| Ok(!world.has_file(fd)))? {
        let mut bytes = vec![0; room.len.min(KERNEL_CHUNK)];
        let len = kernel::read(fd, &mut bytes)?;
        bytes.truncate(len);
        if room.is_null && len > 0 {
            return Err(Errno::EFAULT);
        }
        return Ok(Read { bytes, len, ..Read::default() });
    }
    let mut reading = Reading::default();
    door.call(|world| world.read(fd, room, flags, &mut reading))
}

fn transmit(door: &Door, fd: c_int, message: &Message<'_>, flags: c_int) -> Result<usize, Errno> {
    if door.call_now(|world| Ok(!world.has_file(fd)))? {
        return kernel::write(fd, message.data.ok_or(Errno::EFAULT)?);
    }
    let mut writing = Writing::default();
    door.call(|world| world.send(fd, message, flags, &mut writing))
}

/// True if `fd` is a socket for datagrams.
fn carries_datagrams(door: &Door, fd: c_int) -> bool {
    door.look(|world| world.socket(fd).is_ok_and(Socket::is_datagram))
}

// ---- in

pub(super) unsafe extern "C" fn read(
    userdata: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the interface's rules.
    let door = unsafe { door(userdata) };
    if len == 0 && carries_datagrams(door, fd) {
        // Unlike `recv`, it takes none.
        return 0;
    }
    // SAFETY: as above.
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
    let door = unsafe { door(userdata) };
    let read = receive(door, fd, Room { len, is_null: to.is_null() && len > 0 }, flags);
    count(read.and_then(|read| {
        // SAFETY: no longer than the room that the caller gave.
        unsafe { copy_out(&read.bytes, to) };
        if !from.is_null() && !from_len.is_null() {
            // The bytes of a stream have no address of their own, and leave an empty one.
            // SAFETY: not null, and valid by the interface's rules.
            unsafe { give(&read.from, from.cast(), from_len, false) }?;
        }
        Ok(read.len)
    }))
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
    let has_room = unsafe { pieces(vector, len as usize) }.map(|pieces| room(pieces).len > 0);
    if has_room == Ok(false) && carries_datagrams(door, fd) {
        return 0;
    }
    // SAFETY: as above.
    count(unsafe { receive_pieces(door, fd, vector, len as usize, 0) }.map(|read| read.len))
}

/// # Safety
/// `vector` must point to `len` pieces, each valid.
unsafe fn receive_pieces(
    door: &Door,
    fd: c_int,
    vector: *const iovec,
    len: usize,
    flags: c_int,
) -> Result<Read, Errno> {
    // SAFETY: promised by the caller.
    let pieces = unsafe { pieces(vector, len) }?;
    let read = receive(door, fd, room(pieces), flags)?;
    // SAFETY: as above, and no longer than their room.
    unsafe { scatter(&read.bytes, pieces) };
    Ok(read)
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
    count(received.and_then(|mut read| {
        let hint = door.look(|world| world.readable_hint(fd));
        read.control.extend(hint.map(|hint| Control {
            level: libc::IPPROTO_TCP,
            kind: TCP_CM_INQ,
            data: hint.to_ne_bytes().to_vec(),
        }));
        // SAFETY: as above.
        unsafe { tell(message, &read) }?;
        Ok(read.len)
    }))
}

/// Reports a sender, flags and control messages.
///
/// # Safety
/// The message's name and control buffers must have room as it says.
unsafe fn tell(message: &mut msghdr, read: &Read) -> Result<(), Errno> {
    if message.msg_name.is_null() {
        message.msg_namelen = 0;
    } else {
        // SAFETY: not null, and the rest is promised by the caller.
        unsafe { give(&read.from, message.msg_name, &raw mut message.msg_namelen, false) }?;
    }
    let room = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let (control, is_cut) = laid_out(&read.control, room);
    // SAFETY: no longer than the room.
    unsafe { copy_out(&control, message.msg_control) };
    message.msg_controllen = control.len();
    message.msg_flags = read.flags | if is_cut { libc::MSG_CTRUNC } else { 0 };
    Ok(())
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
    count(transmit(door, fd, &Message::of(data), flags))
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
    // SAFETY: as above.
    let to = (!to.is_null()).then(|| unsafe { address(to, to_len) }).transpose();
    count(to.and_then(|to| transmit(door, fd, &Message { to, ..Message::of(data) }, flags)))
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
    transmit(door, fd, &Message::of(data), flags & !libc::MSG_FASTOPEN)
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
    let data = unsafe { pieces(vector, len as usize).map(|pieces| gather(pieces)) };
    count(data.and_then(|data| transmit(door, fd, &Message::of(data.as_deref()), 0)))
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
    count(unsafe { transmit_message(door, fd, message, flags) })
}

/// # Safety
/// Every pointer of `message` must be null or valid for the length beside it.
unsafe fn transmit_message(
    door: &Door,
    fd: c_int,
    message: &msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: promised by the caller.
    let data = unsafe { gather(pieces(message.msg_iov, message.msg_iovlen)?) };
    let to = match message.msg_name.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(unsafe { address(message.msg_name.cast(), message.msg_namelen) }?),
    };
    // SAFETY: as above.
    let control = unsafe { bytes(message.msg_control, message.msg_controllen) };
    let control = control.ok_or(Errno::EFAULT)?;
    transmit(door, fd, &Message { data: data.as_deref(), to, control }, flags)
}
