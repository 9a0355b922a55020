//! Sockets of one thread, with tokio's names and signatures.
//!
//! A socket belongs to its shard and is `!Send`. [`TcpListener::bind`], [`TcpStream::connect`]
//! and [`UdpSocket::bind`] find the shard by themselves inside a shard's task. Elsewhere on its
//! thread (under a `current_thread` tokio runtime, say) use the forms that take a
//! [`Handle`](crate::shard::Handle).
//!
//! A name with a port is looked up by the system's resolver, in a thread of its own, so that the
//! shard goes on.
//!
//! Streams implement tokio's `AsyncRead` and `AsyncWrite`; with the feature `hyper`, hyper's `Read`
//! and `Write` as well. Sockets need no runtime, only a shard that is driven.

mod any;
mod listener;
mod socket;
mod split;
mod stream;
mod udp;

pub use any::{AnyListener, Request, Requests, UdpFlow, UdpFlows};
pub(crate) use listener::BACKLOG;
pub use listener::TcpListener;
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::{Control, TcpStream};
pub use udp::UdpSocket;

pub use crate::address::ToSocketAddrs;
pub use crate::error::io_error;
pub use crate::lookup::lookup_host;

// What calls of sockets take and return.
pub use lightwait_core::host::Refusal;
pub use lightwait_core::tcp::{
    ConnectionInfo, DeliveryRate, Demand, Pace, PathModel, SendInfo, SocketOptions,
};
pub use lightwait_core::udp::{Received, SEGMENTS_MAX, Transmit, UdpOptions};
