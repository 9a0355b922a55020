//! `lightwait`: user-level TCP sockets.
#![deny(unsafe_code)]

pub mod clock;
pub mod device;
pub mod wrap;
