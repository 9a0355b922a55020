//! `lightwait-bench`: what things cost, in memory, with peers beside us in the same run.
//!
//! Times are medians of repeated batches, and what merely surrounds the operation is measured too
//! and subtracted; instructions are counted by callgrind. `BENCHMARKS.md` says how to reproduce
//! each number.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "a closed pipe is no fault: `output` takes care of it")]

pub mod bulk;
pub mod compare;
pub mod connections;
pub mod golden;
pub mod instructions;
pub mod memory;
pub mod output;
pub mod pingpong;
pub mod sample;
pub mod stacks;
pub mod time_wait;
pub mod timers;
