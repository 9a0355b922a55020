//! `lightwait`: user-level TCP and UDP sockets.
//!
//! A server of axum on a stack with a thread of its own (feature `axum`):
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use lightwait::{Stack, net::TcpListener};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let stack = Stack::tap("lw0", "10.9.0.2/24")?.spawn()?;
//!     let listener = TcpListener::bind_on(&stack, "0.0.0.0:80").await?;
//!     let router = Router::new().route("/", get(|| async { "hello" }));
//!     tokio::select! {
//!         served = axum::serve(listener, router).into_future() => served,
//!         ended = stack.ended() => ended, // the interface was deleted, say
//!     }
//! }
//! ```
//!
//! Sockets of one thread, which run in virtual time as well
//! ([lightwait-sim](https://docs.rs/lightwait-sim)):
//!
//! ```
//! use lightwait::local::{TcpListener, TcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! fn main() -> std::io::Result<()> {
//!     // On a device: Stack::tap("lw0", "10.9.0.2/24")?
//!     let (server, client) = lightwait::Stack::memory()?;
//!     let at = (server.address(), 80);
//!     let listener = TcpListener::bind_on(&server.handle(), at)?;
//!     server.spawn_local(async move { listener.accept().await?.0.write_all(b"hello").await });
//!     lightwait::run([client, server], async move {
//!         let mut heard = String::new();
//!         TcpStream::connect(at).await?.read_to_string(&mut heard).await?;
//!         Ok(assert_eq!(heard, "hello"))
//!     })?
//! }
//! ```
//!
//! [`Stack`] sets up a stack in one call, and [`Config`] has every knob. [`net`] has sockets for
//! any thread and runtime, [`local`] those of the stack's own thread. The parts:
//!
//! ```text
//!   any thread's tasks ── net::{TcpListener, TcpStream}
//!                                     │ pages, wakes
//!   the stack's tasks ── local::{TcpListener, TcpStream} ── executor, rt
//!                                     │
//!                                   shard ── lightwait_core::Host
//!                                     │
//!                    wrap::{Link, …} over device::{memory, tap, tun, …}
//! ```
//!
//! Start reading at [`shard`].
//!
//! Features: `tokio-driver` (on by default) drives stacks inside a tokio runtime
//! ([`driver::drive`]) and has the [`bridge`] to the kernel's sockets. `axum` lets `axum::serve`
//! take a [`net::TcpListener`]. `hyper` implements hyper's
//! `Read` and `Write` for [`local::TcpStream`], and its timer ([`rt`]). `tracing` tells
//! subscribers of that crate of connections opened, accepted, closed and ended, and of limits that
//! were reached.
#![deny(unsafe_code)]

mod address;
pub mod allocator;
mod answer;
#[cfg(feature = "tokio-driver")]
pub mod bridge;
pub mod clock;
mod datagrams;
pub mod device;
pub mod driver;
#[cfg(feature = "tracing")]
mod edges;
mod error;
pub mod executor;
mod halves;
#[cfg(feature = "tokio-driver")]
mod interest;
mod io_traits;
pub mod local;
mod lookup;
pub mod net;
pub mod observe;
mod options;
pub mod rt;
pub mod shard;
#[cfg(target_os = "linux")]
pub mod shards;
pub mod stack;
pub mod wrap;

pub use lightwait_core::Config;
pub use lightwait_core::address::Cidr;
pub use stack::{Stack, run};

/// The examples of the crate's front page are tests.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct FrontPage;
