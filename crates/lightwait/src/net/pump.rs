//! The task of a stream on its shard: it moves bytes between the stack and the crossing.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lightwait_core::Error;

use super::crossing::{Addresses, Close, Crossing, Delivery, Owner};
use super::lane::{Lane, SMALL};
use crate::local::TcpStream;
use crate::rt::{Sleep, sleep};
use crate::shard::Handle;

/// A page of fewer bytes is copied to the send buffer, which would copy it in any case.
const SHARED: usize = lightwait_core::buffer::PAGE_BYTES;

thread_local! {
    /// Wakers of the application, for the turn's end: one thread runs one shard here.
    static WOKEN: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };

    /// Small reads pass through it.
    static SCRATCH: RefCell<[u8; SMALL]> = const { RefCell::new([0; SMALL]) };
}

/// Wakes what the turn has found to be woken.
pub(super) fn wake_all() {
    loop {
        let mut woken = WOKEN.with_borrow_mut(std::mem::take);
        if woken.is_empty() {
            return;
        }
        // With nothing borrowed: wakers may call anything.
        woken.drain(..).for_each(Waker::wake);
        WOKEN.with_borrow_mut(|next| {
            // The memory is used again.
            if next.is_empty() {
                *next = woken;
            }
        });
    }
}

/// Calls `with` with the wakers for the turn's end.
pub(super) fn with_woken<R>(with: impl FnOnce(&mut Vec<Waker>) -> R) -> R {
    WOKEN.with_borrow_mut(with)
}

/// Begins to serve a stream from the shard's thread.
///
/// # Errors
/// If the connection is over already, and has no addresses any more.
pub(super) fn begin(shard: &Handle, stream: TcpStream, crossing: Crossing) -> io::Result<Owner> {
    let addresses = Addresses { local: stream.local_addr()?, peer: stream.peer_addr()? };
    let crossing = Arc::new(crossing);
    let owner = Owner { crossing: crossing.clone() };
    let stage = if crossing.is_opening() { Stage::Opening } else { Stage::Open };
    let pending = Lane::default();
    let pump = Pump { crossing: crossing.clone(), stream, pending, stage, patience: None };
    let task = shard.spawn_local(pump);
    crossing.begin(task.waker().clone(), addresses);
    Ok(owner)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    /// FIN comes after what was written.
    Shut,
    Over,
}

struct Pump {
    crossing: Arc<Crossing>,
    stream: TcpStream,
    /// What was written and the send buffer has not taken.
    pending: Lane,
    stage: Stage,
    /// Runs while a stream that was dropped still has something to send.
    patience: Option<Sleep>,
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let orders = this.crossing.take(&mut this.pending);
        for call in orders.calls {
            call(&this.stream);
        }
        let mut delivery = Delivery::default();
        if this.stage == Stage::Opening {
            this.open(&mut delivery, context);
        }
        this.write(orders.is_shut && !orders.has_more, &mut delivery, context);
        if let Some(close) = orders.close {
            return this.close(close, orders.has_more, context);
        }
        this.read(orders.room, &mut delivery, context);
        let has_room = with_woken(|woken| this.crossing.deliver(&delivery, woken));
        if has_room || (orders.has_more && this.pending.is_empty()) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Pump {
    fn open(&mut self, delivery: &mut Delivery, context: &mut Context<'_>) {
        match self.stream.poll_established(context) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => {
                self.stage = Stage::Open;
                delivery.is_open = true;
            }
            Poll::Ready(Err(error)) => {
                self.stage = Stage::Over;
                delivery.over = Some(Some(cause(&error)));
            }
        }
    }

    /// Writes pages while the send buffer takes them, and FIN after them.
    fn write(&mut self, is_shut: bool, delivery: &mut Delivery, context: &mut Context<'_>) {
        while !self.pending.is_empty() {
            let written = match self.pending.first_page() {
                Some(page) if page.len() >= SHARED => self.stream.poll_write_bytes(context, page),
                _ => self.stream.poll_write_slice(context, self.pending.first()),
            };
            match written {
                Poll::Pending => return,
                Poll::Ready(Ok(len)) => {
                    delivery.taken += len;
                    self.pending.advance(len);
                }
                Poll::Ready(Err(error)) => {
                    // Nothing that was written is sent any more.
                    delivery.taken += self.pending.clear();
                    delivery.broken = Some(cause(&error));
                    return;
                }
            }
        }
        if is_shut && self.stage == Stage::Open {
            self.stage = Stage::Shut;
            // A connection that is over has nothing to shut down: the read reports how it ended.
            let _ = self.stream.shutdown_write();
        }
    }

    /// Reads as much as there is room for, and finds out whether there will be more.
    fn read(&mut self, room: usize, delivery: &mut Delivery, context: &mut Context<'_>) {
        if matches!(self.stage, Stage::Opening | Stage::Over) {
            return;
        }
        let readable = self.stream.readable_bytes();
        if readable == 0 && self.stream.is_awaited() {
            // Nothing has come since the last look.
            return;
        }
        delivery.has_brought = self.bring(readable.min(room));
        if self.stream.readable_bytes() > 0 {
            delivery.has_more = true;
            // The end may come meanwhile, but is reported after what lies here.
            self.stream.control().wake_when_closed(context);
            return;
        }
        match self.stream.poll_read_slice(context, &mut [0; 1]) {
            Poll::Pending => {}
            Poll::Ready(Ok(_)) => {
                delivery.is_at_end = true;
                let control = self.stream.control();
                if control.is_closed() {
                    self.stage = Stage::Over;
                    delivery.over = Some(None);
                } else {
                    control.wake_when_closed(context);
                }
            }
            Poll::Ready(Err(error)) => {
                self.stage = Stage::Over;
                delivery.over = Some(Some(cause(&error)));
            }
        }
    }

    /// Brings `len` bytes, which the stream has.
    fn bring(&mut self, len: usize) -> bool {
        if len > SMALL {
            let mut page = vec![0; len];
            let len = self.stream.try_read(&mut page).unwrap_or(0);
            page.truncate(len);
            self.crossing.bring_page(page);
        } else if len > 0 {
            SCRATCH.with_borrow_mut(|scratch| {
                let len = self.stream.try_read(&mut scratch[..len]).unwrap_or(0);
                self.crossing.bring(&scratch[..len]);
            });
        }
        len > 0
    }

    /// The application has dropped the stream. The end of this task drops ours, which closes the
    /// connection: gracefully, once the send buffer has all.
    fn close(&mut self, how: Close, has_more: bool, context: &mut Context<'_>) -> Poll<()> {
        if how == Close::Reset {
            self.stream.control().abort();
            return Poll::Ready(());
        }
        let linger = self.stream.options().map_or(None, |options| options.linger);
        let is_of_use = self.stage != Stage::Over && self.stream.readable_bytes() == 0;
        if !is_of_use || linger.is_some_and(|linger| linger.is_zero()) {
            return Poll::Ready(());
        }
        if self.pending.is_empty() {
            if !has_more {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let orphan = || self.stream.orphan_timeout();
        let patience = self.patience.get_or_insert_with(|| sleep(linger.unwrap_or_else(orphan)));
        if Pin::new(patience).poll(context).is_ready() {
            self.stream.control().abort();
            return Poll::Ready(());
        }
        self.stream.control().wake_when_closed(context);
        Poll::Pending
    }
}

/// The engine's error within an error of a socket.
fn cause(error: &io::Error) -> Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    cause.copied().unwrap_or(Error::NotConnected)
}

impl Drop for Pump {
    fn drop(&mut self) {
        // Before the application has closed it, only the shard's end drops the task.
        with_woken(|woken| self.crossing.end(woken));
    }
}
