//! The system call bpf(2): linux/bpf.h. Only this module of eBPF's needs `unsafe`: the call has no
//! safe wrapper.
//!
//! Each command takes a structure of its own. The kernel takes what is missing at its end for
//! zeros, so that each has only the fields up to the last that we set.
#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::assembler::Instruction;
use crate::device::refusal::Call;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
#[cfg(test)]
const PROG_TEST_RUN: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;

/// A map from queues to sockets of AF_XDP (BPF_MAP_TYPE_XSKMAP).
const MAP_OF_SOCKETS: u32 = 17;
/// A program is attached to an interface's receive path (BPF_XDP).
const ATTACH_XDP: u32 = 37;
/// A program of XDP knows frames in several parts (BPF_F_XDP_HAS_FRAGS).
const HAS_PARTS: u32 = 1 << 5;

/// Ours is not the GPL: no function that we call asks for it.
const LICENCE: &CStr = c"MIT OR Apache-2.0";

/// Bytes of the verifier's log.
const LOG_LEN: usize = 64 << 10;

/// Lines of the verifier's log in an error: the last ones say why.
const LOG_LINES: usize = 4;

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Judges a packet by a number: the queue of a TAP, the socket of a fan-out.
    SocketFilter,
    /// Judges a frame before the kernel's own stack sees it.
    Xdp,
    /// The same, and the frame may lie in several parts: the program sees the first.
    XdpInParts,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::SocketFilter => 1,
            Kind::Xdp | Kind::XdpInParts => 6,
        }
    }

    fn attach_kind(self) -> u32 {
        match self {
            Kind::SocketFilter => 0,
            Kind::Xdp | Kind::XdpInParts => ATTACH_XDP,
        }
    }

    fn flags(self) -> u32 {
        match self {
            Kind::SocketFilter | Kind::Xdp => 0,
            Kind::XdpInParts => HAS_PARTS,
        }
    }

    fn refused(self, log: &str, error: &io::Error) -> io::Error {
        match self {
            Kind::SocketFilter => Call::LoadProgram(log).refused(error),
            Kind::Xdp | Kind::XdpInParts => Call::LoadXdp(log).refused(error),
        }
    }
}

/// The argument of [`PROG_LOAD`].
#[repr(C)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_kind: u32,
}

/// A program in the kernel, verified. It stays while a descriptor or an attachment holds it.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Has the kernel verify and compile `code`. The error has the end of the verifier's log, or
    /// names the missing capability.
    pub(crate) fn load(kind: Kind, code: &[Instruction]) -> io::Result<Program> {
        let mut none = [];
        match load(kind, code, &mut none) {
            Ok(fd) => Ok(Program { fd }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Err(kind.refused("", &error))
            }
            // Once more, for the log.
            Err(error) => {
                let mut log = vec![0; LOG_LEN];
                let fd = load(kind, code, &mut log);
                let text = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let lines = text.trim().lines().collect::<Vec<_>>();
                let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("; ");
                let refused = |_| kind.refused(&last, &error);
                fd.map(|fd| Program { fd }).map_err(refused)
            }
        }
    }

    /// Has the interface with that index run the program, of [`Kind::Xdp`], on each frame that it
    /// receives.
    pub(crate) fn attach(&self, interface: u32, flag: XdpFlag) -> io::Result<Attachment> {
        let mut link = Link {
            program: self.fd.as_raw_fd() as u32,
            interface,
            kind: ATTACH_XDP,
            flags: flag as u32,
        };
        // SAFETY: the argument is plain C data, without pointers.
        let fd = unsafe { bpf(LINK_CREATE, &mut link) }?;
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(Attachment { _link: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// What the program returns for that frame, which starts with an Ethernet header.
    #[cfg(test)]
    pub(crate) fn run(&self, frame: &[u8]) -> io::Result<u32> {
        let mut run = Run {
            program: self.fd.as_raw_fd() as u32,
            result: 0,
            frame_len: frame.len() as u32,
            out_len: 0,
            frame: frame.as_ptr() as u64,
            out: 0,
            times: 1,
            duration: 0,
        };
        // SAFETY: the argument refers to `frame`, with its length, which outlives the call and is
        // only read.
        unsafe { bpf(PROG_TEST_RUN, &mut run) }?;
        Ok(run.result)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Which of an interface's places a program of XDP takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum XdpFlag {
    /// Behind the driver: any interface has it, at the cost of a packet buffer for each frame.
    Generic = 1 << 1,
    /// In the driver.
    Driver = 1 << 2,
}

/// A program's place at an interface, for as long as this lives. It ends with the process.
#[derive(Debug)]
pub(crate) struct Attachment {
    _link: OwnedFd,
}

/// The argument of [`LINK_CREATE`].
#[repr(C)]
struct Link {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// A map from an interface's receive queues to sockets of AF_XDP. A closed socket leaves it.
#[derive(Debug)]
pub(crate) struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    /// A map without sockets, for so many queues.
    pub(crate) fn new(queues: u32) -> io::Result<SocketMap> {
        let mut map =
            Map { kind: MAP_OF_SOCKETS, key_len: 4, value_len: 4, entries: queues, flags: 0 };
        // SAFETY: the argument is plain C data, without pointers.
        let fd = unsafe { bpf(MAP_CREATE, &mut map) };
        let fd = fd.map_err(|error| Call::LoadXdp("no map of sockets").refused(&error))?;
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(SocketMap { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Frames of `queue` that a program redirects go to `socket`, which is bound to that queue.
    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let mut update = Update {
            map: self.fd.as_raw_fd() as u32,
            padding: 0,
            key: &raw const queue as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        // SAFETY: key and value are 4 bytes each, as the map was made for; both outlive the call,
        // which only reads them.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut update) }.map(drop)
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The argument of [`MAP_CREATE`].
#[repr(C)]
struct Map {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
}

/// The argument of [`MAP_UPDATE_ELEM`].
#[repr(C)]
struct Update {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The argument of [`PROG_TEST_RUN`].
#[cfg(test)]
#[repr(C)]
struct Run {
    program: u32,
    result: u32,
    frame_len: u32,
    out_len: u32,
    frame: u64,
    out: u64,
    times: u32,
    duration: u32,
}

/// Loads a program, with the verifier's log unless `log` is empty.
fn load(kind: Kind, code: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut load = Load {
        kind: kind.number(),
        instruction_count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_len: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: kind.flags(),
        name: *b"lightwait\0\0\0\0\0\0\0",
        interface: 0,
        attach_kind: kind.attach_kind(),
    };
    // SAFETY: the argument refers to `code`, to the licence, which ends in a zero, and to `log`,
    // with their lengths; all outlive the call, which writes to `log` alone.
    let fd = unsafe { bpf(PROG_LOAD, &mut load) }?;
    // SAFETY: the call returned a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2).
///
/// # Safety
///
/// `argument` is the beginning of the `bpf_attr` of that command, without padding, and each pointer
/// in it is valid for the length that the argument tells.
unsafe fn bpf<T>(command: libc::c_int, argument: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the pointer and the length are those of `argument`, which outlives the call; what it
    // refers to is valid by this function's contract.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(argument), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
