//! `lightwait`: user-level TCP sockets.
pub mod device;
