//! Sockets, with tokio's names and signatures.
//!
//! A socket belongs to its shard and is `!Send`. Inside a shard's task [`TcpListener::bind`] and
//! [`TcpStream::connect`] find the shard by themselves; elsewhere on its thread (under a
//! `current_thread` tokio runtime, say) the forms that take a [`Handle`](crate::shard::Handle) do.
//!
//! They implement tokio's `AsyncRead` and `AsyncWrite`; with the feature `hyper` hyper's `Read` and
//! `Write` as well. They need no runtime but a shard that something drives.

mod address;
mod error;
mod listener;
mod socket;
mod split;
mod stream;

pub use address::ToSocketAddrs;
pub use error::io_error;
pub use listener::TcpListener;
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::{Control, TcpStream};
