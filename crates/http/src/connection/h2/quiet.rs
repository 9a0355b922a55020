//! A waker that keeps still while the connection is polled anyway. h2 wakes the connection for each
//! thing that a stream does, and every such wake would be a turn of the shard for nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// The waker of a connection's task, for what is polled within it.
pub(super) struct Quiet {
    task: Mutex<Waker>,
    is_polled: AtomicBool,
    is_woken: AtomicBool,
}

impl Quiet {
    pub(super) fn new() -> Arc<Quiet> {
        let task = Mutex::new(Waker::noop().clone());
        let (is_polled, is_woken) = Default::default();
        Arc::new(Quiet { task, is_polled, is_woken })
    }

    /// From now on wakes are kept.
    pub(super) fn begin(&self, task: &Waker) {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(task);
        self.is_woken.store(false, Ordering::SeqCst);
        self.is_polled.store(true, Ordering::SeqCst);
    }

    /// True if a wake was kept since this was asked last.
    pub(super) fn takes_wake(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }

    /// From now on wakes are handed on. One that was kept is, too.
    pub(super) fn end(&self) {
        // Whoever wakes says so first and looks then: one of the two sees the other.
        self.is_polled.store(false, Ordering::SeqCst);
        if self.takes_wake() {
            self.wake_task();
        }
    }

    fn wake_task(&self) {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

impl Wake for Quiet {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polled.load(Ordering::SeqCst) {
            self.wake_task();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_is_kept_while_it_is_polled_and_no_longer() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let woken = || count.0.load(Ordering::Relaxed);
        let (task, quiet) = (Waker::from(count.clone()), Quiet::new());
        let waker = Waker::from(quiet.clone());
        quiet.begin(&task);
        assert!(!quiet.takes_wake());
        waker.wake_by_ref();
        assert!(quiet.takes_wake() && !quiet.takes_wake());
        quiet.end();
        assert_eq!(woken(), 0, "it was seen");
        quiet.begin(&task);
        waker.wake_by_ref();
        assert_eq!(woken(), 0);
        quiet.end();
        assert_eq!(woken(), 1, "it was not seen");
        waker.wake_by_ref();
        assert_eq!(woken(), 2);
    }
}
