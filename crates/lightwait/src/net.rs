//! Sockets for any thread, with tokio's names and signatures.
//!
//! A stack runs on a thread of its own ([`Stack::spawn`](crate::Stack::spawn)), and the sockets are
//! `Send + Sync`: they work under tokio's runtimes and any other, in `tokio::spawn`, with
//! `axum::serve`. Sockets know their stack by its [`StackHandle`]; those that are given none are on
//! the process's default one ([`StackHandle::set_default`]).
//!
//! ```
//! use lightwait::net::{TcpListener, TcpStream};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # fn main() -> std::io::Result<()> {
//! # tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?.block_on(async {
//! // On a device: Stack::tap("lw0", "10.9.0.2/24")?.spawn()?
//! let (server, client) = lightwait::Stack::memory()?;
//! let (server, client) = (server.spawn()?, client.spawn()?);
//! let listener = TcpListener::bind_on(&server, (server.address(), 80)).await?;
//! tokio::spawn(async move { listener.accept().await?.0.write_all(b"hello").await });
//! let mut heard = String::new();
//! let mut stream = TcpStream::connect_on(&client, (server.address(), 80)).await?;
//! stream.read_to_string(&mut heard).await?;
//! assert_eq!(heard, "hello");
//! # Ok(()) }) }
//! ```
//!
//! Bytes cross between the threads in pages that change hands, and datagrams in queues: 64 KiB, and
//! not much more, in each direction of a connection or a socket. A task of the stack moves them;
//! [`local`](crate::local) has sockets without that step, for tasks that run on the stack's own
//! thread.

mod crossing;
mod handle;
mod lane;
mod ledger;
mod listener;
mod pump;
mod socket;
mod split;
mod stream;
mod udp;
mod waiting;

pub(crate) use handle::spawn;

pub use handle::{ServedShard, StackHandle, serve};
#[cfg(feature = "axum")]
pub use listener::PeerAddr;
pub use listener::TcpListener;
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::TcpStream;
pub use udp::UdpSocket;

pub use crate::address::ToSocketAddrs;
pub use crate::error::io_error;
pub use crate::lookup::lookup_host;

// What calls of sockets take and return.
pub use lightwait_core::tcp::{ConnectionInfo, SocketOptions};
pub use lightwait_core::udp::{Received, SEGMENTS_MAX, Transmit, UdpOptions};
