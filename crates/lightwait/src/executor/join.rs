//! The handle of a spawned task: it waits for the task's result.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::task::{Panic, Panics, State, Task};
use crate::shard::state::Local;

/// Waits for a task's end. The task goes on if the handle is dropped.
pub struct JoinHandle<T> {
    pub(super) task: Rc<Task>,
    local: Weak<Local>,
    /// Takes the task's output out of its box.
    unbox: fn(Box<dyn Any>) -> T,
}

/// The task ended without a result: it panicked, it was aborted, or its shard is gone.
pub struct JoinError {
    /// Locked so that the error is `Sync`, as `std::io::Error` asks of its causes.
    panic: Option<Mutex<Panic>>,
}

impl JoinError {
    /// True if the task was aborted, or its shard is gone.
    pub fn is_cancelled(&self) -> bool {
        self.panic.is_none()
    }

    /// True if the task panicked.
    pub fn is_panic(&self) -> bool {
        self.panic.is_some()
    }

    /// The payload of the task's panic, for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    /// If the task did not panic.
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        self.try_into_panic().expect("the task did not panic")
    }

    /// The payload of the task's panic.
    ///
    /// # Errors
    /// The error itself, if the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        let panic = self.panic.ok_or(JoinError { panic: None })?;
        Ok(panic.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(panic) = &self.panic else { return f.write_str("the task was aborted") };
        let panic = panic.lock().unwrap_or_else(PoisonError::into_inner);
        let text = panic.downcast_ref::<&str>().copied();
        match text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)) {
            Some(text) => write!(f, "the task panicked: {text}"),
            None => f.write_str("the task panicked"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl Error for JoinError {}

impl<T> JoinHandle<T> {
    /// The handle of a task with an output of type `T`.
    #[inline]
    pub(super) fn new(task: Rc<Task>, local: &Rc<Local>) -> Self
    where
        T: 'static,
    {
        let unbox = |output: Box<dyn Any>| *output.downcast().expect("the task's own output");
        task.state.replace(State::Running(None));
        JoinHandle { task, local: Rc::downgrade(local), unbox }
    }

    /// The task's waker, for any thread.
    pub(crate) fn waker(&self) -> &Waker {
        &self.task.waker
    }

    /// Drops the task's future. A task that has ended, or is running now, stays. If the drop panics
    /// and panics are contained, the task has panicked.
    pub fn abort(&self) {
        let Some(local) = self.local.upgrade() else { return };
        if !self.task.is_running() {
            return;
        }
        let Some(work) = self.task.work.take() else { return };
        local.executor().vacate(&self.task);
        local.executor().end_aborted(&self.task, work);
    }

    /// True if the task has ended.
    pub fn is_finished(&self) -> bool {
        !self.task.is_running()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.task.state.borrow_mut();
        match std::mem::replace(&mut *state, State::Aborted) {
            State::Running(_) => {
                *state = State::Running(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Finished(output, _) => Poll::Ready(Ok((self.unbox)(output))),
            State::Panicked(panic) => {
                Poll::Ready(Err(JoinError { panic: Some(Mutex::new(panic)) }))
            }
            State::Aborted | State::Detached => Poll::Ready(Err(JoinError { panic: None })),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        // Dropped with nothing borrowed: the output's drop may call anything.
        match self.task.state.replace(State::Detached) {
            State::Finished(output, panics) => panics.discard(output),
            // The task's panic was contained.
            State::Panicked(panic) => Panics::Contained.discard(panic),
            State::Running(_) | State::Aborted | State::Detached => {}
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("task", &self.task.place)
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
