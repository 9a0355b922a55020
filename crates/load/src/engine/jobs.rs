//! The requests that are queued or in progress.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

/// A request to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The time at which it was to start.
    pub(super) intended: Duration,
    /// Its number in the mix.
    pub(super) request: u32,
    /// Its index in `intended` until it is done.
    place: usize,
    /// It was sent before, on a connection that the server had closed.
    pub(super) is_again: bool,
}

/// Pending jobs, queued or in progress.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) queue: RefCell<VecDeque<Job>>,
    /// Idle workers without a job.
    pub(super) idle: Cell<usize>,
    /// The intended start of each pending job.
    pub(super) intended: RefCell<Vec<Option<Duration>>>,
    free: RefCell<Vec<usize>>,
}

impl Jobs {
    /// Makes a job, which is pending until [`Jobs::done`].
    pub(super) fn begin(&self, intended: Duration, request: u32) -> Job {
        let mut all = self.intended.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        all[place] = Some(intended);
        Job { intended, request, place, is_again: false }
    }

    /// Moves up to `most` queued jobs to a batch.
    pub(super) fn take(&self, batch: &mut VecDeque<Job>, most: usize) {
        let mut queue = self.queue.borrow_mut();
        let len = queue.len().min(most);
        batch.extend(queue.drain(..len));
    }

    /// Puts a batch that [`Jobs::take`] gave back to the front.
    pub(super) fn give_back(&self, batch: &mut VecDeque<Job>) {
        let mut queue = self.queue.borrow_mut();
        while let Some(job) = batch.pop_back() {
            queue.push_front(job);
        }
    }

    pub(super) fn done(&self, job: Job) {
        self.intended.borrow_mut()[job.place] = None;
        self.free.borrow_mut().push(job.place);
    }

    pub(super) fn len(&self) -> usize {
        self.intended.borrow().len() - self.free.borrow().len()
    }
}
