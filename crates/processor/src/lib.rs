//! Operations for which processors have better instructions than portable code can use. These are
//! the sum of 16-bit words, the base of the Internet checksum, by the widest units; prefetching;
//! and comparing all entries of a line of a hash table at once.
//!
//! Data is summed twice on its way, at the sender and at the receiver, and copied there. By 64-bit
//! units this takes a third of the time of a bulk transfer. The compiler may assume only what every
//! x86-64 processor has, and nearly all have AVX2. The program therefore looks for AVX2 when it
//! runs, and promises it to the compiler by `unsafe`. That `unsafe` stays in this crate, so that
//! the engine has none.
//!
//! A million connections do not fit a cache. If the caller knows the next one, it can fetch it
//! during other work.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

#[cfg(target_arch = "x86_64")]
mod avx2;
mod prefetch;
mod sum;
mod which;

pub use prefetch::{prefetch, prefetch_first};
pub use sum::{add, append_and_sum, copy_and_sum, sum, sum_of};
pub use which::which;
