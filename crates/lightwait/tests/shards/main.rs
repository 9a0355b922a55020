//! Sockets between two shards, in virtual time.
#![cfg(feature = "tokio-driver")]

mod addresses;
mod any;
#[cfg(feature = "hyper")]
mod http;
mod readiness;
mod socket_options;
mod sockets;
mod udp;
mod world;

#[cfg(target_os = "linux")]
mod driven;
#[cfg(target_os = "linux")]
mod drivers;
#[cfg(target_os = "linux")]
mod names;
#[cfg(target_os = "linux")]
mod outlet;
