//! HTTP over TLS: the same answers, handshakes that fail or stall, certificates by name, tickets.

use super::*;
use crate::testing::{Client, MemoryFiles, Purse, Reply, Transport, clock, local, peer};
use crate::{
    Access, Delivery, Files, FilesConfig, Memory, SecuredError, Server, ServerConfig as Knobs,
};
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore, version};
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Site = Server<Files<MemoryFiles>>;

/// A certificate for that name, which signs itself.
pub(crate) fn made(name: &str) -> (Identity, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    (Identity::from_der(certificate.to_vec(), key).unwrap(), certificate)
}

/// A server, what it shows, and its records.
pub(crate) struct Secure {
    pub(crate) server: Rc<Site>,
    pub(crate) credentials: Credentials,
    identities: Vec<Identity>,
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) records: Rc<RefCell<Vec<Access>>>,
}

pub(crate) fn site(knobs: Knobs) -> Site {
    let big = vec![7; 1 << 20];
    let source = MemoryFiles::new(&[("a", b"aaa"), ("big", &big)]);
    Server::new(Files::new(source, FilesConfig::default(), clock()), knobs, clock())
}

impl Secure {
    /// A server with a certificate for each of these names.
    pub(crate) fn new(server: Site, names: &[&str]) -> Secure {
        let records: Rc<RefCell<Vec<Access>>> = Rc::default();
        let log = records.clone();
        let server = Rc::new(server.on_access(move |access| log.borrow_mut().push(access)));
        let (identities, certificates): (Vec<_>, _) = names.iter().map(|name| made(name)).unzip();
        let credentials = Credentials::new(identities.clone()).unwrap();
        Secure { server, credentials, identities, certificates, records }
    }

    /// A client that trusts the server.
    pub(crate) fn client(&self) -> ClientConfig {
        self.client_of(&[&version::TLS13, &version::TLS12])
    }

    fn client_of(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        self.certificates.iter().for_each(|one| roots.add(one.clone()).unwrap());
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    /// A connection without a handshake.
    pub(crate) fn open(&self, pipe: usize) -> (DuplexStream, Serving) {
        self.open_over(pipe, ())
    }

    fn open_over<C: crate::Control + Clone + Unpin>(
        &self,
        pipe: usize,
        control: C,
    ) -> (DuplexStream, Serving) {
        let (stream, io) = tokio::io::duplex(pipe);
        let (server, credentials) = (self.server.clone(), self.credentials.clone());
        let serving = spawn_local(async move {
            server.serve_secured(TokioIo::new(io), control, peer(), &credentials).await
        });
        (stream, serving)
    }

    /// A connection over TLS, as a client of that configuration asks for that name.
    pub(crate) async fn connect(&self, client: ClientConfig, name: &str) -> io::Result<Tlsed> {
        let (stream, serving) = self.open(64 << 10);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
        Ok(Client { stream, serving, records: self.records.clone() })
    }
}

type Serving = JoinHandle<Result<(), SecuredError>>;
type Tlsed = Client<TlsStream<DuplexStream>, SecuredError>;

#[tokio::test]
async fn the_answers_are_those_without_tls() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        for version in [&version::TLS13, &version::TLS12] {
            let mut client = secure.connect(secure.client_of(&[version]), "here").await.unwrap();
            for _ in 0..2 {
                assert_eq!(client.get("/a").await.body, b"aaa");
                let big = client.get("/big").await;
                assert_eq!(big.body, vec![7; 1 << 20]);
                assert_eq!(client.get("/none").await.status, 404);
            }
            client.stream.shutdown().await.unwrap();
            assert!(client.rest().await.is_empty());
            client.serving.await.unwrap().unwrap();
        }
        let records = secure.records.borrow();
        assert_eq!(records.iter().filter(|record| record.complete).count(), 12);
        assert_eq!(records[1].body_bytes, 1 << 20);
        let wanted = Tls { handshakes: 2, ..Tls::default() };
        assert_eq!(secure.server.tls(), wanted);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_speaks_http_2_gets_it() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        for (protocol, connections) in [(HTTP2, 1), (HTTP1, 0)] {
            let before = secure.server.http2().connections;
            let mut config = secure.client();
            config.alpn_protocols = vec![protocol.to_vec()];
            let client = secure.connect(config, "here").await.unwrap();
            assert_eq!(client.stream.get_ref().1.alpn_protocol(), Some(protocol));
            let Client { mut stream, serving, .. } = client;
            if protocol == HTTP1 {
                stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
                assert!(stream.read(&mut [0; 1000]).await.unwrap() > 0);
            } else {
                let io = TokioIo::new(stream);
                let spawn = LocalExec;
                let made = hyper::client::conn::http2::handshake(spawn, io).await;
                let (mut sender, connection) = made.unwrap();
                spawn_local(connection);
                let request = http::Request::get("https://here/big");
                let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.headers()["content-length"], "1048576");
                let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
                assert_eq!(body.to_bytes(), vec![7; 1 << 20]);
                drop(sender);
            }
            drop(serving);
            assert_eq!(secure.server.http2().connections - before, connections);
        }
        assert!(secure.records.borrow()[0].complete);
    })
    .await;
}

/// A stream that counts what is read of it.
struct Counted(DuplexStream, Rc<Cell<usize>>);

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buffer))?;
        self.1.set(self.1.get() + buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn what_is_left_of_a_frame_shares_a_record_with_the_next() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        let mut config = secure.client_of(&[&version::TLS13]);
        config.alpn_protocols = vec![HTTP2.to_vec()];
        let (stream, _serving) = secure.open(4 << 20);
        let read = Rc::new(Cell::new(0));
        let stream = Counted(stream, read.clone());
        let name = ServerName::try_from("here").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let made = hyper::client::conn::http2::handshake(LocalExec, TokioIo::new(stream)).await;
        let (mut sender, connection) = made.unwrap();
        spawn_local(connection);
        let mut get = async |path: &str| {
            let request = http::Request::get(format!("https://here/{path}"));
            let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes()
        };
        // Its tickets have come, and its settings.
        get("a").await;
        let before = read.get();
        assert_eq!(get("big").await, vec![7; 1 << 20]);
        let (frames, more) = (64, read.get() - before - (1 << 20));
        // A frame's head, and a record for each; a head, and what was taken in parts.
        let least = frames * (9 + 22);
        assert!((least..least + 600).contains(&more), "{more}");
    })
    .await;
}

/// Runs what hyper's client begins.
#[derive(Clone, Copy)]
struct LocalExec;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExec {
    fn execute(&self, future: F) {
        spawn_local(future);
    }
}

#[tokio::test]
async fn a_client_that_closes_without_a_word_has_its_answer() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        let mut client = secure.connect(secure.client(), "here").await.unwrap();
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await;
        client.stream.get_mut().0.shutdown().await.unwrap();
        assert_eq!(client.receive(false).await.body, b"aaa");
        client.serving.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_certificate_is_that_of_the_name() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["one", "two", "*.many.example"]);
        for (name, shown) in [("one", 0), ("two", 1), ("a.many.example", 2), ("b.many.example", 2)]
        {
            let client = secure.connect(secure.client(), name).await.unwrap();
            let seen = client.stream.get_ref().1.peer_certificates().unwrap();
            assert_eq!(seen[0], secure.certificates[shown], "{name}");
        }
        // The first, which is not for that name: the client says so.
        for name in ["three", "a.b.many.example", "many.example"] {
            let refused = secure.connect(secure.client(), name).await;
            let text = refused.map(|_| ()).unwrap_err().to_string();
            assert!(text.contains("not valid for name"), "{name}: {text}");
        }
        // The alerts of those clients are read when their connections have ended.
        sleep(Duration::from_millis(1)).await;
        assert_eq!(secure.server.tls().failed_refused, 3);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_was_here_resumes_by_its_ticket() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        for version in [&version::TLS13, &version::TLS12] {
            let before = secure.server.tls();
            let mut config = secure.client_of(&[version]);
            config.resumption = Resumption::in_memory_sessions(4);
            for resumed in 0..3 {
                let mut client = secure.connect(config.clone(), "here").await.unwrap();
                assert_eq!(client.get("/a").await.status, 200);
                assert_eq!(secure.server.tls().resumed - before.resumed, resumed);
                // Other credentials leave the tickets as they are.
                secure.credentials.replace(secure.identities.clone()).unwrap();
            }
        }
        let mut without = secure.client();
        without.resumption = Resumption::disabled();
        let before = secure.server.tls().resumed;
        let _ = secure.connect(without, "here").await;
        assert_eq!(secure.server.tls().resumed, before);
    })
    .await;
}

#[tokio::test]
async fn other_credentials_are_for_those_who_come_later() {
    local(async {
        let mut secure = Secure::new(site(Knobs::default()), &["here"]);
        let mut first = secure.connect(secure.client(), "here").await.unwrap();
        let (identity, certificate) = made("here");
        assert!(secure.credentials.replace(Vec::new()).is_err());
        let mut second = secure.connect(secure.client(), "here").await.unwrap();
        secure.credentials.replace(vec![identity]).unwrap();
        assert!(secure.connect(secure.client(), "here").await.is_err(), "the new one is unknown");
        secure.certificates = vec![certificate.clone()];
        let third = secure.connect(secure.client(), "here").await.unwrap();
        let seen = third.stream.get_ref().1.peer_certificates().unwrap();
        assert_eq!(seen[0], certificate);
        for old in [&mut first, &mut second] {
            assert_eq!(old.get("/a").await.body, b"aaa");
        }
    })
    .await;
}

/// What the server counts of a client that sends `bytes` and closes.
async fn counted(bytes: &[u8]) -> Tls {
    let secure = Secure::new(site(Knobs::default()), &["here"]);
    let (mut stream, serving) = secure.open(64 << 10);
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    assert!(serving.await.unwrap().is_ok() || secure.server.tls() != Tls::default());
    secure.server.tls()
}

/// The first flight of a client.
fn hello() -> Vec<u8> {
    let secure = Secure::new(site(Knobs::default()), &["here"]);
    let name = ServerName::try_from("here").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(secure.client()), name).unwrap();
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn handshakes_that_fail_are_counted_by_cause() {
    local(async {
        let count = |set: fn(&mut Tls)| {
            let mut tls = Tls::default();
            set(&mut tls);
            tls
        };
        let plain = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
        assert_eq!(counted(plain).await, count(|tls| tls.failed_not_tls = 1));
        assert_eq!(counted(&hello()[..50]).await, count(|tls| tls.failed_left = 1));
        assert_eq!(counted(b"").await, count(|tls| tls.failed_left = 1));
        // A second hello is none of what may follow.
        let twice = [hello(), hello()].concat();
        assert_eq!(counted(&twice).await, count(|tls| tls.failed_broken = 1));
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        let mut other = secure.client();
        other.alpn_protocols = vec![b"gopher".to_vec()];
        assert!(secure.connect(other, "here").await.is_err());
        assert_eq!(secure.server.tls(), count(|tls| tls.failed_nothing_shared = 1));
    })
    .await;
}

/// A client that waits that long in the middle of its handshake: whether it is served, and what is
/// counted.
async fn paused(pause: Duration) -> (bool, Tls) {
    let secure = Secure::new(site(Knobs::default()), &["here"]);
    let (stream, serving) = secure.open(64 << 10);
    let mut session = rustls::ClientConnection::new(
        Arc::new(secure.client()),
        ServerName::try_from("here").unwrap(),
    )
    .unwrap();
    let (mut first, mut bytes) = (stream, Vec::new());
    session.write_tls(&mut bytes).unwrap();
    first.write_all(&bytes[..20]).await.unwrap();
    sleep(pause).await;
    if first.write_all(&bytes[20..]).await.is_err() {
        assert!(serving.await.unwrap().is_err());
        return (false, secure.server.tls());
    }
    let answered = first.read(&mut [0; 4096]).await.unwrap();
    drop(first);
    let _ = serving.await;
    (answered > 0, secure.server.tls())
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_the_time_of_a_head() {
    local(async {
        let (is_served, tls) = paused(Duration::from_millis(14_900)).await;
        assert!(is_served && tls.failed_unfinished == 0, "{tls:?}");
        let (is_served, tls) = paused(Duration::from_millis(15_100)).await;
        assert!(!is_served && tls.failed_unfinished == 1, "{tls:?}");
        // Who says nothing at all has no more, and a byte now and then buys no time.
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        let (_stream, serving) = secure.open(1 << 10);
        let began = Instant::now();
        assert!(serving.await.unwrap().is_err());
        assert_eq!(began.elapsed().as_secs(), 15);
        let (mut stream, serving) = secure.open(1 << 10);
        let began = Instant::now();
        for byte in hello() {
            sleep(Duration::from_secs(1)).await;
            if stream.write_all(&[byte]).await.is_err() {
                break;
            }
        }
        assert_eq!(began.elapsed().as_secs(), 16);
        assert!(serving.await.unwrap().is_err());
        assert_eq!(secure.server.tls().failed_unfinished, 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_rests_and_wakes_over_tls() {
    local(async {
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        let mut client = secure.connect(secure.client(), "here").await.unwrap();
        for rests in 1..3 {
            assert_eq!(client.get("/a").await.body, b"aaa");
            sleep(Duration::from_secs(2)).await;
            assert_eq!(secure.server.tally().rests, rests);
        }
        // The time between requests is that without TLS.
        let began = Instant::now();
        client.serving.await.unwrap().unwrap();
        assert_eq!((began.elapsed() + Duration::from_secs(2)).as_secs(), 60);
    })
    .await;
}

#[tokio::test]
async fn a_session_is_charged_while_it_lasts() {
    local(async {
        let purse = Purse::default();
        let server = site(Knobs::default()).with_memory(Memory::new(purse.clone()));
        let secure = Secure::new(server, &["here"]);
        let mut client = secure.connect(secure.client(), "here").await.unwrap();
        assert_eq!(client.get("/a").await.status, 200);
        let held = purse.by_connections.load(Ordering::Relaxed);
        assert!(held >= crate::limits::admission::TLS_BYTES, "{held}");
        drop(client.stream);
        let _ = client.serving.await;
        assert_eq!(purse.by_connections.load(Ordering::Relaxed), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_reset_over_tls() {
    local(async {
        for resets in [1, 0] {
            let secure = Secure::new(site(Knobs::default()), &["here"]);
            let transport = Transport::default();
            let (stream, serving) = secure.open_over(4 << 10, transport.clone());
            let name = ServerName::try_from("here").unwrap();
            let connector = TlsConnector::from(Arc::new(secure.client()));
            let mut stream = connector.connect(name, stream).await.unwrap();
            stream.write_all(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            stream.read_exact(&mut [0; 100]).await.unwrap();
            if resets == 0 {
                stream.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
            } else {
                transport.undelivered.set(1 << 20);
            }
            sleep(Duration::from_secs(40)).await;
            assert_eq!(secure.server.tally().reset_stalled, resets);
            assert_eq!(transport.is_reset.get(), resets == 1);
            assert_eq!(serving.is_finished(), resets == 1);
        }
    })
    .await;
}

#[tokio::test]
async fn plain_requests_go_to_https_and_secure_ones_stay() {
    let knobs = |port| Knobs {
        redirect_to: Some(port),
        strict_transport: Some(Duration::from_secs(86_400)),
        ..Knobs::default()
    };
    let to = |reply: &Reply| {
        let location = reply.field("location").unwrap_or("").to_owned();
        assert!(reply.field("strict-transport-security").is_none(), "in clear text");
        (reply.status, location)
    };
    local(async {
        let (mut plain, _) = crate::testing::connect_to(site(knobs(443)), 64 << 10);
        let moved = to(&plain.get("/a?b=c").await);
        assert_eq!(moved, (301, "https://here/a?b=c".to_owned()));
        assert_eq!(to(&plain.ask("POST", "/a", "").await).0, 308);
        plain.send("GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n").await;
        assert_eq!(to(&plain.receive(false).await).1, "https://[::1]/a");
        plain.send("GET /a HTTP/1.1\r\nHost:\r\n\r\n").await;
        assert_eq!(to(&plain.receive(false).await), (400, String::new()));
        let (mut plain, _) = crate::testing::connect_to(site(knobs(8443)), 64 << 10);
        assert_eq!(to(&plain.get("/").await).1, "https://here:8443/");
        let secure = Secure::new(site(knobs(443)), &["here"]);
        let mut client = secure.connect(secure.client(), "here").await.unwrap();
        let reply = client.get("/a").await;
        assert_eq!((reply.status, &reply.body[..]), (200, &b"aaa"[..]));
        assert_eq!(reply.field("strict-transport-security"), Some("max-age=86400"));
        let secure = Secure::new(site(Knobs::default()), &["here"]);
        let mut client = secure.connect(secure.client(), "here").await.unwrap();
        assert_eq!(client.get("/a").await.field("strict-transport-security"), None);
    })
    .await;
}

#[tokio::test]
async fn what_follows_the_last_text_need_not_arrive() {
    local(async {
        // The peer lacks the word that nothing follows; or a byte of the answer, too.
        for (lacking, complete) in [(24, true), (25, false)] {
            let secure = Secure::new(site(Knobs::default()), &["here"]);
            let transport = Transport::default();
            transport.delivery.set(Some(Delivery::default()));
            let (stream, serving) = secure.open_over(64 << 10, transport.clone());
            let name = ServerName::try_from("here").unwrap();
            let connector = TlsConnector::from(Arc::new(secure.client()));
            let mut stream = connector.connect(name, stream).await.unwrap();
            transport.delivery.set(Some(Delivery { unacknowledged: 1000, ..Delivery::default() }));
            stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            stream.shutdown().await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            let delivery = Delivery { unacknowledged: lacking, ..Delivery::default() };
            transport.delivery.set(Some(delivery));
            secure.server.stop().request();
            secure.server.stop().cut();
            let _ = serving.await.unwrap();
            assert_eq!(secure.records.borrow()[0].complete, complete, "{lacking}");
        }
    })
    .await;
}

#[test]
fn a_pair_that_does_not_serve_is_told_by_its_fault() {
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        (pem("CERTIFICATE", made.cert.der()), pem("PRIVATE KEY", &made.signing_key.serialize_der()))
    };
    let (one, other) = (pair("one"), pair("other"));
    let identity = Identity::from_pem(&one.0, &one.1).unwrap();
    assert_ne!(identity.fingerprint(), [0; 32]);
    let fault = |chain: &[u8], key: &[u8]| Identity::from_pem(chain, key).unwrap_err();
    assert_eq!(fault(&one.0, &other.1), IdentityFault::Mismatch);
    let text = |fault: IdentityFault| match fault {
        IdentityFault::Chain(text) => format!("chain: {text}"),
        IdentityFault::Key(text) => format!("key: {text}"),
        IdentityFault::Mismatch => panic!("a mismatch"),
    };
    for (chain, key, wanted) in [
        (&one.1, &one.1, "chain: there is no certificate in it"),
        (&one.0, &one.0, "key: there is no private key in it"),
        (&b"".to_vec(), &one.1, "chain: there is no certificate in it"),
        (&pem("CERTIFICATE", b"xx"), &one.1, "chain: no X.509 certificate"),
        (&one.0, &pem("PRIVATE KEY", b"xx"), "key: a key of no kind that serves"),
        (&one.0, &pem("ENCRYPTED PRIVATE KEY", b"xx"), "key: the key has a password"),
        (&b"-----BEGIN CERTIFICATE-----\n".to_vec(), &one.1, "chain: no certificates in PEM"),
    ] {
        let told = text(fault(chain, key));
        assert!(told.starts_with(wanted), "{told}");
    }
}

/// Those bytes in PEM, under that label.
fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n").into_bytes()
}
