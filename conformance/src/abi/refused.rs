//! The table for a caller that was refused a door: every function fails with `EINVAL`.
//!
//! packetdrill does not look at what `packetdrill_interface_init` returns, and calls what the table
//! holds. It ends by itself when its first call fails.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_ulong, c_void};

use libc::{
    epoll_event, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval, useconds_t,
};

use super::buffers::{count, result};
use crate::errno::Errno;
use crate::interface::Interface;

/// Defines each function, with `userdata` first, and the table of all of them.
macro_rules! refuse {
    ($($name:ident($($argument:ty),*) -> $how:ident $result:ty;)*) => {
        $(
            unsafe extern "C" fn $name(_: *mut c_void $(, _: $argument)*) -> $result {
                $how(Err(Errno::EINVAL))
            }
        )*

        /// The table.
        pub(super) fn interface() -> Interface {
            Interface { userdata: std::ptr::null_mut(), free, $($name),* }
        }
    };
}

/// Does nothing: there is no door to free.
unsafe extern "C" fn free(_: *mut c_void) {}

refuse! {
    socket(c_int, c_int, c_int) -> result c_int;
    bind(c_int, *const sockaddr, socklen_t) -> result c_int;
    listen(c_int, c_int) -> result c_int;
    accept(c_int, *mut sockaddr, *mut socklen_t) -> result c_int;
    connect(c_int, *const sockaddr, socklen_t) -> result c_int;
    read(c_int, *mut c_void, size_t) -> count ssize_t;
    readv(c_int, *const iovec, c_int) -> count ssize_t;
    recv(c_int, *mut c_void, size_t, c_int) -> count ssize_t;
    recvfrom(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> count ssize_t;
    recvmsg(c_int, *mut msghdr, c_int) -> count ssize_t;
    write(c_int, *const c_void, size_t) -> count ssize_t;
    writev(c_int, *const iovec, c_int) -> count ssize_t;
    send(c_int, *const c_void, size_t, c_int) -> count ssize_t;
    sendto(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> count ssize_t;
    sendmsg(c_int, *const msghdr, c_int) -> count ssize_t;
    fcntl(c_int, c_int, c_ulong) -> result c_int;
    ioctl(c_int, c_ulong, *mut c_void) -> result c_int;
    close(c_int) -> result c_int;
    shutdown(c_int, c_int) -> result c_int;
    getsockopt(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> result c_int;
    setsockopt(c_int, c_int, c_int, *const c_void, socklen_t) -> result c_int;
    poll(*mut pollfd, nfds_t, c_int) -> result c_int;
    netdev_send(*const c_void, size_t) -> result c_int;
    netdev_receive(*mut c_void, *mut size_t, *mut i64) -> result c_int;
    usleep(useconds_t) -> result c_int;
    gettimeofday(*mut timeval, *mut c_void) -> result c_int;
    epoll_create(c_int) -> result c_int;
    epoll_ctl(c_int, c_int, c_int, *mut epoll_event) -> result c_int;
    epoll_wait(c_int, *mut epoll_event, c_int, c_int) -> result c_int;
    pipe(*mut c_int) -> result c_int;
    splice(c_int, *mut off_t, c_int, *mut off_t, size_t, u32) -> result c_int;
}
