//! Sockets, with tokio's names and signatures.
//!
//! A socket belongs to its shard and is `!Send`. Inside a shard's task [`TcpListener::bind`] and
//! [`TcpStream::connect`] find the shard by themselves; elsewhere on its thread (under a
//! `current_thread` tokio runtime, say) the forms that take a [`Handle`](crate::shard::Handle) do.
//!
//! They implement tokio's `AsyncRead` and `AsyncWrite` and hyper's `Read` and `Write`, need no
//! runtime but a shard that someone drives, and are woken by it.

mod address;
mod error;
mod listener;
mod split;
mod stream;

pub use address::ToSocketAddrs;
pub use error::io_error;
pub use listener::TcpListener;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::{Control, TcpStream};
