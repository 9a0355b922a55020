//! The access records of one connection. A record is written once the peer has acknowledged the
//! response, or the connection is over: a response that the transport has taken is not one that the
//! peer has.
//!
//! ```text
//!   begin ──▶ being sent ── on_over ──▶ with hyper ── flushed ──▶ in the transport ──▶ written
//!             an Entry                  Waiting, no end           Waiting, to an end
//! ```
//!
//! Positions count the bytes of the connection's stream. hyper reads a request only after it has
//! flushed the response before, so that a response begins where the stream is then.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Response;
use http::header::{CONNECTION, CONTENT_LENGTH};

use super::AccessHook;
use crate::Measure;
use crate::access::Access;
use crate::connection::timeouts::Phase;
use crate::control::Delivery;
use crate::files::User;
use crate::limits::admission::AdmissionControl;
use crate::limits::memory::Charge;

/// Records that wait for acknowledgements, at most. A client that pipelines may get many small
/// responses into one window; of more the oldest is written with what the client has.
const WAITING_MAX: usize = 256;

/// The transport, as records see it.
pub(super) trait Wire {
    /// See [`Control::delivery`](crate::Control::delivery). Data that was taken back counts as not
    /// acknowledged.
    fn delivery(&self) -> Option<Delivery>;

    /// See [`Control::poll_acknowledged`](crate::Control::poll_acknowledged).
    fn poll_acknowledged(&self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The access log of a connection.
pub(super) struct AccessLog {
    hook: AccessHook,
    pub(super) peer: SocketAddr,
    measure: Measure,
    wire: Rc<dyn Wire>,
    phase: Phase,
    admissions: AdmissionControl,
    waiting: RefCell<VecDeque<Waiting>>,
}

/// The record of a response that is not over.
pub(super) struct Entry {
    access: Access,
    begin: Instant,
    /// The response's first byte.
    start: u64,
    /// Bytes of its head.
    head_bytes: u64,
    /// Segments retransmitted before it; `None` if the transport cannot tell of deliveries.
    retransmits: Option<u64>,
}

/// The record of a response that the peer has not acknowledged.
struct Waiting {
    entry: Entry,
    /// One past the response's last byte; `None` while hyper may hold some of it.
    end: Option<u64>,
    _charge: Charge,
}

impl AccessLog {
    pub(super) fn new(
        hook: AccessHook,
        peer: SocketAddr,
        measure: Measure,
        wire: Rc<dyn Wire>,
        phase: Phase,
        admissions: AdmissionControl,
    ) -> AccessLog {
        AccessLog { hook, peer, measure, wire, phase, admissions, waiting: RefCell::default() }
    }

    /// A request has come, and its response begins.
    pub(super) fn begin(&self, access: Access) -> Entry {
        self.on_flushed();
        self.begin_stream(access)
    }

    /// A request has come on a stream of its own, beside others.
    pub(super) fn begin_stream(&self, access: Access) -> Entry {
        let retransmits = self.wire.delivery().map(|delivery| delivery.retransmits);
        let (begin, start) = ((self.measure)(), self.phase.written());
        Entry { access, begin, start, head_bytes: 0, retransmits }
    }

    /// The response's head is made.
    pub(super) fn on_head<B: http_body::Body>(&self, entry: &mut Entry, response: &Response<B>) {
        entry.access.first_byte = Some(self.age(entry));
        entry.on_head(response);
    }

    /// The response is over as far as the handler goes; `complete`: its body was handed over whole.
    pub(super) fn on_over(&self, mut entry: Entry, body_bytes: u64, complete: bool) {
        (entry.access.body_bytes, entry.access.complete) = (body_bytes, complete);
        if entry.retransmits.is_none() {
            entry.access.duration = self.age(&entry);
            return (self.hook)(entry.access);
        }
        let bytes = size_of::<Waiting>() + entry.access.text_bytes();
        let charge = self.admissions.charge_connection(bytes);
        let oldest = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.push_back(Waiting { entry, end: None, _charge: charge });
            if waiting.len() > WAITING_MAX { waiting.pop_front() } else { None }
        };
        if let Some(oldest) = oldest {
            self.write(oldest, self.wire.delivery());
        }
    }

    /// True if no record waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// True if nothing that was written waits for an acknowledgement. A response that was cut short
    /// has no end, and the rest of it never comes. After a reset nothing waits.
    pub(super) fn has_all(&self) -> bool {
        let is_reset = self.phase.last_delivery().is_some();
        is_reset || self.wire.delivery().is_none_or(|delivery| delivery.unacknowledged == 0)
    }

    /// Every response that is over is in the transport.
    pub(super) fn on_flushed(&self) {
        let mut waiting = self.waiting.borrow_mut();
        for waiting in waiting.iter_mut().rev().take_while(|waiting| waiting.end.is_none()) {
            waiting.end = Some(self.phase.written());
        }
    }

    /// Writes the records of responses that the peer has acknowledged. If others wait, the calling
    /// task is woken when it has all of them. `is_flushed`: hyper holds nothing of them.
    pub(super) fn poll(&self, cx: &mut Context<'_>, is_flushed: bool) {
        if self.is_empty() {
            return;
        }
        if is_flushed {
            self.on_flushed();
        }
        let delivery = self.wire.delivery();
        let acknowledged = self.acknowledged(delivery);
        let next = || {
            let mut waiting = self.waiting.borrow_mut();
            waiting.pop_front_if(|first| first.end.is_some_and(|end| end <= acknowledged))
        };
        while let Some(first) = next() {
            self.write(first, delivery);
        }
        // A connection that sends is polled anyway.
        if !self.is_empty() && !self.phase.is_busy() {
            let _ = self.wire.poll_acknowledged(cx);
        }
    }

    /// The connection is over: writes all records with what the peer has.
    pub(super) fn finish(&self) {
        let (rest, delivery) = (self.waiting.take(), self.wire.delivery());
        rest.into_iter().for_each(|waiting| self.write(waiting, delivery));
    }

    /// The bytes of the stream that the peer has acknowledged.
    fn acknowledged(&self, delivery: Option<Delivery>) -> u64 {
        delivery.map_or(0, |delivery| self.phase.written().saturating_sub(delivery.unacknowledged))
    }

    fn age(&self, entry: &Entry) -> Duration {
        (self.measure)().saturating_duration_since(entry.begin)
    }

    fn write(&self, waiting: Waiting, delivery: Option<Delivery>) {
        let Waiting { entry, end, .. } = waiting;
        let (acknowledged, duration) = (self.acknowledged(delivery), self.age(&entry));
        let Entry { mut access, start, head_bytes, retransmits, .. } = entry;
        // From the end back, framing and head need not be known.
        access.body_bytes = match end {
            Some(end) => access.body_bytes.saturating_sub(end.saturating_sub(acknowledged)),
            None => access.body_bytes.min(acknowledged.saturating_sub(start + head_bytes)),
        };
        access.complete &= end.is_some_and(|end| end <= acknowledged);
        access.duration = duration;
        access.srtt = delivery.map(|delivery| delivery.srtt);
        let resent = |(after, before): (Delivery, u64)| after.retransmits.saturating_sub(before);
        access.retransmits = delivery.zip(retransmits).map(resent);
        (self.hook)(access);
    }
}

impl Entry {
    /// The response's head is made, on a stream: frames of others stand before and between its own.
    pub(super) fn on_stream_head<B>(&mut self, response: &Response<B>) {
        self.access.status = response.status();
        self.access.user = response.extensions().get().map(|User(user)| user.clone());
    }

    /// The response's head is made. hyper adds the length of its body, and writes the values of
    /// `Connection` in one line. The framing of a body without a known length counts as body.
    fn on_head<B: http_body::Body>(&mut self, response: &Response<B>) {
        self.on_stream_head(response);
        let reason = response.status().canonical_reason().map_or(0, str::len);
        let line = "HTTP/1.1 200 \r\n".len() + reason;
        let headers = response.headers();
        let fields = headers.iter();
        let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
        let joined = headers.get_all(CONNECTION).iter().count().saturating_sub(1);
        let joined = joined * ("connection: \r\n".len() - ", ".len());
        let length = match response.body().size_hint().exact() {
            Some(bytes) if bytes > 0 && !headers.contains_key(CONTENT_LENGTH) => {
                "content-length: \r\n".len() + bytes.ilog10() as usize + 1
            }
            _ => 0,
        };
        let fields = fields.sum::<usize>() - joined + length;
        self.head_bytes = (line + fields + "\r\n".len()) as u64;
    }
}

#[cfg(test)]
mod tests;
