//! Workers over HTTP/2 (RFC 9113): each makes one request at a time, on a stream of a connection
//! that it shares with others.
//!
//! ```text
//!   worker ─▶ Pool: the connection with the fewest streams, or a new one ─▶ stream ─▶ answer
//! ```
//!
//! HTTP/2 has no way to ask a server to close (§9.1). So the load closes first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Error, Reason};
use tokio::sync::Notify;

use super::dialer::Opened;
use super::{Engine, Job};
use crate::network::{Network, TimeLimit};
use crate::recorder::{Answered, Fault};

/// The window of a stream: no answer waits for an update within a round trip of most paths.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// How often a request is made again that a server has not begun with, at most.
const REPEATS_MOST: u32 = 8;

/// HTTP/2 in place of HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Requests at a time on each connection.
    pub streams: NonZeroU32,
    /// Their `:scheme` is https.
    pub is_secured: bool,
}

impl Http2 {
    /// The `:scheme` of the requests.
    pub fn scheme(&self) -> &'static str {
        if self.is_secured { "https" } else { "http" }
    }
}

/// A connection, which its streams share.
struct Shared {
    /// `None` once it carries no further request.
    requests: RefCell<Option<SendRequest<Bytes>>>,
    /// Streams that are open.
    streams: Cell<u32>,
    /// Requests that began on it.
    begun: Cell<u32>,
    /// It goes away, or its peer is silent: another takes its place.
    is_lost: Cell<bool>,
}

/// The connections of a load.
#[derive(Default)]
pub(super) struct Pool {
    open: RefCell<Vec<Rc<Shared>>>,
    opening: Cell<usize>,
    /// A connection was opened or is over, or a stream is.
    changed: Notify,
}

/// A stream of a connection, until it is dropped.
struct Slot {
    requests: SendRequest<Bytes>,
    shared: Rc<Shared>,
}

/// A connection that is being opened, until it is dropped.
struct Opening<'a>(&'a Pool);

impl<'a> Opening<'a> {
    fn begin(pool: &'a Pool) -> Opening<'a> {
        pool.opening.set(pool.opening.get() + 1);
        Opening(pool)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get() - 1);
        self.0.changed.notify_waiters();
    }
}

impl Pool {
    /// True while a connection is open.
    pub(super) fn is_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// Connections that are of use, with those that are being opened.
    fn len(&self) -> usize {
        let open = self.open.borrow();
        open.iter().filter(|one| !one.is_lost.get()).count() + self.opening.get()
    }

    /// A stream on the connection that has the fewest, if one has fewer than `most`. The connection
    /// carries `requests` in all, if there is a limit.
    fn slot(&self, most: NonZeroU32, requests: Option<NonZeroU32>) -> Option<Slot> {
        let open = self.open.borrow();
        let free = open.iter().filter(|one| one.streams.get() < most.get());
        let free = free.filter(|one| one.requests.borrow().is_some());
        let shared = free.min_by_key(|one| one.streams.get())?.clone();
        shared.streams.set(shared.streams.get() + 1);
        shared.begun.set(shared.begun.get() + 1);
        let is_last = requests.is_some_and(|most| shared.begun.get() >= most.get());
        let mut handle = shared.requests.borrow_mut();
        let requests = if is_last { handle.take() } else { handle.clone() }?;
        drop(handle);
        Some(Slot { requests, shared })
    }

    /// A stream is over.
    fn give_back(&self, slot: Slot) {
        let Slot { requests, shared } = slot;
        drop(requests);
        shared.streams.set(shared.streams.get() - 1);
        self.changed.notify_one();
    }

    /// No further request begins. Connections close once their streams are over.
    pub(super) fn close(&self) {
        for shared in self.open.borrow().iter() {
            shared.requests.take();
        }
    }
}

/// Why a request was not answered.
struct Unanswered {
    fault: Fault,
    /// The server has not begun with it (RFC 9113 §8.7).
    is_untouched: bool,
    /// The connection takes no further request.
    has_gone: bool,
}

impl Unanswered {
    fn new(fault: Fault) -> Unanswered {
        Unanswered { fault, is_untouched: false, has_gone: false }
    }
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        let has_gone = error.is_go_away();
        let is_untouched = match error.reason() {
            Some(Reason::REFUSED_STREAM) => true,
            Some(Reason::NO_ERROR) => has_gone,
            _ => false,
        };
        let fault = match error.get_io() {
            Some(error) => Fault::of(error),
            None if error.is_remote() && has_gone => Fault::Closed,
            None if error.is_remote() => Fault::Reset,
            None if error.is_library() || error.reason().is_some() => Fault::Malformed,
            None => Fault::Closed,
        };
        Unanswered { fault, is_untouched, has_gone }
    }
}

impl<N: Network> Engine<N> {
    /// Does jobs, one at a time, until there are no more.
    pub(super) async fn work_http2(self: Rc<Self>, http2: Http2) {
        let mut batch = VecDeque::with_capacity(1);
        let mut limit = TimeLimit::new(&self.network);
        let mut repeats = 0;
        while !batch.is_empty() || self.next_jobs(&mut batch, self.pool.is_open(), 0).await {
            let job = batch[0];
            let begun = self.now();
            let deadline = begun + self.plan.timeout;
            let outcome = match self.slot(http2, job.intended, deadline, &mut limit).await {
                Ok((slot, started)) => {
                    let exchange = self.ask(http2, &slot, job, started);
                    let answered = limit.before(self.begin + deadline, exchange).await;
                    let outcome = answered.unwrap_or(Err(Unanswered::new(Fault::Timeout)));
                    // Nor does one take more whose peer is silent: the next would wait as long.
                    let is_of_no_use = |it: &Unanswered| it.has_gone || it.fault == Fault::Timeout;
                    if outcome.as_ref().is_err_and(is_of_no_use) {
                        slot.shared.requests.take();
                        slot.shared.is_lost.set(true);
                    }
                    self.pool.give_back(slot);
                    outcome
                }
                Err(fault) => Err(Unanswered::new(fault)),
            };
            match outcome {
                Ok(answered) => {
                    batch.clear();
                    self.jobs.done(job);
                    self.note(|notes| match answered.status {
                        ..400 => notes.answered += 1,
                        _ => notes.failed += 1,
                    });
                    self.recorder.borrow_mut().on_answer(&answered);
                }
                // A server that refuses streams, or goes away at each, gets no request for ever.
                Err(Unanswered { is_untouched: true, .. }) if repeats < REPEATS_MOST => {
                    repeats += 1;
                    self.note(|notes| notes.reopened += 1);
                    continue;
                }
                Err(Unanswered { fault, .. }) => {
                    self.fail(&mut batch, fault);
                    self.pause().await;
                }
            }
            repeats = 0;
        }
        self.end_worker();
        if self.workers.get() == 0 {
            self.pool.close();
        }
    }

    /// A stream of a connection, which is opened if there may be one more. Returns the time of the
    /// start as well: no wait for a stream or a tuple is behind it.
    async fn slot(
        self: &Rc<Self>,
        http2: Http2,
        intended: Duration,
        deadline: Duration,
        limit: &mut TimeLimit<N>,
    ) -> Result<(Slot, Duration), Fault> {
        let mut called = None;
        loop {
            let most = self.plan.requests_per_connection;
            if let Some(slot) = self.pool.slot(http2.streams, most) {
                return Ok((slot, called.unwrap_or_else(|| self.now())));
            }
            if self.pool.len() < self.plan.mode.connections() {
                let _opening = Opening::begin(&self.pool);
                called = Some(self.connect(intended, deadline, limit).await?);
            } else if limit
                .before(self.begin + deadline, self.pool.changed.notified())
                .await
                .is_none()
            {
                return Err(Fault::Timeout);
            }
        }
    }

    /// Opens a connection and begins to drive it. Returns when it was called for.
    async fn connect(
        self: &Rc<Self>,
        intended: Duration,
        deadline: Duration,
        limit: &mut TimeLimit<N>,
    ) -> Result<Duration, Fault> {
        let Opened { stream, tuple, took, called } =
            self.dialer.open(self.begin + deadline, limit).await?;
        self.on_opened(intended, took, &stream);
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let made = limit.before(self.begin + deadline, builder.handshake(stream)).await;
        let (requests, connection) = match made {
            Some(Ok(made)) => made,
            failed => {
                self.dialer.release(tuple);
                let why = failed.map(|made| Unanswered::from(made.err().expect("it failed")).fault);
                return Err(why.unwrap_or(Fault::Timeout));
            }
        };
        let shared = Rc::new(Shared {
            requests: RefCell::new(Some(requests)),
            streams: Cell::new(0),
            begun: Cell::new(0),
            is_lost: Cell::new(false),
        });
        self.pool.open.borrow_mut().push(shared.clone());
        self.sessions.set(self.sessions.get() + 1);
        let engine = self.clone();
        self.network.spawn(async move {
            let outcome = connection.await;
            let has_closed = shared.requests.take().is_none();
            engine.pool.open.borrow_mut().retain(|one| !Rc::ptr_eq(one, &shared));
            engine.pool.changed.notify_waiters();
            engine.sessions.set(engine.sessions.get() - 1);
            engine.dialer.release(tuple);
            let fault = outcome.err().map(|error| Unanswered::from(error).fault);
            engine.note(|notes| match fault {
                Some(Fault::Reset) => notes.closed_by_reset += 1,
                _ if has_closed => notes.closed_by_client += 1,
                _ => notes.closed_by_server += 1,
            });
        });
        Ok(called.saturating_sub(self.begin))
    }

    /// Makes a request on a stream and reads its answer. The bytes of an answer are its body's.
    async fn ask(
        &self,
        http2: Http2,
        slot: &Slot,
        job: Job,
        started: Duration,
    ) -> Result<Answered, Unanswered> {
        let malformed = |_| Unanswered::new(Fault::Malformed);
        let request = self.plan.mix.request(job.request);
        let (head, body) = request.http2(http2.scheme()).map_err(malformed)?;
        let mut requests = slot.requests.clone().ready().await?;
        let (answer, mut upload) = requests.send_request(head, body.is_empty())?;
        drop(requests);
        let sent = self.now();
        if !body.is_empty() {
            upload.send_data(Bytes::copy_from_slice(body), true)?;
        }
        let answer = answer.await?;
        let first_byte = self.now().saturating_sub(sent);
        let status = answer.status().as_u16();
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(chunk) = body.data().await {
            let length = chunk?.len();
            bytes += length as u64;
            body.flow_control().release_capacity(length)?;
        }
        // A stream that is reset ends without an error of its data.
        body.trailers().await?;
        let (intended, ended) = (job.intended, self.now());
        Ok(Answered { intended, started, ended, first_byte, status, bytes })
    }
}

#[cfg(test)]
mod tests;
