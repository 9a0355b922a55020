//! Programs of eBPF that choose a frame's queue, or whether it is for us. They are assembled here,
//! loaded by bpf(2) and run in the kernel, which verifies that they end and touch nothing else.
//!
//! ```text
//!   steering, filter ── assembler ── syscall ── kernel: verifier, compiler
//! ```

pub(super) mod assembler;
pub(super) mod steering;
pub(super) mod syscall;

pub(super) use syscall::{Kind, Program};
