//! The sleep of a thread that drives, and the waker that ends it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::Driven;

/// Where a thread sleeps. Any thread rouses it, as a [`Waker`](std::task::Waker) or by
/// [`Sleeper::rouse`].
#[derive(Debug)]
pub(super) struct Sleeper {
    /// Roused since the last sleep: the descriptor is readable, or is about to be.
    is_roused: AtomicBool,
    event: OwnedFd,
}

impl Sleeper {
    pub(super) fn new() -> io::Result<Arc<Sleeper>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Sleeper { is_roused: AtomicBool::new(false), event }))
    }

    /// Ends the sleep, or the next one.
    pub(super) fn rouse(&self) {
        // A thread that is awake is roused often. It pays for one write, and one sleep cut short.
        if !self.is_roused.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow: it is written once between two sleeps.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps until a descriptor of `all` is ready, someone rouses the thread, or `wait` is over.
    pub(super) fn sleep<D: Driven>(&self, all: &[D], wait: Option<Duration>) -> io::Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)];
        for driven in all {
            driven.descriptors(&mut |descriptor| {
                let writable =
                    if descriptor.wants_writable { PollFlags::OUT } else { PollFlags::empty() };
                fds.push(PollFd::from_borrowed_fd(descriptor.fd, PollFlags::IN | writable));
            });
        }
        // A wait too long for the kernel's type is as good as none.
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            // Read before the flag is cleared: a rousing that comes after it writes again. One in
            // between has its work done in the turn that follows.
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
            self.is_roused.swap(false, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.rouse();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rouse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Shard;
    use std::time::Instant;

    const NOTHING: &[Shard] = &[];
    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_thread_is_roused_from_its_sleep_or_the_next_one_once() {
        let (sleeper, begin) = (Sleeper::new().unwrap(), Instant::now());
        for _ in 0..3 {
            sleeper.rouse();
            sleeper.rouse();
            sleeper.sleep(NOTHING, Some(LONG)).unwrap();
        }
        assert!(begin.elapsed() < LONG);
        let begin = Instant::now();
        sleeper.sleep(NOTHING, Some(SHORT)).unwrap();
        assert!(begin.elapsed() >= SHORT, "roused once more");
        let other = sleeper.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            other.rouse();
        });
        sleeper.sleep(NOTHING, None).unwrap();
        thread.join().unwrap();
    }
}
