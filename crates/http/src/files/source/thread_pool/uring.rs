//! Reads by io_uring. One thread submits as many reads at a time as the ring has room for, and
//! takes the finished ones. That thread also copies the data out of the kernel's caches.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::ring::{Done, Read, Ring};
use super::{OpenFile, ReadBuffer, Reads};

type Owner = oneshot::Sender<io::Result<ReadBuffer>>;

/// The thread, and the reads on their way to it.
#[derive(Debug)]
pub(super) struct Uring {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

/// Reads that wait to be submitted. Its length is bounded by its users: a connection has at most
/// one read at a time.
struct Inbox {
    state: Mutex<State>,
    /// Rung when a read came into an empty inbox.
    bell: Arc<OwnedFd>,
}

#[derive(Default)]
struct State {
    reads: VecDeque<Read<Owner>>,
    closed: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // It cannot overflow: it is read before it is rung so often.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Uring {
    /// A ring and its thread.
    ///
    /// # Errors
    /// If the kernel has no io_uring or does not permit it, or there is no thread.
    pub(super) fn start() -> io::Result<Uring> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let inbox = Arc::new(Inbox { state: Mutex::default(), bell: bell.clone() });
        let (told, tells) = mpsc::channel();
        let work = inbox.clone();
        let builder = std::thread::Builder::new().name("files-uring".to_owned());
        let thread = builder.spawn(move || match Ring::new(bell) {
            Ok(ring) => {
                let _ = told.send(Ok(()));
                work.serve(ring);
            }
            Err(why) => drop(told.send(Err(why))),
        })?;
        tells.recv().map_err(io::Error::other)??;
        Ok(Uring { inbox, thread: Some(thread) })
    }
}

impl Reads for Uring {
    fn read(
        &self,
        file: Arc<OpenFile>,
        (offset, mut buffer, filled): (u64, ReadBuffer, usize),
    ) -> oneshot::Receiver<io::Result<ReadBuffer>> {
        let (owner, receiver) = oneshot::channel();
        if filled == buffer.len() {
            buffer.truncate(filled);
            let _ = owner.send(Ok(buffer));
            return receiver;
        }
        let mut state = self.inbox.lock();
        let was_empty = state.reads.is_empty();
        state.reads.push_back(Read { file, offset, buffer, filled, owner });
        drop(state);
        if was_empty {
            self.inbox.ring();
        }
        receiver
    }
}

impl Inbox {
    /// The loop of the thread.
    fn serve(&self, mut ring: Ring<Owner>) {
        let mut again = VecDeque::new();
        loop {
            let mut state = self.lock();
            while ring.has_room()
                && let Some(read) = again.pop_front().or_else(|| state.reads.pop_front())
            {
                ring.begin(read);
            }
            let is_over = state.closed && ring.is_idle();
            drop(state);
            if is_over || ring.wait(|done| again.extend(settle(done))).is_err() {
                // The waiting reads are dropped, and their users hear of that.
                self.lock().reads.clear();
                return;
            }
        }
    }
}

/// Hands a finished read to its owner. Returns the read if more of it is to be read.
fn settle((mut read, outcome): Done<Owner>) -> Option<Read<Owner>> {
    let outcome = match outcome {
        Ok(bytes) => {
            read.filled += bytes;
            if bytes > 0 && read.filled < read.buffer.len() {
                return Some(read);
            }
            read.buffer.truncate(read.filled);
            Ok(read.buffer)
        }
        Err(why) if why.kind() == io::ErrorKind::Interrupted => return Some(read),
        Err(why) => Err(why),
    };
    // The receiver may be gone: the connection has ended.
    let _ = read.owner.send(outcome);
    None
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut state = self.inbox.lock();
        state.closed = true;
        state.reads.clear();
        drop(state);
        self.inbox.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already said why.
            let _ = thread.join();
        }
    }
}
