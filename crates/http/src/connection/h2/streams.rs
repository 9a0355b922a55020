//! The streams of a connection: their tasks, which are polled with it, and whether the peer lets
//! their answers pass.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::rt::{Executor, Timer};

use super::quiet::Quiet;
use super::{IdleSince, Outcome};
use crate::Pending;
use crate::config::ServerConfig;
use crate::connection::timeouts::{Alarm, Phase};

/// The connection and its streams are polled in turn so often before other connections come.
const ROUNDS: u32 = 8;
/// The peer is looked at so often within the time that it may let nothing pass.
const LOOKS: u32 = 4;
/// Streams that are over are looked for among so many more than those that are not.
const LEAST_KEPT: usize = 16;

/// The streams of one connection.
pub(super) struct Streams {
    phase: Phase,
    timer: Rc<dyn Timer>,
    idle_since: Cell<IdleSince>,
    /// Requests that are not over.
    open: Cell<usize>,
    /// Requests whose answers began.
    begun_answers: Cell<u64>,
    /// Requests with a whole answer.
    answered: Cell<u64>,
    tasks: RefCell<FuturesUnordered<Task>>,
    /// The tasks that hyper has begun since they were polled last.
    begun: RefCell<Vec<Task>>,
    /// The stream that hyper begins a task for next.
    next: Cell<Option<Rc<Progress>>>,
    under_way: RefCell<Vec<Weak<Progress>>>,
    alarm: RefCell<Alarm>,
    looks_at: Cell<Option<Instant>>,
    /// A task ran.
    ran: Rc<Cell<bool>>,
    quiet: Arc<Quiet>,
    /// Wakes through it.
    waker: Waker,
}

/// How much must pass on a stream.
pub(super) struct Limits {
    /// Some of its answer, in this time.
    stall: Duration,
    /// Some of its request's body, in this time, where the server waits for it.
    read_stall: Duration,
    /// So many bytes of answers a second, of all streams together.
    rate: u32,
    /// The time over which that is measured.
    window: Duration,
}

impl Limits {
    pub(super) fn of(config: &ServerConfig) -> Limits {
        Limits {
            stall: config.write_stall_timeout,
            read_stall: config.read_stall_timeout,
            rate: config.min_rate_bytes,
            window: config.min_rate_window,
        }
    }
}

/// What is to be done about peers that let too little pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdict {
    /// Streams that were reset.
    pub(super) stalled: u64,
    pub(super) slow: u64,
    /// One of them cannot be reset by itself: the connection should end.
    pub(super) ends: bool,
}

impl Streams {
    pub(super) fn new(phase: Phase, timer: Rc<dyn Timer>, now: Instant) -> Streams {
        let (open, answered, tasks, begun, next) = Default::default();
        let quiet = Quiet::new();
        let (under_way, alarm, looks_at, ran, begun_answers) = Default::default();
        Streams {
            phase,
            timer,
            idle_since: Cell::new(now),
            open,
            begun_answers,
            answered,
            tasks,
            begun,
            next,
            under_way,
            alarm,
            looks_at,
            ran,
            waker: Waker::from(quiet.clone()),
            quiet,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// How many requests are not over.
    pub(super) fn open(&self) -> usize {
        self.open.get()
    }

    /// How many requests were answered whole.
    pub(super) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// An answer begins.
    pub(super) fn on_answer(&self) {
        self.begun_answers.set(self.begun_answers.get() + 1);
    }

    /// How many answers began.
    pub(super) fn begun_answers(&self) -> u64 {
        self.begun_answers.get()
    }

    pub(super) fn now(&self) -> Instant {
        self.timer.now()
    }

    /// Something came. `is_whole`: no frame and no head is in the middle.
    pub(super) fn on_read(&self, is_whole: bool) {
        if self.is_empty() {
            self.phase.on_frames(is_whole, self.idle_since.get(), self.now());
        }
    }

    /// A request has come. hyper begins its task next.
    pub(super) fn on_request(&self) -> Rc<Progress> {
        self.open.set(self.open.get() + 1);
        self.phase.on_request(self.now(), false);
        let progress = Rc::new(Progress::new(self.now()));
        let mut under_way = self.under_way.borrow_mut();
        if under_way.len() > 2 * self.open.get() + LEAST_KEPT {
            under_way.retain(|progress| progress.strong_count() > 0);
        }
        under_way.push(Rc::downgrade(&progress));
        self.next.set(Some(progress.clone()));
        progress
    }

    /// A request is over; `is_whole`: the peer's transport has its whole answer.
    pub(super) fn on_end(&self, is_whole: bool) {
        self.answered.set(self.answered.get() + u64::from(is_whole));
        self.open.set(self.open.get() - 1);
        if self.is_empty() {
            self.idle_since.set(self.now());
            self.phase.on_response(self.now());
        }
    }

    /// Ends all tasks.
    pub(super) fn clear(&self) {
        // Taken out first: a task that is dropped may call back.
        drop((self.tasks.take(), self.begun.take(), self.next.take()));
    }

    /// Polls the connection and its streams until neither goes on.
    pub(super) fn poll_with(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Outcome>,
    ) -> Poll<Outcome> {
        self.quiet.begin(cx.waker());
        let mut within = Context::from_waker(&self.waker);
        for _ in 0..ROUNDS {
            if let Poll::Ready(outcome) = poll(&mut within) {
                return Poll::Ready(outcome);
            }
            let has_run = self.poll_tasks(&mut within);
            if !self.quiet.takes_wake() && !has_run {
                self.quiet.end();
                return Poll::Pending;
            }
        }
        self.quiet.end();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the tasks that have something to do. True if there were some.
    fn poll_tasks(&self, cx: &mut Context<'_>) -> bool {
        self.ran.set(false);
        let mut tasks = self.tasks.borrow_mut();
        tasks.extend(self.begun.take());
        while let Poll::Ready(Some(())) = tasks.poll_next_unpin(cx) {}
        self.ran.get()
    }

    /// Judges the peer's progress with each stream, when that is due. Resets streams with too
    /// little of it.
    pub(super) fn poll_judged(&self, cx: &mut Context<'_>, pace: &Limits) -> Verdict {
        let mut verdict = Verdict::default();
        if self.is_empty() {
            self.looks_at.set(None);
            return verdict;
        }
        loop {
            let next =
                self.looks_at.get().unwrap_or(self.now() + pace.stall.min(pace.read_stall) / LOOKS);
            self.looks_at.set(Some(next));
            if self.alarm.borrow_mut().poll(cx, &*self.timer, next).is_pending() {
                return verdict;
            }
            self.looks_at.set(None);
            let share = u64::from(pace.rate) / self.open.get().max(1) as u64;
            let least = u128::from(share) * pace.window.as_millis() / 1000;
            let mut under_way = self.under_way.take();
            under_way.retain(|progress| {
                let Some(progress) = progress.upgrade() else { return false };
                let look = progress.look(self.now(), pace, least);
                verdict.stalled += u64::from(look == Look::Stalled);
                verdict.slow += u64::from(look == Look::Slow);
                verdict.ends |= look != Look::Fine && !progress.cut();
                look == Look::Fine
            });
            self.under_way.borrow_mut().extend(under_way);
        }
    }
}

/// The outcome of a look at one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Fine,
    Stalled,
    Slow,
}

/// How much of an answer went to the peer's transport.
#[derive(Debug)]
pub(super) struct Progress {
    taken: Cell<u64>,
    /// Since when the request's body waits for the client, if it does.
    waits_for_body: Cell<Option<Instant>>,
    /// The answer waits for something on our side.
    waits_for_us: Cell<bool>,
    /// How much it was at the last look, and since when.
    last: Cell<(u64, Instant)>,
    /// How much it was when the rate was last measured, and when that was.
    window: Cell<(u64, Instant)>,
    fuse: Fuse,
}

/// Ends a task from without.
#[derive(Debug, Default)]
struct Fuse {
    is_cut: Cell<bool>,
    /// The task is over, or was never begun.
    is_spent: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Progress {
    fn new(now: Instant) -> Progress {
        Progress {
            taken: Cell::default(),
            waits_for_body: Cell::default(),
            waits_for_us: Cell::new(true),
            last: Cell::new((0, now)),
            window: Cell::new((0, now)),
            fuse: Fuse::default(),
        }
    }

    /// The connection took so many bytes.
    pub(super) fn on_taken(&self, bytes: usize) {
        self.taken.set(self.taken.get() + bytes as u64);
    }

    /// How many bytes the connection took in all.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Notes whether the request's body waits for the client now.
    pub(super) fn set_waits_for_body(&self, waits: bool, now: Instant) {
        let since = self.waits_for_body.get().unwrap_or(now);
        self.waits_for_body.set(waits.then_some(since));
    }

    /// Notes whether the answer waits for something on our side.
    pub(super) fn set_waits_for_us(&self, waits: bool) {
        self.waits_for_us.set(waits);
    }

    fn look(&self, now: Instant, pace: &Limits, least: u128) -> Look {
        let Limits { stall, read_stall, window, .. } = *pace;
        if self.waits_for_body.get().is_some_and(|since| now >= since + read_stall) {
            return Look::Stalled;
        }
        let taken = self.taken.get();
        if self.waits_for_us.get() {
            self.last.set((taken, now));
            self.window.set((taken, now));
            return Look::Fine;
        }
        let (last, since) = self.last.get();
        if taken > last {
            self.last.set((taken, now));
        } else if now >= since + stall {
            return Look::Stalled;
        }
        let (before, began) = self.window.get();
        if now >= began + window {
            if u128::from(taken - before) < least {
                return Look::Slow;
            }
            self.window.set((taken, now));
        }
        Look::Fine
    }

    /// Ends the stream's task, which resets the stream. False if the task is over: the rest of its
    /// answer is with h2.
    fn cut(&self) -> bool {
        self.fuse.is_cut.set(true);
        self.fuse.task.take().into_iter().for_each(Waker::wake);
        !self.fuse.is_spent.get()
    }
}

/// The task of a stream.
struct Task {
    future: Pending<()>,
    progress: Option<Rc<Progress>>,
    ran: Rc<Cell<bool>>,
}

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.ran.set(true);
        let fuse = this.progress.as_ref().map(|progress| &progress.fuse);
        if fuse.is_some_and(|fuse| fuse.is_cut.get()) {
            return Poll::Ready(());
        }
        let outcome = this.future.as_mut().poll(cx);
        if let Some(fuse) = fuse {
            fuse.is_spent.set(outcome.is_ready());
            *fuse.task.borrow_mut() = Some(cx.waker().clone()).filter(|_| outcome.is_pending());
        }
        outcome
    }
}

/// Begins hyper's tasks on the connection's own.
#[derive(Clone)]
pub(super) struct Spawner(pub(super) Rc<Streams>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Spawner {
    fn execute(&self, future: F) {
        let (progress, ran) = (self.0.next.take(), self.0.ran.clone());
        let task = Task { future: Box::pin(future), progress, ran };
        self.0.begun.borrow_mut().push(task);
    }
}
