//! One connection of the bridge: two streams, each copied into the other.
//!
//! A direction reads only after it has written everything it read before: that gives back-pressure.
//! The end of one direction (FIN) is passed on alone, and the other direction goes on. A failure of
//! either side resets both.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crate::local::TcpStream;
use crate::rt;

/// Bytes read at a time.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that a relay copies before other tasks get their turn.
const BLOCKS_IN_A_ROW: u32 = 4;

/// Joins connections of the kernel's to ours, on one shard. Clones share a buffer, which each of
/// their relays empties before it waits.
#[derive(Clone, Debug)]
pub struct Relay {
    scratch: Rc<RefCell<Vec<u8>>>,
}

impl Default for Relay {
    fn default() -> Self {
        Relay { scratch: Rc::new(RefCell::new(vec![0; BLOCK_BYTES])) }
    }
}

impl Relay {
    /// Relays between two established connections until both directions have ended: byte stream
    /// for byte stream, with half-close and back-pressure.
    ///
    /// # Errors
    ///
    /// If one side fails. Both are reset when they are dropped.
    pub async fn join(&self, kernel: &tokio::net::TcpStream, stack: &TcpStream) -> io::Result<()> {
        relay(kernel, stack, &self.scratch, &Cell::default(), pending()).await
    }
}

/// Relays between two established connections until both directions have ended. `unwritten` says
/// how many bytes were read from the stack and not written to the kernel. Fails if one side fails;
/// both are reset when they are dropped. If the stack's side has ended and descriptors are needed
/// (`scarcity`), it waits no longer for the client's end: what was passed on is still delivered.
pub(super) async fn relay(
    kernel: &tokio::net::TcpStream,
    stack: &TcpStream,
    scratch: &RefCell<Vec<u8>>,
    unwritten: &Cell<usize>,
    scarcity: impl Future<Output = ()>,
) -> io::Result<()> {
    // The sender chose its segment sizes. Nagle's algorithm here would delay small ones a second
    // time.
    let _ = kernel.set_nodelay(true);
    let _ = stack.set_nodelay(true);
    let unsent = Cell::default();
    let there = pump((kernel, stack), scratch, &unsent);
    let back = pump((stack, kernel), scratch, unwritten);
    let outcome = both(there, back, scarcity).await;
    if outcome.is_err() {
        kernel.reset();
        stack.reset();
    }
    outcome
}

/// Makes closing this side reset its connection.
pub(super) fn reset(side: &impl Side) {
    side.reset();
}

/// Copies until the end of the stream, and passes the end on. `held` says how many bytes were read
/// and not written.
async fn pump(
    (from, to): (&impl Side, &impl Side),
    scratch: &RefCell<Vec<u8>>,
    held: &Cell<usize>,
) -> io::Result<()> {
    let mut unwritten = Vec::new();
    let mut blocks = 0;
    loop {
        from.readable().await?;
        match copy_block((from, to), &mut scratch.borrow_mut(), &mut unwritten, held) {
            Ok(0) => return to.finish(),
            Ok(_) => blocks += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => blocks = 0,
            Err(error) => return Err(error),
        }
        let mut written = 0;
        while written < unwritten.len() {
            blocks = 0;
            to.writable().await?;
            written += write_some(to, &unwritten[written..])?;
            held.set(unwritten.len() - written);
        }
        unwritten.clear();
        if blocks >= BLOCKS_IN_A_ROW {
            blocks = 0;
            rt::yield_now().await;
        }
    }
}

/// Reads a block and writes as much of it as fits; the rest is appended to `unwritten`. Returns the
/// number of bytes read.
fn copy_block(
    (from, to): (&impl Side, &impl Side),
    block: &mut [u8],
    unwritten: &mut Vec<u8>,
    held: &Cell<usize>,
) -> io::Result<usize> {
    let len = from.try_read(block)?;
    held.set(len);
    let mut written = 0;
    while written < len {
        match write_some(to, &block[written..len])? {
            0 => break,
            more => written += more,
        }
        held.set(len - written);
    }
    unwritten.extend_from_slice(&block[written..len]);
    Ok(len)
}

/// Writes as much as fits now, and returns the number of bytes: zero if the write would block.
fn write_some(to: &impl Side, data: &[u8]) -> io::Result<usize> {
    match to.try_write(data) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

/// Waits for both to succeed, or for the first to fail.
async fn both(
    first: impl Future<Output = io::Result<()>>,
    second: impl Future<Output = io::Result<()>>,
    scarcity: impl Future<Output = ()>,
) -> io::Result<()> {
    let (mut first, mut second, mut scarcity) = (pin!(first), pin!(second), pin!(scarcity));
    let (mut first_done, mut second_done) = (false, false);
    poll_fn(|context| {
        if !first_done && let Poll::Ready(result) = first.as_mut().poll(context) {
            first_done = true;
            if result.is_err() {
                return Poll::Ready(result);
            }
        }
        if !second_done && let Poll::Ready(result) = second.as_mut().poll(context) {
            second_done = true;
            if result.is_err() {
                return Poll::Ready(result);
            }
        }
        if second_done && !first_done && scarcity.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if first_done && second_done { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// One side of a relay.
pub(super) trait Side {
    async fn readable(&self) -> io::Result<()>;
    async fn writable(&self) -> io::Result<()>;
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn try_write(&self, data: &[u8]) -> io::Result<usize>;
    /// Sends FIN.
    fn finish(&self) -> io::Result<()>;
    /// Makes closing this side a reset.
    fn reset(&self);
}

impl Side for tokio::net::TcpStream {
    async fn readable(&self) -> io::Result<()> {
        self.readable().await
    }

    async fn writable(&self) -> io::Result<()> {
        self.writable().await
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.try_write(data)
    }

    fn finish(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(self, rustix::net::Shutdown::Write)?)
    }

    fn reset(&self) {
        // If the socket refuses the option, closing is graceful.
        let _ = rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO));
    }
}

impl Side for TcpStream {
    async fn readable(&self) -> io::Result<()> {
        self.readable().await
    }

    async fn writable(&self) -> io::Result<()> {
        self.writable().await
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }

    fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.try_write(data)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown_write()
    }

    fn reset(&self) {
        let _ = self.set_linger(Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests;
