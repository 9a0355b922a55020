//! The system's allocator, which counts bytes on request.
//!
//! A program that measures memory makes [`Counting`] its global allocator. While counting is off it
//! costs a load and a well-predicted branch, so that it does not slow down what is timed. Crates
//! that always count pay several locked additions for each allocation.
#![deny(unsafe_code)]

mod counting;

pub use counting::{Counting, Heap};
