//! What a processor does better than portable code can ask for: the sum of 16-bit words, which the
//! Internet checksum is made of, by its widest units; reading ahead of what is needed soon; and
//! looking at all entries of a line of a hash table at once.
//!
//! Text is summed twice on its way, where it is sent and where it arrives, and copied there; done
//! by 64-bit units this takes a third of all the time of a bulk transfer. What the compiler may
//! assume of every x86-64 processor is older than what nearly all of them have: AVX2 is looked for
//! when the program runs, and that a processor has it must be promised to the compiler by
//! `unsafe`. It stays in this crate, so that the engine has none.
//!
//! Of a million connections none lies in a cache. Whoever knows which one is next can fetch it
//! while there is other work to do.
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
