//! One answer from another thread: the asker waits as a task, or blocks.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where to put the answer. If it is dropped before, the asker gets `None`.
pub(crate) struct Answerer<T> {
    shared: Arc<Shared<T>>,
}

/// The answer to come; `None` if there will be none.
pub(crate) struct Answer<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    answer: Option<T>,
    is_over: bool,
    waker: Option<Waker>,
}

/// Both ends of one answer.
pub(crate) fn answer<T>() -> (Answerer<T>, Answer<T>) {
    let state = Mutex::new(State { answer: None, is_over: false, waker: None });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (Answerer { shared: shared.clone() }, Answer { shared })
}

impl<T> Answerer<T> {
    /// True while somebody waits for it, or may.
    pub(crate) fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    pub(crate) fn give(self, answer: T) {
        self.shared.lock().answer = Some(answer);
        // The drop wakes.
    }
}

impl<T> Drop for Answerer<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let waker = state.waker.take();
        // Woken with nothing locked: a waker may call anything.
        drop(state);
        self.shared.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Answer<T> {
    /// Blocks this thread until the answer is there.
    pub(crate) fn wait(self) -> Option<T> {
        let state = self.shared.lock();
        let state = self.shared.changed.wait_while(state, |state| !state.is_over);
        state.unwrap_or_else(PoisonError::into_inner).answer.take()
    }
}

impl<T> Future for Answer<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.shared.lock();
        if state.is_over {
            return Poll::Ready(state.answer.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Shared<T> {
    /// The lock. A panic under it leaves nothing half-done.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn an_answer_comes_to_who_blocks_and_to_who_polls() {
        let (answerer, wanted) = answer();
        assert!(answerer.is_wanted());
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            answerer.give(7);
        });
        assert_eq!(wanted.wait(), Some(7));
        thread.join().unwrap();
        let (answerer, mut wanted) = answer();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut wanted).poll(&mut context), Poll::Pending);
        answerer.give(8);
        assert_eq!(Pin::new(&mut wanted).poll(&mut context), Poll::Ready(Some(8)));
    }

    #[test]
    fn without_an_answerer_there_is_no_answer_and_nobody_hangs() {
        let (answerer, wanted) = answer::<u8>();
        drop(answerer);
        assert_eq!(wanted.wait(), None);
        let (answerer, wanted) = answer::<u8>();
        drop(wanted);
        assert!(!answerer.is_wanted());
    }
}
