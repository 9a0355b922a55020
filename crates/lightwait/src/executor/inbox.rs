//! The inbox of wakes from other threads: the only part of a shard that other threads touch.
//!
//! A task's waker may be on any thread, so that it cannot reach the shard's own ready queue. It
//! puts the task's place here and wakes the driver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Wakes from other threads.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    contents: Mutex<Contents>,
    /// The inbox is not empty. Set under the lock; read without it, once a turn.
    filled: AtomicBool,
}

#[derive(Debug, Default)]
struct Contents {
    /// The places of the tasks to be woken.
    places: Vec<u32>,
    /// Where `places` were before: the memory is used again.
    spare: Vec<u32>,
    driver: Option<Waker>,
}

impl Inbox {
    /// Wakes the task at `place`.
    pub(super) fn wake(&self, place: u32) {
        let mut contents = self.lock();
        contents.places.push(place);
        if self.filled.swap(true, Ordering::AcqRel) {
            return;
        }
        let driver = contents.driver.clone();
        drop(contents);
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Empties the inbox, and hands each place to `sink`.
    pub(super) fn empty(&self, mut sink: impl FnMut(u32)) {
        if !self.filled.load(Ordering::Acquire) {
            return;
        }
        let mut contents = self.lock();
        let spare = std::mem::take(&mut contents.spare);
        let mut places = std::mem::replace(&mut contents.places, spare);
        self.filled.store(false, Ordering::Release);
        drop(contents);
        places.drain(..).for_each(&mut sink);
        self.lock().spare = places;
    }

    /// True if the inbox is not empty.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Sets the driver's waker, which is woken when the inbox is filled.
    pub(crate) fn set_driver(&self, driver: &Waker) {
        let mut contents = self.lock();
        match &mut contents.driver {
            Some(known) => known.clone_from(driver),
            none => *none = Some(driver.clone()),
        }
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

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn contents(inbox: &Inbox) -> Vec<u32> {
        let mut tasks = Vec::new();
        inbox.empty(|task| tasks.push(task));
        tasks
    }

    #[test]
    fn what_goes_in_comes_out_once_and_wakes_the_driver_once() {
        let (inbox, count) = (Inbox::default(), Arc::new(Count(AtomicUsize::new(0))));
        let wakes = || count.0.load(Ordering::Relaxed);
        inbox.wake(0);
        assert!(inbox.is_filled(), "without a driver");
        assert_eq!(contents(&inbox), [0]);
        inbox.set_driver(&Waker::from(count.clone()));
        assert!(!inbox.is_filled());
        inbox.wake(1);
        inbox.wake(2);
        assert_eq!((inbox.is_filled(), wakes()), (true, 1));
        assert_eq!(contents(&inbox), [1, 2]);
        assert!(!inbox.is_filled());
        assert_eq!(contents(&inbox), []);
        inbox.wake(3);
        assert_eq!(wakes(), 2);
    }
}
