//! A parser of answers, one after the other, from bytes cut anywhere. It counts and drops bodies.

use std::fmt;

use httparse::{Header, Status};
use lightwait_http::client_close::OPTION;

use super::chunks::Chunks;

/// Bytes of an answer's head, at most, including interim answers (1xx) before it.
const MOST_HEAD_BYTES: usize = 64 << 10;
/// Header fields at most.
const MOST_FIELDS: usize = 128;

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status: 200 to 999.
    pub status: u16,
    /// Its bytes, including head, framing and interim answers.
    pub bytes: u64,
    /// The connection may carry another answer (RFC 9112 §9.3).
    pub keeps_alive: bool,
    /// The server asks its client to close first.
    pub asks_close: bool,
    /// The answer is HTTP/1.0.
    pub is_older: bool,
}

/// The bytes are not an answer of HTTP/1.1; the text gives the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an answer of HTTP/1.1: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Takes answers in, one after the other; a body is counted and dropped.
#[derive(Debug)]
pub struct Parser {
    is_head: bool,
    state: State,
    /// A head in pieces.
    head: Vec<u8>,
    answer: Answer,
}

#[derive(Debug)]
enum State {
    Head,
    /// Bytes of the body that are still missing.
    Length(u64),
    Chunks(Chunks),
    /// The body ends with the connection.
    UntilClose,
}

const NOTHING: Answer =
    Answer { status: 0, bytes: 0, keeps_alive: false, asks_close: false, is_older: false };

impl Parser {
    /// A parser for an answer to HEAD, which never has a body, or to another method.
    pub fn new(is_head: bool) -> Parser {
        Parser { is_head, state: State::Head, head: Vec::new(), answer: NOTHING }
    }

    /// Sets whether the next answer is to HEAD, or to another method.
    pub fn expect(&mut self, is_head: bool) {
        debug_assert!(!self.has_begun(), "between two answers");
        self.is_head = is_head;
    }

    /// True if part of an answer was taken.
    pub fn has_begun(&self) -> bool {
        self.answer.bytes > 0
    }

    /// Takes in bytes up to the end of the answer. Returns their number, and the answer if it is
    /// complete; else all bytes were taken.
    ///
    /// # Errors
    /// If the bytes are not an answer of HTTP/1.1, or its head is larger than 64 KiB.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Answer>), Malformed> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let (len, is_complete) = match &mut self.state {
                State::Head => self.take_head(rest)?,
                State::Length(left) => {
                    let len =
                        usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *left -= len as u64;
                    (len, *left == 0)
                }
                State::Chunks(chunks) => chunks.take(rest)?,
                State::UntilClose => (rest.len(), false),
            };
            taken += len;
            self.answer.bytes += len as u64;
            if is_complete {
                return Ok((taken, Some(self.complete())));
            }
        }
        Ok((taken, None))
    }

    /// The connection has closed. Returns the answer that this completes, if any.
    pub fn end(&mut self) -> Option<Answer> {
        matches!(self.state, State::UntilClose).then(|| self.complete())
    }

    fn complete(&mut self) -> Answer {
        self.state = State::Head;
        std::mem::replace(&mut self.answer, NOTHING)
    }

    /// Takes in bytes of a head. Returns their number, and true if they complete the answer.
    fn take_head(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        // A line end in the earlier piece may begin the end of the head.
        let held = self.head.len();
        if held == 0
            && let Some(end) = head_end(bytes, 0)
        {
            self.check_size(end)?;
            check_version(bytes)?;
            return Ok((end, self.on_head(&bytes[..end])?));
        }
        self.check_size(bytes.len().min(MOST_HEAD_BYTES + 1))?;
        self.head.extend_from_slice(bytes);
        check_version(&self.head)?;
        let Some(end) = head_end(&self.head, held.saturating_sub(2)) else {
            return Ok((bytes.len(), false));
        };
        let head = std::mem::take(&mut self.head);
        Ok((end - held, self.on_head(&head[..end])?))
    }

    /// Fails if that many more bytes exceed the limit.
    fn check_size(&self, more: usize) -> Result<(), Malformed> {
        if self.answer.bytes + more as u64 > MOST_HEAD_BYTES as u64 {
            return Err(Malformed("the head is larger than 64 KiB"));
        }
        Ok(())
    }

    /// A whole head has come. Returns true if there is no body.
    fn on_head(&mut self, head: &[u8]) -> Result<bool, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        match response.parse(head) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) => return Err(Malformed("an empty line, and no head")),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Malformed("more than 128 header fields"));
            }
            Err(_) => return Err(Malformed("its head cannot be read")),
        }
        let status = response.code.unwrap_or(0);
        match status {
            // The request did not ask for another protocol.
            101 => return Err(Malformed("it switches to another protocol")),
            100..=199 => return Ok(false),
            200.. => {}
            _ => return Err(Malformed("its status is below 100")),
        }
        let framing = Framing::of(response.headers)?;
        self.answer.status = status;
        self.answer.asks_close = framing.asks_close;
        self.answer.is_older = response.version == Some(0);
        self.answer.keeps_alive = match response.version {
            Some(1) => !framing.closes,
            _ => framing.keeps_alive && !framing.closes,
        };
        // RFC 9112 §6.3, in its order.
        self.state = match framing.body {
            _ if self.is_head || matches!(status, 204 | 304) => return Ok(true),
            Body::Length(0) => return Ok(true),
            Body::Length(len) => State::Length(len),
            Body::Chunks => State::Chunks(Chunks::default()),
            Body::UntilClose => {
                self.answer.keeps_alive = false;
                State::UntilClose
            }
        };
        Ok(false)
    }
}

/// Fails if a head, or its beginning, has a first line of another protocol: that may be all that
/// comes. Empty lines may come before it.
fn check_version(head: &[u8]) -> Result<(), Malformed> {
    const BEGIN: &[u8] = b"HTTP/1.";
    let blank = head.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let line = &head[blank..];
    let len = line.len().min(BEGIN.len());
    if line[..len] == BEGIN[..len] {
        Ok(())
    } else {
        Err(Malformed("its first line is not HTTP/1"))
    }
}

/// The end of the first empty line, searched from `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(line) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += line + 1;
        match &bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

/// The meaning of the header fields for the body and the connection.
struct Framing {
    body: Body,
    closes: bool,
    keeps_alive: bool,
    asks_close: bool,
}

enum Body {
    Length(u64),
    Chunks,
    UntilClose,
}

impl Framing {
    fn of(fields: &[Header<'_>]) -> Result<Framing, Malformed> {
        let body = Body::UntilClose;
        let mut framing = Framing { body, closes: false, keeps_alive: false, asks_close: false };
        let (mut length, mut coding) = (None, None);
        for field in fields {
            if field.name.eq_ignore_ascii_case("content-length") {
                for value in elements(field.value) {
                    let value = parse_length(value)?;
                    if length.replace(value).is_some_and(|before| before != value) {
                        return Err(Malformed("two different lengths"));
                    }
                }
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                coding = elements(field.value).last().or(coding);
            } else if field.name.eq_ignore_ascii_case("connection") {
                for value in elements(field.value) {
                    framing.closes |= value.eq_ignore_ascii_case(b"close");
                    framing.keeps_alive |= value.eq_ignore_ascii_case(b"keep-alive");
                    framing.asks_close |= value.eq_ignore_ascii_case(OPTION.as_bytes());
                }
            }
        }
        framing.body = match (coding, length) {
            (Some(coding), _) if coding.eq_ignore_ascii_case(b"chunked") => Body::Chunks,
            (Some(_), _) | (None, None) => Body::UntilClose,
            (None, Some(length)) => Body::Length(length),
        };
        // A message with both may be an attack by request smuggling: no other follows (RFC 9112
        // §6.1).
        framing.closes |= coding.is_some() && length.is_some();
        Ok(framing)
    }
}

/// The elements of a list (RFC 9110 §5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

fn parse_length(text: &[u8]) -> Result<u64, Malformed> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(is_digit));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Malformed("its length is no number"))
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}
