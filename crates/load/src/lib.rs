//! A load generator for HTTP/1.1, by the benchmark method of Aron and Druschel (1999, §2): a client
//! that never meets its own TIME-WAITs.
//!
//! ```text
//!   arrivals ──jobs──▶ engine ── exchange ── Network: our stack, or the kernel's
//!   mix, trace ─────────┘│  ▲
//!                recorder  └── tuples ◀── sources
//! ```
//!
//! Start reading at [`engine`].
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod engine;
pub mod exchange;
pub mod mix;
pub mod network;
pub mod recorder;
pub mod report;
pub mod request;
pub mod share;
pub mod sources;
pub mod trace;
pub mod tuples;

/// The example of the repository's front page compiles. (It stands here since this crate is not
/// published, and has no file beside it there.)
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
