//! Our own sockets beneath a server, and a part of a stack's memory for what it serves (feature
//! `lightwait`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lightwait::bridge::Client;
use lightwait::local::{Control, TcpStream};
use lightwait::shard::{self, Handle};
use lightwait_core::buffer::{self, Level};

use crate::Pending;
use crate::control::{self, Delivery};
use crate::limits::memory::{ConnectionRoom, Memory, MemoryBudget};

/// A socket of ours. Behind the bridge, what counts as acknowledged is what the client has
/// acknowledged to the kernel.
#[derive(Clone)]
pub struct Transport {
    control: Control,
    /// Apart, as most connections have none of it, and several copies of a transport.
    more: Option<Rc<More>>,
}

/// Segments that were retransmitted when a delivery was last asked for; `None` before.
pub type Retransmits = Rc<Cell<Option<u64>>>;

/// What few transports have.
struct More {
    /// The client behind the bridge.
    client: Option<Rc<Client>>,
    /// A wait until it has acknowledged all data.
    wait: RefCell<Option<Pending<()>>>,
    retransmits: Option<Retransmits>,
    tells_read_times: bool,
}

impl Transport {
    /// The control over `stream`, whose client is another one if a bridge is between.
    /// `is_watched`: its retransmissions are to be known.
    pub fn new(stream: &TcpStream, client: Option<Rc<Client>>, is_watched: bool) -> Transport {
        let has_more = client.is_some() || is_watched;
        let more = has_more.then(|| {
            let retransmits = is_watched.then(Retransmits::default);
            let (wait, tells_read_times) = (RefCell::default(), true);
            Rc::new(More { client, wait, retransmits, tells_read_times })
        });
        Transport { control: stream.control(), more }
    }

    /// Does not tell the socket how long reads take, which shares of send memory follow.
    pub fn without_read_times(self) -> Transport {
        let before = self.more.as_deref();
        let more = More {
            client: before.and_then(|more| more.client.clone()),
            wait: RefCell::default(),
            retransmits: before.and_then(|more| more.retransmits.clone()),
            tells_read_times: false,
        };
        Transport { more: Some(Rc::new(more)), ..self }
    }

    /// Where they are told, if they are to be known.
    pub fn retransmits(&self) -> Option<Retransmits> {
        self.more.as_ref()?.retransmits.clone()
    }

    /// The client behind the bridge.
    fn client(&self) -> Option<&Rc<Client>> {
        self.more.as_ref()?.client.as_ref()
    }
}

impl More {
    /// Ready once the client behind the bridge has acknowledged all data.
    fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some(client) = &self.client else { return Poll::Ready(()) };
        let mut wait = self.wait.borrow_mut();
        let client = client.clone();
        let waiting =
            wait.get_or_insert_with(|| Box::pin(async move { client.acknowledged().await }));
        ready!(waiting.as_mut().poll(context));
        *wait = None;
        Poll::Ready(())
    }
}

impl control::Control for Transport {
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<usize> {
        self.control.poll_room(context)
    }

    fn read_size(&self) -> Option<usize> {
        self.control.read_size()
    }

    fn set_supply(&self, read_time: Duration, more: bool) {
        let tells = self.more.as_ref().is_none_or(|more| more.tells_read_times);
        let told = if tells { read_time } else { Duration::ZERO };
        self.control.set_supply(told, more);
    }

    fn abort(&self) {
        self.control.abort();
    }

    fn is_closed(&self) -> bool {
        self.control.is_closed() && self.client().is_none_or(|client| !client.is_relayed())
    }

    fn wake_when_closed(&self, context: &Context<'_>) {
        self.control.wake_when_closed(context);
    }

    fn undelivered_bytes(&self) -> Option<usize> {
        Some(self.control.unacknowledged_bytes())
    }

    fn timeouts(&self) -> u32 {
        self.control.info().map_or(0, |info| info.backoff.into())
    }

    fn adopt(&self, chunk: &Bytes) -> bool {
        self.control.adopt(chunk)
    }

    fn borrow(&self, chunk: &Bytes) -> bool {
        self.control.borrow(chunk)
    }

    fn is_wanted_back(&self) -> bool {
        self.control.is_wanted_back()
    }

    fn take_back(&self, most: usize) -> usize {
        self.control.take_back(most)
    }

    fn poll_taken(&self, context: &mut Context<'_>, kept: usize) -> Poll<()> {
        self.control.poll_taken(context, kept)
    }

    fn poll_acknowledged(&self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.control.poll_acknowledged(context));
        match &self.more {
            Some(more) => more.poll_acknowledged(context),
            None => Poll::Ready(()),
        }
    }

    fn delivery(&self) -> Option<Delivery> {
        let own = self.control.delivery()?;
        let unacknowledged = u64::from(own.unacknowledged_bytes);
        let delivery = match self.client() {
            None => {
                let retransmits = own.retransmits.into();
                Delivery { unacknowledged, srtt: own.srtt, retransmits }
            }
            Some(client) => {
                let client = client.info();
                let unacknowledged = unacknowledged + client.unacknowledged_bytes as u64;
                Delivery { unacknowledged, srtt: client.srtt, retransmits: client.retransmits }
            }
        };
        if let Some(retransmits) = self.retransmits() {
            retransmits.set(Some(delivery.retransmits));
        }
        Some(delivery)
    }
}

/// A part of the memory of `stack`, which holds nothing yet. The server's files and connections
/// are charged to it.
pub fn memory_of(stack: &Handle) -> Memory {
    Memory::new(Budget(stack.memory()))
}

/// A part of a stack's memory.
struct Budget(shard::Memory);

impl MemoryBudget for Budget {
    fn held(&self) -> &Arc<AtomicUsize> {
        self.0.held()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn by_connections(&self) -> &Arc<AtomicUsize> {
        self.0.by_connections()
    }

    fn is_scarce(&self) -> bool {
        self.0.level() > Level::Plenty
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn room(&self) -> Pending<()> {
        Box::pin(self.0.room())
    }

    fn when_scarce(&self, give_back: Rc<dyn Fn()>) {
        self.0.when_scarce(give_back);
    }

    fn set_crowded(&self, is_crowded: bool) {
        self.0.set_crowded(is_crowded);
    }

    fn room_for_connection(&self, bytes: usize) -> ConnectionRoom {
        match self.0.room_for_connection(bytes) {
            buffer::ConnectionRoom::Enough => ConnectionRoom::Enough,
            buffer::ConnectionRoom::Little => ConnectionRoom::Little,
            buffer::ConnectionRoom::None => ConnectionRoom::None,
        }
    }
}
