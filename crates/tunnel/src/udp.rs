//! UDP flows: each has a socket of the kernel's to its destination, or its client's association
//! with the proxy.

mod association;

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
use tokio::net::UdpSocket;

use crate::Shared;
use crate::proxy::{Proxy, Refused, Server, socks5};
pub(crate) use association::Associations;
use association::Member;

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
    if shared.loops.is_loop(&shared.proxy, flow.destination(), flow.peer()) {
        return refuse(flow, &shared, &Refused::Loop);
    }
    match &shared.proxy {
        Proxy::Direct => carry_directly(flow, &shared).await,
        Proxy::Socks5(server) => carry_by_proxy(flow, &shared, server).await,
        Proxy::Http(_) => refuse(flow, &shared, &Refused::Forbidden),
    }
}

fn refuse(flow: UdpFlow, shared: &Shared, refused: &Refused) {
    shared.news.count(|tally| tally.flows_refused += 1);
    if let Some(text) = refused.trouble() {
        shared.news.trouble(|| format!("{}: no datagram passes: {text}", shared.proxy));
    }
    flow.refuse();
}

async fn carry_directly(flow: UdpFlow, shared: &Shared) {
    let socket = match open_socket(flow.destination()).await {
        Ok(socket) => socket,
        Err(error) => return refuse(flow, shared, &Refused::NoRoom(error)),
    };
    let scratch = &shared.datagrams;
    let send = |buffer: &mut [u8], len| socket.try_send(&buffer[ROOM..ROOM + len]).map(|_| ());
    let ended = first(there(&flow, send, scratch), back(&flow, &socket, scratch)).await;
    if ended.kind() == io::ErrorKind::ConnectionRefused {
        flow.refuse();
    }
}

async fn carry_by_proxy(flow: UdpFlow, shared: &Rc<Shared>, server: &Server) {
    let flow = Rc::new(flow);
    // The first flow of a client opens its association, and the others wait for that.
    let entered = Box::pin(Member::enter(shared, server, flow.clone()));
    let (ended, refused) = match rt::timeout(PATIENCE, entered).await.unwrap_or(Err(Refused::Late))
    {
        Ok(member) => {
            let send = |buffer: &mut [u8], len| member.send(buffer, len);
            (first(there(&flow, send, &shared.datagrams), member.ended()).await, None)
        }
        Err(refused) => (io::ErrorKind::ConnectionRefused.into(), Some(refused)),
    };
    // What has come for it meanwhile is done with it.
    let Some(flow) = Rc::into_inner(flow) else { return };
    match refused {
        Some(refused) => refuse(flow, shared, &refused),
        None if ended.kind() == io::ErrorKind::ConnectionRefused => flow.refuse(),
        None => {}
    }
}

/// Waits for a datagram of the kernel's. Fails with an error that the kernel has heard of by ICMP:
/// the runtime does not count that as something to read.
async fn readable(socket: &UdpSocket) -> io::Result<()> {
    let ready = socket.ready(Interest::READABLE | Interest::ERROR).await?;
    if !ready.is_error() {
        return Ok(());
    }
    let taken = socket.try_io(Interest::ERROR, || {
        let error = socket.take_error()?;
        error.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    });
    match taken {
        Ok(error) if ends_flow(&error) => Err(error),
        Ok(_) | Err(_) => Ok(()),
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

/// Carries datagrams to the destination by `send` until the flow is idle, or fails. What the kernel
/// has no room for is lost.
async fn there(
    flow: &UdpFlow,
    send: impl Fn(&mut [u8], usize) -> io::Result<()>,
    scratch: &Scratch,
) -> io::Error {
    let one = || {
        let buffer = &mut *scratch.borrow_mut();
        let len = flow.try_recv(&mut buffer[ROOM..])?;
        send(buffer, len)
    };
    move_all(async || flow.readable().await, one).await
}

/// Carries datagrams from the destination until that fails.
async fn back(flow: &UdpFlow, socket: &UdpSocket, scratch: &Scratch) -> io::Error {
    let one = || {
        let buffer = &mut *scratch.borrow_mut();
        let len = socket.try_recv(buffer)?;
        flow.try_send(&buffer[..len]).map(|_| ())
    };
    move_all(async || readable(socket).await, one).await
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
