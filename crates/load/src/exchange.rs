//! Requests on one connection, and their answers (HTTP/1.1, RFC 9112), over any byte stream.
//!
//! A waiting connection keeps next to no memory: one buffer serves all reads, and a body is
//! counted, not kept.

mod chunks;
mod parser;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use parser::{Answer, Malformed, Parser};

/// Bytes that may follow the last answer before the peer's FIN.
const MOST_SURPLUS_BYTES: usize = 64 << 10;

/// An event of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first byte of an answer has come.
    FirstByte,
    /// An answer is complete.
    Answer(Answer),
}

/// The state in which an exchange leaves its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Fit for further requests.
    Open,
    /// The peer closes it, or has.
    Closing,
}

/// Writes `requests` and reads an answer for each of `heads`, both at the same time, so that
/// neither end waits for the other. An entry of `heads` is true if the answer is to HEAD and has no
/// body. `buffer` is the read buffer, and is free again whenever this waits.
///
/// # Panics
/// If no answer is expected.
///
/// # Errors
/// The stream's own; `UnexpectedEof` if the peer closes before the last answer is complete, or says
/// in an earlier one that it closes; `InvalidData` if an answer is not HTTP/1.1. The events report
/// the answered requests.
pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    requests: &[u8],
    heads: &[bool],
    buffer: &RefCell<Vec<u8>>,
    on_event: impl FnMut(Event),
) -> io::Result<Left> {
    let (first, heads) = heads.split_first().expect("an answer to wait for");
    let mut exchange = Exchange {
        stream,
        unwritten: requests,
        is_flushed: false,
        write_error: None,
        reading: Reading { parser: Parser::new(*first), heads, on_event },
        buffer,
    };
    poll_fn(|context| exchange.poll(context)).await
}

/// Writes the last bytes and closes our half of the stream.
///
/// # Errors
/// The stream's own.
pub async fn half_close<S: AsyncWrite + Unpin>(stream: &mut S, last: &[u8]) -> io::Result<()> {
    let mut unwritten = last;
    poll_fn(|context| {
        while !unwritten.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(context, unwritten))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => unwritten = &unwritten[len..],
            }
        }
        ready!(Pin::new(&mut *stream).poll_flush(context))?;
        Pin::new(&mut *stream).poll_shutdown(context)
    })
    .await
}

/// Reads and drops data until the peer has closed: before us, so that it keeps the TIME-WAIT, or
/// after us.
///
/// # Errors
/// The stream's own; `InvalidData` if the peer goes on sending.
pub async fn closed<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &RefCell<Vec<u8>>,
) -> io::Result<()> {
    let mut surplus = 0;
    loop {
        let len = poll_fn(|context| {
            let mut buffer = buffer.borrow_mut();
            let mut read = ReadBuf::new(&mut buffer);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut read)) {
                // A peer with TLS has closed without close_notify.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
                result => Poll::Ready(result.map(|()| read.filled().len())),
            }
        })
        .await?;
        surplus += len;
        if len == 0 {
            return Ok(());
        }
        if surplus > MOST_SURPLUS_BYTES {
            return Err(invalid(Malformed("bytes after the last answer")));
        }
    }
}

/// An exchange in progress.
struct Exchange<'a, S, F> {
    stream: &'a mut S,
    unwritten: &'a [u8],
    is_flushed: bool,
    /// Returned only if no answer explains it: a server may refuse a request before it has read all
    /// of it.
    write_error: Option<io::Error>,
    reading: Reading<'a, F>,
    buffer: &'a RefCell<Vec<u8>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin, F: FnMut(Event)> Exchange<'_, S, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Left>> {
        self.poll_write(context);
        loop {
            let mut buffer = self.buffer.borrow_mut();
            let mut read = ReadBuf::new(&mut buffer);
            let result = ready!(Pin::new(&mut *self.stream).poll_read(context, &mut read));
            let ended = match result {
                Ok(()) if read.filled().is_empty() => self.reading.on_end(),
                Ok(()) => self.reading.on_bytes(read.filled()),
                Err(error) => Err(error),
            };
            match ended {
                Ok(None) => {}
                // If the answer came before the whole request was sent, no other request can
                // follow.
                Ok(Some(left)) => {
                    let left = if self.unwritten.is_empty() { left } else { Left::Closing };
                    return Poll::Ready(Ok(left));
                }
                Err(error) => {
                    return Poll::Ready(Err(self.write_error.take().unwrap_or(error)));
                }
            }
        }
    }

    /// Writes as much as the stream takes.
    fn poll_write(&mut self, context: &mut Context<'_>) {
        while self.write_error.is_none() && !self.is_flushed {
            let stream = Pin::new(&mut *self.stream);
            let written = if self.unwritten.is_empty() {
                stream.poll_flush(context).map_ok(|()| self.is_flushed = true)
            } else {
                stream.poll_write(context, self.unwritten).map(|result| match result? {
                    0 => Err(io::ErrorKind::WriteZero.into()),
                    len => {
                        self.unwritten = &self.unwritten[len..];
                        Ok(())
                    }
                })
            };
            match written {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => self.write_error = Some(error),
                Poll::Pending => return,
            }
        }
    }
}

/// The answers of an exchange.
struct Reading<'a, F> {
    parser: Parser,
    /// For each answer after the present one, whether it is to HEAD.
    heads: &'a [bool],
    on_event: F,
}

impl<F: FnMut(Event)> Reading<'_, F> {
    /// Takes in read bytes. Returns the state of the connection once all answers are complete.
    fn on_bytes(&mut self, mut bytes: &[u8]) -> io::Result<Option<Left>> {
        while !bytes.is_empty() {
            if !self.parser.has_begun() {
                (self.on_event)(Event::FirstByte);
            }
            let (len, answer) = self.parser.take(bytes).map_err(invalid)?;
            bytes = &bytes[len..];
            let Some(answer) = answer else { continue };
            if let Some(left) = self.on_answer(answer)? {
                // Bytes beyond the last answer would be taken for the next answer.
                let is_clean = bytes.is_empty() && left == Left::Open;
                return Ok(Some(if is_clean { Left::Open } else { Left::Closing }));
            }
        }
        Ok(None)
    }

    /// Takes note of a complete answer. Fails if others are due and the connection carries none: a
    /// peer that says so may leave the socket open (RFC 9112 §9.6).
    fn on_answer(&mut self, answer: Answer) -> io::Result<Option<Left>> {
        (self.on_event)(Event::Answer(answer));
        let Some((is_head, behind)) = self.heads.split_first() else {
            return Ok(Some(if answer.keeps_alive { Left::Open } else { Left::Closing }));
        };
        if !answer.keeps_alive {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.heads = behind;
        self.parser.expect(*is_head);
        Ok(None)
    }

    /// The peer has closed.
    fn on_end(&mut self) -> io::Result<Option<Left>> {
        match self.parser.end() {
            Some(answer) => self.on_answer(answer),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn invalid(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
