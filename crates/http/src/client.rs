//! A client of one connection, by hyper, on any byte stream. It closes first, and says so by
//! [CLIENT_CLOSE](crate::client_close), so that it holds TIME-WAIT and not the server; and it heeds
//! a server that asks for that.
//!
//! ```text
//!   Client::request ─▶ hyper ─▶ byte stream      driven by a future that the caller runs
//!   Client::close   ─▶ CLIENT_CLOSE, our half closed, the rest dropped until the server's FIN
//! ```

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Timer, Write};
use tokio::sync::oneshot;

use crate::client_close;

/// Bytes dropped at a time.
const DROP_BYTES: usize = 4096;

/// How a client closes.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// How long the last exchange may make no progress, once no other request will be made: the
    /// caller does not read the answer, say, or the server does not take the request. The
    /// connection is closed then though the exchange is not over. 30 s.
    pub stall_timeout: Duration,
    /// How long the server may take to close behind us. 2 s: a round trip and a pause of its own.
    pub close_timeout: Duration,
    /// Bytes dropped meanwhile, at most: the error of a server that does not know CLIENT_CLOSE, or
    /// the rest of an answer that the caller dropped. 64 KiB.
    pub close_bytes: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            stall_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(2),
            close_bytes: 64 << 10,
        }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// We closed first, and then the server: we hold TIME-WAIT.
    ByUs,
    /// The server closed first, or the connection failed: it was reset, say.
    ByServer,
    /// We closed, and the server did not within the bounds: the transport goes on waiting for it.
    Unended,
}

/// Why a request was not answered.
#[derive(Debug)]
pub enum ClientError {
    /// The server has asked us to close: open another connection.
    Asked,
    /// An error of hyper.
    Http(hyper::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Asked => f.write_str("the server asks for this connection to be closed"),
            ClientError::Http(error) => error.fmt(f),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ClientError::Asked => None,
            ClientError::Http(error) => error.source(),
        }
    }
}

/// A connection to a server. Dropping it closes it, as [`Client::close`] does.
pub struct Client<B> {
    // Before the sender, which the driver sees go.
    course: Holder,
    sender: SendRequest<B>,
    closed: oneshot::Receiver<Closed>,
}

/// The state that a client and its driver share.
#[derive(Default)]
struct Course {
    /// The server has asked us to close.
    is_asked: Cell<bool>,
    /// No request may be sent any more: the server closes, or the client has said that it does.
    is_last: Cell<bool>,
    /// The client was dropped. Else the server ended the connection.
    is_released: Cell<bool>,
    /// The driver, which waits for that: hyper does not while an exchange is in progress.
    driver: Cell<Option<Waker>>,
    /// Counts reads and writes of the stream.
    moved: Cell<u64>,
}

/// The client's share of the course.
struct Holder(Rc<Course>);

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.is_released.set(true);
        if let Some(driver) = self.0.driver.take() {
            driver.wake();
        }
    }
}

impl<B> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl<B> Client<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A client on that stream, and the future that drives it, which the caller must run. `host` is
    /// the `Host` of its requests.
    ///
    /// # Panics
    /// If `host` has a control character.
    ///
    /// # Errors
    /// An error of hyper.
    pub async fn new<I>(
        io: I,
        host: &str,
        timer: Rc<dyn Timer>,
        config: ClientConfig,
    ) -> Result<(Client<B>, impl Future<Output = ()> + use<I, B>), hyper::Error>
    where
        I: Read + Write + Unpin + 'static,
    {
        let farewell = client_close::request(host);
        let course = Rc::new(Course::default());
        let io = Watched { io, course: course.clone() };
        let (sender, connection) = http1::handshake(io).await?;
        let (told, closed) = oneshot::channel();
        let client = Client { course: Holder(course.clone()), sender, closed };
        let driver = async move {
            let closing = Closing { farewell, timer, config };
            // The caller may not wait for the outcome.
            let _ = told.send(drive(connection, &course, closing).await);
        };
        Ok((client, driver))
    }

    /// Makes a request, once the answer before is read.
    ///
    /// # Errors
    /// The server has asked us to close, or an error of hyper.
    pub async fn request(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, ClientError> {
        if self.course.0.is_asked.get() {
            return Err(ClientError::Asked);
        }
        self.sender.ready().await.map_err(ClientError::Http)?;
        let announces = client_close::has_option(request.headers(), "close");
        let answer = self.sender.send_request(request).await.map_err(ClientError::Http)?;
        // CLIENT_CLOSE exists in HTTP/1.1 only.
        let is_older = answer.version() < Version::HTTP_11;
        let closes = announces || is_older || client_close::has_option(answer.headers(), "close");
        self.course.0.is_last.set(closes);
        self.course.0.is_asked.set(client_close::is_asked_for(answer.headers()));
        Ok(answer)
    }

    /// True if the server has asked us to close: the client makes no further request.
    pub fn is_asked_to_close(&self) -> bool {
        self.course.0.is_asked.get()
    }

    /// Closes the connection once the last answer is read or dropped, or stalls
    /// ([`ClientConfig::stall_timeout`]). Returns how it ended.
    pub async fn close(self) -> Closed {
        let Client { course, sender, closed } = self;
        drop((course, sender));
        closed.await.unwrap_or(Closed::ByServer)
    }
}

/// How a connection is closed.
struct Closing {
    /// The CLIENT_CLOSE request, as bytes.
    farewell: Vec<u8>,
    timer: Rc<dyn Timer>,
    config: ClientConfig,
}

/// Drives a connection until its client makes no more requests, or the server closes.
async fn drive<I, B>(
    mut connection: Connection<Watched<I>, B>,
    course: &Course,
    closing: Closing,
) -> Closed
where
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Some(is_over) = until_over(&mut connection, course, &closing).await else {
        return Closed::ByServer;
    };
    let mut io = connection.into_parts().io.io;
    // Nothing is read but the server's FIN, if it has closed.
    let mut left = closing.config.close_bytes;
    let has_ended = poll_fn(|cx| match poll_drop(&mut io, cx, &mut left) {
        Poll::Ready(ended) => Poll::Ready(ended.unwrap_or(true)),
        Poll::Pending => Poll::Ready(false),
    });
    if has_ended.await {
        return Closed::ByServer;
    }
    let says_so = is_over && course.is_released.get() && !course.is_last.get();
    let mut unsent = if says_so { &closing.farewell[..] } else { &[][..] };
    let mut has_closed = false;
    let mut sleep = pin!(closing.timer.sleep(closing.config.close_timeout));
    poll_fn(|cx| {
        if !has_closed {
            match poll_farewell(&mut io, cx, &mut unsent) {
                Poll::Ready(Ok(())) => has_closed = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Closed::ByServer),
                Poll::Pending => {}
            }
        }
        if has_closed {
            match poll_drop(&mut io, cx, &mut left) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Closed::ByUs),
                Poll::Ready(Ok(false)) => return Poll::Ready(Closed::Unended),
                // A reset: no end holds TIME-WAIT.
                Poll::Ready(Err(_)) => return Poll::Ready(Closed::ByServer),
                Poll::Pending => {}
            }
        }
        sleep.as_mut().poll(cx).map(|()| Closed::Unended)
    })
    .await
}

/// Drives a connection until its last exchange is over (true) or stalls (false). `None` if it
/// fails.
async fn until_over<I, B>(
    connection: &mut Connection<Watched<I>, B>,
    course: &Course,
    closing: &Closing,
) -> Option<bool>
where
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut patience = None;
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(outcome.ok().map(|()| true));
        }
        while course.is_released.get() {
            let (moved, sleep) = patience.get_or_insert_with(|| {
                (course.moved.get(), closing.timer.sleep(closing.config.stall_timeout))
            });
            ready!(sleep.as_mut().poll(cx));
            if *moved == course.moved.get() {
                return Poll::Ready(Some(false));
            }
            patience = None;
        }
        course.driver.set(Some(cx.waker().clone()));
        Poll::Pending
    })
    .await
}

/// Writes the unsent bytes, and closes our half.
fn poll_farewell<I: Write + Unpin>(
    io: &mut I,
    cx: &mut Context<'_>,
    unsent: &mut &[u8],
) -> Poll<io::Result<()>> {
    while !unsent.is_empty() {
        match ready!(Pin::new(&mut *io).poll_write(cx, unsent))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            len => *unsent = &unsent[len..],
        }
    }
    ready!(Pin::new(&mut *io).poll_flush(cx))?;
    Pin::new(&mut *io).poll_shutdown(cx)
}

/// Reads and drops until the peer has closed, or `left` is used up. True if it has closed.
fn poll_drop<I: Read + Unpin>(
    io: &mut I,
    cx: &mut Context<'_>,
    left: &mut usize,
) -> Poll<io::Result<bool>> {
    let mut bytes = [MaybeUninit::uninit(); DROP_BYTES];
    while *left > 0 {
        let mut buffer = ReadBuf::uninit(&mut bytes);
        match ready!(Pin::new(&mut *io).poll_read(cx, buffer.unfilled())) {
            Ok(()) if buffer.filled().is_empty() => return Poll::Ready(Ok(true)),
            Ok(()) => *left = left.saturating_sub(buffer.filled().len()),
            Err(error) if client_close::is_end(&error) => return Poll::Ready(Ok(true)),
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(false))
}

/// A stream that counts how often it moved.
struct Watched<I> {
    io: I,
    course: Rc<Course>,
}

impl<I> Watched<I> {
    fn note<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.course.moved.set(self.course.moved.get() + u64::from(outcome.is_ready()));
        outcome
    }
}

impl<I: Read + Unpin> Read for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_read(cx, buffer);
        self.note(outcome)
    }
}

impl<I: Write + Unpin> Write for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.note(outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.note(outcome)
    }
}

#[cfg(test)]
mod tests;
