//! lwIP, a stack that the benches measure beside ours: Debian's library, both ends on one instance
//! of it, and what runs on it, in C, as is usual there.
//!
//! Where lwIP's header files were missing when this was built there is nothing to call.
#![deny(unsafe_code)]

#[cfg(lwip)]
mod instance;

#[cfg(lwip)]
pub use instance::Instance;

/// What connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// 100 bytes asked, 500 answered, closed by the server first.
    Short = 0,
    /// The same again and again on a connection that stays.
    PingPong = 1,
    /// As many bytes as there is room for, from the client to the server.
    Bulk = 2,
    /// None.
    Idle = 3,
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Who opens connections.
    Client = 0,
    /// Who is asked.
    Server = 1,
}
