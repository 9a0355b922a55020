//! A device's descriptor, watched by a tokio runtime, which wakes the driver's task.
#![allow(unsafe_code, reason = "tokio's registration of a descriptor is unsafe to call")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::unix::AsyncFd;

/// A duplicate of a device's descriptor, registered with tokio. The registration stays private, so
/// that no other code can exchange the descriptor under it.
#[derive(Debug)]
pub(crate) struct Watch {
    registered: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Watches `fd` in both directions.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O enabled.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Watch> {
        let fd = fd.try_clone_to_owned()?;
        // SAFETY: `fd` owns an open descriptor and is moved in. `Watch` never hands out the
        // `AsyncFd`, whose `get_mut` could exchange it: so it stays open, and the same, until the
        // registration is dropped.
        let registered = unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)?;
        Ok(Watch { registered })
    }

    /// Forgets earlier readiness. Wakes the task when the descriptor becomes readable, or writable
    /// if `writable`. The caller must then take everything that is available.
    pub(crate) fn rearm(&self, writable: bool, context: &mut Context<'_>) -> io::Result<()> {
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
            let watch = Watch::new(near.as_fd()).unwrap();
            let rearm = || poll_fn(|context| Poll::Ready(watch.rearm(true, context)));
            rearm().await.unwrap();
            drop(far);
            tokio::time::sleep(Duration::from_millis(5)).await;
            rearm().await.unwrap();
        });
    }
}
