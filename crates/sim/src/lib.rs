//! `lightwait-sim`: whole hosts, a link and a disk in virtual time.
//!
//! ```text
//!            ┌──────────── World: one clock, one seed ────────────┐
//!   tasks ── Shard ── Port ══╗                      ╔══ Port ── Shard ── tasks, Disk
//!            └──────────────╚══ Cable: two netem links ══╝──────────┘
//!                                      │
//!                                   Oracle: reads every frame, independent of the engine
//! ```
//!
//! The shards are the real ones: the engine, the sockets, the executor and the HTTP server run
//! unmodified. Only time, the wire and the disk are simulated, each from the seed, so that a
//! failure can be replayed.
//!
//! Any program on `lightwait`'s sockets runs so, in a [`Simulation`] of as many hosts as it needs:
//! `docs/virtual-time.md`, and the examples `virtual_time` and `retries`.
//!
//! To test a program of your own, start reading at [`simulation`]; to see how the engine is tested,
//! at [`world::World`], then [`oracle`], then [`scenario`].
#![forbid(unsafe_code)]

pub mod bulk;
pub mod cable;
pub mod disk;
pub mod oracle;
pub mod pattern;
mod queues;
pub mod scenario;
pub mod search;
pub mod simulation;
pub mod swarm;
pub mod web;
pub mod world;

pub use lightwait_netem::{LinkConfig, Loss, Rate};

pub use bulk::Bulk;
pub use cable::{Cable, Passage, Port, Side};
pub use oracle::Oracle;
pub use queues::Crew;
pub use simulation::{Capture, Cause, Failure, HostId, Simulation, current_stack, each_seed};
pub use world::{Trouble, World};

/// The examples of the front page are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;
