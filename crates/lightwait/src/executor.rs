//! Tasks of one shard: ordinary futures that need not be `Send`, polled by the shard's turn.
//!
//! A task's waker is an ordinary one (`Send + Sync`). Woken on the shard's own thread, in its turn,
//! it puts the task on the ready queue, with neither lock nor atomic. Woken from elsewhere it goes
//! through the `inbox`. A task's resources, the memory of its future included, are reused by the
//! next task in its place. A waker that outlives its task therefore wakes the next one there, which
//! is harmless.
//!
//! A panic in a task unwinds the turn, and ends what drives the shard, unless panics are contained
//! ([`Handle::contain_panics`], the default of a [`Stack`]): then it ends that task alone, and its
//! [`JoinHandle`] returns it, as tokio's does. The drop of a task's future, or of an output that
//! nobody takes, is the task's code as its poll is.
//!
//! [`Handle::contain_panics`]: crate::shard::Handle::contain_panics
//! [`Stack`]: crate::Stack

pub(crate) mod inbox;
mod join;
mod task;

pub use join::{JoinError, JoinHandle};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use inbox::Inbox;
pub(crate) use task::Task;
use task::{Panic, Panics, State, Work};

use crate::shard::state::{self, Local};
use crate::shard::waiters::Waiter;

/// The tasks of one shard.
pub(crate) struct Executor {
    places: RefCell<Places>,
    /// Tasks to be polled; some may have ended.
    ready: RefCell<VecDeque<Rc<Task>>>,
    /// The place of the task that is being polled, or that was polled last.
    current: Cell<u32>,
    inbox: Arc<Inbox>,
    panics: Cell<Panics>,
}

#[derive(Default)]
struct Places {
    /// In a free place, the resources for the next task.
    tasks: Vec<Option<Rc<Task>>>,
    free: Vec<u32>,
}

/// Free places that keep their last task's resources, the memory of its future included.
const KEPT_TASKS: usize = 256;

impl Executor {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        let (places, ready, panics) = Default::default();
        Executor { places, ready, current: Cell::default(), inbox, panics }
    }

    /// Sets whether a panic in a task ends that task alone.
    pub(crate) fn contain_panics(&self, contains: bool) {
        self.panics.set(if contains { Panics::Contained } else { Panics::Unwind });
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Adds a task; its first poll is in the next turn.
    #[inline]
    fn spawn<F: Future + 'static>(&self, future: F) -> Rc<Task> {
        let task = self.occupy();
        task.take_on(future);
        self.enqueue(task.clone());
        task
    }

    /// Takes a free place, and returns its task.
    fn occupy(&self) -> Rc<Task> {
        let mut places = self.places.borrow_mut();
        let place = places.free.pop().unwrap_or_else(|| {
            places.tasks.push(None);
            u32::try_from(places.tasks.len() - 1).expect("fewer than 2^32 tasks")
        });
        let new = || Rc::new(Task::new(place, self.inbox.clone()));
        places.tasks[place as usize].get_or_insert_with(new).clone()
    }

    /// Puts a task on the ready queue, unless it is queued already.
    #[inline]
    pub(crate) fn enqueue(&self, task: Rc<Task>) {
        if !task.is_queued.replace(true) {
            self.ready.borrow_mut().push_back(task);
        }
    }

    /// Puts the task at `place` on the ready queue.
    fn make_ready(&self, place: u32) {
        if let Some(task) = self.task_at(place) {
            self.enqueue(task);
        }
    }

    #[inline]
    fn task_at(&self, place: u32) -> Option<Rc<Task>> {
        self.places.borrow().tasks.get(place as usize)?.clone()
    }

    /// Returns what that waker wakes: the task that is being polled, in nearly all cases.
    #[inline]
    pub(crate) fn waiter(&self, waker: &Waker) -> Waiter {
        match self.task_at(self.current.get()) {
            Some(task) if task.waker.will_wake(waker) => Waiter::Task(task),
            _ => Waiter::Other(waker.clone()),
        }
    }

    /// Wakes a task or another waker. Call it with nothing borrowed: a waker may call anything.
    pub(crate) fn wake(&self, waiter: Waiter) {
        match waiter {
            Waiter::Task(task) => self.enqueue(task),
            Waiter::Other(waker) => waker.wake(),
        }
    }

    /// Polls ready tasks, at most `budget`, and returns their number.
    pub(crate) fn run(&self, budget: usize) -> usize {
        self.inbox.empty(|place| self.make_ready(place));
        for polled in 0..budget {
            let Some(task) = self.ready.borrow_mut().pop_front() else { return polled };
            self.poll(&task);
        }
        budget
    }

    /// True if a task is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty() || self.inbox.is_filled()
    }

    /// Tasks that have not ended.
    pub(crate) fn len(&self) -> usize {
        let places = self.places.borrow();
        places.tasks.len() - places.free.len()
    }

    /// Drops every task, and those that are spawned meanwhile.
    pub(crate) fn clear(&self) {
        let mut has_found = true;
        while std::mem::take(&mut has_found) {
            let count = self.places.borrow().tasks.len();
            for place in 0..count {
                let task = self.places.borrow_mut().tasks[place].take();
                // Dropped here, with nothing borrowed: a future's drop may call anything.
                if let Some(task) = task {
                    has_found = true;
                    if let Some(work) = task.work.take() {
                        self.end_aborted(&task, work);
                    }
                }
            }
        }
        *self.places.borrow_mut() = Places::default();
        self.ready.borrow_mut().clear();
    }

    fn poll(&self, task: &Task) {
        task.is_queued.set(false);
        let Some(mut work) = task.work.take() else { return };
        self.current.set(task.place);
        let mut context = Context::from_waker(&task.waker);
        let panics = self.panics.get();
        match panics.call(|| work.as_mut().poll(&mut context)) {
            Ok(Poll::Pending) => task.work.set(Some(work)),
            Ok(Poll::Ready(output)) => {
                task.work.set(Some(work));
                self.vacate(task);
                self.end(task, State::Finished(output, panics));
            }
            Err(panic) => self.end_panicked(task, work, panic),
        }
    }

    /// Ends a task that has panicked. Its future is not polled again, whatever state it is in; a
    /// panic while it is dropped counts as the same one.
    fn end_panicked(&self, task: &Task, work: Pin<Box<dyn Work>>, panic: Panic) {
        self.panics.get().discard(work);
        self.vacate(task);
        self.end(task, State::Panicked(panic));
    }

    /// Ends a task whose future is dropped before its end.
    fn end_aborted(&self, task: &Task, work: Pin<Box<dyn Work>>) {
        let dropped = self.panics.get().call(|| drop(work));
        self.end(task, dropped.map_or_else(State::Panicked, |()| State::Aborted));
    }

    /// Sets how a task ended. Without a handle, what it leaves is dropped.
    fn end(&self, task: &Task, end: State) {
        let panics = self.panics.get();
        if let Err(panic) = panics.call(|| task.end(end)) {
            panics.discard(panic);
        }
    }

    /// Frees the place of a task that has ended. If a handle still refers to the task, the next
    /// task there is a new one.
    fn vacate(&self, task: &Task) {
        let mut places = self.places.borrow_mut();
        let Places { tasks, free } = &mut *places;
        free.push(task.place);
        if task.is_held() {
            tasks[task.place as usize] = None;
        }
        // The free places on top are used next.
        if let Some(deep) = free.len().checked_sub(1 + KEPT_TASKS) {
            tasks[free[deep] as usize] = None;
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.len()).finish_non_exhaustive()
    }
}

/// Runs a future as a task of the current shard; see [`Handle::spawn_local`].
///
/// # Panics
///
/// If no shard is current: outside its tasks use [`Handle::spawn_local`].
///
/// [`Handle::spawn_local`]: crate::shard::Handle::spawn_local
#[inline]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    spawn_on(&state::current(), future)
}

#[inline]
pub(crate) fn spawn_on<F>(local: &Rc<Local>, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let task = local.executor().spawn(future);
    local.touch();
    JoinHandle::new(task, local)
}

#[cfg(test)]
mod tests;
