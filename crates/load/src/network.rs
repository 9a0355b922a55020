//! The network of a load: connections from a given address and port, a clock, and tasks.

mod kernel;
mod secured;
mod stack;

pub use kernel::Kernel;
pub use secured::{Secured, SecuredStream, Tls, Trust, explain};
pub use stack::OurStack;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A TCP/IP stack with its clock and its tasks, all on one thread. Clones share one network.
///
/// Times count from a moment of the network's choice.
pub trait Network: Clone + 'static {
    /// A connection. Dropping it closes it.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Opens a connection from that very address and port.
    fn connect(
        &self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::Stream>>;

    /// The TLS handshake of a connection, if it has made one.
    fn handshake(_stream: &Self::Stream) -> Option<Handshake> {
        None
    }

    /// The time at this very moment.
    fn now(&self) -> Duration;

    /// Sleeps until that time, a few milliseconds late at most.
    fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static;

    /// Sleeps until that time, as exactly as the system can. Only one task may do so at a time.
    fn alarm(&self, when: Duration) -> impl Future<Output = io::Result<()>>;

    /// Runs a separate task.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
}

/// A TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// It resumed a session (RFC 8446 §2.2): the server made no signature for it.
    pub is_resumed: bool,
    /// The time from the connection's opening to the handshake's end.
    pub took: Duration,
}

/// Limits the time of futures, one after the other, in one task.
///
/// Its timer stays set when a future ends, since most end long before their deadline. It is set
/// again when it fires, or for an earlier deadline. A request thus needs no timer of its own.
pub(crate) struct TimeLimit<N> {
    network: N,
    timer: Option<Timer>,
}

struct Timer {
    fires: Duration,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl<N: Network> TimeLimit<N> {
    pub(crate) fn new(network: &N) -> TimeLimit<N> {
        TimeLimit { network: network.clone(), timer: None }
    }

    /// The output of `future`, or `None` if it takes until `deadline`.
    pub(crate) async fn before<F: Future>(
        &mut self,
        deadline: Duration,
        future: F,
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll(deadline, context).map(|()| None),
        })
        .await
    }

    /// Ready at `deadline`.
    fn poll(&mut self, deadline: Duration, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = match &mut self.timer {
                Some(timer) if timer.fires <= deadline => timer,
                _ => self.timer.insert(Timer {
                    fires: deadline,
                    future: Box::pin(self.network.sleep_until(deadline)),
                }),
            };
            ready!(timer.future.as_mut().poll(context));
            let has_come = timer.fires >= deadline;
            self.timer = None;
            if has_come {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::rc::Rc;

    use super::*;

    /// The kernel's network, with a count of sleeps.
    #[derive(Clone)]
    struct Counting {
        kernel: Kernel,
        sleeps: Rc<Cell<u32>>,
    }

    impl Network for Counting {
        type Stream = tokio::net::TcpStream;

        async fn connect(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Self::Stream> {
            self.kernel.connect(from, to).await
        }

        fn now(&self) -> Duration {
            self.kernel.now()
        }

        fn sleep_until(&self, when: Duration) -> impl Future<Output = ()> + 'static {
            self.sleeps.set(self.sleeps.get() + 1);
            self.kernel.sleep_until(when)
        }

        async fn alarm(&self, when: Duration) -> io::Result<()> {
            self.kernel.alarm(when).await
        }

        fn spawn(&self, task: impl Future<Output = ()> + 'static) {
            self.kernel.spawn(task);
        }
    }

    const MS: Duration = Duration::from_millis(1);

    fn network() -> Counting {
        Counting { kernel: Kernel::new(false).unwrap(), sleeps: Rc::default() }
    }

    /// Waits once before it is ready.
    async fn soon() -> u32 {
        tokio::task::yield_now().await;
        7
    }

    #[tokio::test]
    async fn futures_that_end_in_time_share_one_timer() {
        let network = network();
        let mut limit = TimeLimit::new(&network);
        assert_eq!(limit.before(Duration::ZERO, ready(3)).await, Some(3));
        assert_eq!(network.sleeps.get(), 0);
        for _ in 0..100 {
            let deadline = network.now() + 1000 * MS;
            assert_eq!(limit.before(deadline, soon()).await, Some(7));
        }
        assert_eq!(network.sleeps.get(), 1);
    }

    #[tokio::test]
    async fn each_deadline_is_kept_whatever_the_one_before_was() {
        let network = network();
        let mut limit = TimeLimit::new(&network);
        // A later deadline, an earlier one, and a later one again.
        for wait in [20, 40, 10, 30] {
            limit.before(network.now() + 10_000 * MS * u32::from(wait > 20), soon()).await;
            let deadline = network.now() + wait * MS;
            assert_eq!(limit.before(deadline, pending::<()>()).await, None);
            let late = network.now().checked_sub(deadline).expect("not early");
            assert!(late < 1000 * MS, "{late:?}");
        }
    }
}
