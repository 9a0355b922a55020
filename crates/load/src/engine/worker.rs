//! A worker: it has one connection at a time, and does jobs on it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use super::dialer::Opened;
use super::{Close, Engine, Job, Mode};
use crate::exchange::{self, Event, Left};
use crate::network::{Network, TimeLimit};
use crate::recorder::{Answered, Fault};
use crate::tuples::Tuple;

/// The time that the server has to close after we have closed our half.
pub const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// The time that the server has to close first, if it was asked to or said that it would. Its FIN
/// comes with its last segment or right behind; this lets it be lost once.
const SERVER_PATIENCE: Duration = Duration::from_millis(300);
/// A load waits for the server to close as long as no more than one in so many connections waited
/// in vain: others get no wait, so that a server that leaves its connections open costs no time.
const CLOSES_OFTEN: u64 = 16;
/// The time that a worker of a closed loop waits after a connection that could not be opened, or
/// that broke. Without it the worker would only retry.
const FAULT_PAUSE: Duration = Duration::from_millis(10);

/// An open connection.
struct Session<S> {
    stream: S,
    tuple: Tuple,
    /// Requests that the connection has carried.
    served: u32,
    /// The server has asked the load to close the connection.
    is_asked: bool,
    /// The server speaks HTTP/1.0, which has no CLIENT_CLOSE.
    is_older: bool,
}

/// The reason for which a batch ended before its last answer.
struct Broken {
    fault: Fault,
    /// No byte of the pending answer came.
    is_silent: bool,
}

impl<N: Network> Engine<N> {
    /// Does jobs until there are no more.
    pub(super) async fn work(self: Rc<Self>) {
        let mut session: Option<Session<N::Stream>> = None;
        let mut batch = VecDeque::new();
        let mut limit = TimeLimit::new(&self.network);
        loop {
            let served = session.as_ref().map_or(0, |session| session.served);
            if batch.is_empty() && !self.next_jobs(&mut batch, session.is_some(), served).await {
                break;
            }
            let begun = self.now();
            let deadline = begun + self.plan.timeout;
            let (mut open, started) = match session.take() {
                Some(open) => (open, begun),
                None if self.is_served_by_others() => {
                    self.jobs.give_back(&mut batch);
                    break;
                }
                None => match self.open(batch[0].intended, deadline, &mut limit).await {
                    Ok(opened) => opened,
                    Err(fault) => {
                        self.fail(&mut batch, fault);
                        self.pause().await;
                        continue;
                    }
                },
            };
            let served = open.served;
            match self.exchange(&mut open, &mut batch, [begun, started], &mut limit).await {
                Ok(Left::Open) if !self.is_last(open.served) && !open.is_asked => {
                    session = Some(open);
                }
                Ok(left) => self.close(open, left, &mut limit).await,
                Err(Broken { fault, is_silent }) => {
                    self.release(open);
                    // Never repeat a request that may have had its effect (RFC 9110 §9.2.2).
                    let may_repeat = self.plan.mix.request(batch[0].request).is_idempotent();
                    let is_idle_closed =
                        is_silent && served > 0 && !batch[0].is_again && may_repeat;
                    if is_idle_closed && matches!(fault, Fault::Closed | Fault::Reset) {
                        batch[0].is_again = true;
                        self.note(|notes| notes.reopened += 1);
                    } else {
                        self.fail(&mut batch, fault);
                        self.pause().await;
                    }
                }
            }
        }
        match session {
            Some(open) if self.plan.close == Close::ClientClose => {
                self.close_first(open, true, &mut limit).await;
            }
            Some(open) => {
                self.note(|notes| notes.closed_by_client += 1);
                self.release(open);
            }
            None => {}
        }
        self.end_worker();
    }

    /// True if an open connection serves jobs before there is a tuple for a new one. A worker that
    /// waits for a tuple keeps its jobs meanwhile.
    fn is_served_by_others(&self) -> bool {
        let carries_more = self.plan.requests_per_connection.is_none_or(|most| most.get() > 1);
        let is_open = matches!(self.plan.mode, Mode::Open { .. });
        carries_more && is_open && self.sessions.get() > 0 && self.dialer.is_exhausted()
    }

    /// True if a connection that has carried that many requests carries no more.
    fn is_last(&self, served: u32) -> bool {
        self.plan.requests_per_connection.is_some_and(|most| served >= most.get())
    }

    /// Fills a batch for a connection that has carried `served` requests. Returns false if the
    /// worker is no longer needed: the load ends and no job is left, or no job is left and the
    /// worker has no open connection to keep.
    pub(super) async fn next_jobs(
        &self,
        batch: &mut VecDeque<Job>,
        is_open: bool,
        served: u32,
    ) -> bool {
        let left = self.plan.requests_per_connection.map_or(u32::MAX, |most| most.get() - served);
        let most = self.plan.pipeline.get().min(left) as usize;
        loop {
            if let Mode::Closed { .. } = self.plan.mode {
                if self.is_stopping.get() {
                    return false;
                }
                let now = self.now();
                batch.extend((0..most).map(|_| self.begin_job(now)));
                return true;
            }
            self.jobs.take(batch, most);
            if !batch.is_empty() {
                return true;
            }
            // Jobs whose intended start is before the end are still done.
            if !is_open || self.is_stopping.get() {
                return false;
            }
            self.jobs.idle.set(self.jobs.idle.get() + 1);
            self.wake.notified().await;
        }
    }

    /// Opens a connection, for a job with that intended start. Returns the time of the start, too:
    /// no wait for a tuple is behind it.
    async fn open(
        &self,
        intended: Duration,
        deadline: Duration,
        limit: &mut TimeLimit<N>,
    ) -> Result<(Session<N::Stream>, Duration), Fault> {
        let opened = self.dialer.open(self.begin + deadline, limit).await?;
        self.on_opened(intended, opened.took, &opened.stream);
        self.sessions.set(self.sessions.get() + 1);
        let Opened { stream, tuple, called, .. } = opened;
        let session = Session { stream, tuple, served: 0, is_asked: false, is_older: false };
        Ok((session, called.saturating_sub(self.begin)))
    }

    /// Makes the requests of a batch that was taken at `begun` and `started`, connection included.
    /// Removes the answered jobs from the batch.
    async fn exchange(
        &self,
        open: &mut Session<N::Stream>,
        batch: &mut VecDeque<Job>,
        [begun, started]: [Duration; 2],
        limit: &mut TimeLimit<N>,
    ) -> Result<Left, Broken> {
        let count = batch.len();
        let is_last = self.is_last(open.served + count as u32);
        let closes = is_last && self.plan.close.is_servers();
        let together;
        let (bytes, heads) = if count == 1 {
            let request = self.plan.mix.request(batch[0].request);
            (if closes { request.closing() } else { request.keeping() }, &[request.is_head()][..])
        } else {
            together = self.together(batch, closes);
            (&*together.0, &*together.1)
        };
        let sent = self.now();
        let (mut first_byte, mut served, mut is_asked, mut is_older) = (None, 0, false, false);
        let on_event = |event| match event {
            Event::FirstByte => first_byte = Some(self.now()),
            Event::Answer(answer) => {
                let job = batch.pop_front().expect("an answer to each request");
                let ended = self.now();
                let came = first_byte.take().unwrap_or(ended);
                served += 1;
                is_asked |= answer.asks_close;
                is_older |= answer.is_older;
                self.jobs.done(job);
                self.note(|notes| match answer.status {
                    ..400 => notes.answered += 1,
                    _ => notes.failed += 1,
                });
                self.recorder.borrow_mut().on_answer(&Answered {
                    intended: job.intended,
                    started,
                    ended,
                    first_byte: came.saturating_sub(sent),
                    status: answer.status,
                    bytes: answer.bytes,
                });
            }
        };
        let exchange = exchange::exchange(&mut open.stream, bytes, heads, &self.buffer, on_event);
        let deadline = self.begin + begun + self.plan.timeout;
        let result = limit.before(deadline, exchange).await;
        open.served += served;
        open.is_older |= is_older;
        if is_asked && !std::mem::replace(&mut open.is_asked, true) {
            self.note(|notes| notes.asked += 1);
        }
        match result {
            Some(Ok(left)) => Ok(left),
            Some(Err(error)) => {
                Err(Broken { fault: Fault::of(&error), is_silent: first_byte.is_none() })
            }
            None => Err(Broken { fault: Fault::Timeout, is_silent: first_byte.is_none() }),
        }
    }

    /// The requests of a batch in a row, and for each whether it is HEAD. The last request asks the
    /// server to close if `closes`.
    fn together(&self, batch: &VecDeque<Job>, closes: bool) -> (Vec<u8>, Vec<bool>) {
        let (mut bytes, mut heads) = (Vec::new(), Vec::with_capacity(batch.len()));
        for (place, job) in batch.iter().enumerate() {
            let request = self.plan.mix.request(job.request);
            let is_closing = closes && place + 1 == batch.len();
            bytes.extend(if is_closing { request.closing() } else { request.keeping() });
            heads.push(request.is_head());
        }
        (bytes, heads)
    }

    /// Closes a connection after its last answer, which left it in the state `left`.
    async fn close(&self, mut open: Session<N::Stream>, left: Left, limit: &mut TimeLimit<N>) {
        let is_open = left == Left::Open;
        if open.is_asked || is_open && self.plan.close == Close::ClientClose {
            return self.close_first(open, is_open, limit).await;
        }
        let is_servers = self.plan.close != Close::Client || !self.is_last(open.served);
        let ended = if is_servers && self.server_closes() {
            let patience = self.network.now() + SERVER_PATIENCE;
            let closed = exchange::closed(&mut open.stream, &self.buffer);
            let ended = limit.before(patience, closed).await;
            self.unclosed.set(self.unclosed.get() + u64::from(ended.is_none()));
            ended
        } else {
            None
        };
        self.note(|notes| match ended {
            Some(Ok(())) => notes.closed_by_server += 1,
            Some(Err(error)) if Fault::of(&error) == Fault::Reset => notes.closed_by_reset += 1,
            _ => notes.closed_by_client += 1,
        });
        self.release(open);
    }

    /// True if the server closes its connections nearly always, as far as was seen.
    fn server_closes(&self) -> bool {
        let notes = self.notes.get();
        self.unclosed.get() * CLOSES_OFTEN <= notes.closed_by_server + notes.closed_by_reset
    }

    /// Closes a connection before the server does, and announces that if `says_so`.
    async fn close_first(
        &self,
        mut open: Session<N::Stream>,
        says_so: bool,
        limit: &mut TimeLimit<N>,
    ) {
        let says_so = says_so && !open.is_older;
        let farewell = if says_so { &self.plan.farewell[..] } else { &[] };
        let patience = self.network.now() + CLOSE_PATIENCE;
        let closed = async {
            exchange::half_close(&mut open.stream, farewell).await?;
            exchange::closed(&mut open.stream, &self.buffer).await
        };
        // A failure here costs no answer, but perhaps neither end then holds TIME-WAIT.
        let ended = limit.before(patience, closed).await;
        let has_closed = matches!(ended, Some(Ok(())));
        let is_reset = matches!(ended, Some(Err(error)) if Fault::of(&error) == Fault::Reset);
        self.note(|notes| {
            notes.closed_by_client += u64::from(!is_reset);
            notes.closed_by_reset += u64::from(is_reset);
            notes.client_closes += u64::from(has_closed && says_so);
            notes.obeyed += u64::from(has_closed && open.is_asked);
        });
        self.release(open);
    }

    /// Drops a connection; its tuple begins to rest.
    fn release(&self, open: Session<N::Stream>) {
        drop(open.stream);
        self.sessions.set(self.sessions.get() - 1);
        self.dialer.release(open.tuple);
    }

    pub(super) fn fail(&self, batch: &mut VecDeque<Job>, fault: Fault) {
        self.note(|notes| notes.failed += batch.len() as u64);
        let (now, mut recorder) = (self.now(), self.recorder.borrow_mut());
        for job in batch.drain(..) {
            self.jobs.done(job);
            recorder.on_fault(job.intended, now, fault);
        }
    }

    /// Pauses a closed loop after a failure, so that it does not only fail.
    pub(super) async fn pause(&self) {
        if let Mode::Closed { .. } = self.plan.mode {
            self.network.sleep_until(self.network.now() + FAULT_PAUSE).await;
        }
    }
}
