//! Tasks of one shard: ordinary futures that need not be `Send`, polled by the shard's turn.
//!
//! A task's waker is an ordinary one (`Send + Sync`). Woken on the shard's own thread, in its
//! turn, it puts the task on the ready queue, with neither lock nor atomic; woken from elsewhere it
//! goes through the `inbox`. What a task needs besides its future is used again by the one that
//! follows in its place; so a waker that outlives its task wakes the next one there, in vain.
//!
//! A task that panics takes the turn with it: the shard does not go on with something half-done.

pub(crate) mod inbox;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use inbox::Inbox;

use crate::shard::local::{self, Local};

/// Names a task of a shard; never reused while the shard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    index: u32,
    generation: u32,
}

/// The tasks of one shard.
pub(crate) struct Executor {
    tasks: RefCell<Slots>,
    /// Places of tasks that are to be polled; of some the task may have ended.
    ready: RefCell<VecDeque<u32>>,
    inbox: Arc<Inbox>,
    /// The shard that they belong to, told apart from all others of the process.
    shard: u64,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    /// Of a free place, what the next task may use.
    task: Option<Rc<Task>>,
}

/// Free places that keep what their last task used.
const KEPT_TASKS: usize = 256;

struct Task {
    /// `None` while it is being polled, and after its end.
    future: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    /// It stands in the ready queue.
    is_queued: Cell<bool>,
    waker: Waker,
}

/// What others hold of a task.
struct TaskWaker {
    place: u32,
    shard: u64,
    inbox: Arc<Inbox>,
}

impl Executor {
    pub(crate) fn new(shard: u64, inbox: Arc<Inbox>) -> Self {
        Executor { tasks: RefCell::default(), ready: RefCell::default(), inbox, shard }
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Adds a task; it is polled in the next turn for the first time.
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        let index = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(Slot::default());
            u32::try_from(tasks.slots.len() - 1).expect("fewer than 2^32 tasks")
        });
        let slot = &mut tasks.slots[index as usize];
        let task = slot.task.get_or_insert_with(|| self.new_task(index));
        *task.future.borrow_mut() = Some(future);
        if !task.is_queued.replace(true) {
            self.ready.borrow_mut().push_back(index);
        }
        TaskId { index, generation: slot.generation }
    }

    fn new_task(&self, place: u32) -> Rc<Task> {
        let waker = TaskWaker { place, shard: self.shard, inbox: self.inbox.clone() };
        Rc::new(Task {
            future: RefCell::default(),
            is_queued: Cell::default(),
            waker: Waker::from(Arc::new(waker)),
        })
    }

    /// Puts the task at `place` on the ready queue, unless it stands there.
    fn make_ready(&self, place: u32) {
        let tasks = self.tasks.borrow();
        if let Some(Slot { task: Some(task), .. }) = tasks.slots.get(place as usize)
            && !task.is_queued.replace(true)
        {
            self.ready.borrow_mut().push_back(place);
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
        let tasks = self.tasks.borrow();
        tasks.slots.len() - tasks.free.len()
    }

    /// Drops every task.
    pub(crate) fn clear(&self) {
        let count = self.tasks.borrow().slots.len();
        for index in 0..count {
            let task = self.tasks.borrow_mut().slots[index].task.take();
            // Dropped here, with nothing borrowed: a future's drop may call anything.
            drop(task);
        }
        *self.tasks.borrow_mut() = Slots::default();
        self.ready.borrow_mut().clear();
    }

    /// What is to be polled of a task that has not ended.
    fn take_future(&self, id: TaskId) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        let tasks = self.tasks.borrow();
        let slot = tasks.slots.get(id.index as usize)?;
        if slot.generation == id.generation { slot.task.as_ref()?.future.take() } else { None }
    }

    fn poll(&self, place: u32) {
        let task = match self.tasks.borrow().slots.get(place as usize) {
            Some(Slot { task: Some(task), .. }) => task.clone(),
            _ => return,
        };
        task.is_queued.set(false);
        let Some(mut future) = task.future.take() else { return };
        match future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Pending => *task.future.borrow_mut() = Some(future),
            Poll::Ready(()) => self.remove(place),
        }
    }

    /// Frees the place of a task that has ended: its future is elsewhere.
    fn remove(&self, place: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let Slots { slots, free } = &mut *tasks;
        let Some(slot) = slots.get_mut(place as usize) else { return };
        slot.generation = slot.generation.wrapping_add(1);
        free.push(place);
        // Those on top are the next to be used.
        if let Some(deep) = free.len().checked_sub(1 + KEPT_TASKS) {
            slots[free[deep] as usize].task = None;
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.len()).finish_non_exhaustive()
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_ours = local::with_current(|current| match current {
            Some(local) if local.shard() == self.shard => {
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
    let outcome = Rc::new(Outcome { state: RefCell::new(State::Running(None)) });
    let promise = Promise { outcome: outcome.clone() };
    let task = local.executor().spawn(Box::pin(async move {
        let output = future.await;
        promise.outcome.finish(State::Finished(output));
    }));
    local.touch();
    JoinHandle { outcome, task, local: Rc::downgrade(local) }
}

/// Waits for a task's end. Dropping it lets the task go on alone.
pub struct JoinHandle<T> {
    outcome: Rc<Outcome<T>>,
    task: TaskId,
    local: Weak<Local>,
}

/// The task ended without a result: it was aborted, or its shard is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinError;

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task was aborted")
    }
}

impl Error for JoinError {}

struct Outcome<T> {
    state: RefCell<State<T>>,
}

enum State<T> {
    Running(Option<Waker>),
    Finished(T),
    Aborted,
}

/// The task's own end of its outcome: dropped with the future, however that ends.
struct Promise<T> {
    outcome: Rc<Outcome<T>>,
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.outcome.finish(State::Aborted);
    }
}

impl<T> Outcome<T> {
    /// Settles the outcome, once, and wakes who waits for it.
    fn finish(&self, end: State<T>) {
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
}

impl<T> JoinHandle<T> {
    /// Drops the task, wherever it stands. One that has ended, or is running now, stays.
    pub fn abort(&self) {
        let Some(local) = self.local.upgrade() else { return };
        let future = local.executor().take_future(self.task);
        if future.is_some() {
            local.executor().remove(self.task.index);
        }
        drop(future);
    }

    /// True if the task has ended.
    pub fn is_finished(&self) -> bool {
        !matches!(*self.outcome.state.borrow(), State::Running(_))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.outcome.state.borrow_mut();
        match std::mem::replace(&mut *state, State::Aborted) {
            State::Running(_) => {
                *state = State::Running(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Finished(output) => Poll::Ready(Ok(output)),
            State::Aborted => Poll::Ready(Err(JoinError)),
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.task).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
