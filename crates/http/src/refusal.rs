//! Replaces the answers that hyper gives by itself to a head that it cannot read or that is too
//! long (400, 431). hyper answers with a bare head and hands nothing to the handler. Here its
//! answer is dropped, and the server sends one with a text and writes a record.
//!
//! A later minor version of HTTP/1 is read as HTTP/1.1 (RFC 9110 §2.5), and another major version
//! gets 505.
//!
//! hyper reads a head only after it has flushed the response before. Bytes that it writes after
//! that, and before it hands a request on, are such an answer ([`Owed`] keeps the account).

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Method, StatusCode};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use crate::control::Control;
use crate::patient::Patient;

/// Bytes of a refused request's target in its record, at most.
const TARGET_BYTES: usize = 256;

/// Tells whether hyper writes a response of ours. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owed(Rc<Account>);

#[derive(Debug, Default)]
struct Account {
    step: Cell<Step>,
    refused: Cell<Option<StatusCode>>,
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

impl Owed {
    /// A request was handed on.
    pub(crate) fn on_request(&self) {
        self.0.step.set(Step::Response);
    }

    /// hyper has its response.
    pub(crate) fn on_response(&self) {
        self.0.step.set(Step::Flush);
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
pub(crate) struct Refusable<I> {
    pub(crate) inner: I,
    owed: Owed,
    /// Bytes that were read before hyper asked for them.
    first: Option<io::Result<Vec<u8>>>,
}

/// Bytes to read before hyper asks: no more than its first buffer holds.
const FIRST_BYTES: usize = 8192;

impl<I> Refusable<I> {
    pub(crate) fn new(inner: I, owed: Owed) -> Self {
        Refusable { inner, owed, first: None }
    }
}

impl<I: Read + Unpin> Refusable<I> {
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

impl<I: Read + Write + Unpin, C: Control + Unpin> Refusable<Patient<I, C>> {
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

impl<I> Refusable<I> {
    /// If hyper refused a request of HTTP/1.2 or later, begins again with the bytes that it read,
    /// as of HTTP/1.1. False if that was not the reason.
    pub(crate) fn read_as_1_1(&mut self, read: &[u8]) -> bool {
        let Some((1, minor @ 2..)) = version(read) else { return false };
        let end = read.iter().position(|byte| *byte == b'\n').unwrap_or(read.len());
        let digit = read[..end].iter().rposition(|byte| *byte == b'0' + minor);
        let Some(digit) = digit else { return false };
        let mut bytes = read.to_vec();
        bytes[digit] = b'1';
        self.first = Some(Ok(bytes));
        self.owed.0.refused.set(None);
        true
    }
}

/// The version at the end of a complete first line, if it is one.
fn version(read: &[u8]) -> Option<(u8, u8)> {
    let end = read.iter().position(|byte| *byte == b'\n')?;
    let line = read[..end].strip_suffix(b"\r").unwrap_or(&read[..end]);
    let at = line.iter().rposition(|byte| *byte == b' ')?;
    match line[at + 1..].strip_prefix(b"HTTP/")? {
        [major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] => Some((major - b'0', minor - b'0')),
        _ => None,
    }
}

impl<I: Read + Unpin> Read for Refusable<I> {
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
        self.first = (!rest.is_empty()).then_some(Ok(rest));
        Poll::Ready(Ok(()))
    }
}

impl<I: Write + Unpin> Write for Refusable<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.owed.takes_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.owed.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.owed.on_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.owed.refused().is_some() {
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
        if self.owed.takes_back(first) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}

/// A refused request, as far as it could be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// `-` if it cannot be read.
    pub(crate) method: Method,
    /// The beginning of the request's target; `-` if it cannot be read.
    pub(crate) target: String,
}

impl Refused {
    /// Reads what can be read of a head that hyper did not understand.
    pub(crate) fn new(status: StatusCode, unread: &[u8]) -> Refused {
        let end = unread.iter().position(|byte| *byte == b'\n');
        let mut words = unread[..end.unwrap_or(unread.len())].split(|byte| *byte == b' ');
        let method = words.next().and_then(|word| Method::from_bytes(word).ok());
        let (Some(method), Some(target)) = (method, words.next()) else {
            let method = Method::from_bytes(b"-").expect("a token");
            return Refused { status, method, target: "-".to_owned() };
        };
        // If the first line does not end, its target is too long (RFC 9110 §15.5.15).
        let is_long = status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE && end.is_none();
        let is_foreign = status == StatusCode::BAD_REQUEST
            && version(unread).is_some_and(|(major, _)| major != 1);
        let status = match (is_long, is_foreign) {
            (true, _) => StatusCode::URI_TOO_LONG,
            (_, true) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            _ => status,
        };
        let mut told = target[..target.len().min(TARGET_BYTES)].escape_ascii().to_string();
        if target.len() > TARGET_BYTES {
            told.push_str("...");
        }
        Refused { status, method, target: told }
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
        let body = if self.method == Method::HEAD { String::new() } else { self.text() };
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

    fn refused(status: u16, unread: &[u8]) -> (u16, String, String) {
        let Refused { status, method, target } =
            Refused::new(StatusCode::from_u16(status).unwrap(), unread);
        (status.as_u16(), method.to_string(), target)
    }

    #[test]
    fn what_can_be_read_of_a_request_is_told() {
        let of = |status, method: &str, target: &str| (status, method.into(), target.into());
        assert_eq!(refused(431, b"GET /a HTTP/1.1\r\nX: xx"), of(431, "GET", "/a"));
        assert_eq!(refused(400, b"GET /\x1b[0m\" HTTP/1.1\r\n"), of(400, "GET", "/\\x1b[0m\\\""));
        assert_eq!(refused(400, b"GET / HTTP/9.9\r\n"), of(505, "GET", "/"));
        assert_eq!(refused(400, b"GET / HTTP/9.9"), of(400, "GET", "/"), "it may go on");
        assert_eq!(refused(400, b"\x16\x03\x01 x"), of(400, "-", "-"));
        assert_eq!(refused(400, b""), of(400, "-", "-"));
    }

    #[test]
    fn a_first_line_that_does_not_end_is_too_long_by_its_target() {
        let long = [b"GET /", "x".repeat(1000).as_bytes()].concat();
        let (status, method, target) = refused(431, &long);
        assert_eq!((status, method.as_str(), target.len()), (414, "GET", TARGET_BYTES + 3));
        assert_eq!(refused(400, &long).0, 400);
    }
}
