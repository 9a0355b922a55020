//! A byte stream that fails when its peer takes too long.
//!
//! ```text
//!            first byte            head complete             response over
//!   Idle ───────────────▶ Head ────────────────────▶ Busy ──────────────────▶ Idle
//!   idle_timeout          header_timeout, in all     read_stall_timeout a byte
//! ```
//!
//! The server resets the connection of a peer that takes no byte of the written data, or too few
//! over a while, whether a write waits for it or all data is in the transport. Timers are armed
//! only when an operation has to wait. What counts is the phase when a timer fires, so an ordinary
//! request arms and cancels nothing.
//!
//! Shutdown ends our half. If the peer may still send data that no request will read, the stream
//! reads and drops it for a while; otherwise our reset would overtake the response (RFC 9112 §9.6).

mod alarm;
mod phase;
mod restoring;

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Timer, Write};

use crate::config::ServerConfig;
use crate::control::Control;
use crate::limits::admission::AdmissionControl;
use crate::limits::memory::Charge;
use crate::limits::progress::{Look, Pace, Progress};
pub(crate) use alarm::Alarm;
pub(crate) use phase::Phase;
use phase::Step;

/// Bytes read at a time: mostly enough for a request's head.
const READ_BYTES: usize = 8192;

/// A byte stream with timeouts.
pub(crate) struct TimeoutStream<I, C: Control> {
    inner: I,
    control: C,
    admissions: AdmissionControl,
    timer: Rc<dyn Timer>,
    bounds: Rc<Bounds>,
    phase: Phase,
    read_alarm: Alarm,
    write_alarm: Alarm,
    /// When the last byte was read.
    last_read: Instant,
    /// Bytes of the request that is being read.
    request_bytes: usize,
    /// The growth of hyper's buffer, once a request was longer than the first buffer.
    growth: Option<Charge>,
    /// A write waits.
    write_waits: bool,
    /// The peer's progress with the written data.
    progress: Progress,
    closing: Closing,
}

/// How far shutdown is.
enum Closing {
    Open,
    /// The peer should close first; this many bytes may be read and dropped until then.
    Yielding(usize, Instant),
    /// Our half is closed; this many bytes may be read and dropped until the peer closes.
    Lingering(usize, Instant),
    Closed,
}

/// The limits that a server applies to its connections.
pub(crate) struct Bounds {
    header: Duration,
    idle: Duration,
    rest: Duration,
    read_stall: Duration,
    linger: Duration,
    linger_bytes: usize,
    yielding: Duration,
    header_bytes: usize,
    pace: Pace,
}

impl Bounds {
    pub(crate) fn new(config: &ServerConfig) -> Bounds {
        Bounds {
            header: config.header_timeout,
            idle: config.idle_timeout,
            rest: config.rest_after,
            read_stall: config.read_stall_timeout,
            linger: config.linger_timeout,
            linger_bytes: config.linger_bytes,
            yielding: config.client_close_grace,
            header_bytes: config.max_header_bytes,
            pace: Pace {
                stall: config.write_stall_timeout,
                rate: config.min_rate_bytes,
                window: config.min_rate_window,
            },
        }
    }
}

impl<I, C: Control> TimeoutStream<I, C> {
    pub(crate) fn new(
        (inner, control): (I, C),
        timer: Rc<dyn Timer>,
        phase: Phase,
        bounds: Rc<Bounds>,
        admissions: AdmissionControl,
    ) -> Self {
        TimeoutStream {
            inner,
            control,
            admissions,
            last_read: timer.now(),
            request_bytes: 0,
            growth: None,
            progress: Progress::new(timer.now()),
            timer,
            bounds,
            phase,
            read_alarm: Alarm::default(),
            write_alarm: Alarm::default(),
            write_waits: false,
            closing: Closing::Open,
        }
    }

    /// When a read that waits now has waited too long.
    fn read_deadline(&self) -> Instant {
        match self.phase.0.step.get() {
            Step::Idle(since) if self.phase.0.yields_close.get() => since + self.bounds.yielding,
            Step::Idle(since) => since + self.bounds.idle,
            Step::Handshake(since) | Step::Head(since) => since + self.bounds.header,
            // Its streams have deadlines of their own.
            Step::Busy(_) if self.phase.is_http2() => self.timer.now() + self.bounds.read_stall,
            Step::Busy(_) => self.last_read + self.bounds.read_stall,
        }
    }

    /// When it should free the memory that requests need, if no request comes.
    fn rest_at(&self) -> Option<Instant> {
        let since = self.phase.waits_since().filter(|_| self.phase.may_rest());
        since.map(|since| since + self.bounds.rest)
    }

    /// It has freed the memory that requests need.
    pub(crate) fn rest(&mut self) {
        self.growth = None;
    }

    /// A part of a request's head has come already.
    pub(crate) fn on_head(&self) {
        self.phase.0.step.set(Step::Head(self.timer.now()));
    }

    fn on_read(&mut self, bytes: usize) {
        if bytes == 0 {
            self.phase.on_end(&Ok(()));
        }
        self.last_read = self.timer.now();
        if let Step::Idle(_) = self.phase.0.step.get()
            && bytes > 0
            && !self.phase.is_http2()
        {
            self.phase.0.step.set(Step::Head(self.last_read));
            self.request_bytes = 0;
        }
        self.request_bytes += bytes;
        if self.request_bytes >= READ_BYTES && self.growth.is_none() {
            let most = self.bounds.header_bytes;
            self.growth = Some(self.admissions.charge_connection(most.saturating_sub(READ_BYTES)));
        }
    }

    /// Looks at the peer's progress. If that is too little, resets the connection. Else sets when
    /// to look again, if at all.
    fn look_at_peer(&mut self) -> io::Result<Option<Instant>> {
        self.forget_delivered();
        let undelivered = self.undelivered();
        let (pace, now) = (&self.bounds.pace, self.timer.now());
        match self.progress.look(pace, now, undelivered, self.write_waits) {
            Look::Idle => Ok(None),
            Look::Until(next) => Ok(Some(next)),
            Look::Stalled => {
                self.admissions.count(|tally| tally.reset_stalled += 1);
                Err(self.give_up("the peer takes no data"))
            }
            Look::Slow => {
                self.admissions.count(|tally| tally.reset_slow += 1);
                Err(self.give_up("the peer takes data too slowly"))
            }
        }
    }

    /// True if the peer should close, and no request has come since the last answer.
    fn is_yielding_idle(&self) -> bool {
        self.phase.0.yields_close.get() && matches!(self.phase.0.step.get(), Step::Idle(_))
    }

    /// True if the peer has not taken all written data, as far as the transport can tell.
    fn has_undelivered(&self) -> bool {
        self.undelivered().is_some_and(|bytes| bytes > 0)
    }

    fn give_up(&self, why: &'static str) -> io::Error {
        self.phase.abort(&self.control);
        timed_out(why)
    }

    /// Passes on the outcome of a write, and judges the peer if the write has to wait.
    fn judge_write(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<usize>>,
        undelivered: Option<usize>,
    ) -> Poll<io::Result<usize>> {
        let bytes = match outcome {
            Poll::Ready(outcome) => outcome?,
            Poll::Pending => return self.judge_wait(cx, Poll::Pending).map_ok(|()| 0),
        };
        self.phase.on_written(bytes);
        self.progress.on_written(self.timer.now(), bytes, undelivered, self.write_waits);
        self.write_waits = false;
        Poll::Ready(Ok(bytes))
    }

    /// Passes on the outcome of a flush or a shutdown, and judges the peer likewise.
    fn judge_wait(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        self.write_waits = outcome.is_pending();
        if !self.write_waits {
            return outcome;
        }
        while let Some(next) = self.look_at_peer()? {
            ready!(self.write_alarm.poll(cx, &*self.timer, next));
        }
        Poll::Pending
    }

    /// Waits for the peer to take what was written. Ready if it takes too little: the connection is
    /// reset.
    pub(crate) fn poll_timeouts(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.judge_wait(cx, Poll::Pending)
    }

    /// The error of a read that waited too long. Counts it.
    fn time_out(&self) -> io::Error {
        self.phase.0.yields_close.set(false);
        let step = self.phase.0.step.get();
        self.admissions.count(|tally| match step {
            Step::Handshake(_) => {} // Among those that failed.
            Step::Idle(_) => tally.timed_out_idle += 1,
            Step::Head(_) => tally.timed_out_heads += 1,
            Step::Busy(_) => tally.timed_out_bodies += 1,
        });
        timed_out(match step {
            Step::Handshake(_) => "the TLS handshake was not complete in time",
            Step::Idle(_) => "no request came",
            Step::Head(_) => "the request's head was not complete in time",
            Step::Busy(_) => "the request's body stalled",
        })
    }

    /// A read waits: checks whether it, or the peer, has waited too long.
    fn judge_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let deadline = self.read_deadline();
            let next = self.look_at_peer()?.map_or(deadline, |next| next.min(deadline));
            let rest = self.rest_at().unwrap_or(next);
            ready!(self.read_alarm.poll(cx, &*self.timer, next.min(rest)));
            if rest < next {
                self.phase.0.rests.set(true);
                return Poll::Pending;
            }
            if next == deadline && self.is_yielding_idle() && self.has_undelivered() {
                // No end closes before the whole answer is there.
                self.phase.0.step.set(Step::Idle(self.timer.now()));
            } else if next == deadline {
                return Poll::Ready(Err(self.time_out()));
            }
        }
    }
}

impl<I: Read + Unpin, C: Control> TimeoutStream<I, C> {
    /// Reads and drops until nothing more can come, the peer has sent more than `left`, or has
    /// taken too long. True if nothing more can come.
    fn poll_drop(&mut self, cx: &mut Context<'_>, left: &mut usize, until: Instant) -> Poll<bool> {
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        loop {
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.inner).poll_read(cx, buffer.unfilled()) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                    if *left == 0 {
                        return Poll::Ready(false);
                    }
                }
                Poll::Ready(outcome) => {
                    self.phase.on_end(&outcome);
                    return Poll::Ready(true);
                }
                Poll::Pending => {
                    return self.read_alarm.poll(cx, &*self.timer, until).map(|()| false);
                }
            }
        }
    }

    /// Waits for the peer to close first. The grace begins when the peer has all written data.
    fn poll_yield(
        &mut self,
        cx: &mut Context<'_>,
        left: &mut usize,
        until: &mut Instant,
    ) -> Poll<io::Result<()>> {
        loop {
            if ready!(self.poll_drop(cx, left, *until)) {
                return Poll::Ready(Ok(()));
            }
            if *left == 0 || !self.has_undelivered() {
                return Poll::Ready(Ok(()));
            }
            self.look_at_peer()?;
            *until = self.timer.now() + self.bounds.yielding;
        }
    }
}

impl<I: Write + Unpin, C: Control> TimeoutStream<I, C> {
    /// Ends our half. Returns the next step of the shutdown.
    fn poll_half_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Closing>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        ready!(self.judge_wait(cx, outcome))?;
        // Between two requests the peer owes us nothing: no need to wait for its half.
        let lingers = self.phase.is_owed_more() && !self.phase.has_ended();
        let until = self.timer.now() + self.bounds.linger;
        let lingering = Closing::Lingering(self.bounds.linger_bytes, until);
        Poll::Ready(Ok(if lingers { lingering } else { Closing::Closed }))
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<I: Read + Write + Unpin, C: Control + Unpin> Read for TimeoutStream<I, C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Reads through a buffer of our own to learn how many bytes came: a cursor does not tell.
        let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
        let room = out.remaining().min(READ_BYTES);
        let mut buffer = ReadBuf::uninit(&mut bytes[..room]);
        match Pin::new(&mut this.inner).poll_read(cx, buffer.unfilled()) {
            Poll::Ready(Ok(())) => {
                this.on_read(buffer.filled().len());
                out.put_slice(buffer.filled());
                Poll::Ready(Ok(()))
            }
            Poll::Ready(failed) => {
                this.phase.on_end(&failed);
                Poll::Ready(failed)
            }
            Poll::Pending => {
                if let Poll::Ready(outcome) = this.poll_restored(cx) {
                    outcome?;
                }
                this.judge_read(cx)
            }
        }
    }
}

impl<I: Read + Write + Unpin, C: Control + Unpin> Write for TimeoutStream<I, C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Poll::Ready(restored) = this.poll_restored(cx) else {
            return this.judge_held_back(cx, std::iter::once(bytes));
        };
        restored?;
        let undelivered = this.control.undelivered_bytes();
        let outcome = Pin::new(&mut this.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(taken)) = outcome {
            this.note_written(std::iter::once(bytes), taken);
        }
        this.judge_write(cx, outcome, undelivered)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let is_restored = this.poll_restored(cx)?.is_ready();
        let outcome = Pin::new(&mut this.inner).poll_flush(cx)?;
        let is_flushed = outcome.is_ready() && is_restored;
        // The connection writes no more of the response until the peer takes data.
        let waits = !is_flushed || this.phase.0.waits_for_room.get();
        let judged = this.judge_wait(cx, if waits { Poll::Pending } else { Poll::Ready(Ok(())) });
        if is_flushed && judged.is_pending() { Poll::Ready(Ok(())) } else { judged }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Poll::Ready(restored) = this.poll_restored(cx) else {
            return this.judge_wait(cx, Poll::Pending);
        };
        restored?;
        loop {
            let now = this.timer.now();
            this.closing = match this.closing {
                Closing::Open if this.phase.0.yields_close.get() && !this.phase.has_ended() => {
                    Closing::Yielding(this.bounds.linger_bytes, now + this.bounds.yielding)
                }
                Closing::Open => ready!(this.poll_half_close(cx))?,
                Closing::Yielding(mut left, mut until) => {
                    let yielded = this.poll_yield(cx, &mut left, &mut until);
                    this.closing = Closing::Yielding(left, until);
                    ready!(yielded)?;
                    ready!(this.poll_half_close(cx))?
                }
                Closing::Lingering(mut left, until) => {
                    let dropped = this.poll_drop(cx, &mut left, until);
                    this.closing = Closing::Lingering(left, until);
                    ready!(dropped);
                    Closing::Closed
                }
                Closing::Closed => return Poll::Ready(Ok(())),
            };
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Poll::Ready(restored) = this.poll_restored(cx) else {
            return this.judge_held_back(cx, slices.iter().map(|slice| &**slice));
        };
        restored?;
        let undelivered = this.control.undelivered_bytes();
        let adopted = this.pass_on(slices);
        if adopted > 0 {
            return this.judge_write(cx, Poll::Ready(Ok(adopted)), undelivered);
        }
        let slices = this.before_chunk(slices);
        let outcome = Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(taken)) = outcome {
            this.note_written(slices.iter().map(|slice| &**slice), taken);
        }
        this.judge_write(cx, outcome, undelivered)
    }
}
