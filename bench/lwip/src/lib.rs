//! lwIP, a stack that the benches measure beside ours. This is Debian's library, with both ends on
//! one instance of it. The applications on it are in C, as is usual there.
//!
//! If lwIP's header files were missing at build time, the crate is empty.
#![deny(unsafe_code)]

#[cfg(lwip)]
mod instance;

#[cfg(lwip)]
pub use instance::Instance;

/// The purpose of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request of 100 bytes, an answer of 500; the server closes first.
    Short = 0,
    /// Request and answer again and again, on a connection that stays.
    PingPong = 1,
    /// As many bytes as fit, from the client to the server.
    Bulk = 2,
    /// No data.
    Idle = 3,
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that opens connections.
    Client = 0,
    /// The end that answers.
    Server = 1,
}
