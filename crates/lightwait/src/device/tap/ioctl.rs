//! The system calls of a TAP and of a TUN: tun(4), linux/if_tun.h. Only this module of the device
//! needs `unsafe`: ioctls have no types.
#![allow(unsafe_code, reason = "ioctl(2) on /dev/net/tun has no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::device::kind::Kind;

/// The name of an interface, and its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) has_virtio_header: bool,
    /// Flags and a protocol come before each frame.
    pub(super) has_packet_info: bool,
}

/// How many descriptors may be attached to an interface at a time. That is settled when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    One,
    Several,
}

/// Attaches the descriptor to the interface `name`, made if there is none (an empty name lets the
/// kernel choose), with a virtio header before each frame if `virtio_header`.
pub(super) fn attach(
    fd: BorrowedFd<'_>,
    kind: Kind,
    name: &str,
    virtio_header: bool,
    queues: Queues,
) -> io::Result<Attached> {
    let mut request = empty_request();
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let mut flags = libc::IFF_NO_PI;
    flags |= match kind {
        Kind::Tap => libc::IFF_TAP,
        Kind::Tun => libc::IFF_TUN,
    };
    if virtio_header {
        flags |= libc::IFF_VNET_HDR;
    }
    if queues == Queues::Several {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is, for the length of
    // the call; its name ends in a zero because `attach` is called with at most 15 bytes of name.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    check(result)?;
    Ok(describe(&request))
}

/// The interface that the descriptor is attached to.
pub(super) fn attached(fd: BorrowedFd<'_>) -> io::Result<Attached> {
    let mut request = empty_request();
    // SAFETY: TUNGETIFF writes one `struct ifreq`, which `request` is, for the length of the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) };
    check(result)?;
    Ok(describe(&request))
}

/// Sets the length of the virtio header, in bytes.
pub(super) fn set_virtio_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = len as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one `int`, which `len` is, for the length of the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const len) })
}

/// The large packets that the kernel may hand over, with undone checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offload {
    /// None.
    No,
    /// TCP segments up to 64 KiB.
    Segments,
    /// These, and UDP datagrams joined to 64 KiB (since Linux 6.2). The kernel then takes such
    /// from us as well.
    SegmentsAndDatagrams,
}

/// Datagrams over IPv4 and over IPv6 (linux/if_tun.h: TUN_F_USO4, TUN_F_USO6).
const DATAGRAMS: libc::c_uint = 0x20 | 0x40;

/// Says what the kernel may hand over.
pub(super) fn set_offload(fd: BorrowedFd<'_>, offload: Offload) -> io::Result<()> {
    let segments = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let flags = match offload {
        Offload::No => 0,
        Offload::Segments => segments,
        Offload::SegmentsAndDatagrams => segments | DATAGRAMS,
    };
    // SAFETY: TUNSETOFFLOAD takes its flags by value and touches no memory of ours.
    check(unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags))
    })
}

/// Has `program` choose the queue of each frame that the interface hands over, by its number modulo
/// the queues there are.
pub(super) fn steer(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program: libc::c_int = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one `int`, which `program` is, for the length of the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETSTEERINGEBPF as _, &raw const program) })
}

fn empty_request() -> libc::ifreq {
    // SAFETY: `struct ifreq` is a name and a union of plain C data, for which zeros are valid.
    unsafe { std::mem::zeroed() }
}

fn describe(request: &libc::ifreq) -> Attached {
    // SAFETY: every bit pattern of the union's bytes is a valid `short`, and the kernel wrote one.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    let name = request.ifr_name.map(|c| c as u8);
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Attached {
        name: name.to_string_lossy().into_owned(),
        kind: if flags & libc::IFF_TAP != 0 { Kind::Tap } else { Kind::Tun },
        has_virtio_header: flags & libc::IFF_VNET_HDR != 0,
        has_packet_info: flags & libc::IFF_NO_PI == 0,
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
