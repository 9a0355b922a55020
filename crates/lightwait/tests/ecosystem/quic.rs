//! QUIC by quinn, on sockets for any thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, ConnectionError, Endpoint, ServerConfig};
use socket::endpoint;

use crate::world::{run, stacks};

#[path = "../../examples/quic/socket.rs"]
mod socket;

/// Bytes on each stream.
const MUCH: usize = 1_000_000;

/// Streams at once.
const STREAMS: usize = 8;

/// A certificate of its own, and trust in it alone.
fn certified() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["quic.test".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
    (server, ClientConfig::with_root_certificates(Arc::new(roots)).unwrap())
}

async fn echo(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                tokio::spawn(async move {
                    let all = receive.read_to_end(MUCH).await.unwrap();
                    send.write_all(&all).await.unwrap();
                    send.finish().unwrap();
                });
            }
        });
    }
}

#[test]
fn quic_by_quinn_carries_many_streams_and_ends_with_its_stack() {
    run(async {
        let (server, client) = stacks();
        let (of_server, mut of_client) = certified();
        let mut transport = quinn::TransportConfig::default();
        transport.max_idle_timeout(Some(Duration::from_secs(2).try_into().unwrap()));
        of_client.transport_config(Arc::new(transport));
        let at = SocketAddr::from((server.address(), 443));
        tokio::spawn(echo(endpoint(&server, at, Some(of_server)).await.unwrap()));
        let mut asking = endpoint(&client, "0.0.0.0:0".parse().unwrap(), None).await.unwrap();
        asking.set_default_client_config(of_client);
        let connection = asking.connect(at, "quic.test").unwrap().await.unwrap();
        let streams: Vec<_> = (0..STREAMS)
            .map(|number| {
                let connection = connection.clone();
                tokio::spawn(async move {
                    let sent = vec![number as u8; MUCH];
                    let (mut send, mut receive) = connection.open_bi().await.unwrap();
                    send.write_all(&sent).await.unwrap();
                    send.finish().unwrap();
                    assert!(receive.read_to_end(MUCH).await.unwrap() == sent);
                })
            })
            .collect();
        for stream in streams {
            stream.await.unwrap();
        }
        server.shutdown();
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
    });
}
