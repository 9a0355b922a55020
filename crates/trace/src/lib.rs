//! Event logs of TCP connections.
//!
//! ```text
//!   lightwait::observe::Log ──▶ qlog::write ──▶ a file ──▶ qlog::read ─┐
//!                                    a capture ──▶ pcapng::read ───────┴─▶ Trace ─┬▶ graph::svg
//!                                                                                └▶ timeline
//! ```
//!
//! `docs/event-log.md` has the events and their fields.
#![forbid(unsafe_code)]

pub mod graph;
pub mod pcapng;
pub mod qlog;
mod timeline;
mod trace;

pub use timeline::timeline;
pub use trace::{Entry, Fact, Kind, Segment, Trace};
