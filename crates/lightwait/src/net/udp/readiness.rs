//! Waits until a socket can be read or written, by tokio's methods.

use std::io;
use std::task::{Context, Poll};

use lightwait_core::Readiness;

use super::UdpSocket;
use crate::net::waiting::Waitable;

impl UdpSocket {
    /// Waits until there is a datagram to read, or an error. The read may still block: another task
    /// may have been first.
    pub async fn readable(&self) -> io::Result<()> {
        self.waiting(Readiness::READABLE).ready().await;
        Ok(())
    }

    /// Waits until there is room to send, or an error.
    pub async fn writable(&self) -> io::Result<()> {
        self.waiting(Readiness::WRITABLE).ready().await;
        Ok(())
    }

    /// [`UdpSocket::readable`] for callers that poll by hand. Of the tasks that poll for reading
    /// the last one waits.
    pub fn poll_recv_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.crossing().poll_ready(Readiness::READABLE, context)
    }

    /// [`UdpSocket::writable`] for callers that poll by hand. Of the tasks that poll for sending
    /// the last one waits.
    pub fn poll_send_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.crossing().poll_ready(Readiness::WRITABLE, context)
    }
}

#[cfg(feature = "tokio-driver")]
mod interest {
    use std::io;

    use lightwait_core::Readiness;
    use tokio::io::{Interest, Ready};

    use super::UdpSocket;
    use crate::interest::{as_ready, wanted};
    use crate::net::waiting::Waitable;

    impl UdpSocket {
        /// Waits until the socket has a readiness of `interest`, and returns it.
        pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
            let readiness = self.waiting(wanted(interest)).ready().await;
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
            let readiness: Readiness = self.crossing().look(|readiness, _, _| readiness);
            if as_ready(readiness, interest, || false).is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            call()
        }

        /// Calls `call` until it returns a result other than `WouldBlock`. Before each call it
        /// waits until the socket has a readiness of `interest`, and that has changed since the
        /// last one.
        pub async fn async_io<R>(
            &self,
            interest: Interest,
            call: impl FnMut() -> io::Result<R>,
        ) -> io::Result<R> {
            self.waiting(wanted(interest)).call(call).await
        }
    }
}
