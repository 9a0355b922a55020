//! The engine in virtual time, behind the interface that packetdrill has for user-level stacks.

pub mod interface;
