//! A handle on a connection for code that does not own its stream.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lightwait_core::config::SendSize;
use lightwait_core::tcp::{ConnectionInfo, Delivery, Demand, SendInfo, Supply};
use lightwait_core::{ConnectionId, Readiness};

use crate::shard::state::Local;

/// A handle on a connection whose stream has another owner, such as a server's HTTP library. It
/// does not keep the connection open. Its methods do nothing once the stream is dropped.
#[derive(Clone)]
pub struct Control {
    local: Rc<Local>,
    id: ConnectionId,
}

impl Control {
    pub(super) fn new(local: Rc<Local>, id: ConnectionId) -> Control {
        Control { local, id }
    }

    /// Resets the connection like [`TcpStream::abort`](super::TcpStream::abort). Later reads and
    /// writes of the stream fail.
    pub fn abort(&self) {
        let now = self.local.now();
        self.local.host_mut().abort(now, self.id);
        self.local.touch();
    }

    /// True if the connection is over, by either end's RST or in order.
    pub fn is_closed(&self) -> bool {
        self.local.host().readiness(self.local.now(), self.id).contains(Readiness::CLOSED)
    }

    /// Wakes the task of `context` when the connection is over, or data has arrived. It serves
    /// tasks that neither read nor write.
    pub fn wake_when_closed(&self, context: &Context<'_>) {
        self.local.wait_readable(self.id, context);
    }

    /// Returns the number of bytes that a write would take now, given enough memory. While that is
    /// zero, the task of `context` waits until there is room.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<usize> {
        let now = self.local.now();
        let room = self.local.host_mut().send_room(now, self.id);
        if room == 0 {
            self.local.wait_writable(self.id, context);
            return Poll::Pending;
        }
        Poll::Ready(room)
    }

    /// Bytes that the next read of the data's source should bring ([`Host::send_demand`]). `None`
    /// if the send buffer is [`SendSize::Round`], which takes reads of any size, or the connection
    /// is not open.
    ///
    /// [`Host::send_demand`]: lightwait_core::Host::send_demand
    pub fn read_size(&self) -> Option<usize> {
        let host = self.local.host();
        let options = host.options(self.id).ok()?;
        let read = host.send_demand(self.local.now(), self.id).read;
        (options.send_size != SendSize::Round && read != usize::MAX).then_some(read)
    }

    /// Reports the time that a read of the data's source takes, and whether more data follows the
    /// next write ([`Host::set_supply`](lightwait_core::Host::set_supply)).
    pub fn set_supply(&self, read_time: Duration, more: bool) {
        let now = self.local.now();
        self.local.host_mut().set_supply(now, self.id, Supply { read_time, more });
    }

    /// The bytes that the connection can use now and next. If the connection is not open, or a
    /// write would fail, they have their largest value.
    pub fn send_demand(&self) -> Demand {
        self.local.host().send_demand(self.local.now(), self.id)
    }

    /// The state of the send buffer; `None` if the connection has none.
    pub fn send_info(&self) -> Option<SendInfo> {
        self.local.host().send_info(self.local.now(), self.id)
    }

    /// True if memory is short and the peer takes next to nothing, so that the connection may be
    /// reset: what was never sent should be taken back. Whoever reads or writes is woken when it
    /// becomes so.
    pub fn is_wanted_back(&self) -> bool {
        self.local.host().is_wanted_back(self.id)
    }

    /// Writes all of `data` without a copy, if there is room for some of it. If false, nothing is
    /// written, and an ordinary write should follow
    /// ([`Host::adopt`](lightwait_core::Host::adopt)).
    pub fn adopt(&self, data: &Bytes) -> bool {
        let now = self.local.now();
        let is_adopted = self.local.host_mut().adopt(now, self.id, data);
        if is_adopted {
            self.local.touch();
        }
        is_adopted
    }

    /// Writes all of `data` as [`Control::adopt`] does, but the pool charges nothing: many buffers
    /// share it, and the caller charges it once ([`Host::borrow`](lightwait_core::Host::borrow)).
    pub fn borrow(&self, data: &Bytes) -> bool {
        let now = self.local.now();
        let is_borrowed = self.local.host_mut().borrow(now, self.id, data);
        if is_borrowed {
            self.local.touch();
        }
        is_borrowed
    }

    /// Drops what was written last and never sent, `most` bytes at most, if that is wanted back.
    /// Returns how many bytes: they are to be written again, before anything else
    /// ([`Host::take_back`](lightwait_core::Host::take_back)).
    pub fn take_back(&self, most: usize) -> usize {
        let now = self.local.now();
        self.local.host_mut().take_back(now, self.id, most)
    }

    /// Ready once fewer than `kept` bytes are not acknowledged, or none. Until then whoever polls
    /// is woken when the peer has taken something, and there is room.
    pub fn poll_taken(&self, context: &mut Context<'_>, kept: usize) -> Poll<()> {
        let unacknowledged = self.unacknowledged_bytes();
        if unacknowledged < kept || unacknowledged == 0 {
            return Poll::Ready(());
        }
        self.local.host_mut().wait_for_room(self.id);
        self.local.wait_writable(self.id, context);
        Poll::Pending
    }

    /// Ready once the peer has acknowledged all that was written, or the connection is over. Until
    /// then the task of `context` is woken when that is so.
    pub fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.unacknowledged_bytes() == 0 {
            return Poll::Ready(());
        }
        self.local.host_mut().wait_for_all(self.id);
        self.local.wait_writable(self.id, context);
        Poll::Pending
    }

    /// The connection's state for its user, also after its end; `None` if the stream is dropped.
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.local.host().info(self.id).ok()
    }

    /// What the peer has of the data written, also after the connection's end; `None` if the stream
    /// is dropped.
    pub fn delivery(&self) -> Option<Delivery> {
        self.local.host().delivery(self.id)
    }

    /// Bytes received that have not been read.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.local.host().readable_bytes(self.id)
    }

    /// Bytes written that the peer has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.local.host().unacknowledged_bytes(self.id)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.id).finish()
    }
}
