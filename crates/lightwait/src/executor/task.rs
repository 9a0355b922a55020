//! A task: a future of any type, its output, and its waker.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use super::inbox::Inbox;
use crate::shard::state;

/// A task, or the resources that an ended one leaves to the next in its place.
pub(crate) struct Task {
    pub(super) place: u32,
    /// `None` while the future is being polled. After the task's end the box is empty.
    pub(super) work: Cell<Option<Pin<Box<dyn Work>>>>,
    /// The task is in the ready queue.
    pub(super) is_queued: Cell<bool>,
    pub(super) waker: Waker,
    pub(super) state: RefCell<State>,
}

/// The state of a task as its handle sees it.
pub(super) enum State {
    /// The task has no handle, or no longer.
    Detached,
    /// The task has not ended. Holds the waker of the handle that waits.
    Running(Option<Waker>),
    /// The output, and what a panic of its drop does.
    Finished(Box<dyn Any>, Panics),
    Panicked(Panic),
    Aborted,
}

/// The payload of a task's panic.
pub(super) type Panic = Box<dyn Any + Send>;

/// What a panic in a task's code does. A task's code is also the drop of its future and of its
/// output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Panics {
    /// It unwinds the caller.
    #[default]
    Unwind,
    /// It ends the task alone.
    Contained,
}

impl Panics {
    /// Calls `run`.
    ///
    /// # Errors
    /// The payload of a panic that is contained.
    #[inline]
    pub(super) fn call<R>(self, run: impl FnOnce() -> R) -> Result<R, Panic> {
        match self {
            Panics::Unwind => Ok(run()),
            Panics::Contained => catch_unwind(AssertUnwindSafe(run)),
        }
    }

    /// Drops what nobody waits for. The panic hook reports a panic that is contained.
    pub(super) fn discard<T>(self, unwanted: T) {
        if let Err(panic) = self.call(|| drop(unwanted))
            // A payload is a value of the task's, and its drop may panic, too.
            && let Err(endless) = self.call(|| drop(panic))
        {
            std::mem::forget(endless);
        }
    }
}

/// Room for futures of one type, one after the other.
pub(super) trait Work {
    /// Polls the future, and drops it when it ends; pending if there is none.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Box<dyn Any>>;

    /// Takes the future from `next`, an `Option` of one. Returns false if its type differs.
    fn refill(self: Pin<&mut Self>, next: &mut dyn Any) -> bool;
}

impl<F: Future + 'static> Work for Option<F> {
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Box<dyn Any>> {
        let Some(future) = self.as_mut().as_pin_mut() else { return Poll::Pending };
        let output = ready!(future.poll(context));
        self.set(None);
        Poll::Ready(Box::new(output))
    }

    fn refill(mut self: Pin<&mut Self>, next: &mut dyn Any) -> bool {
        let Some(next) = next.downcast_mut::<Self>() else { return false };
        self.set(next.take());
        true
    }
}

impl Task {
    pub(super) fn new(place: u32, inbox: Arc<Inbox>) -> Task {
        Task {
            place,
            work: Cell::default(),
            is_queued: Cell::default(),
            waker: Waker::from(Arc::new(TaskWaker { place, inbox })),
            state: RefCell::new(State::Detached),
        }
    }

    /// Starts a future, in the memory of the last one if that had the same type.
    #[inline]
    pub(super) fn take_on<F: Future + 'static>(&self, future: F) {
        let mut next = Some(future);
        if let Some(mut room) = self.work.take()
            && room.as_mut().refill(&mut next)
        {
            self.work.set(Some(room));
        } else {
            self.work.set(Some(Box::pin(next)));
        }
    }

    /// Sets how the task ended, once, and wakes the handle that waits. Drops `end` if there is no
    /// handle.
    pub(super) fn end(&self, end: State) {
        let mut state = self.state.borrow_mut();
        if let State::Running(waiter) = &mut *state {
            let waiter = waiter.take();
            *state = end;
            drop(state);
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
    }

    /// True if the task has a handle.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        !matches!(*self.state.borrow(), State::Detached)
    }

    /// True if the task has a handle and has not ended.
    pub(super) fn is_running(&self) -> bool {
        matches!(*self.state.borrow(), State::Running(_))
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.place).finish()
    }
}

/// The part of a task's waker that other threads share.
struct TaskWaker {
    place: u32,
    inbox: Arc<Inbox>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_ours = state::with_current(|current| match current {
            Some(local) if Arc::ptr_eq(local.executor().inbox(), &self.inbox) => {
                local.executor().make_ready(self.place);
                true
            }
            _ => false,
        });
        if !is_ours {
            self.inbox.wake(self.place);
        }
    }
}
