//! The engine in virtual time, behind the interface that packetdrill has for user-level stacks.
//!
//! ```text
//!   packetdrill ─▶ abi ─▶ door: one mutex, who may move time ─▶ world ─▶ lightwait_core::Host
//!                          │                                      ├─ sockets, epoll instances
//!    a second thread ─▶────┘ sleeps on a condition variable       └─ packets that have left
//! ```
//!
//! Start reading at [`door`], then [`world`] and [`socket`]. The README lists the calls and flags.

pub mod abi;
pub mod address;
pub mod attempt;
mod control;
pub mod datagram;
pub mod door;
pub mod epoll;
pub mod errno;
mod info;
pub mod interface;
pub mod message;
pub mod options;
mod pipe;
pub mod poll;
pub mod profile;
pub mod segments;
pub mod socket;
pub mod state;
pub mod stream;
pub mod world;
