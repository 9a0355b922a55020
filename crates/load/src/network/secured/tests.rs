use std::cell::RefCell;
use std::future::pending;
use std::num::NonZeroU32;
use std::rc::Rc;

use lightwait::bridge;
use lightwait::shard::{Handle, Shard};
use lightwait_core::{Host, Instant};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use lightwait_http::client_close;

use super::*;
use crate::engine::{self, Close, IdlePlan, Mode, Outcome, Plan};
use crate::mix::Mix;
use crate::network::{Kernel, OurStack};
use crate::recorder::Fault;
use crate::request::Request;
use crate::sources::Sources;
use crate::tuples::Tuples;

const S: Duration = Duration::from_secs(1);
const NAME: &str = "load.test";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Authority::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// Trusts that authority.
fn trust(authority: &Authority) -> Trust {
    let mut store = RootCertStore::empty();
    store.add(authority.der().clone()).unwrap();
    Trust::Authorities(store)
}

/// A server whose certificate is from that authority, for that name and valid to that year.
fn acceptor(authority: &Authority, name: &str, year: i32) -> TlsAcceptor {
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.signed_by(&key, authority).unwrap();
    accepting(certificate.der().clone(), &key)
}

/// A server with that certificate.
fn accepting(certificate: CertificateDer<'static>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// The contents of a handshake: the server's name and the protocol.
type Said = Rc<RefCell<Vec<(Option<String>, Option<Vec<u8>>)>>>;

/// Answers one request on a connection, sends close_notify, and closes it after the pause.
async fn serve_one<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    acceptor: TlsAcceptor,
    said: Said,
    pause: impl Future<Output = ()>,
) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    {
        let session = stream.get_ref().1;
        let name = session.server_name().map(str::to_owned);
        said.borrow_mut().push((name, session.alpn_protocol().map(<[u8]>::to_vec)));
    }
    if stream.read(&mut [0; 4096]).await.is_ok() {
        let _ = stream.write_all(ANSWER).await;
        stream.get_mut().1.send_close_notify();
        let _ = stream.flush().await;
        pause.await;
        let _ = stream.shutdown().await;
    }
}

fn plan(to: SocketAddr) -> Plan {
    Plan {
        to,
        mix: Mix::one(Request::new("GET", "/", NAME, &[], &[]).unwrap()),
        mode: Mode::Closed { connections: 2 },
        idle: IdlePlan::default(),
        requests_per_connection: NonZeroU32::new(1),
        pipeline: NonZeroU32::MIN,
        http2: None,
        close: Close::Server,
        farewell: client_close::request("h"),
        timeout: S * 5,
        warm_up: Duration::ZERO,
        duration: S,
        grace: S * 5,
        stop_grace: S * 5,
    }
}

fn tuples(prefix: &str) -> Tuples {
    let sources = Sources::new(&[prefix.parse().unwrap()]).unwrap();
    Tuples::new(sources, 20_000..=40_000, S * 61, u64::from(std::process::id()))
}

fn assert_went_well(outcome: &Outcome, said: &Said) {
    let (answered, failed) = (outcome.totals.answered, outcome.totals.failed());
    assert!(answered > 20 && failed == 0, "{answered} {failed}");
    assert_eq!(outcome.notes.closed_by_client, 0, "the server closes first");
    let wanted = (Some(NAME.to_owned()), Some(b"http/1.1".to_vec()));
    assert!(said.borrow().iter().all(|one| *one == wanted), "{:?}", said.borrow());
}

/// Runs a load against a server in the same thread, on the kernel's stack.
async fn on_the_kernel(acceptor: TlsAcceptor, tls: Tls) -> (Result<(), String>, Outcome, Said) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (to, said) = (listener.local_addr().unwrap(), Said::default());
    let local = tokio::task::LocalSet::new();
    let shared = said.clone();
    local.spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(serve_one(
                stream,
                acceptor.clone(),
                shared.clone(),
                std::future::ready(()),
            ));
        }
    });
    let (probed, outcome) = local
        .run_until(async {
            let network = Secured::new(Kernel::new(false).unwrap(), tls);
            let (plan, mut tuples) = (plan(to), tuples("127.9.0.0/16"));
            let probed = engine::probe(&network, &plan, &mut tuples).await;
            let probed = probed.map_err(|error| explain(&error).unwrap_or(error.to_string()));
            let stop = pending();
            (probed, engine::run(network, plan, tuples, stop, pending, |_| ()).await)
        })
        .await;
    (probed, outcome, said)
}

#[tokio::test]
async fn a_load_on_the_kernels_stack_speaks_tls_and_names_its_host() {
    let authority = authority("ours");
    let tls = Tls::new(NAME, trust(&authority)).unwrap();
    let (probed, outcome, said) = on_the_kernel(acceptor(&authority, NAME, 2100), tls).await;
    probed.unwrap();
    // The probe sends no data.
    assert_went_well(&outcome, &said);
}

#[test]
fn a_load_on_our_stack_speaks_tls() {
    let authority = authority("ours");
    let tls = Tls::new(NAME, trust(&authority)).unwrap();
    let acceptor = acceptor(&authority, NAME, 2100);
    let (server_end, client_end) = bridge::wire();
    let mut shards = [
        Shard::in_made_time(bridge::server_config([1; 32]), Box::new(server_end)).unwrap(),
        Shard::in_made_time(bridge::client_config([2; 32]), Box::new(client_end)).unwrap(),
    ];
    let [at, from] = [shards[0].handle(), shards[1].handle()];
    let to: SocketAddr = (bridge::SERVER_ADDRESS, 443).into();
    let listener = lightwait::local::TcpListener::bind_on(&at, to).unwrap();
    let (said, outcome) = (Said::default(), Rc::new(RefCell::new(None)));
    let (shared, result) = (said.clone(), outcome.clone());
    at.spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let pause = lightwait::rt::sleep(Duration::from_millis(5));
            let serving = serve_one(stream, acceptor.clone(), shared.clone(), pause);
            Handle::current().spawn_local(serving);
        }
    });
    from.spawn_local(async move {
        let network = Secured::new(OurStack::current(), tls);
        let (stop, mut plan) = (pending(), plan(to));
        // An answer takes no time on a wire in memory: a second of load would never end.
        plan.duration = Duration::from_millis(200);
        plan.mode = Mode::Open {
            arrivals: crate::arrivals::Arrivals::at(vec![Duration::from_millis(10); 40]),
            connections: 40,
        };
        let run = engine::run(network, plan, tuples("100.65.0.0/24"), stop, pending, |_| ());
        *result.borrow_mut() = Some(run.await);
    });
    let mut now = Instant::ZERO;
    while outcome.borrow().is_none() {
        shards.iter_mut().for_each(|shard| {
            shard.turn(now);
        });
        let next = shards.iter().filter_map(|shard| shard.deadline(now)).min();
        now = now.max(next.expect("something to wait for"));
        assert!(now < Instant::ZERO + S * 60, "a load that does not end");
    }
    let outcome = outcome.borrow_mut().take().unwrap();
    assert_went_well(&outcome, &said);
    assert_eq!(outcome.totals.answered, 40);
    let entered = |host: &Host| host.counters().time_wait_entered;
    let entered = shards.map(|shard| shard.handle().with_host(entered));
    assert_eq!(entered, [40, 0], "who closes first has the TIME-WAIT");
}

#[tokio::test]
async fn a_bad_certificate_is_reported_and_accepted_on_request() {
    let (authority, other) = (authority("ours"), authority("others"));
    for (acceptor, why) in [
        (acceptor(&other, NAME, 2100), "signed by nobody who is trusted here"),
        (acceptor(&authority, NAME, 2020), "it has expired"),
        (acceptor(&authority, "else.test", 2100), "another server's"),
        (accepting(authority.der().clone(), authority.key()), "CA:FALSE"),
    ] {
        let tls = Tls::new(NAME, trust(&authority)).unwrap();
        let (probed, outcome, _) = on_the_kernel(acceptor.clone(), tls).await;
        let text = probed.unwrap_err();
        assert!(text.contains(why) && text.contains("--insecure"), "{text}");
        assert_eq!(outcome.totals.answered, 0);
        assert!(outcome.totals.faults.of(Fault::Tls) > 0, "{:?}", outcome.totals.faults);
        let tls = Tls::new(NAME, Trust::Anybody).unwrap();
        let (probed, outcome, said) = on_the_kernel(acceptor, tls).await;
        probed.unwrap();
        assert_went_well(&outcome, &said);
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
    });
    let tls = Tls::new(NAME, Trust::Anybody).unwrap();
    let network = Secured::new(Kernel::new(false).unwrap(), tls);
    let error = engine::probe(&network, &plan(to), &mut tuples("127.9.0.0/16")).await.unwrap_err();
    assert!(explain(&error).unwrap().contains("does not speak TLS"), "{error}");
    assert_eq!(explain(&io::ErrorKind::TimedOut.into()), None);
    server.abort();
}

#[tokio::test]
async fn full_and_resumed_handshakes_are_told_apart() {
    let authority = authority("one");
    for (resumes, is_resumed) in [(false, false), (true, true)] {
        let tls = Tls::new(NAME, trust(&authority)).unwrap();
        let tls = if resumes { tls.resuming() } else { tls };
        let (probed, outcome, _) = on_the_kernel(acceptor(&authority, NAME, 2100), tls).await;
        probed.unwrap();
        let totals = &outcome.totals;
        assert_eq!(totals.handshake.len() + totals.resumed.len(), totals.connections);
        assert_eq!(totals.resumed.len() > 10, is_resumed, "{}", totals.resumed.len());
        assert_eq!(totals.handshake.len() > 10, !is_resumed, "{}", totals.handshake.len());
    }
}

#[tokio::test]
async fn a_server_without_http_2_is_told() {
    let authority = authority("one");
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, &authority).unwrap();
    for (protocols, why) in [(&[][..], "does not speak HTTP/2"), (&["http/1.1"], "Protocol")] {
        let accepting = accepting(certificate.der().clone(), &key);
        let mut config = ServerConfig::clone(accepting.config());
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tls = Tls::new(NAME, trust(&authority)).unwrap().for_http2();
        let (probed, _, _) = on_the_kernel(TlsAcceptor::from(Arc::new(config)), tls).await;
        let error = probed.unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
