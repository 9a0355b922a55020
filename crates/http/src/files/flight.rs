//! One piece of work that several tasks share: a task that asks while the work is in progress joins
//! it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::Pending;

/// Work with one result for every task that joins it. Any of them does the work when polled. The
/// work ends unfinished when no task is left.
pub(crate) struct Flight<T> {
    work: RefCell<Option<Pending<T>>>,
    result: RefCell<Option<T>>,
    waiting: Arc<Waiting>,
    joined: Cell<u64>,
}

impl<T: Clone> Flight<T> {
    pub(crate) fn new(work: Pending<T>) -> Rc<Self> {
        Rc::new(Flight {
            work: RefCell::new(Some(work)),
            result: RefCell::new(None),
            waiting: Arc::default(),
            joined: Cell::new(0),
        })
    }

    /// True once there is a result.
    pub(crate) fn is_over(&self) -> bool {
        self.result.borrow().is_some()
    }

    /// Waits for the result.
    pub(crate) fn join(self: &Rc<Self>) -> Join<T> {
        let number = self.joined.get();
        self.joined.set(number + 1);
        Join { flight: self.clone(), number }
    }
}

/// A task that waits for the result of a flight.
pub(crate) struct Join<T> {
    flight: Rc<Flight<T>>,
    number: u64,
}

impl<T: Clone> Future for Join<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let flight = &self.flight;
        if let Some(result) = &*flight.result.borrow() {
            return Poll::Ready(result.clone());
        }
        flight.waiting.add(self.number, cx.waker());
        let mut slot = flight.work.borrow_mut();
        let Some(work) = &mut *slot else { return Poll::Pending };
        let waker = Waker::from(flight.waiting.clone());
        let Poll::Ready(result) = work.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return Poll::Pending;
        };
        *slot = None;
        *flight.result.borrow_mut() = Some(result.clone());
        flight.waiting.wake_by_ref();
        Poll::Ready(result)
    }
}

impl<T> Drop for Join<T> {
    fn drop(&mut self) {
        self.flight.waiting.remove(self.number);
    }
}

/// The wakers of the waiting tasks, by number; any thread may wake them.
#[derive(Default)]
struct Waiting(Mutex<BTreeMap<u64, Waker>>);

impl Waiting {
    fn add(&self, number: u64, waker: &Waker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, waker.clone());
    }

    fn remove(&self, number: u64) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        drop(waker);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Woken outside the lock: a waker may run anything.
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::local;
    use tokio::sync::oneshot;
    use tokio::task::spawn_local;

    #[tokio::test]
    async fn all_share_one_result_though_the_first_has_gone() {
        local(async {
            let (send, receive) = oneshot::channel();
            let begun = Rc::new(Cell::new(0));
            let count = begun.clone();
            let flight = Flight::new(Box::pin(async move {
                count.set(count.get() + 1);
                receive.await.unwrap()
            }));
            let mut all: Vec<_> = (0..3).map(|_| spawn_local(flight.join())).collect();
            tokio::task::yield_now().await;
            all.remove(0).abort();
            tokio::task::yield_now().await;
            assert!(!flight.is_over());
            send.send(7).unwrap();
            for one in all {
                assert_eq!(one.await.unwrap(), 7);
            }
            assert_eq!((flight.join().await, begun.get(), flight.is_over()), (7, 1, true));
        })
        .await;
    }

    #[test]
    fn who_has_gone_is_woken_no_more() {
        let flight = Flight::<u8>::new(Box::pin(std::future::pending()));
        let mut join = Box::pin(flight.join());
        assert!(join.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(join);
        assert!(flight.waiting.0.lock().unwrap().is_empty());
    }
}
