//! The C interface. It turns pointers into slices and errors into -1 and errno, and calls safe code
//! for the rest.
//!
//! Everything that is `unsafe` in this crate is below here.

mod buffers;
mod calls;
mod doors;
mod getsockopt;
mod init;
pub mod kernel;
mod messages;
mod names;
mod refused;
mod sendfile;
mod waits;

pub use getsockopt::getsockopt;
pub use init::packetdrill_interface_init;
pub use names::{getpeername, getsockname};
pub use sendfile::{sendfile, sendfile64};
