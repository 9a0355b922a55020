//! How many receive queues an interface has: ethtool's ioctl.
#![allow(unsafe_code, reason = "ethtool's ioctl has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// linux/sockios.h
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// linux/ethtool.h
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most_receiving: u32,
    most_sending: u32,
    most_others: u32,
    most_combined: u32,
    receiving: u32,
    sending: u32,
    others: u32,
    combined: u32,
}

/// The number of the interface's receive queues; `None` where its driver does not tell. Any socket
/// will do to ask. `interface` has 15 bytes at most.
pub(super) fn receive_queues(socket: BorrowedFd<'_>, interface: &str) -> io::Result<Option<u32>> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: `struct ifreq` is a name and a union of plain C data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: SIOCETHTOOL reads one `struct ifreq`, whose name ends in a zero, and reads and writes
    // one `struct ethtool_channels`, to which it refers; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        };
    }
    Ok(Some(channels.receiving + channels.combined))
}
