//! Our sockets, as hickory's resolver wants them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime};
use lightwait::net::{StackHandle, TcpSocket, TcpStream, UdpSocket};
use tokio::io::ReadBuf;

/// How long an opening takes, unless hickory says something else.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens sockets on a stack of ours. Tasks and timers are tokio's.
#[derive(Clone)]
pub(crate) struct OnStack {
    stack: StackHandle,
    tasks: TokioHandle,
}

impl OnStack {
    pub(crate) fn new(stack: &StackHandle) -> OnStack {
        OnStack { stack: stack.clone(), tasks: TokioHandle::default() }
    }
}

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl RuntimeProvider for OnStack {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = Udp;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.tasks.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        from: Option<SocketAddr>,
        patience: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let stack = self.stack.clone();
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4_on(&stack),
                SocketAddr::V6(_) => TcpSocket::new_v6_on(&stack),
            };
            from.map_or(Ok(()), |from| socket.bind(from))?;
            socket.set_nodelay(true)?;
            let opening = socket.connect(server);
            let opened = tokio::time::timeout(patience.unwrap_or(PATIENCE), opening).await;
            Ok(AsyncIoTokioAsStd(opened.map_err(|_| io::ErrorKind::TimedOut)??))
        })
    }

    fn bind_udp(&self, local: SocketAddr, _: SocketAddr) -> Opening<Udp> {
        let stack = self.stack.clone();
        Box::pin(async move { Ok(Udp(UdpSocket::bind_on(&stack, local).await?)) })
    }
}

pub(crate) struct Udp(UdpSocket);

impl DnsUdpSocket for Udp {
    type Time = TokioTime;

    fn poll_recv_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buffer = ReadBuf::new(buffer);
        let from = ready!(self.0.poll_recv_from(context, &mut buffer))?;
        Poll::Ready(Ok((buffer.filled().len(), from)))
    }

    fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_send_to(context, bytes, to)
    }
}
