//! The task of a stream on its shard: it moves bytes between the stack and the crossing.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use lightwait_core::Error;

use super::crossing::{Addresses, Close, Crossing, Delivery, Owner};
use crate::local::TcpStream;
use crate::rt::{Sleep, sleep};
use crate::shard::Handle;

/// A page of fewer bytes is copied to the send buffer, which would copy it in any case.
const SHARED: usize = lightwait_core::buffer::PAGE_BYTES;

thread_local! {
    /// Wakers of the application, for the turn's end: one thread runs one shard here.
    static WOKEN: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Wakes what the turn has found to be woken.
pub(super) fn wake_all() {
    loop {
        let woken = WOKEN.with_borrow_mut(std::mem::take);
        if woken.is_empty() {
            return;
        }
        // With nothing borrowed: wakers may call anything.
        woken.into_iter().for_each(Waker::wake);
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
    let pending = VecDeque::new();
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
    /// Pages that the send buffer has not taken.
    pending: VecDeque<Bytes>,
    stage: Stage,
    /// Runs while a stream that was dropped still has pages.
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
        this.write(orders.is_shut, &mut delivery, context);
        if let Some(close) = orders.close {
            return this.close(close, context);
        }
        this.read(orders.room, &mut delivery, context);
        let has_room = with_woken(|woken| this.crossing.deliver(delivery, woken));
        if has_room {
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
        while let Some(page) = self.pending.front_mut() {
            let written = match page.len() < SHARED {
                true => self.stream.poll_write_slice(context, page),
                false => self.stream.poll_write_bytes(context, page),
            };
            match written {
                Poll::Pending => return,
                Poll::Ready(Ok(len)) => {
                    delivery.taken += len;
                    page.advance(len);
                    if page.is_empty() {
                        self.pending.pop_front();
                    }
                }
                Poll::Ready(Err(error)) => {
                    // Nothing that was written is sent any more.
                    delivery.taken += self.pending.drain(..).map(|page| page.len()).sum::<usize>();
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
        let len = self.stream.readable_bytes().min(room);
        if len > 0 {
            let mut page = vec![0; len];
            if let Ok(len) = self.stream.try_read(&mut page) {
                page.truncate(len);
                delivery.page = Some(page.into());
            }
        }
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

    /// The application has dropped the stream. The end of this task drops ours, which closes the
    /// connection: gracefully, once the send buffer has all.
    fn close(&mut self, how: Close, context: &mut Context<'_>) -> Poll<()> {
        if how == Close::Reset {
            self.stream.control().abort();
            return Poll::Ready(());
        }
        let linger = self.stream.options().map_or(None, |options| options.linger);
        let is_of_use = self.stage != Stage::Over && self.stream.readable_bytes() == 0;
        if self.pending.is_empty() || !is_of_use || linger.is_some_and(|linger| linger.is_zero()) {
            return Poll::Ready(());
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
