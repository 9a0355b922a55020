//! Puts the load on: workers, each with a connection at a time, do the jobs that a closed or an
//! open loop has for them.
//!
//! ```text
//!   closed: each worker has its next job when the last one is done
//!   open:   arrivals ──▶ queue ──▶ an idle worker, or a new one if there may be more
//!
//!   worker: take a tuple, connect ── batch of requests ── … ── close, let the tuple rest
//! ```
//!
//! In an open loop a job that finds no worker waits in the queue, and its latency counts from when
//! it was to start. Idle connections are opened before all that, and held to its end.

mod dialer;
mod idle;
mod worker;

pub use idle::{IdleOutcome, IdlePlan};

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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
use idle::Holder;

/// What is read into, for all connections together.
const BUFFER_BYTES: usize = 64 << 10;
/// Jobs that are made in one go before other tasks run.
const ARRIVALS_AT_ONCE: usize = 64;
/// How long the first connection may take.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// Tuples tried for it while others have them.
const PROBE_ATTEMPTS: usize = 16;

/// A load to be put on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub to: SocketAddr,
    /// What it is asked.
    pub mix: Mix,
    /// When it is asked.
    pub mode: Mode,
    /// Connections that are held beside the load.
    pub idle: IdlePlan,
    /// Requests of a connection; `None`: as many as the server takes.
    pub requests_per_connection: Option<NonZeroU32>,
    /// Requests that are sent at once, before any of them is answered.
    pub pipeline: NonZeroU32,
    /// Who closes. A server that asks the load to close is obeyed in any case.
    pub close: Close,
    /// What says that the load closes: a CLIENT_CLOSE request.
    pub farewell: Vec<u8>,
    /// How long a connection and a request together may take.
    pub timeout: Duration,
    /// What passes before anything is recorded.
    pub warm_up: Duration,
    /// What is recorded.
    pub duration: Duration,
    /// How long requests that are under way may take to end behind that.
    pub grace: Duration,
}

/// When requests start.
#[derive(Clone, Debug)]
pub enum Mode {
    /// On so many connections, each as soon as the one before is answered.
    Closed {
        /// How many.
        connections: usize,
    },
    /// When they are due, whatever the server does.
    Open {
        /// When that is.
        arrivals: Arrivals,
        /// Connections at a time, at most.
        connections: usize,
    },
}

/// The end that closes a connection first, and so keeps its TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The server: the last request asks for it.
    Server,
    /// The load, as soon as the last answer is complete.
    Client,
    /// The server, but the network takes TIME-WAIT over from it: a matter of the network, which has
    /// to be told (`TcpStream::close_swap` of our stack).
    Swap,
    /// The load, which says so by CLIENT_CLOSE, closes its half, and waits for the server to close.
    ClientClose,
    /// The server, but the load holds TIME-WAIT by agreement: a matter of the network, too.
    Negotiate,
}

impl Close {
    /// True if the server closes first.
    fn is_servers(self) -> bool {
        matches!(self, Close::Server | Close::Swap | Close::Negotiate)
    }
}

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Idle connections are being opened, for some time more.
    Opening {
        /// Those that are open.
        open: usize,
        /// All.
        of: usize,
    },
    /// A second of the load is over.
    Second(Live),
}

/// How a load stands at the end of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// How long it has lasted.
    pub elapsed: Duration,
    /// The second that is over.
    pub second: Second,
    /// Requests that have failed so far, since recording began.
    pub failed: u64,
}

/// What came of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it warmed up.
    pub warm_up: Duration,
    /// How long it was recorded: less than planned if it was stopped.
    pub recorded: Duration,
    /// What was counted of that.
    pub totals: Totals,
    /// Every second of it, the warm-up included.
    pub seconds: Vec<Second>,
    /// The latencies of each.
    pub second_latencies: Vec<SecondLatencies>,
    /// How often what, in all of it.
    pub notes: Notes,
    /// What came of the idle connections.
    pub idle: IdleOutcome,
}

/// How often something happened, in all of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Connections that the server closed first.
    pub closed_by_server: u64,
    /// Connections that were closed by the load first.
    pub closed_by_client: u64,
    /// Connections that the server reset behind their last answer: neither end holds TIME-WAIT.
    pub closed_by_reset: u64,
    /// Times that a connection waited for a tuple: the sources do not suffice.
    pub tuple_waits: u64,
    /// Tuples that somebody else had.
    pub tuples_taken: u64,
    /// Requests that were sent again, since the server had closed an idle connection.
    pub reopened: u64,
    /// CLIENT_CLOSE requests behind which the server closed.
    pub client_closes: u64,
    /// Connections that the server asked the load to close.
    pub asked: u64,
    /// Those that the load closed for that, and then the server.
    pub obeyed: u64,
    /// TIME-WAITs that the network took over from the server, as it tells.
    pub swapped: u64,
    /// Connections for which both ends agreed on who holds TIME-WAIT, as the network tells.
    pub agreed: u64,
    /// TIME-WAITs that the network holds at the end, as it tells.
    pub held: u64,
}

impl Notes {
    /// Those of another load as well.
    pub fn add(&mut self, other: &Notes) {
        let Notes { closed_by_server, closed_by_client, tuple_waits, tuples_taken, .. } = other;
        let Notes { reopened, client_closes, asked, obeyed, swapped, agreed, held, .. } = other;
        self.closed_by_reset += other.closed_by_reset;
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

/// Puts a load on a network, and returns what came of it. It ends early when `stop` is ready.
/// `on_progress` is called for each second. It may be called once on a network.
pub async fn run<N: Network>(
    network: N,
    plan: Plan,
    tuples: Tuples,
    stop: impl Future<Output = ()>,
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
        workers: Cell::new(0),
        is_stopping: Cell::new(false),
        is_over: Cell::new(false),
        wake: Notify::new(),
        done: Notify::new(),
        buffer: RefCell::new(vec![0; BUFFER_BYTES]),
        begin,
        network,
        plan,
    });
    if goes_on {
        engine.network.spawn(engine.clone().tick(on_progress));
        match &engine.plan.mode {
            Mode::Closed { connections } => (0..*connections).for_each(|_| engine.spawn_worker()),
            Mode::Open { .. } => engine.network.spawn(engine.clone().arrive()),
        }
        either(engine.network.sleep_until(begin + warm_up + duration), stop).await;
    } else {
        engine.is_stopping.set(true);
    }
    engine.stop().await;
    let idle = idle.end().await;
    Outcome { idle, ..engine.outcome() }
}

/// Opens a connection as the load will, and closes it again: whether there is anybody to ask.
///
/// # Errors
/// The socket's own; `TimedOut` after the load's timeout, or 5 s.
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

/// Waits for the first of two.
async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        if one.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        other.as_mut().poll(context)
    })
    .await;
}

/// A request to be made.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// When it was to start.
    intended: Duration,
    /// Its number in the mix.
    request: u32,
    /// Where it is known as long as it is under way.
    place: usize,
    /// It was sent before, on a connection that the server had closed.
    is_again: bool,
}

/// Jobs that wait or are under way.
#[derive(Debug, Default)]
struct Jobs {
    queue: RefCell<VecDeque<Job>>,
    /// Workers that wait for a job, and that none was given.
    idle: Cell<usize>,
    /// The intended start of each job that is not done.
    intended: RefCell<Vec<Option<Duration>>>,
    free: RefCell<Vec<usize>>,
}

impl Jobs {
    /// A new job, not done until [`Jobs::done`].
    fn begin(&self, intended: Duration, request: u32) -> Job {
        let mut all = self.intended.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        all[place] = Some(intended);
        Job { intended, request, place, is_again: false }
    }

    /// Moves waiting jobs to a batch, so many at most.
    fn take(&self, batch: &mut VecDeque<Job>, most: usize) {
        let mut queue = self.queue.borrow_mut();
        let len = queue.len().min(most);
        batch.extend(queue.drain(..len));
    }

    fn done(&self, job: Job) {
        self.intended.borrow_mut()[job.place] = None;
        self.free.borrow_mut().push(job.place);
    }

    fn len(&self) -> usize {
        self.intended.borrow().len() - self.free.borrow().len()
    }
}

/// What workers share.
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
    workers: Cell<usize>,
    /// No job begins any more.
    is_stopping: Cell<bool>,
    /// Nothing is recorded any more.
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
        self.network.spawn(self.clone().work());
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
        let Mode::Open { connections, .. } = self.plan.mode else { return 0 };
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
            } else if self.workers.get() < connections {
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

    /// Begins no more jobs, and waits until those under way are done, but no longer than the grace.
    async fn stop(self: &Rc<Self>) {
        if !self.is_stopping.replace(true) {
            // Those too that were due in this turn, which may be late.
            self.begin_due(usize::MAX);
        }
        let now = self.now();
        self.recorder.borrow_mut().cut(now);
        // The last second ends with the load, whichever of the two timers is first.
        let seconds = self.recorder.borrow().seconds();
        if seconds < now.as_secs() {
            self.end_second();
        }
        self.wake.notify_waiters();
        let cut = self.network.sleep_until(self.network.now() + self.plan.grace);
        if self.workers.get() > 0 {
            either(self.done.notified(), cut).await;
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
