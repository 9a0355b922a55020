//! Sockets for every address and port: for a stack that takes packets for others' addresses
//! ([`Config::destinations`](crate::Config::destinations)).

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lightwait_core::host::{HeldSyn, Refusal};
use lightwait_core::tcp::SocketOptions;
use lightwait_core::{Instant, ListenerId, SynId};

use super::listener::BACKLOG;
use super::{TcpListener, TcpStream, UdpSocket, io_error};
use crate::rt;
use crate::shard::Handle;
use crate::shard::state::{self, Local};

/// Accepts connections to every address and port that no other listener of the shard has. Each SYN
/// is answered at once. Dropping it resets the connections not yet accepted.
pub struct AnyListener(TcpListener);

impl TcpListener {
    /// Listens on every address and port, on the current shard. [`Requests`] hears of each SYN
    /// before it is answered.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use lightwait::local::{TcpListener, TcpStream};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # use lightwait::{Stack, device::{LARGEST_PACKET, ThreadedMemory}};
    /// # use lightwait_core::{Capabilities, Medium};
    /// # let wire = Capabilities::plain(Medium::Ip, 1500);
    /// # let (one, other) = ThreadedMemory::pair(wire, 256)?;
    /// # let ours = "10.0.0.1/24".parse().unwrap();
    /// let server = Stack::on(Box::new(one), ours, |config| {
    ///     config.destinations = vec!["0.0.0.0/0".parse().unwrap()];
    /// })?;
    /// # let client = Stack::on(Box::new(other), "10.0.0.2/24".parse().unwrap(), |_| ())?;
    /// let listener = TcpListener::any_on(&server.handle())?;
    /// let accepted = server.spawn_local(async move { listener.accept().await });
    /// lightwait::run([client, server], async move {
    ///     let far: SocketAddr = "93.184.216.34:443".parse().unwrap();
    ///     let stream = TcpStream::connect(far).await?;
    ///     let (_, destination, peer) = accepted.await.unwrap()?;
    ///     assert_eq!((destination, peer), (far, stream.local_addr()?));
    ///     Ok(())
    /// })?
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the shard has such a listener, or [`Requests`].
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub fn any() -> io::Result<AnyListener> {
        AnyListener::listen(&state::current())
    }

    /// Listens on every address and port, on the shard of that handle.
    ///
    /// # Errors
    ///
    /// Those of [`TcpListener::any`].
    pub fn any_on(handle: &Handle) -> io::Result<AnyListener> {
        AnyListener::listen(&handle.local)
    }
}

impl AnyListener {
    fn listen(shard: &Rc<Local>) -> io::Result<AnyListener> {
        let options = shard.host().default_options();
        let id = shard.host_mut().listen_any(BACKLOG, options).map_err(io_error)?;
        Ok(AnyListener(TcpListener::of(shard, id, options)))
    }

    /// Waits for a connection. Returns it, where its peer meant to go, and the peer.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, SocketAddr)> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for a connection that [`AnyListener::accept`] would return.
    pub fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr, SocketAddr)>> {
        self.0.poll_accept(context).map(|accepted| {
            let (stream, peer) = accepted?;
            let destination = stream.local_addr()?;
            Ok((stream, destination, peer))
        })
    }

    /// Options that accepted connections start with.
    pub fn options(&self) -> SocketOptions {
        self.0.options()
    }

    /// Sets the options of accepted connections whose handshake begins from now on.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.0.set_options(options)
    }
}

impl fmt::Debug for AnyListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyListener").field(&self.0).finish()
    }
}

/// Requests for connections to every address and port that no listener of the shard has. None is
/// answered before it is admitted: until then its sender knows nothing of us.
///
/// No more wait than [`held_syns`](lightwait_core::config::Limits::held_syns); a request that is
/// dropped for want of room comes again if its sender is real. Dropping this drops what waits.
///
/// ```no_run
/// # use lightwait::local::{Refusal, Requests};
/// # async fn opens_there(_: std::net::SocketAddr) -> bool { true }
/// # async fn run() -> std::io::Result<()> {
/// let requests = Requests::new()?;
/// loop {
///     let request = requests.next().await?;
///     lightwait::executor::spawn_local(async move {
///         if opens_there(request.destination()).await {
///             request.admit().await.map(drop)
///         } else {
///             Ok(request.refuse(Refusal::HostUnreachable))
///         }
///     });
/// }
/// # }
/// ```
pub struct Requests {
    local: Rc<Local>,
    id: ListenerId,
}

impl Requests {
    /// Those to the current shard.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if somebody hears them already, or an [`AnyListener`] answers them.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub fn new() -> io::Result<Requests> {
        Requests::listen(&state::current())
    }

    /// Those to the shard of that handle.
    ///
    /// # Errors
    ///
    /// Those of [`Requests::new`].
    pub fn on(handle: &Handle) -> io::Result<Requests> {
        Requests::listen(&handle.local)
    }

    fn listen(shard: &Rc<Local>) -> io::Result<Requests> {
        let options = shard.host().default_options();
        let id = shard.host_mut().listen_any_asking(options).map_err(io_error)?;
        Ok(Requests { local: shard.clone(), id })
    }

    /// Waits for a request.
    pub async fn next(&self) -> io::Result<Request> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls for a request that [`Requests::next`] would return.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<Request>> {
        let next = self.local.host_mut().next_syn();
        match next {
            Some(HeldSyn { id, local: destination, remote: peer }) => {
                let local = self.local.clone();
                Poll::Ready(Ok(Request { local, id, destination, peer }))
            }
            None => {
                self.local.wait_acceptable(self.id, context);
                Poll::Pending
            }
        }
    }

    /// Sets the options of connections that are requested from now on.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        self.local.host_mut().set_listener_options(self.id, options).map_err(io_error)
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        let now = self.local.now();
        self.local.host_mut().close_listener(now, self.id);
        self.local.touch();
        self.local.wake_acceptors(self.id);
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requests").field(&self.id).finish()
    }
}

/// A request for a connection. Dropping it refuses it by RST.
pub struct Request {
    local: Rc<Local>,
    id: SynId,
    destination: SocketAddr,
    peer: SocketAddr,
}

impl Request {
    /// Where its sender means to go.
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// Its sender.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// True if it still waits: its sender has not reset it, and its time
    /// ([`verdict`](lightwait_core::config::TimeoutConfig::verdict)) is not over.
    pub fn is_waiting(&self) -> bool {
        self.local.host().is_held(self.id)
    }

    /// Answers it, and waits until the connection is established.
    ///
    /// # Errors
    ///
    /// `ConnectionAborted` if it waits no more, `QuotaExceeded` if there are as many connections as
    /// may be; else as [`TcpStream::connect`], such as `ConnectionRefused` if the peer has given up
    /// meanwhile.
    pub async fn admit(self) -> io::Result<TcpStream> {
        let now = self.local.now();
        let id = self.local.host_mut().admit_syn(now, self.id).map_err(io_error)?;
        self.local.touch();
        TcpStream::adopt(self.local.clone(), id).established().await
    }

    /// Refuses it. [`Refusal::Ignored`] says nothing to its sender, who asks again.
    pub fn refuse(self, refusal: Refusal) {
        self.judge(refusal);
    }

    fn judge(&self, refusal: Refusal) {
        let now = self.local.now();
        self.local.host_mut().refuse_syn(now, self.id, refusal);
        self.local.touch();
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // One that was judged waits no more, and this does nothing.
        self.judge(Refusal::Reset);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Request");
        debug.field("destination", &self.destination()).field("peer", &self.peer()).finish()
    }
}

/// UDP flows to every address and port that no socket of the shard has: the first datagram between
/// two ends begins one. Dropping this drops the flows not yet accepted; a port without a socket is
/// unreachable again.
///
/// No more live than [`udp_flows`](lightwait_core::config::Limits::udp_flows), and none for longer
/// than it is used.
pub struct UdpFlows {
    local: Rc<Local>,
    idle: Duration,
}

impl UdpFlows {
    /// Those of the current shard. Each ends after `idle` without a datagram. RFC 4787 §4.3 asks
    /// for two minutes at least from who does not know the protocol, and recommends five.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if somebody has them already.
    ///
    /// # Panics
    ///
    /// If no shard is current.
    pub fn new(idle: Duration) -> io::Result<UdpFlows> {
        UdpFlows::listen(&state::current(), idle)
    }

    /// Those of the shard of that handle.
    ///
    /// # Errors
    ///
    /// Those of [`UdpFlows::new`].
    pub fn on(handle: &Handle, idle: Duration) -> io::Result<UdpFlows> {
        UdpFlows::listen(&handle.local, idle)
    }

    fn listen(shard: &Rc<Local>, idle: Duration) -> io::Result<UdpFlows> {
        let options = shard.host().default_udp_options();
        shard.host_mut().udp_listen_any(options).map_err(io_error)?;
        Ok(UdpFlows { local: shard.clone(), idle })
    }

    /// Waits for a flow.
    pub async fn accept(&self) -> io::Result<UdpFlow> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for a flow that [`UdpFlows::accept`] would return.
    pub fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UdpFlow>> {
        let accepted = self.local.host_mut().udp_accept();
        let Some(id) = accepted else {
            self.local.wait_flows(context);
            return Poll::Pending;
        };
        let socket = UdpSocket::of(self.local.clone(), id);
        let (destination, peer) = (socket.local_addr()?, socket.peer_addr()?);
        let last = Cell::new(self.local.now());
        Poll::Ready(Ok(UdpFlow { socket, destination, peer, idle: self.idle, last }))
    }
}

impl Drop for UdpFlows {
    fn drop(&mut self) {
        self.local.host_mut().udp_unlisten_any();
        self.local.touch();
    }
}

impl fmt::Debug for UdpFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpFlows").field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// The datagrams between a peer and where it sends them to.
#[derive(Debug)]
pub struct UdpFlow {
    socket: UdpSocket,
    destination: SocketAddr,
    peer: SocketAddr,
    idle: Duration,
    last: Cell<Instant>,
}

impl UdpFlow {
    /// Where the peer sends its datagrams to. [`UdpFlow::send`] answers from there.
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// The peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Waits for a datagram of the peer, copies it and returns its length. What there is no room
    /// for is lost.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the flow has been idle, in both directions, for as long as it may be;
    /// `ConnectionRefused` once if the peer's port has nobody any more.
    pub async fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_recv(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Waits until there is a datagram to read, or an error.
    ///
    /// # Errors
    ///
    /// `TimedOut` as [`UdpFlow::recv`].
    pub async fn readable(&self) -> io::Result<()> {
        loop {
            let left = (self.last.get() + self.idle).since(self.socket.now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Ok(readable) = rt::timeout(left, self.socket.readable()).await {
                return readable;
            }
        }
    }

    /// Reads a datagram that has come, or fails with `WouldBlock`.
    pub fn try_recv(&self, out: &mut [u8]) -> io::Result<usize> {
        let received = self.socket.try_recv(out);
        if received.is_ok() {
            self.last.set(self.socket.now());
        }
        received
    }

    /// Sends a datagram to the peer as [`UdpFlow::send`] does, or fails with `WouldBlock`.
    pub fn try_send(&self, data: &[u8]) -> io::Result<usize> {
        self.last.set(self.socket.now());
        self.socket.try_send(data)
    }

    /// Sends a datagram to the peer.
    ///
    /// # Errors
    ///
    /// Those of [`UdpSocket::send`].
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.last.set(self.socket.now());
        self.socket.send(data).await
    }

    /// Ends after `idle` without a datagram from now on.
    pub fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Ends the flow, and tells the peer by ICMP that the port is unreachable.
    pub fn refuse(self) {
        self.socket.refuse();
    }

    /// The socket, which has no idle time.
    pub fn into_socket(self) -> UdpSocket {
        self.socket
    }
}
