//! `lightwait-netem`: one direction of an emulated link.
//!
//! ```text
//!  push ─▶ finite queue ─▶ serializer ─▶ loss ─▶ corruption ─▶ propagation ─▶ pop
//!          (tail drop)     (rate)                duplication   (delay, jitter,
//!                                                               reordering)
//! ```
//!
//! Pure: time comes in as an argument and every random choice follows from one seed, so that the
//! same pushes at the same times give the same link. A packet's whole fate is decided when it is
//! pushed; [`Link::pop`] only waits for its time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod link;
mod loss;
mod text;

pub use config::{LinkConfig, Loss, QueueLimit};
pub use link::{Counters, Link, Packet};
pub use text::ParseLinkError;
