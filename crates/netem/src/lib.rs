//! `lightwait-netem`: one direction of an emulated link.
//!
//! ```text
//!  push ─▶ finite queue ─▶ serializer ─▶ loss ─▶ corruption ─▶ propagation ─▶ pop
//!          (tail drop,     (rate or               duplication   (delay, jitter,
//!           CoDel, flow     trace,                               reordering)
//!           queues, ECN)    bucket)
//! ```
//!
//! The crate is pure: time comes in as an argument, and every random choice follows from one seed.
//! A link does not depend on how often it is polled, only on the pushes and their times. A packet's
//! fate is decided when it is pushed. Under CoDel or flow queueing, and in a changeable link, it is
//! decided when the serializer begins to send it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod codel;
mod config;
mod discipline;
mod fair;
mod frame;
mod jitter;
mod link;
mod loss;
mod queue;
mod serializer;
mod text;
mod trace;

pub use config::{
    Bucket, CodelConfig, Distribution, FairConfig, LinkConfig, Loss, MarkFrom, QueueLimit, Rate,
};
pub use frame::Flow;
pub use link::{Counters, Delivered, Link, Packet, Queued};
pub use text::ParseLinkError;
pub use trace::{ParseTraceError, Trace};

/// The examples of the front page are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;
