//! Programs of eBPF that choose a frame's queue, or whether it is for us. They are assembled here,
//! loaded by bpf(2) and run in the kernel, which verifies that they end and touch nothing else.
//!
//! ```text
//!   steering, filter ── assembler ── syscall ── kernel: verifier, compiler
//! ```

mod assembler;
pub(super) mod filter;
pub(super) mod steering;
mod syscall;

pub(super) use syscall::{Attachment, Kind, Program, SocketMap, XdpFlag};
