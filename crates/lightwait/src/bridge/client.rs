//! The clients behind the bridge, as the server may ask about them.
//!
//! ```text
//!   server ──▶ its stack ──▶ client stack ──▶ relay ──▶ kernel ──▶ client
//!              acknowledged by the client stack, and not by the client: counted here
//! ```

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::net::TcpStream as Kernel;

use super::kernel::{queued_bytes, round_trips};
use crate::local::Control;
use crate::rt;

/// How long a relay waits, once both ends are passed on, for the client to acknowledge all data.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at the kernel's connection, which does not tell of acknowledgements: a part of
/// the round-trip time, within these bounds.
const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// A client behind the bridge.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    /// The client stack's end of its connection.
    stack: Control,
    /// The kernel's connection, while it is relayed.
    kernel: Weak<Kernel>,
    /// Bytes that were read from the stack and not written to the kernel.
    pub(super) unwritten: Cell<usize>,
    /// The state when the relay ended.
    last: Cell<ClientInfo>,
}

/// What the bridge knows of the delivery of the server's data to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// Bytes that the server's peer, the client stack, has taken, and the client has not
    /// acknowledged. Some of them may not be acknowledged by the client stack either.
    pub unacknowledged_bytes: usize,
    /// The kernel's smoothed round-trip time to the client.
    pub srtt: Duration,
    /// Segments that the kernel has sent again since the connection began.
    pub retransmits: u64,
}

impl Client {
    pub(super) fn new(address: SocketAddr, stack: Control, kernel: &Rc<Kernel>) -> Client {
        let (unwritten, last) = Default::default();
        Client { address, stack, kernel: Rc::downgrade(kernel), unwritten, last }
    }

    /// The client's address, as the kernel knows it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the client has of the server's data by now, or had when its connection ended.
    pub fn info(&self) -> ClientInfo {
        let Some(kernel) = self.kernel.upgrade() else { return self.last.get() };
        let unread = self.stack.unread_bytes();
        let unacknowledged_bytes = unread + self.unwritten.get() + queued_bytes(&kernel);
        let (srtt, retransmits) = round_trips(&kernel);
        ClientInfo { unacknowledged_bytes, srtt, retransmits }
    }

    /// True until the client's connection is over, or all that it was sent is acknowledged and both
    /// ends have closed.
    pub fn is_relayed(&self) -> bool {
        self.kernel.strong_count() > 0
    }

    /// Ready once the client has acknowledged all that its stack has taken, or its connection is
    /// over.
    pub async fn acknowledged(&self) {
        while self.is_relayed() {
            let info = self.info();
            if info.unacknowledged_bytes == 0 {
                return;
            }
            rt::sleep((info.srtt / 4).clamp(LOOKS[0], LOOKS[1])).await;
        }
    }

    /// Notes what the client has: its relay is over. If both ends were passed on, waits until the
    /// kernel has delivered the rest.
    pub(super) async fn settle(&self, is_in_order: bool) {
        if is_in_order {
            let _ = rt::timeout(PATIENCE, self.acknowledged()).await;
        }
        self.last.set(self.info());
    }
}

/// The clients behind the server's connections, by the addresses that the client stack connects
/// from. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    table: Rc<RefCell<HashMap<SocketAddr, Rc<Client>>>>,
}

impl Clients {
    /// The client behind the address that the server sees as its peer, while the connection is
    /// being relayed.
    pub fn behind(&self, stack_address: SocketAddr) -> Option<Rc<Client>> {
        self.table.borrow().get(&stack_address).cloned()
    }

    pub(super) fn enter(&self, stack_address: SocketAddr, client: Rc<Client>) -> Entry {
        self.table.borrow_mut().insert(stack_address, client);
        Entry { clients: self.clone(), stack_address }
    }
}

/// Removes its client from the table when dropped.
pub(super) struct Entry {
    clients: Clients,
    stack_address: SocketAddr,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.clients.table.borrow_mut().remove(&self.stack_address);
    }
}
