//! Waits until a stream can be read or written, by tokio's methods.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use lightwait_core::Readiness;

use super::TcpStream;

impl TcpStream {
    /// Waits until there is data to read, the stream's end or an error. The read may still block:
    /// another task may have been first.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_read_ready(context)).await
    }

    /// Waits until there is room to write, or an error that a write reports.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_write_ready(context)).await
    }

    /// [`TcpStream::readable`] for callers that poll by hand.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, Readiness::READABLE).map(|_| Ok(()))
    }

    /// [`TcpStream::writable`] for callers that poll by hand.
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, Readiness::WRITABLE).map(|_| Ok(()))
    }

    /// Ready when the connection is over, or has one of the `wanted` kinds of readiness.
    fn poll_ready(&self, context: &mut Context<'_>, wanted: Readiness) -> Poll<Readiness> {
        let readiness = self.local.host().readiness(self.local.now(), self.id);
        let can = |way| wanted.contains(way) && readiness.contains(way);
        let is_closed = readiness.contains(Readiness::CLOSED);
        if is_closed || can(Readiness::READABLE) || can(Readiness::WRITABLE) {
            return Poll::Ready(readiness);
        }
        self.wait(context, wanted);
        Poll::Pending
    }

    /// Registers the task to be woken by the next event of a `wanted` kind.
    fn wait(&self, context: &Context<'_>, wanted: Readiness) {
        if wanted.contains(Readiness::READABLE) {
            self.local.wait_readable(self.id, context);
        }
        if wanted.contains(Readiness::WRITABLE) {
            self.local.wait_writable(self.id, context);
        }
    }
}

#[cfg(feature = "tokio-driver")]
mod interest {
    use std::future::poll_fn;
    use std::io;
    use std::task::{Poll, ready};

    use lightwait_core::Readiness;
    use tokio::io::{Interest, Ready};

    use super::TcpStream;
    use crate::interest::{as_ready, wanted};

    impl TcpStream {
        /// Waits until the stream has a readiness of `interest`, and returns it.
        pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
            let readiness = poll_fn(|context| self.poll_ready(context, wanted(interest))).await;
            Ok(self.as_ready(readiness, interest))
        }

        /// Calls `call` if the stream has a readiness of `interest`.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if it is not ready; else the errors of `call`.
        pub fn try_io<R>(
            &self,
            interest: Interest,
            call: impl FnOnce() -> io::Result<R>,
        ) -> io::Result<R> {
            let readiness = self.local.host().readiness(self.local.now(), self.id);
            if self.as_ready(readiness, interest).is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            call()
        }

        /// Calls `call` until it returns a result other than `WouldBlock`. Before each call it
        /// waits until the stream has a readiness of `interest`.
        pub async fn async_io<R>(
            &self,
            interest: Interest,
            mut call: impl FnMut() -> io::Result<R>,
        ) -> io::Result<R> {
            poll_fn(|context| {
                ready!(self.poll_ready(context, wanted(interest)));
                match call() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.wait(context, wanted(interest));
                        Poll::Pending
                    }
                    result => Poll::Ready(result),
                }
            })
            .await
        }

        fn as_ready(&self, readiness: Readiness, interest: Interest) -> Ready {
            as_ready(readiness, interest, || self.local.host().is_at_end(self.id))
        }
    }
}
