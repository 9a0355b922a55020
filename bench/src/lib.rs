//! `lightwait-bench`: costs, measured in memory, with other stacks beside ours in the same run.
//!
//! Times are medians of repeated batches. The cost of surrounding work is measured too and
//! subtracted. Callgrind counts instructions. `BENCHMARKS.md` has the commands for each number.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, reason = "a closed pipe is no fault: `output` takes care of it")]

pub mod blessing;
pub mod bulk;
pub mod compare;
pub mod connections;
pub mod datagrams;
pub mod golden;
pub mod instructions;
#[cfg(target_os = "linux")]
pub mod live;
pub mod look;
pub mod memory;
pub mod output;
pub mod pingpong;
pub mod pool;
pub mod sack;
pub mod sample;
#[cfg(target_os = "linux")]
pub mod shards;
pub mod stacks;
pub mod time_wait;
pub mod timers;
#[cfg(target_os = "linux")]
pub mod today;
#[cfg(target_os = "linux")]
pub mod watched;
