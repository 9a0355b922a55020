//! Sockets between two shards, in virtual time.
#![cfg(feature = "tokio-driver")]

mod addresses;
mod http;
mod sockets;
mod world;

#[cfg(target_os = "linux")]
mod drivers;
