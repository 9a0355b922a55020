//! Replaces the answers that hyper gives by itself to a head that it cannot read or that is too
//! long (400, 431). hyper answers with a bare head and hands nothing to the handler. Here its
//! answer is dropped, and the server sends one with a text and writes a record.
//!
//! A later minor version of HTTP/1 is read as HTTP/1.1 (RFC 9110 §2.5), and another major version
//! gets 505.
//!
//! hyper reads a head only after it has flushed the response before. Bytes that it writes after
//! that, and before it hands a request on, are such an answer ([`ResponseState`] tells).

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Method, StatusCode};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use crate::access::RequestLine;
use crate::connection::timeouts::TimeoutStream;
use crate::control::Control;

/// Tells whether hyper writes a response of ours. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseState(Rc<Account>);

#[derive(Default)]
struct Account {
    step: Cell<Step>,
    refused: Cell<Option<StatusCode>>,
    /// The last digit of the version of the request that hyper reads, if it reads another.
    minor: Cell<Option<u8>>,
    /// The beginning of the head that hyper reads first. It drops a head that it understands before
    /// it judges the target and the length of the body.
    head: Cell<Option<Box<Head>>>,
}

/// Bytes of a head; behind a box, so that a connection at rest has a pointer for them.
#[derive(Default)]
struct Head(Vec<u8>);

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("step", &self.step).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// All responses are written.
    #[default]
    Nothing,
    /// A request was handed on, and its response is not all with hyper.
    Response,
    /// hyper has all of it, and may not have written it yet.
    Flush,
}

impl ResponseState {
    /// A request was handed on.
    pub(crate) fn on_request(&self) {
        self.0.step.set(Step::Response);
        self.0.head.take();
    }

    /// hyper has its response.
    pub(crate) fn on_response(&self) {
        self.0.step.set(Step::Flush);
    }

    /// The last digit of that request's version, if hyper read another. Call it once a request.
    pub(crate) fn take_minor(&self) -> Option<u8> {
        self.0.minor.take()
    }

    /// The request that hyper has refused with that status; `unread`: what it has not dropped.
    pub(crate) fn take_refused(&self, status: StatusCode, unread: &[u8]) -> Refused {
        let Head(head) = self.0.head.take().map(|head| *head).unwrap_or_default();
        let is_first = FirstLine::of(&head).is_whole;
        let is_left = status != StatusCode::BAD_REQUEST || is_malformed(unread);
        let head = if is_first {
            &head
        } else if is_left {
            unread
        } else {
            &[][..]
        };
        Refused::new(status, head, self.take_minor())
    }

    /// True if every response is written and flushed.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.step.get() == Step::Nothing
    }

    /// The status with which hyper has refused a request, if it has.
    pub(crate) fn refused(&self) -> Option<StatusCode> {
        self.0.refused.get()
    }

    fn on_flush(&self) {
        if self.0.step.get() == Step::Flush {
            self.0.step.set(Step::Nothing);
        }
    }

    /// True if hyper made these bytes itself: they are not from a response of ours.
    fn takes_back(&self, bytes: &[u8]) -> bool {
        if self.refused().is_none() && self.0.step.get() == Step::Nothing {
            let code = bytes.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
            let status = code.and_then(|code| StatusCode::from_bytes(code).ok());
            self.0.refused.set(Some(status.unwrap_or(StatusCode::BAD_REQUEST)));
        }
        self.refused().is_some()
    }
}

/// A byte stream that drops hyper's own answers, and stays open after one.
pub(crate) struct RefusingStream<I> {
    pub(crate) inner: I,
    response_state: ResponseState,
    /// Bytes that were read before hyper asked for them.
    first: Option<io::Result<Vec<u8>>>,
}

/// Bytes to read before hyper asks: no more than its first buffer holds.
const FIRST_BYTES: usize = 8192;

impl<I> RefusingStream<I> {
    pub(crate) fn new(inner: I, response_state: ResponseState) -> Self {
        RefusingStream { inner, response_state, first: None }
    }
}

impl<I: Read + Unpin> RefusingStream<I> {
    /// Ready once there is something for hyper to read: bytes, the end, or an error.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.first.is_none() {
            let mut bytes = [MaybeUninit::uninit(); FIRST_BYTES];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer.unfilled()));
            self.first = Some(read.map(|()| buffer.filled().to_vec()));
        }
        Poll::Ready(())
    }
}

impl<I: Read + Write + Unpin, C: Control + Unpin> RefusingStream<TimeoutStream<I, C>> {
    /// Frees the memory that only requests need. hyper may have read some bytes of a request that
    /// is not complete.
    pub(crate) fn rest(&mut self, read: &[u8]) {
        self.inner.rest();
        if !read.is_empty() {
            self.inner.on_head();
            self.first = Some(Ok(read.to_vec()));
        }
    }
}

impl<I> RefusingStream<I> {
    /// The bytes that were read before hyper asked for them.
    pub(crate) fn take_first(&mut self) -> Vec<u8> {
        self.first.take().and_then(Result::ok).unwrap_or_default()
    }

    /// If hyper refused a request of HTTP/1.2 or later, begins again with the bytes that it read,
    /// as of HTTP/1.1. False if that was not the reason.
    pub(crate) fn read_as_1_1(&mut self, read: &[u8]) -> bool {
        let line = FirstLine::of(read);
        let Some((1, minor @ 2..)) = line.version() else { return false };
        let mut bytes = read.to_vec();
        bytes[line.end - 1] = b'1';
        self.first = Some(Ok(bytes));
        self.response_state.0.refused.set(None);
        self.response_state.0.minor.set(Some(minor));
        true
    }
}

/// The first line of a head. Empty lines before it do not count (RFC 9112 §2.2).
struct FirstLine<'a> {
    line: &'a [u8],
    /// Where it ends in what was read.
    end: usize,
    /// All of it was read.
    is_whole: bool,
}

impl FirstLine<'_> {
    fn of(read: &[u8]) -> FirstLine<'_> {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let begin = read.iter().position(|byte| !is_end(byte)).unwrap_or(read.len());
        let rest = &read[begin..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        FirstLine { line, end: begin + line.len(), is_whole: end.is_some() }
    }

    /// The version at its end, if it is whole and has one.
    fn version(&self) -> Option<(u8, u8)> {
        let at = self.line.iter().rposition(|byte| *byte == b' ')?;
        match self.line[at + 1..].strip_prefix(b"HTTP/")? {
            [major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] if self.is_whole => {
                Some((major - b'0', minor - b'0'))
            }
            _ => None,
        }
    }
}

impl<I: Read + Unpin> Read for RefusingStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(first) = self.first.take() else {
            return Pin::new(&mut self.inner).poll_read(cx, out);
        };
        let mut bytes = first?;
        let rest = bytes.split_off(bytes.len().min(out.remaining()));
        out.put_slice(&bytes);
        self.response_state.0.head.set(Some(Box::new(Head(bytes))));
        self.first = (!rest.is_empty()).then_some(Ok(rest));
        Poll::Ready(Ok(()))
    }
}

impl<I: Write + Unpin> Write for RefusingStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.response_state.takes_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.response_state.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.response_state.on_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.response_state.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        if self.response_state.takes_back(first) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}

/// The status for a head that hyper refused without an answer of its own: HTTP/2's preface.
pub(crate) fn unanswered<E>(outcome: &Result<(), E>, unread: &[u8]) -> Option<StatusCode> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    (outcome.is_err() && unread.starts_with(preface)).then_some(StatusCode::BAD_REQUEST)
}

/// True if hyper's parser does not understand these bytes, so that they are the refused head.
/// Behind a head that hyper has dropped there may be the next request.
fn is_malformed(unread: &[u8]) -> bool {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let parsed = httparse::Request::new(&mut fields).parse(unread);
    parsed.is_err_and(|error| error != httparse::Error::TooManyHeaders)
}

/// A refused request, as far as it could be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) line: RequestLine,
}

impl Refused {
    /// Reads what can be read of a head that hyper did not understand. `minor`: see
    /// [`ResponseState::take_minor`].
    fn new(status: StatusCode, head: &[u8], minor: Option<u8>) -> Refused {
        let first = FirstLine::of(head);
        let mut line = RequestLine::refused(first.line);
        line.restore(minor);
        if line.target().is_none() {
            return Refused { status, line };
        }
        // If the first line does not end, its target is too long (RFC 9110 §15.5.15).
        let is_long = status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE && !first.is_whole;
        let is_foreign = status == StatusCode::BAD_REQUEST
            && first.version().is_some_and(|(major, _)| major != 1);
        let status = match (is_long, is_foreign) {
            (true, _) => StatusCode::URI_TOO_LONG,
            (_, true) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            _ => status,
        };
        Refused { status, line }
    }

    /// The body of the answer.
    fn text(&self) -> String {
        let status = self.status;
        let detail = match status {
            StatusCode::URI_TOO_LONG => "No file has so long a path.",
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "The request's head is too long, or has too many fields."
            }
            StatusCode::HTTP_VERSION_NOT_SUPPORTED => "This server speaks HTTP/1.",
            _ => "The request cannot be understood.",
        };
        let reason = status.canonical_reason().unwrap_or("");
        format!("{} {reason}\n{detail}\n", status.as_u16())
    }

    /// Writes the answer and closes the stream. Returns how many bytes of the body were written,
    /// and whether they were all.
    pub(crate) async fn answer<I>(&self, io: &mut I, date: &HeaderValue) -> (u64, bool)
    where
        I: Write + Unpin,
    {
        let is_head = self.line.method() == Some(Method::HEAD.as_str());
        let body = if is_head { String::new() } else { self.text() };
        let head = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: text/plain; charset=utf-8\r\n\
             x-content-type-options: nosniff\r\ncontent-length: {}\r\nconnection: close\r\n\
             date: {}\r\nserver: lightwait\r\n\r\n",
            self.status.as_u16(),
            self.status.canonical_reason().unwrap_or(""),
            self.text().len(),
            date.to_str().unwrap_or(""),
        );
        let bytes = format!("{head}{body}");
        let mut written = 0;
        let outcome = poll_fn(|cx| {
            while written < bytes.len() {
                match ready!(Pin::new(&mut *io).poll_write(cx, &bytes.as_bytes()[written..]))? {
                    0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero))),
                    more => written += more,
                }
            }
            ready!(Pin::new(&mut *io).poll_flush(cx))?;
            Pin::new(&mut *io).poll_shutdown(cx)
        })
        .await;
        let sent = written.saturating_sub(head.len());
        (sent as u64, outcome.is_ok() && written == bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, unread: &[u8]) -> (u16, String) {
        let Refused { status, line } =
            Refused::new(StatusCode::from_u16(status).unwrap(), unread, None);
        (status.as_u16(), line.as_bytes().escape_ascii().to_string())
    }

    #[test]
    fn the_line_of_a_refused_request_is_told_as_it_came() {
        for (status, unread, wanted, line) in [
            (431, &b"GET /a HTTP/1.1\r\nX: xx"[..], 431, "GET /a HTTP/1.1"),
            (400, b"GET /\x1b[0m\" HTTP/1.1\r\n", 400, "GET /\\x1b[0m\\\" HTTP/1.1"),
            (400, b"GET /a\rb HTTP/1.1\r\n", 400, "GET /a\\rb HTTP/1.1"),
            (400, b"GET  / HTTP/1.1\r\n", 400, "GET  / HTTP/1.1"),
            (400, b"GET / HTTP/9.9\r\n", 505, "GET / HTTP/9.9"),
            (400, b"\r\n\nGET / HTTP/3.0\n", 505, "GET / HTTP/3.0"),
            (400, b"PRI * HTTP/2.0\r\n\r\n", 505, "PRI * HTTP/2.0"),
            // It may go on.
            (400, b"GET / HTTP/9.9", 400, "GET / HTTP/9.9"),
            (400, b"\x16\x03\x01 x", 400, "\\x16\\x03\\x01 x"),
            (400, b"", 400, ""),
            (400, b"\r\n", 400, ""),
        ] {
            assert_eq!(refused(status, unread), (wanted, line.to_owned()));
        }
        let minor = Refused::new(StatusCode::BAD_REQUEST, b"GET / HTTP/1.1\r\n\x00", Some(2));
        assert_eq!(minor.line, "GET / HTTP/1.2".into());
    }

    #[test]
    fn a_first_line_that_does_not_end_is_too_long_by_its_target() {
        let long = [b"GET /", "x".repeat(1000).as_bytes()].concat();
        let (status, line) = refused(431, &long);
        assert_eq!((status, line.len()), (414, 256 + "...".len()));
        assert_eq!(refused(400, &long).0, 400);
    }
}
