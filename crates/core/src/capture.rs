//! Frames as people and tools read them: pcapng blocks, and a line of text for each.

pub mod pcapng;
pub mod pretty;
