//! A connection of HTTP/2 (RFC 9113): hyper between a byte stream with timeouts and a handler. Each
//! request has a stream.
//!
//! ```text
//!   hyper ── Metered ── TimeoutStream ── Secured
//!     │         └ Ledger: what the client's frames cost
//!     └ a task for each stream, polled here ── StreamBody ── Body
//!                                                  └ Progress: how much of it the peer let pass
//! ```
//!
//! The connection is idle while it has no stream, and its limits are those of HTTP/1 then. It never
//! rests: what hyper keeps of it, such as the table of fields, cannot be had again.

mod body;
pub(crate) mod frames;
mod metered;
mod quiet;
mod streams;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::service::service_fn;

use super::{Awake, ConnectionState, Handler, Waits};
use crate::config::ServerConfig;
use crate::connection::h1::refusal::RefusingStream;
use crate::connection::h2::frames::{Cause, ENHANCE_YOUR_CALM, NO_ERROR, goaway};
use crate::connection::timeouts::TimeoutStream;
use crate::control::Control;
use crate::limits::eviction::Wanted;
use metered::{Metered, Wire};
use streams::{Limits, Spawner, Streams, Verdict};

/// Memory of a connection that speaks HTTP/2, beside what one of HTTP/1 has while it is awake:
/// tables of fields, and buffers of 16 KiB.
pub const HTTP2_BYTES: usize = 24 << 10;
/// What a client may send of bodies that were not read, of a stream and of all.
const WINDOW_BYTES: u32 = 64 << 10;
/// What h2 takes of a stream's body beyond what was sent.
const SEND_BYTES: usize = 64 << 10;
/// h2 answers a head that is longer than this times the server's own limit. The server answers
/// those between with a page.
const HEADER_FACTOR: u32 = 2;
/// Streams that we reset for faults of the client's, at most; behind that the connection ends.
const FAULTY_STREAMS: usize = 100;

/// Connections that speak HTTP/2, since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http2 {
    /// Connections.
    pub connections: u64,
    /// Requests on them.
    pub requests: u64,
    /// Heads that were refused because they were too long.
    pub heads_refused: u64,
    /// Streams that were reset because the peer let nothing of their answers pass.
    pub reset_stalled: u64,
    /// Streams that were reset because the peer let too little of them pass.
    pub reset_slow: u64,
    /// Connections that ended because the client took back too many requests.
    pub flood_resets: u64,
    /// Because it sent heads in too many pieces.
    pub flood_continuations: u64,
    /// Because it sent too many SETTINGS.
    pub flood_settings: u64,
    /// Too many PINGs.
    pub flood_pings: u64,
    /// Too much DATA that brought next to nothing.
    pub flood_empty: u64,
    /// Too many windows that let next to nothing pass.
    pub flood_windows: u64,
    /// Heads that were very much too long.
    pub flood_heads: u64,
    /// Too many frames that ask for nothing: PRIORITY, and those that nobody knows.
    pub flood_others: u64,
}

impl Http2 {
    fn flood(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Resets => &mut self.flood_resets,
            Cause::Continuations => &mut self.flood_continuations,
            Cause::Settings => &mut self.flood_settings,
            Cause::Pings => &mut self.flood_pings,
            Cause::Empty => &mut self.flood_empty,
            Cause::Windows => &mut self.flood_windows,
            Cause::Heads => &mut self.flood_heads,
            Cause::Others => &mut self.flood_others,
        }
    }
}

type Outcome = Result<(), hyper::Error>;

fn builder(config: &ServerConfig, streams: Rc<Streams>) -> http2::Builder<Spawner> {
    let mut http = http2::Builder::new(Spawner(streams));
    let header_bytes = u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX);
    http.auto_date_header(false)
        .max_concurrent_streams(config.max_streams)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES)
        .max_local_error_reset_streams(FAULTY_STREAMS)
        .max_header_list_size(header_bytes.saturating_mul(HEADER_FACTOR));
    http
}

impl<H: Handler> ConnectionState<H> {
    /// Answers requests over HTTP/2 until the connection is over.
    pub(super) async fn serve_h2<I, C>(
        self: Rc<Self>,
        io: Box<RefusingStream<TimeoutStream<I, C>>>,
        waits: &mut Waits<C>,
    ) -> Awake<Box<RefusingStream<TimeoutStream<I, C>>>>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Unpin,
    {
        let ConnectionState { server, phase, .. } = &*self;
        let _charges =
            (server.admissions.charge_awake(), server.admissions.charge_connection(HTTP2_BYTES));
        waits.entry.set_awake(true);
        server.admissions.count_http2(|http2| http2.connections += 1);
        let now = server.clock.timer.now();
        let streams = Rc::new(Streams::new(phase.clone(), server.clock.timer.clone(), now));
        let wire = Rc::new(RefCell::new(Metered::new(io, streams.clone())));
        let service = service_fn(|request| self.clone().answer_stream(&streams, request));
        let http = builder(&server.config, streams.clone());
        let mut connection = http.serve_connection(Wire(wire.clone()), service);
        let outcome = poll_fn(|cx| {
            let on_stop = || Pin::new(&mut connection).graceful_shutdown();
            if waits.poll_cut(cx, &server.stop, on_stop).is_ready() {
                self.is_cut_short.set(!streams.is_empty());
                phase.abort(&waits.control);
                return Poll::Ready(Ok(()));
            }
            if waits.control.is_closed() {
                return Poll::Ready(Ok(()));
            }
            let outcome = streams.poll_with(cx, |cx| Pin::new(&mut connection).poll(cx));
            let mut metered = wire.borrow_mut();
            metered.on_answered(streams.answered());
            metered.flush(cx);
            drop(metered);
            if let Some(log) = &self.log {
                log.poll(cx, wire.borrow().is_flushed());
            }
            if outcome.is_ready() { outcome } else { self.poll_end(cx, &streams, waits) }
        })
        .await;
        drop(connection);
        streams.clear();
        waits.entry.set_awake(false);
        let wire = Rc::into_inner(wire).expect("hyper has dropped its share");
        self.take_leave(wire.into_inner(), streams.begun_answers(), &waits.control, outcome).await
    }

    /// Ready once the server ends the connection: it stops, others need the memory or the place, or
    /// the peer lets nothing pass.
    fn poll_end<C: Control>(
        &self,
        cx: &mut Context<'_>,
        streams: &Streams,
        waits: &mut Waits<C>,
    ) -> Poll<Outcome> {
        let ConnectionState { server, phase, .. } = self;
        if waits.is_stopping && streams.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let verdict = streams.poll_judged(cx, &Limits::of(&server.config));
        let Verdict { stalled, slow, ends } = verdict;
        if stalled + slow > 0 {
            server.admissions.count_http2(|http2| {
                http2.reset_stalled += stalled;
                http2.reset_slow += slow;
            });
        }
        if ends {
            return Poll::Ready(Ok(()));
        }
        let wanted = waits.entry.wanted(cx);
        if wanted != Wanted::Nothing {
            server.leave(phase, &waits.control, wanted);
            return Poll::Ready(Ok(()));
        }
        if phase.is_busy() {
            waits.control.wake_when_closed(cx);
        }
        Poll::Pending
    }

    /// Says that the connection ends, if that is not said, and ends our half. Counts why.
    async fn take_leave<I, C>(
        &self,
        wire: Metered<I, C>,
        begun_answers: u64,
        control: &impl Control,
        outcome: Outcome,
    ) -> Awake<Box<RefusingStream<TimeoutStream<I, C>>>>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Unpin,
    {
        let (flood, refused) = (wire.flood(), wire.heads_refused(begun_answers));
        self.server.admissions.count_http2(|http2| {
            http2.heads_refused += refused;
            flood.into_iter().for_each(|cause| *http2.flood(cause) += 1);
        });
        let error = if flood.is_some() { ENHANCE_YOUR_CALM } else { NO_ERROR };
        let farewell = wire.may_say_goodbye().then(|| goaway(wire.last_stream(), error));
        let mut io = wire.into_inner();
        if !control.is_closed() {
            // Boxed: once a connection.
            Box::pin(end(&mut io.inner, farewell)).await;
        }
        Awake::Over(io, outcome)
    }
}

/// Writes those words, and closes.
async fn end<I, C>(io: &mut TimeoutStream<I, C>, words: Option<[u8; 17]>)
where
    I: Read + Write + Unpin,
    C: Control + Unpin,
{
    let mut left = words.as_ref().map_or(&[][..], |words| &words[..]);
    // A peer that does not take it is reset by the timeouts, and one that has gone is no matter.
    let _ = poll_fn(|cx| {
        while !left.is_empty() {
            match ready!(Pin::new(&mut *io).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                written => left = &left[written..],
            }
        }
        ready!(Pin::new(&mut *io).poll_flush(cx))?;
        Pin::new(&mut *io).poll_shutdown(cx)
    })
    .await;
}

/// Since when a connection without streams has none.
type IdleSince = Instant;

#[cfg(test)]
mod tests;
