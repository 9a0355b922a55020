//! The inbox of wakes from other threads: the only part of a shard that other threads touch.
//!
//! A task's waker may be on any thread, so that it cannot reach the shard's own ready queue. It
//! puts the task's place here and rouses the thread that runs the shard. It does that by the
//! eventfd that this thread sleeps on, or by the waker of the task that drives the shard under
//! another runtime.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes from other threads.
#[derive(Debug)]
pub(crate) struct Inbox {
    contents: Mutex<Contents>,
    /// The inbox is not empty. Set under the lock; read without it, once a turn.
    filled: AtomicBool,
    /// Readable while the inbox is not empty, unless `driver` is set.
    event: OwnedFd,
}

#[derive(Debug, Default)]
struct Contents {
    /// The places of the tasks to be woken.
    places: Vec<u32>,
    driver: Option<Waker>,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        Ok(Inbox {
            contents: Mutex::default(),
            filled: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Wakes the task at `place`.
    pub(super) fn wake(&self, place: u32) {
        let mut contents = self.lock();
        contents.places.push(place);
        self.rouse(contents);
    }

    /// Rouses the thread that runs the shard, for no task in particular.
    pub(crate) fn nudge(&self) {
        self.rouse(self.lock());
    }

    fn rouse(&self, contents: MutexGuard<'_, Contents>) {
        if self.filled.swap(true, Ordering::AcqRel) {
            return;
        }
        let driver = contents.driver.clone();
        drop(contents);
        match driver {
            Some(waker) => waker.wake(),
            // The counter cannot overflow: it is written once between two calls of `empty`.
            None => drop(rustix::io::write(&self.event, &1u64.to_ne_bytes())),
        }
    }

    /// Empties the inbox, and hands each place to `sink`.
    pub(super) fn empty(&self, mut sink: impl FnMut(u32)) {
        if !self.filled.load(Ordering::Acquire) {
            return;
        }
        let mut contents = self.lock();
        let places = std::mem::take(&mut contents.places);
        // Read before the flag is cleared: a wake that comes after it writes again.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.filled.store(false, Ordering::Release);
        drop(contents);
        places.into_iter().for_each(&mut sink);
    }

    /// True if the inbox is not empty.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Sets the waker that is woken, instead of the eventfd, when the inbox is filled.
    #[cfg(feature = "tokio-driver")]
    pub(crate) fn set_driver(&self, driver: &Waker) {
        let mut contents = self.lock();
        match &mut contents.driver {
            Some(known) => known.clone_from(driver),
            none => *none = Some(driver.clone()),
        }
    }

    /// The descriptor to sleep on: readable when the inbox is not empty.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The lock. A panic under it leaves nothing half-done.
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    fn is_readable(inbox: &Inbox) -> bool {
        let event = inbox.event();
        let mut fds = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&zero)).unwrap() == 1
    }

    fn contents(inbox: &Inbox) -> Vec<u32> {
        let mut tasks = Vec::new();
        inbox.empty(|task| tasks.push(task));
        tasks
    }

    #[test]
    fn what_goes_in_comes_out_once_and_rouses_the_sleeper() {
        let inbox = Inbox::new().unwrap();
        assert!(!is_readable(&inbox) && !inbox.is_filled());
        let (a, b) = (1, 2);
        inbox.wake(a);
        inbox.wake(b);
        assert!(is_readable(&inbox) && inbox.is_filled());
        assert_eq!(contents(&inbox), [a, b]);
        assert!(!is_readable(&inbox) && !inbox.is_filled());
        assert_eq!(contents(&inbox), []);
        inbox.nudge();
        assert!(is_readable(&inbox));
    }

    #[test]
    fn a_driver_is_woken_instead_of_the_eventfd_once_a_filling() {
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (inbox, count) = (Inbox::new().unwrap(), Arc::new(Count(AtomicUsize::new(0))));
        inbox.set_driver(&Waker::from(count.clone()));
        inbox.nudge();
        inbox.nudge();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(!is_readable(&inbox));
        inbox.empty(|_| ());
        inbox.nudge();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
