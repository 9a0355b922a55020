//! `lightwait-netem`: one direction of an emulated link.
//!
//! ```text
//!  push ─▶ finite queue ─▶ serializer ─▶ loss ─▶ corruption ─▶ propagation ─▶ pop
//!          (tail drop,     (rate or               duplication   (delay, jitter,
//!           CoDel)          trace)                               reordering)
//! ```
//!
//! Pure: time comes in as an argument and every random choice follows from one seed, so that the
//! same pushes at the same times give the same link, however often somebody looks. A packet's fate
//! is decided when it is pushed; under CoDel, and in a link that can be changed on the way, when
//! the serializer begins to send it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod codel;
mod config;
mod jitter;
mod link;
mod loss;
mod queue;
mod serializer;
mod text;
mod trace;

pub use config::{CodelConfig, Distribution, LinkConfig, Loss, QueueLimit, Rate};
pub use link::{Counters, Link, Packet, Queued};
pub use text::ParseLinkError;
pub use trace::{ParseTraceError, Trace};
