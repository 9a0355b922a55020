//! The system calls of a packet socket: packet(7). Only this module of the device needs `unsafe`:
//! the socket's address and options have no safe wrapper.
#![allow(unsafe_code, reason = "AF_PACKET addresses and options have no safe wrapper")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::device::packet_fd::{Read, Reader};
use crate::device::vlan::Tag;

/// Every protocol, in network order, as both socket(2) and the address require it.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Excludes outgoing frames from a fan-out: linux/if_packet.h.
const FANOUT_IGNORE_OUTGOING: libc::c_uint = 0x4000;

/// A packet socket that receives nothing until [`bind`] binds it.
pub(super) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes its arguments by value.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(fd)?;
    // SAFETY: the call above returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives and sends on the interface with that index.
pub(super) fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ALL_PROTOCOLS,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one whole `sockaddr_ll`, which outlives the
    // call; bind(2) only reads it.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Puts a virtio header of 10 bytes before each frame, both ways.
pub(super) fn use_virtio_header(socket: &OwnedFd) -> io::Result<()> {
    set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
}

/// True if there is such a header before each frame.
pub(super) fn has_virtio_header(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one whole integer, which outlives the call;
    // getsockopt(2) writes no more than that.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VNET_HDR,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value != 0)
}

/// The index of the interface that a packet socket is bound to.
pub(super) fn bound_to(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: zeros are a sound `sockaddr_ll`: it is plain C data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let place = (&raw mut address).cast();
    // SAFETY: the pointer and the length are those of one whole `sockaddr_ll`, which outlives the
    // call; getsockname(2) writes no more than that.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), place, &raw mut len) })?;
    if libc::c_int::from(address.sll_family) != libc::AF_PACKET {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(address.sll_ifindex as u32)
}

/// Excludes frames that this machine sends on the interface, be it our stack or the kernel.
pub(super) fn ignore_outgoing(socket: &OwnedFd) -> io::Result<()> {
    set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
}

/// Receives frames to every hardware address, for as long as the socket is open.
pub(super) fn hear_every_address(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// How the sockets of a fan-out share the frames of their interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// By the kernel's own hash of a flow.
    Hash,
    /// By a program of eBPF; to the first socket until there is one.
    Program,
}

impl Sharing {
    fn kind(self) -> libc::c_uint {
        match self {
            Sharing::Hash => libc::PACKET_FANOUT_HASH,
            Sharing::Program => libc::PACKET_FANOUT_EBPF,
        }
    }
}

/// Begins a fan-out with a socket that is bound, and returns its number, which the kernel chooses:
/// no other program's group has it.
///
/// The group has a hook of its own, which excludes outgoing frames only by a flag of the group. A
/// kernel before that flag takes no notice: the sockets then receive what the kernel's own stack
/// sends on the interface, but nothing of ours.
pub(super) fn begin_fanout(socket: &OwnedFd, sharing: Sharing) -> io::Result<u16> {
    fan_out(socket, sharing, 0, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
    let mut group: libc::c_uint = 0;
    let mut len = size_of::<libc::c_uint>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one whole `int`, which outlives the call;
    // getsockopt(2) writes no more than that.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut group).cast(),
            &raw mut len,
        )
    })?;
    Ok(group as u16)
}

/// Joins the fan-out of that number. Sockets have numbers in the order in which they join.
pub(super) fn join_fanout(socket: &OwnedFd, sharing: Sharing, group: u16) -> io::Result<()> {
    fan_out(socket, sharing, group, 0)
}

fn fan_out(socket: &OwnedFd, sharing: Sharing, group: u16, flag: libc::c_uint) -> io::Result<()> {
    let kind = sharing.kind() | flag | FANOUT_IGNORE_OUTGOING;
    let value = libc::c_uint::from(group) | kind << 16;
    set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &(value as libc::c_int))
}

/// Has `program` choose the socket of each frame that comes to the fan-out of `socket`.
pub(super) fn steer(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &program.as_raw_fd())
}

/// Receives nothing, until [`unmute`].
pub(super) fn mute(socket: &OwnedFd) -> io::Result<()> {
    let (jt, jf, k) = (0, 0, 0);
    let mut none = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt, jf, k }];
    let program = libc::sock_fprog { len: 1, filter: none.as_mut_ptr() };
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Receives again.
pub(super) fn unmute(socket: &OwnedFd) -> io::Result<()> {
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
}

/// Sets the room for received frames: the wanted size if we are privileged, else no more than an
/// ordinary user gets. The kernel doubles it, and counts its own bytes for each frame as well.
pub(super) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let len = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &len)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &len))
}

/// Asks the kernel for the receive time of each frame, in ns.
pub(super) fn stamp_frames(socket: &OwnedFd) -> io::Result<()> {
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)
}

/// Asks the kernel for what it keeps beside each frame: `struct tpacket_auxdata`.
pub(super) fn describe_frames(socket: &OwnedFd) -> io::Result<()> {
    set(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)
}

/// Gives the socket a receive ring of that shape ([`Ring`](super::ring::Ring)), or takes it away.
/// What waits is lost.
pub(super) fn set_ring(
    socket: BorrowedFd<'_>,
    request: Option<&libc::tpacket_req>,
) -> io::Result<()> {
    let none =
        libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
    if request.is_some() {
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        // Frames longer than a slot wait at the socket, as without a ring.
        set(socket, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1)?;
    }
    set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request.unwrap_or(&none))
}

/// Frames for which there was no room, since the last call.
pub(super) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one whole `tpacket_stats`, plain C data,
    // which outlives the call; getsockopt(2) writes no more than that.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut len,
        )
    })?;
    Ok(statistics.tp_drops)
}

/// Room for the control messages of a receive time and of [`libc::tpacket_auxdata`], and more;
/// aligned as their headers must be.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Reads with recvmsg(2), which returns what the kernel keeps beside the frame.
#[derive(Debug)]
pub(super) struct Described;

impl Reader for Described {
    fn read(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<Read> {
        read_described(socket, buffer)
    }

    fn another(&self) -> Option<Box<dyn Reader>> {
        Some(Box::new(Described))
    }
}

/// Reads a frame, and what the kernel keeps beside it.
pub(super) fn read_described(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> rustix::io::Result<Read> {
    let mut control = Control([0; 128]);
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeros are a sound `msghdr`: null pointers and no lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message refers to one slice, which is `buffer`, and to `control`, with their
    // lengths; both outlive the call, and recvmsg(2) writes no more than these.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| last_errno())?;
    let mut read = Read { len, ..Read::default() };
    describe(&message, &mut read);
    Ok(read)
}

/// Adds what the control messages tell that recvmsg(2) has written.
fn describe(message: &libc::msghdr, read: &mut Read) {
    // SAFETY: `message` holds a control buffer that is alive, and as much of it as the kernel has
    // written; CMSG_FIRSTHDR returns null or a header that lies within.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so that it is a whole header in the control buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the data of this kind of message is one `timespec`, which the kernel has
                // written whole; it need not be aligned.
                let time =
                    unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
                read.wall_ns = wall_ns(&time);
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: the data of this kind of message is one `tpacket_auxdata`, which the
                // kernel has written whole; it need not be aligned.
                let beside = unsafe {
                    libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned()
                };
                let good = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID;
                read.is_known_good = beside.tp_status & good != 0;
                read.tag = Tag::beside(beside.tp_status, beside.tp_vlan_tci, beside.tp_vlan_tpid);
            }
            _ => {}
        }
        // SAFETY: as for the first; `header` is one of this message's.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

fn wall_ns(time: &libc::timespec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Plain C data that setsockopt(2) may read.
trait OptionValue {}
impl OptionValue for libc::c_int {}
impl OptionValue for libc::packet_mreq {}
impl OptionValue for libc::tpacket_req {}
/// Refers to instructions, which are alive.
impl OptionValue for libc::sock_fprog {}

fn set<T: OptionValue>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one whole `T`, plain C data, which outlives
    // the call, as what it refers to does; setsockopt(2) only reads it.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len)
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
