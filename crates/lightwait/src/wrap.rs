//! Wrappers: devices that stand in front of a device.

pub mod fault;
pub mod link;
mod packets;

pub use fault::fault;
pub use link::Link;
