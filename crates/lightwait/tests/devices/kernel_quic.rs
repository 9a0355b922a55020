//! QUIC by quinn over our UDP sockets, against quinn over the kernel's: as client and as server.
//!
//! quinn asks for sockets and timers that may go from thread to thread. Ours stay on their shard's,
//! and so do quinn's tasks, which its runtime spawns there.

use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use lightwait::device::{AfPacket, Device};
use lightwait::executor::spawn_local;
use lightwait::local::{Received, SEGMENTS_MAX, Transmit, UdpSocket};
use lightwait::rt;
use lightwait::shard::Handle;
use quinn::udp::{EcnCodepoint, RecvMeta};
use quinn::{
    AsyncTimer, AsyncUdpSocket, ClientConfig, Endpoint, EndpointConfig, Runtime, ServerConfig,
    UdpPoller,
};
use send_wrapper::SendWrapper;

use crate::kernel_udp::{PAIRS, any, at, exchange, pattern};
use crate::namespace;

/// Where our server listens.
const PORT: u16 = 4433;

/// Bytes that go to and fro on a stream.
const MUCH: usize = 3_000_000;

/// Datagrams that one call reads, at most.
const BATCH: usize = 32;

/// One of our sockets, as quinn wants it.
#[derive(Debug)]
struct Socket(SendWrapper<UdpSocket>);

impl Socket {
    fn bind(handle: &Handle, address: SocketAddr) -> io::Result<Arc<Socket>> {
        let socket = UdpSocket::bind_on(handle, address)?;
        socket.set_dont_fragment(true)?;
        socket.set_joined(true)?;
        Ok(Arc::new(Socket(SendWrapper::new(socket))))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable(self))
    }

    fn try_send(&self, transmit: &quinn::udp::Transmit<'_>) -> io::Result<()> {
        let told = Transmit {
            to: Some(transmit.destination),
            from: transmit.src_ip,
            ecn: transmit.ecn.map(|ecn| ecn as u8),
            segment: transmit.segment_size,
        };
        match self.0.try_transmit(&told, transmit.contents) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Ok(()),
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
        let count = ready!(self.0.poll_receive_many(context, buffers, &mut received))?;
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

fn meta_of(received: &Received) -> RecvMeta {
    RecvMeta {
        addr: received.from,
        len: received.len,
        stride: received.segment,
        ecn: EcnCodepoint::from_bits(received.ecn()),
        dst_ip: Some(received.to),
    }
}

#[derive(Debug)]
struct Writable(Arc<Socket>);

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.0.poll_send_ready(context)
    }
}

/// The tasks and timers of a shard.
#[derive(Debug)]
struct OnShard;

impl Runtime for OnShard {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(SendWrapper::new(sleep_until(at))))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        spawn_local(future);
    }

    fn wrap_udp_socket(&self, _: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(ErrorKind::Unsupported.into())
    }
}

type Sleep = Pin<Box<dyn Future<Output = ()>>>;

struct Timer(SendWrapper<Sleep>);

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Timer")
    }
}

fn sleep_until(at: Instant) -> Sleep {
    Box::pin(rt::sleep(at.saturating_duration_since(Instant::now())))
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        *self.0 = sleep_until(at);
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

/// A certificate of its own, and trust in it alone.
fn certified() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["quic.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key =
        quinn::rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut roots = quinn::rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate], key).unwrap();
    (server, ClientConfig::with_root_certificates(Arc::new(roots)).unwrap())
}

/// Sends back what comes on each stream of each connection.
async fn serve(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await.unwrap();
        while let Ok((mut send, mut receive)) = connection.accept_bi().await {
            let all = receive.read_to_end(MUCH).await.unwrap();
            send.write_all(&all).await.unwrap();
            send.finish().unwrap();
        }
    }
}

/// Much goes to and fro.
async fn ask(endpoint: Endpoint, server: SocketAddr) {
    let connection = endpoint.connect(server, "quic.test").unwrap().await.unwrap();
    for len in [10, MUCH] {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&pattern(len)).await.unwrap();
        send.finish().unwrap();
        assert!(receive.read_to_end(MUCH).await.unwrap() == pattern(len), "{server}: {len}");
    }
    let lost = connection.stats().path.lost_packets;
    connection.close(0u8.into(), b"");
    endpoint.wait_idle().await;
    eprintln!("{server}: {lost} packets lost");
}

fn ours(handle: &Handle, at: SocketAddr, config: Option<ServerConfig>) -> Endpoint {
    let socket = Socket::bind(handle, at).unwrap();
    let runtime = Arc::new(OnShard);
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), config, socket, runtime).unwrap()
}

/// Runs on a runtime of tokio, and the kernel's sockets.
fn on_kernel<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

fn quic(open: impl FnOnce() -> Box<dyn Device> + Send + 'static) {
    let (of_server, of_client) = certified();
    let servers = PAIRS.map(|(_, kernel)| at(kernel, PORT));
    for server in servers {
        let config = of_server.clone();
        thread::spawn(move || {
            on_kernel(async { serve(Endpoint::server(config, server).unwrap()).await });
        });
    }
    let trusting = of_client.clone();
    let client = move |handle: Handle| async move {
        spawn_local(serve(ours(&handle, at("::", PORT), Some(of_server))));
        // The kernel's servers may not be there yet.
        rt::sleep(Duration::from_millis(200)).await;
        for server in servers {
            let mut endpoint = ours(&handle, at(any(&server), 0), None);
            endpoint.set_default_client_config(trusting.clone());
            ask(endpoint, server).await;
        }
    };
    exchange(open, client, || {
        for (address, _) in PAIRS {
            let server = at(address, PORT);
            on_kernel(async {
                let mut endpoint = Endpoint::client(at(any(&server), 0)).unwrap();
                endpoint.set_default_client_config(of_client.clone());
                ask(endpoint, server).await;
            });
        }
    });
}

#[test]
fn quic_over_a_tap() {
    namespace::inside("kernel_quic::quic_over_a_tap", || {
        if namespace::can_make_tap() {
            let tap = crate::tap(true);
            quic(move || Box::new(tap));
        }
    });
}

#[test]
fn quic_over_a_packet_socket() {
    namespace::inside("kernel_quic::quic_over_a_packet_socket", || {
        crate::veth();
        quic(|| Box::new(AfPacket::open("lw0", true).unwrap()));
    });
}
