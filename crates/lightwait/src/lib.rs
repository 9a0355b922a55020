//! `lightwait`: user-level TCP sockets.
//!
//! ```text
//!   application's tasks ── net::{TcpListener, TcpStream} ── executor, rt
//!                                     │
//!                                   shard ── lightwait_core::Host
//!                                     │
//!                    wrap::{Link, …} over device::{memory, tap, af_packet}
//! ```
//!
//! Start reading at [`shard`].
#![deny(unsafe_code)]

pub mod allocator;
#[cfg(feature = "tokio-driver")]
pub mod bridge;
pub mod clock;
pub mod device;
pub mod driver;
pub mod executor;
pub mod net;
pub mod rt;
pub mod shard;
pub mod wrap;
