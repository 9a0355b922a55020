//! `lightwait-http`: static files over HTTP/1.1 and HTTP/2 (RFC 9110, RFC 9112, RFC 9113), by
//! hyper, on any byte stream, over TLS by rustls or without.
//!
//! ```text
//!   byte stream ── TimeoutStream ── hyper ── Server::serve ── Handler ── Files ── FileSource
//!                                                     │                                 │
//!                                              Access (a line a response)      threads · simulator
//! ```
//!
//! [`Client`] is the other end: it closes first, so that it holds TIME-WAIT.
//!
//! Nothing here demands `Send`: a connection lives and ends on one shard. Nothing here reads a
//! clock of its own: time comes from the [`Clock`] that the caller hands in, so that a whole server
//! runs in virtual time. Start reading at [`Server`], then [`Files`].
#![deny(unsafe_code)]

pub mod access;
pub mod answer;
pub mod body;
pub mod client;
pub mod client_close;
pub mod config;
mod connection;
mod control;
pub mod date;
pub mod files;
mod head;
mod limits;
#[cfg(feature = "lightwait")]
pub mod stack;
#[cfg(test)]
mod testing;
pub mod tls;
mod within;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

pub use access::{Access, RequestLine};
pub use body::{Body, RequestBody};
pub use client::{Client, ClientConfig};
pub use config::{FilesConfig, ServerConfig};
pub use connection::h2::{HTTP2_BYTES, Http2};
pub use connection::secured::SecuredError;
pub use connection::stop::{Stop, Tracked};
pub use connection::{Handler, Server};
pub use control::{Control, Delivery};
pub use files::sites::Sites;
pub use files::source::FileSource;
pub use files::source::thread_pool::{Disk, ThreadPoolFiles};
pub use files::{CacheRule, CacheTally, Files, PasswordFault, Passwords, path, source};
pub use limits::admission::{
    Admission, CONNECTION_BYTES, Clients, Entry, Refusal, TLS_BYTES, Tally,
};
pub use limits::memory::{ConnectionRoom, Memory, MemoryBudget};
pub use tls::{Credentials, Identity, IdentityFault, Tls};

/// A boxed future that stays on its thread.
pub type Pending<T> = Pin<Box<dyn Future<Output = T>>>;

/// A clock that is read at the very moment.
pub type Measure = Rc<dyn Fn() -> Instant>;

/// The clocks of a server.
#[derive(Clone)]
pub struct Clock {
    /// Wakes what waits for a time-out. Its time may stand still while a task runs.
    pub timer: Rc<dyn hyper::rt::Timer>,
    /// Reads the time of `timer` at this very moment, for durations in the access log. It is called
    /// twice a request, and only if there is an access hook.
    pub measure: Measure,
    /// The time of day, for `Date` and `Last-Modified`.
    pub wall: Rc<dyn Fn() -> SystemTime>,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}
