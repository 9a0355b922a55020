//! The system's allocator, which counts bytes while it is asked to.
//!
//! A program that wants to know what something takes makes [`Counting`] its global allocator. While
//! nobody counts it costs a load and a branch that is foreseen, so that what is timed is not slowed
//! down; crates that always count pay several locked additions for each allocation.
#![deny(unsafe_code)]

mod counting;

pub use counting::{Counting, Heap};
