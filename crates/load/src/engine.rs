//! Runs a load: workers, each with one connection at a time, do the jobs of a closed or an open
//! loop.
//!
//! ```text
//!   closed: each worker takes its next job when the last one is done
//!   open:   arrivals ──▶ queue ──▶ an idle worker, or a new one up to the limit
//!
//!   worker: take a tuple, connect ── batch of requests ── … ── close, let the tuple rest
//! ```
//!
//! In an open loop a job without a worker waits in the queue. Its latency counts from its intended
//! start. Idle connections are opened before the load, and held to its end.

mod dialer;
pub mod http2;
mod idle;
mod jobs;
mod worker;

pub use idle::{IdleOutcome, IdlePlan};
pub use worker::CLOSE_PATIENCE;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::iter::Peekable;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::arrivals::Arrivals;
use crate::mix::{Choice, Mix};
use crate::network::{Network, TimeLimit};
use crate::recorder::{Fault, Gauges, Recorder, Second, SecondLatencies, Totals};
use crate::tuples::Tuples;
use dialer::Dialer;
use http2::{Http2, Pool};
use idle::Holder;
use jobs::{Job, Jobs};

/// Bytes of the one read buffer of all connections.
const BUFFER_BYTES: usize = 64 << 10;
/// Jobs made before other tasks run.
const ARRIVALS_AT_ONCE: usize = 64;
/// The longest time for the first connection.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// Tuples tried for the first connection while other programs use them.
const PROBE_ATTEMPTS: usize = 16;

/// The plan of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub to: SocketAddr,
    /// The requests.
    pub mix: Mix,
    /// The times of the requests.
    pub mode: Mode,
    /// Connections that are held beside the load.
    pub idle: IdlePlan,
    /// Requests of a connection; `None` means as many as the server takes.
    pub requests_per_connection: Option<NonZeroU32>,
    /// Requests that are sent at once, before any of them is answered.
    pub pipeline: NonZeroU32,
    /// HTTP/2 in place of HTTP/1.1; the load closes first then.
    pub http2: Option<Http2>,
    /// The end that closes first. The load obeys a server that asks it to close in any case.
    pub close: Close,
    /// A CLIENT_CLOSE request, which announces that the load closes.
    pub farewell: Vec<u8>,
    /// The time limit of a connection and a request together.
    pub timeout: Duration,
    /// The time before recording begins.
    pub warm_up: Duration,
    /// The time that is recorded.
    pub duration: Duration,
    /// The time that pending requests get after that.
    pub grace: Duration,
    /// The time that they get if the load was stopped before.
    pub stop_grace: Duration,
}

/// The times at which requests start.
#[derive(Clone, Debug)]
pub enum Mode {
    /// On a number of connections. Each request starts when the one before it is answered.
    Closed {
        /// The number of connections.
        connections: usize,
    },
    /// At given times, independent of the server.
    Open {
        /// The times.
        arrivals: Arrivals,
        /// Connections at a time, at most.
        connections: usize,
    },
}

impl Mode {
    /// Connections at a time, at most.
    fn connections(&self) -> usize {
        match self {
            Mode::Closed { connections } | Mode::Open { connections, .. } => *connections,
        }
    }
}

impl Plan {
    /// Workers at a time, at most: each makes one request, or one batch, at a time.
    fn workers(&self) -> usize {
        let streams = self.http2.map_or(1, |http2| http2.streams.get());
        self.mode.connections().saturating_mul(streams as usize)
    }
}

/// The end that closes a connection first, and so keeps its TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The server: the last request asks for it.
    Server,
    /// The load, when the last answer is complete.
    Client,
    /// The server, but the network takes TIME-WAIT over from it. The network must be configured for
    /// that (`TcpStream::close_swap` of our stack).
    Swap,
    /// The load announces it by CLIENT_CLOSE, closes its half, and waits for the server to close.
    ClientClose,
    /// The server, but the load holds TIME-WAIT by agreement. The network must support that, too.
    Negotiate,
}

impl Close {
    /// True if the server closes first.
    fn is_servers(self) -> bool {
        matches!(self, Close::Server | Close::Swap | Close::Negotiate)
    }
}

/// The progress of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Idle connections are being opened; the load has not begun.
    Opening {
        /// Open connections.
        open: usize,
        /// All connections.
        of: usize,
    },
    /// A second of the load is over.
    Second(Live),
    /// The recorded part begins, so long after the load began.
    Recording(Duration),
    /// The recorded part is over, so long after the load began. Pending requests get their grace.
    Recorded(Duration),
}

/// The state of a load at the end of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The time since the load began.
    pub elapsed: Duration,
    /// The second that is over.
    pub second: Second,
    /// Requests that have failed so far, since recording began.
    pub failed: u64,
}

/// The result of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The length of the warm-up.
    pub warm_up: Duration,
    /// The length of the recorded part: shorter than planned if the load was stopped.
    pub recorded: Duration,
    /// The counters of the recorded part.
    pub totals: Totals,
    /// Every second of it, the warm-up included.
    pub seconds: Vec<Second>,
    /// The latencies of each second.
    pub second_latencies: Vec<SecondLatencies>,
    /// The counters of the whole load.
    pub notes: Notes,
    /// The result of the idle connections.
    pub idle: IdleOutcome,
}

/// Counters of events in a whole load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Requests answered with a status below 400, the warm-up's included.
    pub answered: u64,
    /// Requests that failed, the warm-up's included, without those that the end of the load cut
    /// off.
    pub failed: u64,
    /// Connections that the server closed first.
    pub closed_by_server: u64,
    /// Connections that the load closed first.
    pub closed_by_client: u64,
    /// Connections that the server reset after their last answer: neither end holds TIME-WAIT.
    pub closed_by_reset: u64,
    /// Times that a connection waited for a tuple: the sources do not suffice.
    pub tuple_waits: u64,
    /// Tuples that other programs used.
    pub tuples_taken: u64,
    /// TIME-WAITs that the machine's kernel ended at once, as it had too many: of all programs.
    pub kernel_overflow: u64,
    /// Requests that were sent again, since the server had closed an idle connection.
    pub reopened: u64,
    /// CLIENT_CLOSE requests after which the server closed.
    pub client_closes: u64,
    /// Connections that the server asked the load to close.
    pub asked: u64,
    /// Connections that the load closed on that request, and the server after it.
    pub obeyed: u64,
    /// TIME-WAITs that the network took over from the server, by the network's count.
    pub swapped: u64,
    /// Connections whose ends agreed on the holder of TIME-WAIT, by the network's count.
    pub agreed: u64,
    /// TIME-WAITs that the network holds at the end, as it tells.
    pub held: u64,
}

impl Notes {
    /// Adds the counters of another load.
    pub fn add(&mut self, other: &Notes) {
        let Notes { closed_by_server, closed_by_client, tuple_waits, tuples_taken, .. } = other;
        self.answered += other.answered;
        self.failed += other.failed;
        let Notes { reopened, client_closes, asked, obeyed, swapped, agreed, held, .. } = other;
        self.closed_by_reset += other.closed_by_reset;
        self.kernel_overflow += other.kernel_overflow;
        self.closed_by_server += closed_by_server;
        self.closed_by_client += closed_by_client;
        self.tuple_waits += tuple_waits;
        self.tuples_taken += tuples_taken;
        self.reopened += reopened;
        self.client_closes += client_closes;
        self.asked += asked;
        self.obeyed += obeyed;
        self.swapped += swapped;
        self.agreed += agreed;
        self.held += held;
    }
}

/// Runs a load on a network, and returns its result. It ends early when `stop` is ready; pending
/// requests then get the plan's grace for that, or less if `cut` is ready. It calls `on_progress`
/// each second, and where the recorded part begins and ends. Call it only once on a network.
pub async fn run<N: Network>(
    network: N,
    plan: Plan,
    tuples: Tuples,
    stop: impl Future<Output = ()>,
    cut: impl AsyncFn(),
    mut on_progress: impl FnMut(&Progress) + 'static,
) -> Outcome {
    let (plan, mut stop) = (Rc::new(plan), pin!(stop));
    let dialer = Rc::new(Dialer::new(network.clone(), plan.to, tuples));
    let idle = Holder::new(network.clone(), dialer.clone(), plan.clone());
    let goes_on = idle.open_all(stop.as_mut(), &mut on_progress).await;
    let begin = network.now();
    let (warm_up, duration) = (plan.warm_up, plan.duration);
    let arrivals = match &plan.mode {
        Mode::Closed { .. } => Arrivals::at(Vec::new()),
        Mode::Open { arrivals, .. } => arrivals.clone(),
    };
    let engine = Rc::new(Engine {
        recorder: RefCell::new(Recorder::new(warm_up..warm_up + duration)),
        dialer,
        jobs: Jobs::default(),
        arrivals: RefCell::new(arrivals.peekable()),
        choice: RefCell::new(plan.mix.choice()),
        notes: Cell::default(),
        pool: Pool::default(),
        unclosed: Cell::default(),
        workers: Cell::new(0),
        sessions: Cell::new(0),
        is_stopping: Cell::new(false),
        is_over: Cell::new(false),
        wake: Notify::new(),
        done: Notify::new(),
        buffer: RefCell::new(vec![0; BUFFER_BYTES]),
        begin,
        network,
        plan,
    });
    let mut is_stopped = !goes_on;
    if goes_on {
        let on_progress = Rc::new(RefCell::new(on_progress));
        let tell = move |progress: &Progress| on_progress.borrow_mut()(progress);
        engine.network.spawn(engine.clone().tick(tell.clone()));
        match &engine.plan.mode {
            Mode::Closed { .. } => (0..engine.plan.workers()).for_each(|_| engine.spawn_worker()),
            Mode::Open { .. } => engine.network.spawn(engine.clone().arrive()),
        }
        let until = |time| engine.network.sleep_until(begin + time);
        is_stopped = either(until(warm_up), stop.as_mut()).await;
        tell(&Progress::Recording(engine.now()));
        if !is_stopped {
            is_stopped = either(until(warm_up + duration), stop).await;
        }
        tell(&Progress::Recorded(engine.now()));
    } else {
        engine.is_stopping.set(true);
    }
    let grace = if is_stopped { engine.plan.stop_grace } else { engine.plan.grace };
    engine.stop(grace, &cut).await;
    let idle = idle.end(grace, &cut).await;
    Outcome { idle, ..engine.outcome() }
}

/// Opens a connection like the load's, and closes it again: fails if the server does not answer.
///
/// # Errors
/// The error of the socket; `TimedOut` after the load's timeout, or 5 s.
pub async fn probe<N: Network>(network: &N, plan: &Plan, tuples: &mut Tuples) -> io::Result<()> {
    let deadline = network.now() + plan.timeout.min(PROBE_PATIENCE);
    let (mut result, mut limit) = (Ok(()), TimeLimit::new(network));
    for _ in 0..PROBE_ATTEMPTS {
        let Ok(tuple) = tuples.take(Duration::ZERO) else { break };
        let connect = network.connect(tuples.address(tuple), plan.to);
        let connected = limit.before(deadline, connect).await;
        tuples.release(tuple, Duration::ZERO);
        result = connected.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())).map(drop);
        if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
    }
    result
}

/// Waits for the first of two futures. Returns true if that is the second one.
async fn either(one: impl Future, other: impl Future) -> bool {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        if one.as_mut().poll(context).is_ready() {
            return Poll::Ready(false);
        }
        other.as_mut().poll(context).map(|_| true)
    })
    .await
}

/// The state that workers share.
struct Engine<N: Network> {
    network: N,
    begin: Duration,
    plan: Rc<Plan>,
    dialer: Rc<Dialer<N>>,
    recorder: RefCell<Recorder>,
    jobs: Jobs,
    /// Arrivals to come, in an open loop.
    arrivals: RefCell<Peekable<Arrivals>>,
    /// Which request the next job makes.
    choice: RefCell<Choice>,
    notes: Cell<Notes>,
    /// The connections of HTTP/2.
    pool: Pool,
    /// Connections that the server should have closed, and left open.
    unclosed: Cell<u64>,
    workers: Cell<usize>,
    /// Workers with an open connection.
    sessions: Cell<usize>,
    /// No more jobs begin.
    is_stopping: Cell<bool>,
    /// Nothing more is recorded.
    is_over: Cell<bool>,
    /// Wakes a worker that waits for a job.
    wake: Notify,
    /// The last worker has ended.
    done: Notify,
    buffer: RefCell<Vec<u8>>,
}

impl<N: Network> Engine<N> {
    /// Time since the load began.
    fn now(&self) -> Duration {
        self.network.now().saturating_sub(self.begin)
    }

    fn note(&self, change: impl FnOnce(&mut Notes)) {
        let mut notes = self.notes.get();
        change(&mut notes);
        self.notes.set(notes);
    }

    fn spawn_worker(self: &Rc<Self>) {
        self.workers.set(self.workers.get() + 1);
        match self.plan.http2 {
            None => self.network.spawn(self.clone().work()),
            Some(http2) => self.network.spawn(self.clone().work_http2(http2)),
        }
    }

    fn end_worker(&self) {
        self.workers.set(self.workers.get() - 1);
        if self.workers.get() == 0 && self.is_stopping.get() {
            self.done.notify_one();
        }
    }

    /// A connection was opened for a job with that intended start.
    fn on_opened(&self, intended: Duration, took: Duration, stream: &N::Stream) {
        let mut recorder = self.recorder.borrow_mut();
        recorder.on_connection(intended, self.now(), took);
        if let Some(handshake) = N::handshake(stream) {
            recorder.on_handshake(intended, handshake);
        }
    }

    fn begin_job(&self, intended: Duration) -> Job {
        self.jobs.begin(intended, self.choice.borrow_mut().next())
    }

    /// Makes the jobs of an open loop.
    async fn arrive(self: Rc<Self>) {
        while let Some(intended) = self.next_arrival() {
            if intended > self.now() && self.network.alarm(self.begin + intended).await.is_err() {
                self.network.sleep_until(self.begin + intended).await;
            }
            if self.is_stopping.get() {
                return;
            }
            if self.begin_due(ARRIVALS_AT_ONCE) == ARRIVALS_AT_ONCE {
                // A load that is behind must still let answers be read.
                yield_now().await;
            }
        }
    }

    /// When the next job is due, if that is before the end.
    fn next_arrival(&self) -> Option<Duration> {
        let end = self.plan.warm_up + self.plan.duration;
        self.arrivals.borrow_mut().peek().copied().filter(|intended| *intended < end)
    }

    /// Begins the jobs that are due, so many at most. Returns how many there were.
    fn begin_due(self: &Rc<Self>, most: usize) -> usize {
        let Mode::Open { .. } = self.plan.mode else { return 0 };
        let now = self.now();
        for count in 0..most {
            let Some(intended) = self.next_arrival().filter(|intended| *intended <= now) else {
                return count;
            };
            self.arrivals.borrow_mut().next();
            self.jobs.queue.borrow_mut().push_back(self.begin_job(intended));
            let idle = self.jobs.idle.get();
            if idle > 0 {
                self.jobs.idle.set(idle - 1);
                self.wake.notify_one();
            } else if self.workers.get() < self.plan.workers() {
                self.spawn_worker();
            }
        }
        most
    }

    /// Ends each second.
    async fn tick(self: Rc<Self>, mut on_progress: impl FnMut(&Progress)) {
        for number in 1.. {
            self.network.sleep_until(self.begin + Duration::from_secs(number)).await;
            if self.is_over.get() {
                return;
            }
            if self.recorder.borrow().seconds() >= number {
                continue;
            }
            // Those as well that are due, where the load has no time to begin them.
            self.begin_due(usize::MAX);
            let second = self.end_second();
            let failed = self.recorder.borrow().totals().failed();
            on_progress(&Progress::Second(Live { elapsed: self.now(), second, failed }));
        }
    }

    fn end_second(&self) -> Second {
        let gauges =
            Gauges { in_flight: self.jobs.len() as u64, time_wait: self.dialer.resting() as u64 };
        self.recorder.borrow_mut().on_second(gauges)
    }

    /// Begins no more jobs, and waits until those under way are done, but no longer than the grace,
    /// or until `cut` is ready.
    async fn stop(self: &Rc<Self>, grace: Duration, cut: &impl AsyncFn()) {
        if !self.is_stopping.replace(true) {
            // Those too that were due in this turn, which may be late.
            self.begin_due(usize::MAX);
        }
        let now = self.now();
        self.recorder.borrow_mut().cut(now);
        // The last second ends with the load; either of the two timers may fire first.
        let seconds = self.recorder.borrow().seconds();
        for _ in seconds..now.as_secs() {
            self.end_second();
        }
        self.wake.notify_waiters();
        let patience = self.network.sleep_until(self.network.now() + grace);
        if self.workers.get() > 0 {
            either(self.done.notified(), either(patience, cut())).await;
        }
        self.is_over.set(true);
        let (now, mut recorder) = (self.now(), self.recorder.borrow_mut());
        for intended in self.jobs.intended.borrow().iter().flatten() {
            recorder.on_fault(*intended, now, Fault::Unfinished);
        }
    }

    fn outcome(&self) -> Outcome {
        let recorder = self.recorder.replace(Recorder::new(Duration::ZERO..Duration::ZERO));
        let recorded = recorder.recorded().clone();
        let (totals, seconds, second_latencies) = recorder.into_parts();
        Outcome {
            warm_up: recorded.start.min(recorded.end),
            recorded: recorded.end.saturating_sub(recorded.start),
            totals,
            seconds,
            second_latencies,
            notes: Notes {
                tuple_waits: self.dialer.waits(),
                tuples_taken: self.dialer.taken(),
                ..self.notes.get()
            },
            idle: IdleOutcome::default(),
        }
    }
}

/// Lets other tasks run, once.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
