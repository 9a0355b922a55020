//! `lightwait-core`: bytes, TCP, UDP, and one IP host, sans I/O.
//!
//! Everything here is pure. Nothing reads a clock, draws a random number, opens a file, spawns a
//! thread or takes a lock: time comes in as an argument, randomness as a seed, frames as bytes.
//! The crate is `no_std` so that the compiler itself refuses the rest.
//!
//! ```text
//!   frames ──▶ Host::on_frame ─┐
//!    calls ──▶ Host::write, … ─┼─▶ ready connections ──▶ Host::emit ──▶ Outbox ──▶ device
//!     time ──▶ Host::on_time  ─┘
//! ```
//!
//! Start reading at [`host::Host`], then [`tcp`].
//!
//! What this documentation hides is public for the project's own measures and tests, and may change
//! in any release.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod buffer;
pub mod capture;
pub mod config;
pub mod counters;
pub mod error;
pub mod event;
pub(crate) mod fifo;
pub mod flow;
pub mod frame;
pub mod host;
pub mod ip;
#[doc(hidden)]
pub mod rng;
pub(crate) mod slab;
pub mod tcp;
pub mod time;
pub mod udp;
pub mod wire;

pub use config::Config;
pub use error::{AcceptError, ConnectError, Error, ReadError, WriteError};
pub use event::{ConnectionId, Event, ListenerId, Readiness, SynId, UdpId};
pub use frame::{Capabilities, Frame, Medium, Outbox, RxFrame};
pub use host::Host;
pub use time::Instant;

/// The examples of the front page are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;
