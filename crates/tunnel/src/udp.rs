//! UDP flows: each has a socket of the kernel's, to its destination or to the proxy's relay.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use lightwait::executor::spawn_local;
use lightwait::local::{UdpFlow, UdpFlows};
use lightwait::rt;
use tokio::io::Interest;
use tokio::net::{TcpStream, UdpSocket};

use crate::Shared;
use crate::proxy::{Proxy, Refused, socks5};

/// A flow ends after so long without a datagram (RFC 4787 §4.3: two minutes at least).
pub(crate) const IDLE: Duration = Duration::from_secs(120);

/// One of DNS, which asks once and from a new port each time (RFC 4787 §4.3 allows less for ports
/// that are well known).
const IDLE_DNS: Duration = Duration::from_secs(15);
const DNS: u16 = 53;

/// How long the proxy may take to offer a relay.
const PATIENCE: Duration = Duration::from_secs(20);

/// Room for the proxy's header before a datagram.
const ROOM: usize = socks5::HEADER_MAX;

/// Bytes of the longest datagram, with that room.
pub(crate) const LONGEST: usize = ROOM + 65_535;

/// Datagrams of a flow before others have their turn.
const IN_A_ROW: usize = 32;

/// A buffer that all flows share.
pub(crate) type Scratch = RefCell<Vec<u8>>;

pub(crate) async fn run(flows: UdpFlows, shared: Rc<Shared>) -> io::Result<Infallible> {
    loop {
        let mut flow = flows.accept().await?;
        if flow.destination().port() == DNS {
            flow.set_idle(IDLE_DNS);
        }
        shared.news.count(|tally| tally.flows += 1);
        spawn_local(carry(flow, shared.clone()));
    }
}

async fn carry(flow: UdpFlow, shared: Rc<Shared>) {
    let opened = rt::timeout(PATIENCE, Box::pin(Way::open(&shared.proxy, flow.destination())));
    let way = match opened.await.unwrap_or(Err(Refused::Late)) {
        Ok(way) => way,
        Err(refused) => {
            shared.news.count(|tally| tally.flows_refused += 1);
            if let Some(text) = refused.trouble() {
                shared.news.trouble(|| format!("{}: no datagram passes: {text}", shared.proxy));
            }
            return flow.refuse();
        }
    };
    let (scratch, way_ends) = (&shared.datagrams, way.closed());
    let moves = first(there(&flow, &way, scratch), back(&flow, &way, scratch));
    let ended = first(moves, way_ends).await;
    if ended.kind() == io::ErrorKind::ConnectionRefused {
        flow.refuse();
    }
}

/// The way to a flow's destination.
struct Way {
    socket: UdpSocket,
    destination: SocketAddr,
    /// The connection to the proxy, whose end is that of its relay (RFC 1928 §7).
    association: Option<TcpStream>,
}

impl Way {
    async fn open(proxy: &Proxy, destination: SocketAddr) -> Result<Way, Refused> {
        let (to, association) = match proxy {
            Proxy::Direct => (destination, None),
            Proxy::Socks5(server) => {
                let mut stream = server.reach().await?;
                let relay = socks5::associate(&mut stream, server.credentials()).await?;
                (relay, Some(stream))
            }
            Proxy::Http(_) => return Err(Refused::Forbidden),
        };
        let socket = open_socket(to).await.map_err(Refused::NoRoom)?;
        Ok(Way { socket, destination, association })
    }

    /// Sends the datagram of `len` bytes that lies in `buffer` behind the room for a header.
    fn send(&self, buffer: &mut [u8], len: usize) -> io::Result<()> {
        let mut start = ROOM;
        if self.association.is_some() {
            let mut header = Vec::with_capacity(ROOM);
            socks5::write_header(&mut header, self.destination);
            start -= header.len();
            buffer[start..ROOM].copy_from_slice(&header);
        }
        self.socket.try_send(&buffer[start..ROOM + len]).map(|_| ())
    }

    /// Waits for a datagram. Fails with an error that the kernel has heard of by ICMP: the runtime
    /// does not count that as something to read.
    async fn readable(&self) -> io::Result<()> {
        let ready = self.socket.ready(Interest::READABLE | Interest::ERROR).await?;
        if !ready.is_error() {
            return Ok(());
        }
        let taken = self.socket.try_io(Interest::ERROR, || {
            let error = self.socket.take_error()?;
            error.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        });
        match taken {
            Ok(error) if ends_flow(&error) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The payload of what was received; `None` if it is none of the destination's.
    fn payload<'a>(&self, received: &'a [u8]) -> Option<&'a [u8]> {
        match self.association {
            None => Some(received),
            Some(_) => {
                let (from, payload) = socks5::read_datagram(received)?;
                (from == self.destination).then_some(payload)
            }
        }
    }

    /// Waits until the proxy closes its relay.
    async fn closed(&self) -> io::Error {
        let Some(stream) = &self.association else { return std::future::pending().await };
        let mut scratch = [0; 16];
        loop {
            if let Err(error) = stream.readable().await {
                return error;
            }
            match stream.try_read(&mut scratch) {
                Ok(0) => return io::ErrorKind::ConnectionAborted.into(),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return error,
                Ok(_) | Err(_) => {}
            }
        }
    }
}

async fn open_socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(to).await?;
    // The runtime has to learn first that there is room.
    socket.writable().await?;
    Ok(socket)
}

/// Carries datagrams to the destination until the flow is idle, or fails. What the kernel has no
/// room for is lost.
async fn there(flow: &UdpFlow, way: &Way, scratch: &Scratch) -> io::Error {
    let one = || {
        let buffer = &mut *scratch.borrow_mut();
        let len = flow.try_recv(&mut buffer[ROOM..])?;
        way.send(buffer, len)
    };
    move_all(async || flow.readable().await, one).await
}

/// Carries datagrams from the destination until that fails.
async fn back(flow: &UdpFlow, way: &Way, scratch: &Scratch) -> io::Error {
    let one = || {
        let buffer = &mut *scratch.borrow_mut();
        let len = way.socket.try_recv(buffer)?;
        match way.payload(&buffer[..len]) {
            Some(payload) => flow.try_send(payload).map(|_| ()),
            None => Ok(()),
        }
    };
    move_all(async || way.readable().await, one).await
}

/// Moves datagrams by `one` whenever some are there, until that fails.
async fn move_all(
    readable: impl AsyncFn() -> io::Result<()>,
    mut one: impl FnMut() -> io::Result<()>,
) -> io::Error {
    loop {
        if let Err(error) = readable().await {
            return error;
        }
        if let Err(error) = move_some(&mut one) {
            return error;
        }
        rt::yield_now().await;
    }
}

/// Moves datagrams until none is there, or others are to have their turn. Fails if the flow is at
/// its end; an error about a single datagram loses that one, as datagrams are lost.
fn move_some(mut one: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..IN_A_ROW {
        match one() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if ends_flow(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn ends_flow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected)
}

/// The output of what is ready first.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(output),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await
}
