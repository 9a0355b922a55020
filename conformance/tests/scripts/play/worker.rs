//! The second thread, which makes the calls that block.
//!
//! As in the original, the first thread goes on as soon as the second sleeps in the kernel or has
//! come back. What a call returned is judged when the first thread next looks: while it sleeps, or
//! waits for the second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libc::{epoll_event, pollfd};

use super::{Now, Player};
use crate::ast::{CallSpec, When};
use crate::calls;
use crate::door::{Answer, Door, Message};

/// How long the original waits for the second thread, of the machine's time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The data that a call left in memory.
pub(crate) enum Output {
    None,
    Address(Option<SocketAddr>),
    Number(i32),
    Bytes(Vec<u8>, u32),
    /// What was read, and who sent it.
    From(Vec<u8>, Option<SocketAddr>),
    Poll(Vec<pollfd>),
    Epoll(Vec<epoll_event>),
    Message(Message),
    Pipe([i32; 2]),
}

/// The outcome of a call.
pub(crate) struct Returned {
    pub(crate) answer: Answer,
    pub(crate) output: Output,
}

impl From<Answer> for Returned {
    fn from(answer: Answer) -> Self {
        Self { answer, output: Output::None }
    }
}

type Run = Box<dyn FnOnce(&Door) -> Returned + Send>;
type Judge = Box<dyn FnOnce(&mut Player, &Returned) -> Result<(), String> + Send>;

/// A call whose arguments are evaluated.
pub(crate) struct Prepared {
    /// A result that is a descriptor need only be one.
    pub(crate) is_fd: bool,
    pub(crate) run: Run,
    /// The checks to make when result and errno are right.
    pub(crate) judge: Judge,
}

impl Prepared {
    pub(crate) fn new(run: impl FnOnce(&Door) -> Returned + Send + 'static) -> Self {
        Self { is_fd: false, run: Box::new(run), judge: Box::new(|_, _| Ok(())) }
    }

    pub(crate) fn then(
        self,
        judge: impl FnOnce(&mut Player, &Returned) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self { judge: Box::new(judge), ..self }
    }

    pub(crate) fn fd(self) -> Self {
        Self { is_fd: true, ..self }
    }
}

/// A call that the second thread is making.
struct Running {
    call: CallSpec,
    now: Now,
    is_fd: bool,
    judge: Judge,
}

pub(super) struct Worker {
    requests: Option<Sender<Run>>,
    results: Receiver<(Returned, i64)>,
    thread: Option<JoinHandle<()>>,
    /// The thread's number while it is in a call, else 0.
    busy: Arc<AtomicI32>,
    running: Option<Running>,
}

impl Worker {
    pub(super) fn new(door: Arc<Door>) -> Self {
        let (requests, incoming) = channel::<Run>();
        let (outgoing, results) = channel();
        let busy = Arc::new(AtomicI32::new(0));
        let own_busy = Arc::clone(&busy);
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_pid();
            for run in incoming {
                own_busy.store(id, Ordering::SeqCst);
                let returned = run(&door);
                let usecs = door.now_usecs();
                if outgoing.send((returned, usecs)).is_err() {
                    break;
                }
                own_busy.store(0, Ordering::SeqCst);
            }
        });
        Self { requests: Some(requests), results, thread: Some(thread), busy, running: None }
    }

    /// The line of the call that is being made.
    pub(super) fn line(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.now.line)
    }

    /// End the thread, which must not be in a call.
    pub(super) fn stop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported already.
            let _ = thread.join();
        }
    }

    /// Whether the thread is in a call and sleeps in the kernel.
    fn is_asleep(&self) -> bool {
        let id = self.busy.load(Ordering::SeqCst);
        let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")) else {
            return false;
        };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state == Some('S') && self.busy.load(Ordering::SeqCst) == id
    }
}

impl Player {
    /// Make a call on the second thread, and come back when it sleeps or is done.
    pub(crate) fn block(
        &mut self,
        call: &CallSpec,
        now: &Now,
        prepared: Prepared,
    ) -> Result<(), String> {
        let running =
            Running { call: call.clone(), now: *now, is_fd: prepared.is_fd, judge: prepared.judge };
        self.worker.running = Some(running);
        let sent = self.worker.requests.as_ref().map(|requests| requests.send(prepared.run));
        if !matches!(sent, Some(Ok(()))) {
            return Err("the thread for blocking calls is gone".into());
        }
        let begun = Instant::now();
        while self.worker.running.is_some() {
            std::thread::yield_now();
            let is_asleep = self.worker.is_asleep();
            self.drain()?;
            if is_asleep {
                break;
            }
            if begun.elapsed() > 5 * PATIENCE {
                return Err("a blocking call neither sleeps nor returns".into());
            }
        }
        Ok(())
    }

    /// Judge a call that has returned, if one has.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        match self.worker.results.try_recv() {
            Ok((returned, usecs)) => self.judge(&returned, usecs),
            Err(_) => Ok(()),
        }
    }

    /// Wait a while for the second thread; whether it is idle then.
    pub(crate) fn await_idle(&mut self) -> Result<bool, String> {
        if self.worker.running.is_none() {
            return Ok(true);
        }
        match self.worker.results.recv_timeout(PATIENCE) {
            Ok((returned, usecs)) => self.judge(&returned, usecs).map(|()| true),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(false),
        }
    }

    fn judge(&mut self, returned: &Returned, end_usecs: i64) -> Result<(), String> {
        let Some(running) = self.worker.running.take() else { return Ok(()) };
        let Running { call, mut now, is_fd, judge } = running;
        calls::check_answer(&call, is_fd, returned.answer)
            .and_then(|()| judge(self, returned))
            .map_err(|error| format!("{} call of line {}: {error}", call.name, now.line))?;
        if let Some(end) = call.end {
            let is_relative = matches!(now.when, When::Relative(_));
            now.usecs = end + if is_relative { now.offset_usecs } else { 0 };
            now.until_usecs = now.usecs;
        }
        self.check_time(&now, end_usecs, "system call return")
            .map_err(|error| format!("{} call of line {}: {error}", call.name, now.line))
    }
}
