//! Associations with a SOCKS5 proxy (RFC 1928 §7): all flows of one client share one. A client is
//! an address and a port: its flows differ in their destinations, and so the source that the proxy
//! names with each datagram tells which of them it is for.
//!
//! ```text
//!   a client ─┬─ flow to A ─┐                                    ┌─▶ A
//!             └─ flow to B ─┴─ one connection, one UDP socket ─▶ proxy
//!                                                                └─▶ B
//! ```

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use lightwait::executor::spawn_local;
use lightwait::local::UdpFlow;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Notify, OnceCell};

use super::{ROOM, first, move_all, open_socket, readable};
use crate::Shared;
use crate::loops::{Loops, RelayInUse};
use crate::proxy::{Refused, Server, socks5};

/// The associations of a tunnel, by client.
#[derive(Default)]
pub(crate) struct Associations {
    clients: RefCell<HashMap<SocketAddr, Rc<Client>>>,
}

/// A client, and what it shares.
#[derive(Default)]
struct Client {
    way: OnceCell<Way>,
    /// By destination.
    flows: RefCell<HashMap<SocketAddr, Rc<UdpFlow>>>,
    members: Cell<usize>,
    /// A task reads, and brings what comes to the flows.
    reads: Cell<bool>,
    /// No flow is left.
    is_left: Notify,
    /// Why the association has ended, if it has, and a call to those that wait for that.
    ended: Cell<Option<io::ErrorKind>>,
    has_ended: Notify,
}

/// The way to the proxy's relay.
struct Way {
    socket: UdpSocket,
    /// The connection to the proxy, whose end is that of its relay (RFC 1928 §7).
    control: TcpStream,
    /// The kernel's way to the relay may lead back into the tunnel.
    _relay: RelayInUse,
}

/// A flow's part in its client's association. Dropping it ends that.
pub(super) struct Member {
    shared: Rc<Shared>,
    client: Rc<Client>,
    flow: Rc<UdpFlow>,
}

impl Member {
    /// Takes part in the association of the flow's client, which the first flow opens.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) async fn enter(
        shared: &Rc<Shared>,
        server: &Server,
        flow: Rc<UdpFlow>,
    ) -> Result<Member, Refused> {
        let client = shared.associations.client(flow.peer());
        let member = Member { shared: shared.clone(), client, flow };
        member.client.way.get_or_try_init(|| Way::open(server, &shared.loops)).await?;
        let flows = &member.client.flows;
        flows.borrow_mut().insert(member.flow.destination(), member.flow.clone());
        if !member.client.reads.replace(true) {
            spawn_local(read_all(member.client.clone(), shared.clone()));
        }
        Ok(member)
    }

    /// Sends the datagram of `len` bytes that lies in `buffer` behind the room for a header.
    pub(super) fn send(&self, buffer: &mut [u8], len: usize) -> io::Result<()> {
        let Some(way) = self.client.way.get() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut header = Vec::with_capacity(ROOM);
        socks5::write_header(&mut header, self.flow.destination());
        let start = ROOM - header.len();
        buffer[start..ROOM].copy_from_slice(&header);
        way.socket.try_send(&buffer[start..ROOM + len]).map(|_| ())
    }

    /// Waits until the association has ended.
    pub(super) async fn ended(&self) -> io::Error {
        loop {
            if let Some(kind) = self.client.ended.get() {
                return kind.into();
            }
            self.client.has_ended.notified().await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let destination = self.flow.destination();
        let mut flows = self.client.flows.borrow_mut();
        // A later flow of the same ends has its place.
        if flows.get(&destination).is_some_and(|flow| Rc::ptr_eq(flow, &self.flow)) {
            flows.remove(&destination);
        }
        drop(flows);
        let left = self.client.members.get() - 1;
        self.client.members.set(left);
        if left == 0 {
            self.client.is_left.notify_one();
            self.shared.associations.forget(self.flow.peer(), &self.client);
        }
    }
}

impl Associations {
    /// The client of that end, with one member more.
    fn client(&self, peer: SocketAddr) -> Rc<Client> {
        let mut clients = self.clients.borrow_mut();
        let client = clients.entry(peer).or_default();
        if client.ended.get().is_some() {
            *client = Rc::default();
        }
        client.members.set(client.members.get() + 1);
        client.clone()
    }

    fn forget(&self, peer: SocketAddr, client: &Rc<Client>) {
        let mut clients = self.clients.borrow_mut();
        if clients.get(&peer).is_some_and(|known| Rc::ptr_eq(known, client)) {
            clients.remove(&peer);
        }
    }
}

impl Way {
    async fn open(server: &Server, loops: &Loops) -> Result<Way, Refused> {
        let mut control = server.greeted().await?;
        let relay = socks5::associate(&mut control).await?;
        let in_use = loops.suspect(relay);
        let socket = open_socket(relay).await.map_err(Refused::NoRoom)?;
        Ok(Way { socket, control, _relay: in_use })
    }

    /// Waits until the proxy closes its relay.
    async fn closed(&self) -> io::Error {
        let mut scratch = [0; 16];
        loop {
            if let Err(error) = self.control.readable().await {
                return error;
            }
            match self.control.try_read(&mut scratch) {
                Ok(0) => return io::ErrorKind::ConnectionAborted.into(),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return error,
                Ok(_) | Err(_) => {}
            }
        }
    }
}

/// Brings what comes from the proxy to the flows of a client, until none is left, or the
/// association has ended.
async fn read_all(client: Rc<Client>, shared: Rc<Shared>) {
    let Some(way) = client.way.get() else { return };
    let one = || {
        let buffer = &mut *shared.datagrams.borrow_mut();
        let len = way.socket.try_recv(buffer)?;
        let Some((from, payload)) = socks5::read_datagram(&buffer[..len]) else { return Ok(()) };
        // What comes from elsewhere than a flow's destination is nobody's.
        let flow = client.flows.borrow().get(&from).cloned();
        // A flow that has ended takes nothing, and no other needs to know.
        flow.map_or(Ok(()), |flow| flow.try_send(payload).map_or(Ok(()), |_| Ok(())))
    };
    let reads = first(move_all(async || readable(&way.socket).await, one), way.closed());
    let is_left = async {
        client.is_left.notified().await;
        io::ErrorKind::NotConnected.into()
    };
    let error = first(reads, is_left).await;
    client.ended.set(Some(error.kind()));
    client.has_ended.notify_waiters();
}
