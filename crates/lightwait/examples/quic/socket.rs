//! One of our UDP sockets, as quinn wants it.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use lightwait::net::{Received, SEGMENTS_MAX, StackHandle, Transmit, UdpSocket};
use quinn::udp::{EcnCodepoint, RecvMeta};
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, UdpPoller};

/// Datagrams that one call reads, at most.
const BATCH: usize = 32;

/// An end of QUIC connections on that stack, at that address; with `config` it takes connections.
pub(crate) async fn endpoint(
    stack: &StackHandle,
    address: SocketAddr,
    config: Option<ServerConfig>,
) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind_on(stack, address).await?;
    // QUIC finds out by itself what the path carries (RFC 9000 §14).
    socket.set_dont_fragment(true)?;
    socket.set_joined(true)?;
    // A window of QUIC's is larger than the usual queue.
    socket.set_recv_buffer_size(8 << 20)?;
    let (socket, runtime) = (Arc::new(Socket(socket)), Arc::new(TokioRuntime));
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), config, socket, runtime)
}

#[derive(Debug)]
struct Socket(UdpSocket);

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &quinn::udp::Transmit<'_>) -> io::Result<()> {
        let told = Transmit {
            to: Some(transmit.destination),
            from: transmit.src_ip,
            ecn: transmit.ecn.map(|ecn| ecn as u8),
            segment: transmit.segment_size,
        };
        match self.0.try_transmit(&told, transmit.contents) {
            // An earlier datagram is lost, and QUIC sends again. An error of this one comes again.
            Err(error) if is_of_an_earlier_one(&error) => {
                self.0.try_transmit(&told, transmit.contents)
            }
            result => result,
        }
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut received = [None; BATCH];
        let count = loop {
            match ready!(self.0.poll_receive_many(context, buffers, &mut received)) {
                Err(error) if is_of_an_earlier_one(&error) => {}
                result => break result?,
            }
        };
        for (meta, received) in meta.iter_mut().zip(received.iter().flatten()) {
            *meta = meta_of(received);
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn max_receive_segments(&self) -> usize {
        SEGMENTS_MAX
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// Neither a full queue nor the stack's end.
fn is_of_an_earlier_one(error: &io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted)
}

fn meta_of(received: &Received) -> RecvMeta {
    RecvMeta {
        addr: received.from,
        len: received.len,
        stride: received.segment,
        ecn: EcnCodepoint::from_bits(received.ecn()),
        dst_ip: Some(received.to),
    }
}

/// Each connection waits for room by itself.
struct Writable {
    socket: Arc<Socket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let waiting = this.waiting.get_or_insert_with(|| {
            let socket = this.socket.clone();
            Box::pin(async move { socket.0.writable().await })
        });
        let writable = ready!(waiting.as_mut().poll(context));
        this.waiting = None;
        Poll::Ready(writable)
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writable").field(&self.socket).finish()
    }
}
