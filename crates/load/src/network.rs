//! What a load runs on: connections from a given address and port, a clock, tasks.

mod kernel;
mod secured;
mod stack;

pub use kernel::Kernel;
pub use secured::{Secured, SecuredStream, Tls, Trust, explain};
pub use stack::OurStack;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A TCP/IP stack with its clock and its tasks, all on one thread. Clones are the same.
///
/// Times are counted from a moment of the network's choice.
pub trait Network: Clone + 'static {
    /// A connection. Dropping it closes it.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Opens a connection from that very address and port.
    fn connect(
        &self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::Stream>>;

    /// What time it is at this very moment.
    fn now(&self) -> Duration;

    /// Sleeps until then, a few milliseconds late at most.
    fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static;

    /// Sleeps until then, as exactly as the system can. One task at a time may do so.
    fn alarm(&self, when: Duration) -> impl Future<Output = io::Result<()>>;

    /// Runs a task of its own.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
}

/// What `future` returns, or `None` if it takes until `deadline`.
pub(crate) async fn before<N: Network, F: Future>(
    network: &N,
    deadline: Duration,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    // Much is there at once, and needs no timer.
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    if let Poll::Ready(output) = first {
        return Some(output);
    }
    let mut sleep = pin!(network.sleep_until(deadline));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}
