//! A connection of HTTP/1 (RFC 9112): hyper between a byte stream with timeouts and a handler.

pub(super) mod exchange;
pub(crate) mod refusal;

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;

use super::stop::Wait;
use super::timeouts::{Phase, TimeoutStream};
use super::{Awake, ConnectionState, Handler, Server, Waits};
use crate::access::Access;
use crate::body::Body;
use crate::client_close;
use crate::control::Control;
use crate::limits::eviction::{EvictionEntry, Wanted};
use exchange::Exchange;
use refusal::{Refused, RefusingStream};

impl<H: Handler> ConnectionState<H> {
    /// Answers requests until none has come for a while. All of hyper's memory is held within.
    pub(super) async fn serve_h1<I, C>(
        self: Rc<Self>,
        io: Box<RefusingStream<TimeoutStream<I, C>>>,
        waits: &mut Waits<C>,
    ) -> Awake<Box<RefusingStream<TimeoutStream<I, C>>>>
    where
        I: Read + Write + Unpin + 'static,
        C: Control + Unpin,
    {
        let ConnectionState { server, phase, response_state: response, .. } = &*self;
        let _charge = server.admissions.charge_awake();
        waits.entry.set_awake(true);
        let service = service_fn(|request| self.clone().answer(request));
        let mut connection = server.http.serve_connection(io, service);
        let outcome = poll_fn(|cx| {
            let on_stop = || Pin::new(&mut connection).graceful_shutdown();
            if waits.poll_cut(cx, &server.stop, on_stop).is_ready() {
                self.cut(&waits.control);
                return Poll::Ready(Some(Ok(())));
            }
            // Hyper does not look at a connection while it waits for a body.
            if waits.control.is_closed() {
                return Poll::Ready(Some(Ok(())));
            }
            let outcome = Pin::new(&mut connection).poll(cx);
            self.poll_log(cx);
            let is_settled = response.is_settled();
            if self.has_parted.get() && is_settled {
                return Poll::Ready(Some(Ok(())));
            }
            let waits_for_peer = outcome.is_pending();
            let wanted = if waits_for_peer { waits.entry.wanted(cx) } else { Wanted::Nothing };
            if wanted == Wanted::Memory && phase.may_rest() && is_settled {
                return Poll::Ready(None);
            }
            if wanted != Wanted::Nothing {
                server.leave(phase, &waits.control, wanted);
                return Poll::Ready(Some(Ok(())));
            }
            if phase.is_busy() {
                waits.control.wake_when_closed(cx);
            }
            let rests = waits_for_peer && phase.takes_rest() && is_settled;
            if rests { Poll::Ready(None) } else { outcome.map(Some) }
        })
        .await;
        waits.entry.set_awake(false);
        let Some(outcome) = outcome else {
            server.admissions.count(|tally| tally.rests += 1);
            let mut parts = connection.into_parts();
            parts.io.rest(&parts.read_buf);
            return Awake::Rests(parts.io);
        };
        // Boxed: both are rare, and every connection would have room for them.
        let mut parts = connection.into_parts();
        if self.has_parted.get() && outcome.is_ok() {
            let cut = server.stop.wait_cut();
            Box::pin(server.part(&mut parts.io.inner, phase.clone(), &waits.entry, cut)).await;
        } else if let Some(status) =
            response.refused().or(refusal::unanswered(&outcome, &parts.read_buf))
        {
            if parts.io.read_as_1_1(&parts.read_buf) {
                return Awake::Rests(parts.io);
            }
            let refused = response.take_refused(status, &parts.read_buf);
            Box::pin(self.refuse(&mut parts.io.inner, refused)).await;
        }
        Awake::Over(parts.io, outcome)
    }

    /// Cuts the connection at a stop. Unfinished responses end, and their records say so.
    fn cut(&self, control: &impl Control) {
        let undelivered = control.undelivered_bytes().unwrap_or(0);
        self.is_cut_short.set(!self.response_state.is_settled() || undelivered > 0);
        self.phase.abort(control);
    }

    /// Answers a request that hyper refused itself.
    async fn refuse<I, C>(&self, io: &mut TimeoutStream<I, C>, refused: Refused)
    where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        let (server, status) = (&self.server, refused.status);
        let entry = self.log.as_ref().map(|log| {
            let line = refused.line.clone();
            log.begin(Access { status, ..Access::new(log.peer, line) })
        });
        let date = server.date.at((server.clock.wall)());
        let (body_bytes, complete) = refused.answer(io, &date).await;
        server.admissions.on_response(status, body_bytes);
        if let (Some(log), Some(entry)) = (&self.log, entry) {
            log.on_over(entry, body_bytes, complete);
            log.on_flushed();
        }
    }

    /// Answers a request. A CLIENT_CLOSE gets no answer, so that hyper reads no more. It is marked
    /// at once: hyper asks for an answer only when those before are written.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> {
        self.has_parted.set(client_close::is_obeyed(&request));
        self.served.set(self.served.get() + 1);
        let most = self.server.config.max_requests;
        let last = most.is_some_and(|most| self.served.get() >= most);
        async move {
            if self.has_parted.get() {
                return pending().await;
            }
            Ok(Exchange { state: self, last }.run(request).await)
        }
    }
}

impl<H: Handler> Server<H> {
    /// Closes a connection whose client has said that it closes, and has all its answers. Drops
    /// later data.
    async fn part<I, C>(
        &self,
        io: &mut TimeoutStream<I, C>,
        phase: Phase,
        entry: &EvictionEntry,
        cut: Wait,
    ) where
        I: Read + Write + Unpin,
        C: Control + Unpin,
    {
        phase.on_response(self.clock.timer.now());
        phase.yield_close();
        let mut cut = pin!(cut);
        poll_fn(|cx| {
            if cut.as_mut().poll(cx).is_ready() || entry.is_wanted(cx) {
                return Poll::Ready(());
            }
            Pin::new(&mut *io).poll_shutdown(cx).map(|_| ())
        })
        .await;
        self.admissions.count(|tally| match phase.has_closed() {
            true => tally.client_closes += 1,
            false => tally.client_closes_unended += 1,
        });
    }
}
