//! A device's descriptor, watched by a tokio runtime, which wakes the driver's task.
#![allow(unsafe_code, reason = "tokio's registration of a descriptor is unsafe to call")]

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A duplicate of a device's descriptor, registered with tokio. The registration stays private, so
/// that no other code can exchange the descriptor under it.
pub(crate) struct Watch {
    registered: Arc<AsyncFd<OwnedFd>>,
    /// Ready once the descriptor has failed; gone after that. A TUN that is deleted has an error,
    /// and is neither readable nor writable.
    failure: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("registered", &self.registered).finish_non_exhaustive()
    }
}

impl Watch {
    /// Watches `fd` in both directions, and for errors.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O enabled.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Watch> {
        let fd = fd.try_clone_to_owned()?;
        // SAFETY: `fd` owns an open descriptor and is moved in. `Watch` never hands out the
        // `AsyncFd`, whose `get_mut` could exchange it: so it stays open, and the same, until the
        // registration is dropped.
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
        let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
        let registered = Arc::new(registered.map_err(io::Error::from)?);
        let watched = registered.clone();
        let failure: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { _ = watched.ready(Interest::ERROR).await });
        Ok(Watch { registered, failure: Some(failure) })
    }

    /// Forgets earlier readiness. Wakes the task when the descriptor becomes readable or fails, or
    /// becomes writable if `writable`. The caller must then take everything that is available.
    pub(crate) fn rearm(&mut self, writable: bool, context: &mut Context<'_>) -> io::Result<()> {
        // The turn that follows finds the error.
        self.failure.take_if(|failure| failure.as_mut().poll(context).is_ready());
        // A descriptor whose other end is closed stays ready. Nothing else comes there, and the
        // turn finds its end.
        while let Poll::Ready(guard) = self.registered.poll_read_ready(context) {
            let mut guard = guard?;
            if guard.ready().is_read_closed() {
                break;
            }
            guard.clear_ready();
        }
        while writable && let Poll::Ready(guard) = self.registered.poll_write_ready(context) {
            let mut guard = guard?;
            if guard.ready().is_write_closed() {
                break;
            }
            guard.clear_ready();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn a_closed_descriptor_does_not_hold_the_driver() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (near, far) = UnixStream::pair().unwrap();
            let mut watch = Watch::new(near.as_fd()).unwrap();
            poll_fn(|context| Poll::Ready(watch.rearm(true, context))).await.unwrap();
            drop(far);
            tokio::time::sleep(Duration::from_millis(5)).await;
            poll_fn(|context| Poll::Ready(watch.rearm(true, context))).await.unwrap();
        });
    }
}
