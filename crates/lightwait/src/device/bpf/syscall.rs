//! The system call bpf(2): linux/bpf.h. Only this module of eBPF's needs `unsafe`: the call has no
//! safe wrapper.
//!
//! Each command takes a structure of its own. The kernel takes what is missing at its end for
//! zeros, so that each has only the fields up to the last that we set.
#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
#[cfg(test)]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use super::assembler::Instruction;
use crate::device::refusal::Call;

const PROG_LOAD: libc::c_int = 5;
#[cfg(test)]
const PROG_TEST_RUN: libc::c_int = 10;

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
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::SocketFilter => 1,
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
                Err(Call::LoadProgram("").refused(&error))
            }
            // Once more, for the log.
            Err(error) => {
                let mut log = vec![0; LOG_LEN];
                let fd = load(kind, code, &mut log);
                let text = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
                let lines = text.trim().lines().collect::<Vec<_>>();
                let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("; ");
                let refused = |_| Call::LoadProgram(&last).refused(&error);
                fd.map(|fd| Program { fd }).map_err(refused)
            }
        }
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
        flags: 0,
        name: *b"lightwait\0\0\0\0\0\0\0",
        interface: 0,
        attach_kind: 0,
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
