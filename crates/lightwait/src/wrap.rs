//! Wrappers: devices that stand in front of a device. They emulate a link, inject faults, undo
//! offloads, capture or print frames, and let another process take a device over.

pub mod fault;
#[cfg(target_os = "linux")]
pub mod handover;
pub mod link;
mod outgoing;
pub(crate) mod packets;
pub mod pcap;
pub mod plain;
pub mod trace;

pub use fault::fault;
pub use link::Link;
pub use pcap::{Pcap, Recording};
pub use plain::Plain;
pub use trace::Trace;
