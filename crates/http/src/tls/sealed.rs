//! The transport beneath TLS, as the server controls it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::control::{Control, Delivery};

/// What the stream tells those who control it.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Text that the session has taken and not yet handed to the transport, at most.
    pub(super) pending: Cell<usize>,
    /// Bytes handed to the transport, of all records.
    sent: Cell<u64>,
    /// How many those were with the last text in them. What follows, such as the word that nothing
    /// does, need not arrive.
    text_end: Cell<u64>,
    /// Why the handshake failed, if it did.
    pub(super) failure: RefCell<Option<String>>,
}

impl Told {
    /// The transport took so many bytes.
    pub(super) fn on_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    /// The transport has every record.
    pub(super) fn on_all_sent(&self) {
        if self.pending.take() > 0 {
            self.text_end.set(self.sent.get());
        }
    }

    /// The text that the peer lacks, where it lacks so many bytes of the transport's; at most that.
    fn lacking(&self, bytes: u64) -> u64 {
        let pending = self.pending.get();
        if pending == 0 && self.sent.get() - self.text_end.get() >= bytes {
            return 0;
        }
        bytes + pending as u64
    }
}

/// A transport whose bytes are sealed: it takes no chunk as it is, and gives none back. What it
/// says of undelivered bytes counts the records around them, but not records without text.
#[derive(Clone)]
pub(crate) struct Sealed<C> {
    control: C,
    told: Rc<Told>,
}

impl<C> Sealed<C> {
    pub(super) fn new(control: C, told: Rc<Told>) -> Self {
        Sealed { control, told }
    }

    /// Why the handshake failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.told.failure.borrow().clone()
    }
}

impl<C: Control> Control for Sealed<C> {
    fn abort(&self) {
        self.control.abort();
    }

    fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    fn wake_when_closed(&self, cx: &Context<'_>) {
        self.control.wake_when_closed(cx);
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        self.control.poll_room(cx)
    }

    fn read_size(&self) -> Option<usize> {
        self.control.read_size()
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        self.control.set_supply(read_time, more);
    }

    fn undelivered_bytes(&self) -> Option<usize> {
        self.control.undelivered_bytes().map(|bytes| self.told.lacking(bytes as u64) as usize)
    }

    fn gives_back(&self) -> bool {
        false
    }

    fn timeouts(&self) -> u32 {
        self.control.timeouts()
    }

    fn poll_taken(&self, cx: &mut Context<'_>, kept: usize) -> Poll<()> {
        self.control.poll_taken(cx, kept)
    }

    fn poll_acknowledged(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.control.poll_acknowledged(cx)
    }

    fn delivery(&self) -> Option<Delivery> {
        let mut delivery = self.control.delivery()?;
        delivery.unacknowledged = self.told.lacking(delivery.unacknowledged);
        Some(delivery)
    }
}
