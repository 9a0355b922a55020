//! Waits until a socket can be read or written, by tokio's methods.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use lightwait_core::Readiness;

use super::UdpSocket;

impl UdpSocket {
    /// Waits until there is a datagram to read, or an error. The read may still block: another task
    /// may have been first.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_recv_ready(context)).await
    }

    /// Waits until there is room to send, or an error.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_send_ready(context)).await
    }

    /// [`UdpSocket::readable`] for callers that poll by hand.
    pub fn poll_recv_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, Readiness::READABLE).map(|_| Ok(()))
    }

    /// [`UdpSocket::writable`] for callers that poll by hand.
    pub fn poll_send_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(context, Readiness::WRITABLE).map(|_| Ok(()))
    }

    /// Ready when the socket has one of the `wanted` kinds of readiness.
    fn poll_ready(&self, context: &Context<'_>, wanted: Readiness) -> Poll<Readiness> {
        let readiness = self.local.host().udp_readiness(self.id);
        if readiness.without(wanted) != readiness {
            return Poll::Ready(readiness);
        }
        self.wait(context, wanted);
        Poll::Pending
    }

    fn wait(&self, context: &Context<'_>, wanted: Readiness) {
        if wanted.contains(Readiness::READABLE) {
            self.wait_readable(context);
        }
        if wanted.contains(Readiness::WRITABLE) {
            self.wait_writable(context);
        }
    }
}

#[cfg(feature = "tokio-driver")]
mod interest {
    use std::future::poll_fn;
    use std::io;
    use std::task::{Poll, ready};

    use tokio::io::{Interest, Ready};

    use super::UdpSocket;
    use crate::interest::{as_ready, wanted};

    impl UdpSocket {
        /// Waits until the socket has a readiness of `interest`, and returns it.
        pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
            let readiness = poll_fn(|context| self.poll_ready(context, wanted(interest))).await;
            Ok(as_ready(readiness, interest, || false))
        }

        /// Calls `call` if the socket has a readiness of `interest`.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if it is not ready; else the errors of `call`.
        pub fn try_io<R>(
            &self,
            interest: Interest,
            call: impl FnOnce() -> io::Result<R>,
        ) -> io::Result<R> {
            let readiness = self.local.host().udp_readiness(self.id);
            if as_ready(readiness, interest, || false).is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            call()
        }

        /// Calls `call` until it returns a result other than `WouldBlock`. Before each call it
        /// waits until the socket has a readiness of `interest`.
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
    }
}
