//! What the kernel says of a connection: tcp(7).

#![allow(unsafe_code, reason = "SIOCOUTQ and TCP_INFO have no safe wrapper")]

use std::mem;
use std::os::fd::AsRawFd;
use std::time::Duration;

use tokio::net::TcpStream as Kernel;

/// Bytes in the kernel's send queue, sent or not; one more after a FIN.
pub(super) fn queued_bytes(kernel: &Kernel) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (tcp(7)) writes one int.
    let done = unsafe { libc::ioctl(kernel.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// The smoothed round-trip time of the kernel's connection, and its retransmitted segments.
pub(super) fn round_trips(kernel: &Kernel) -> (Duration, u64) {
    // SAFETY: all fields are integers.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    let fd = kernel.as_raw_fd();
    // SAFETY: the kernel writes `len` bytes at most. Where it fails it writes none, and the fields
    // are zero.
    unsafe { libc::getsockopt(fd, level, name, (&raw mut info).cast(), &raw mut len) };
    (Duration::from_micros(info.tcpi_rtt.into()), info.tcpi_total_retrans.into())
}
