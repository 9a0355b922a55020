//! Tasks of one shard: ordinary futures that need not be `Send`, polled by the shard's turn.
//!
//! A task's waker is an ordinary one (`Send + Sync`). Woken on the shard's own thread, in its
//! turn, it puts the task on the ready queue, with neither lock nor atomic; woken from elsewhere it
//! goes through the `inbox`. What a task needs, the memory of its future included, is used again by
//! the one that follows in its place; so a waker that outlives its task wakes the next one there,
//! in vain.
//!
//! A task that panics takes the turn with it: the shard does not go on with something half-done.

pub(crate) mod inbox;
mod join;
mod task;

pub use join::{JoinError, JoinHandle};

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use inbox::Inbox;
use task::{State, Task};

use crate::shard::local::{self, Local};

/// The tasks of one shard.
pub(crate) struct Executor {
    places: RefCell<Places>,
    /// Places of tasks that are to be polled; of some the task may have ended.
    ready: RefCell<VecDeque<u32>>,
    inbox: Arc<Inbox>,
    /// The shard that they belong to, told apart from all others of the process.
    shard: u64,
}

#[derive(Default)]
struct Places {
    /// Of a free place, what the next task may use.
    tasks: Vec<Option<Rc<Task>>>,
    free: Vec<u32>,
}

/// Free places that keep what their last task used, the memory of its future included.
const KEPT_TASKS: usize = 256;

impl Executor {
    pub(crate) fn new(shard: u64, inbox: Arc<Inbox>) -> Self {
        Executor { places: RefCell::default(), ready: RefCell::default(), inbox, shard }
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Adds a task; it is polled in the next turn for the first time.
    fn spawn<F: Future + 'static>(&self, future: F) -> Rc<Task> {
        let task = self.occupy();
        task.take_on(future);
        self.enqueue(&task);
        task
    }

    /// A free place's task.
    fn occupy(&self) -> Rc<Task> {
        let mut places = self.places.borrow_mut();
        let place = places.free.pop().unwrap_or_else(|| {
            places.tasks.push(None);
            u32::try_from(places.tasks.len() - 1).expect("fewer than 2^32 tasks")
        });
        let new = || Rc::new(Task::new(place, self.shard, self.inbox.clone()));
        places.tasks[place as usize].get_or_insert_with(new).clone()
    }

    /// Puts a task on the ready queue, unless it stands there.
    fn enqueue(&self, task: &Task) {
        if !task.is_queued.replace(true) {
            self.ready.borrow_mut().push_back(task.place);
        }
    }

    /// Puts the task at `place` on the ready queue, unless it stands there.
    fn make_ready(&self, place: u32) {
        if let Some(Some(task)) = self.places.borrow().tasks.get(place as usize) {
            self.enqueue(task);
        }
    }

    /// Polls tasks that are ready, at most `budget`, and returns how many.
    pub(crate) fn run(&self, budget: usize) -> usize {
        self.inbox.empty(|place| self.make_ready(place));
        for polled in 0..budget {
            let Some(place) = self.ready.borrow_mut().pop_front() else { return polled };
            self.poll(place);
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

    /// Drops every task.
    pub(crate) fn clear(&self) {
        let count = self.places.borrow().tasks.len();
        for place in 0..count {
            let task = self.places.borrow_mut().tasks[place].take();
            // Dropped here, with nothing borrowed: a future's drop may call anything.
            if let Some(task) = task {
                task.drop_work();
            }
        }
        *self.places.borrow_mut() = Places::default();
        self.ready.borrow_mut().clear();
    }

    fn poll(&self, place: u32) {
        let task = match self.places.borrow().tasks.get(place as usize) {
            Some(Some(task)) => task.clone(),
            _ => return,
        };
        task.is_queued.set(false);
        let Some(mut work) = task.work.take() else { return };
        let polled = work.as_mut().poll(&mut Context::from_waker(&task.waker));
        task.work.set(Some(work));
        if let Poll::Ready(output) = polled {
            drop(task);
            if let Some(awaited) = self.vacate(place) {
                awaited.end(State::Finished(output));
            }
        }
    }

    /// Frees the place of a task that has ended, and returns the task if somebody holds it.
    fn vacate(&self, place: u32) -> Option<Rc<Task>> {
        let mut places = self.places.borrow_mut();
        let Places { tasks, free } = &mut *places;
        free.push(place);
        // Those on top are the next to be used.
        if let Some(deep) = free.len().checked_sub(1 + KEPT_TASKS) {
            tasks[free[deep] as usize] = None;
        }
        tasks.get_mut(place as usize)?.take_if(|task| Rc::get_mut(task).is_none())
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
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    spawn_on(&local::current(), future)
}

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
