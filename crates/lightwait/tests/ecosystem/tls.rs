//! TLS by tokio-rustls.

use std::sync::Arc;

use lightwait::net::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::world::{run, stacks};

/// A server and a client that trust one certificate.
fn configs() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["test.example".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.clone()], key.into()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    (server, ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

#[test]
fn tls_by_rustls_carries_bytes_both_ways() {
    run(async {
        let (server, client) = stacks();
        let (server_config, client_config) = configs();
        let listener = TcpListener::bind_on(&server, (server.address(), 443)).await.unwrap();
        let echo = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(server_config));
            let stream = acceptor.accept(stream).await.unwrap();
            let (mut reader, mut writer) = tokio::io::split(stream);
            let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
            copied
        });
        let stream = TcpStream::connect_on(&client, (server.address(), 443)).await.unwrap();
        let connector = TlsConnector::from(Arc::new(client_config));
        let name = "test.example".try_into().unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent: Vec<u8> = (0..400_000).map(|at| (at % 251) as u8).collect();
        let data = sent.clone();
        let sender = tokio::spawn(async move {
            writer.write_all(&data).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut heard = Vec::new();
        reader.read_to_end(&mut heard).await.unwrap();
        sender.await.unwrap();
        assert!(heard == sent);
        assert_eq!(echo.await.unwrap(), 400_000);
    });
}
