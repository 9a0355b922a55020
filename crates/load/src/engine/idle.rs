//! Connections that are held beside a load: each makes one request, or none, and is then silent.
//!
//! They are opened before the load begins, and checked after it has ended. A connection costs only
//! its stream: no task, no timer, no buffer.

use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;

use super::dialer::{Dialer, Opened};
use super::{BUFFER_BYTES, Plan, Progress, either, yield_now};
use crate::exchange::{self, Left};
use crate::mix::Choice;
use crate::network::{Network, TimeLimit};
use crate::recorder::{Fault, Faults};

/// Connections that are being opened at a time.
const OPENERS: usize = 256;
/// Failures in a row after which an opener gives up.
const MOST_FAILURES: u32 = 8;
/// Connections closed before other tasks run: fewer than the 128 operations after which tokio
/// reports a socket as pending.
const CLOSED_AT_ONCE: usize = 64;
/// The time that the stack has to send the last FIN.
const LAST_FIN: Duration = Duration::from_millis(100);

/// The plan of the idle connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdlePlan {
    /// Their number.
    pub connections: usize,
    /// They make no requests.
    pub is_silent: bool,
}

/// The result of the idle connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdleOutcome {
    /// Connections that the plan asked for.
    pub asked: u64,
    /// Connections that were open, with their request answered, before the load began.
    pub opened: u64,
    /// Opened connections that the server had ended when the load was over.
    pub lost: u64,
    /// Why the others could not be opened.
    pub faults: Faults,
    /// The time that it took to open them.
    pub opening: Duration,
}

impl IdleOutcome {
    /// Connections that were idle from the load's beginning to its end.
    pub fn held(&self) -> u64 {
        self.opened - self.lost
    }

    /// Adds the counters of another load.
    pub(crate) fn add(&mut self, other: &IdleOutcome) {
        let IdleOutcome { asked, opened, lost, faults, opening } = other;
        self.asked += asked;
        self.opened += opened;
        self.lost += lost;
        self.faults.add(faults);
        self.opening = self.opening.max(*opening);
    }
}

/// Opens connections, and holds them.
pub(super) struct Holder<N: Network> {
    network: N,
    dialer: Rc<Dialer<N>>,
    plan: Rc<Plan>,
    choice: RefCell<Choice>,
    buffer: RefCell<Vec<u8>>,
    begin: Duration,
    /// Connections that the openers have begun.
    begun: Cell<usize>,
    openers: Cell<usize>,
    is_stopping: Cell<bool>,
    done: Notify,
    streams: RefCell<Vec<N::Stream>>,
    faults: RefCell<Faults>,
    opening: Cell<Duration>,
}

impl<N: Network> Holder<N> {
    pub(super) fn new(network: N, dialer: Rc<Dialer<N>>, plan: Rc<Plan>) -> Rc<Holder<N>> {
        let count = plan.idle.connections;
        Rc::new(Holder {
            begin: network.now(),
            network,
            dialer,
            choice: RefCell::new(plan.mix.choice()),
            buffer: RefCell::new(vec![0; if count > 0 { BUFFER_BYTES } else { 0 }]),
            plan,
            begun: Cell::new(0),
            openers: Cell::new(OPENERS.min(count)),
            is_stopping: Cell::new(false),
            done: Notify::new(),
            streams: RefCell::new(Vec::with_capacity(count)),
            faults: RefCell::default(),
            opening: Cell::default(),
        })
    }

    /// Opens all of them. Returns false if `stop` was ready first.
    pub(super) async fn open_all(
        self: &Rc<Self>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        on_progress: &mut impl FnMut(&Progress),
    ) -> bool {
        for _ in 0..self.openers.get() {
            self.network.spawn(self.clone().open_some());
        }
        let mut second = self.begin;
        while self.openers.get() > 0 && !self.is_stopping.get() {
            second += Duration::from_secs(1);
            let tick = self.network.sleep_until(second);
            let stopped = async {
                stop.as_mut().await;
                self.is_stopping.set(true);
            };
            either(either(self.done.notified(), tick), stopped).await;
            let open = self.streams.borrow().len();
            on_progress(&Progress::Opening { open, of: self.plan.idle.connections });
        }
        self.opening.set(self.network.now().saturating_sub(self.begin));
        !self.is_stopping.get()
    }

    /// Opens connections one after the other, until there are enough.
    async fn open_some(self: Rc<Self>) {
        let mut limit = TimeLimit::new(&self.network);
        let mut failures = 0;
        while failures < MOST_FAILURES
            && !self.is_stopping.get()
            && self.begun.get() < self.plan.idle.connections
        {
            self.begun.set(self.begun.get() + 1);
            match self.open(&mut limit).await {
                Ok(stream) => {
                    self.streams.borrow_mut().push(stream);
                    failures = 0;
                }
                Err(fault) => {
                    self.faults.borrow_mut().count(fault, 1);
                    failures += 1;
                }
            }
        }
        self.openers.set(self.openers.get() - 1);
        if self.openers.get() == 0 {
            self.done.notify_one();
        }
    }

    async fn open(&self, limit: &mut TimeLimit<N>) -> Result<N::Stream, Fault> {
        let deadline = self.network.now() + self.plan.timeout;
        let Opened { mut stream, tuple, .. } = self.dialer.open(deadline, limit).await?;
        if self.plan.idle.is_silent {
            return Ok(stream);
        }
        let request = self.plan.mix.request(self.choice.borrow_mut().next());
        let heads = [request.is_head()];
        let exchange =
            exchange::exchange(&mut stream, request.keeping(), &heads, &self.buffer, |_| {});
        let fault = match limit.before(deadline, exchange).await {
            Some(Ok(Left::Open)) => return Ok(stream),
            Some(Ok(Left::Closing)) => Fault::Closed,
            Some(Err(error)) => Fault::of(&error),
            None => Fault::Timeout,
        };
        drop(stream);
        self.dialer.release(tuple);
        Err(fault)
    }

    /// Counts the connections that are still open, and closes them. Those that are being opened get
    /// the grace, or less if `cut` is ready.
    pub(super) async fn end(&self, grace: Duration, cut: &impl AsyncFn()) -> IdleOutcome {
        self.is_stopping.set(true);
        if self.openers.get() > 0 {
            let patience = self.network.sleep_until(self.network.now() + grace);
            either(self.done.notified(), either(patience, cut())).await;
        }
        let mut streams = self.streams.take();
        let opened = streams.len() as u64;
        let mut lost = 0;
        while !streams.is_empty() {
            let some = streams.len().saturating_sub(CLOSED_AT_ONCE)..;
            lost += streams
                .drain(some)
                .map(|mut stream| u64::from(has_ended(&mut stream)))
                .sum::<u64>();
            yield_now().await;
        }
        if opened > 0 {
            self.network.sleep_until(self.network.now() + LAST_FIN).await;
        }
        IdleOutcome {
            asked: self.plan.idle.connections as u64,
            opened,
            lost,
            faults: self.faults.take(),
            opening: self.opening.get(),
        }
    }
}

/// True if the peer has closed the stream, or reset it.
fn has_ended<S: AsyncRead + Unpin>(stream: &mut S) -> bool {
    let mut byte = [0];
    let mut byte = ReadBuf::new(&mut byte);
    let context = &mut Context::from_waker(Waker::noop());
    match pin!(stream).poll_read(context, &mut byte) {
        Poll::Pending => false,
        Poll::Ready(Ok(())) => byte.filled().is_empty(),
        Poll::Ready(Err(_)) => true,
    }
}
