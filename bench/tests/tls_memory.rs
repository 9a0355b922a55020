//! Memory that a connection takes over TLS, and over HTTP/2, beyond one of HTTP/1 without TLS: no
//! more than the server charges for it, and no less than half.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper_util::rt::{TokioIo, TokioTimer};
use lightwait_heap::Heap;
use lightwait_http::{
    CONNECTION_BYTES, Clock, Credentials, Files, FilesConfig, HTTP2_BYTES, Identity, Server,
    ServerConfig, TLS_BYTES, ThreadPoolFiles,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[global_allocator]
static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

const CONNECTIONS: usize = 200;
/// Bytes that a pipe holds: its memory is there from the beginning.
const PIPE_BYTES: usize = 16 << 10;

type Site = Server<Files<ThreadPoolFiles>>;

fn site(directory: &std::path::Path) -> Rc<Site> {
    std::fs::write(directory.join("f"), "x".repeat(500)).unwrap();
    let clock = Clock {
        timer: Rc::new(TokioTimer::new()),
        measure: Rc::new(std::time::Instant::now),
        wall: Rc::new(SystemTime::now),
    };
    let files = ThreadPoolFiles::new(directory, 1).unwrap();
    let files = Files::new(files, FilesConfig::default(), clock.clone());
    // It stays awake: what an awake connection takes is compared.
    let never = Duration::from_secs(3600);
    let config = ServerConfig { rest_after: never, idle_timeout: never, ..Default::default() };
    Rc::new(Server::new(files, config, clock))
}

fn peer() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

type Opened<'a> = Pin<Box<dyn Future<Output = DuplexStream> + 'a>>;

/// Bytes of each of many connections that have had an answer and wait.
async fn each(open: impl Fn() -> Opened<'static>) -> usize {
    // What is made once is there before.
    let first = open().await;
    let heap = Heap::new();
    let mut kept = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        kept.push(open().await);
    }
    let bytes = heap.bytes() as usize;
    drop((first, kept));
    bytes / CONNECTIONS
}

async fn ask_http1<S: AsyncReadExt + AsyncWriteExt + Unpin>(stream: &mut S) {
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(&[b'x'; 500]) {
        assert!(stream.read_buf(&mut reply).await.unwrap() > 0);
    }
}

/// Asks by frames: a preface, SETTINGS, and a head of fields that are not kept.
async fn ask_http2(stream: &mut DuplexStream) {
    let mut head = vec![0x82, 0x87, 0x01, 1, b'h', 0x04, 2];
    head.extend(b"/f");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend([0, 0, head.len() as u8, 1, 5, 0, 0, 0, 1]);
    bytes.extend(head);
    stream.write_all(&bytes).await.unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(&[b'x'; 500]) {
        assert!(stream.read_buf(&mut reply).await.unwrap() > 0);
    }
}

#[tokio::test]
async fn a_session_takes_what_is_charged() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["here".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der();
    let identity = Identity::from_der(made.cert.der().to_vec(), key).unwrap();
    let credentials = Credentials::new(vec![identity]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let set = LocalSet::new();
    set.run_until(async {
        let server = site(directory.path());
        let plain = {
            let server = server.clone();
            each(move || {
                let server = server.clone();
                Box::pin(async move {
                    let (mut stream, io) = duplex(PIPE_BYTES);
                    spawn_local(server.serve(TokioIo::new(io), peer()));
                    ask_http1(&mut stream).await;
                    stream
                })
            })
            .await
        };
        let secured = {
            let server = server.clone();
            each(move || {
                let (server, connector) = (server.clone(), connector.clone());
                let credentials = credentials.clone();
                Box::pin(async move {
                    let (stream, io) = duplex(PIPE_BYTES);
                    let io = TokioIo::new(io);
                    spawn_local(server.serve_secured(io, (), peer(), &credentials));
                    let name = ServerName::try_from("here").unwrap();
                    let mut stream = connector.connect(name, stream).await.unwrap();
                    ask_http1(&mut stream).await;
                    // The client's session is not the server's.
                    stream.into_inner().0
                })
            })
            .await
        };
        let http2 = each(move || {
            let server = server.clone();
            Box::pin(async move {
                let (mut stream, io) = duplex(PIPE_BYTES);
                spawn_local(server.serve_http2(TokioIo::new(io), (), peer()));
                ask_http2(&mut stream).await;
                stream
            })
        })
        .await;
        println!("HTTP/1 {plain}, over TLS {secured}, HTTP/2 {http2}; charged {CONNECTION_BYTES}");
        let session = secured - plain;
        assert!((TLS_BYTES / 2..=TLS_BYTES).contains(&session), "{session} bytes");
        let more = http2.saturating_sub(plain);
        assert!((HTTP2_BYTES / 2..=HTTP2_BYTES).contains(&more), "{more} bytes");
        Ok::<(), Infallible>(())
    })
    .await
    .unwrap();
}
