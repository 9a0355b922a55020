//! A few threads with one queue, for work that may wait for a disk.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{OpenFile, ReadBuffer, Reads, read_blocking};

/// A unit of work that may wait for a disk.
type Job = Box<dyn FnOnce() + Send>;

/// A few threads with one queue.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) queue: Arc<Queue>,
    handles: Vec<JoinHandle<()>>,
}

/// Jobs in order. Its length is bounded by its users: a connection has at most one job at a time.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Threads {
    pub(super) fn start(name: &str, count: usize) -> io::Result<Self> {
        let mut threads = Threads { queue: Arc::default(), handles: Vec::new() };
        for number in 0..count {
            let queue = threads.queue.clone();
            let builder = std::thread::Builder::new().name(format!("{name}-{number}"));
            threads.handles.push(builder.spawn(move || queue.work())?);
        }
        Ok(threads)
    }

    /// Runs `work` on one of the threads.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The receiver may be gone: the connection has ended.
            let _ = sender.send(work());
        });
        self.queue.state.lock().unwrap_or_else(PoisonError::into_inner).jobs.push_back(job);
        self.queue.arrived.notify_one();
        receiver
    }
}

impl Reads for Threads {
    fn read(
        &self,
        file: Arc<OpenFile>,
        (offset, mut buffer, filled): (u64, ReadBuffer, usize),
    ) -> oneshot::Receiver<io::Result<ReadBuffer>> {
        self.run(move || {
            let rest = &mut buffer[filled..];
            let length = filled + read_blocking(&file.file, offset + filled as u64, rest)?;
            buffer.truncate(length);
            Ok(buffer)
        })
    }
}

impl Queue {
    /// The loop of a thread.
    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            } else if state.closed {
                return;
            } else {
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        {
            let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.closed = true;
            state.jobs.clear();
        }
        self.queue.arrived.notify_all();
        for handle in self.handles.drain(..) {
            // A thread that panicked has already said why.
            let _ = handle.join();
        }
    }
}
