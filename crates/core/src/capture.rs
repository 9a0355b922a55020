//! Frames as others read them: pcapng blocks, and a line of text each.

pub mod pcapng;
pub mod pretty;
