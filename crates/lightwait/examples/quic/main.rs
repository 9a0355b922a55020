//! QUIC by quinn on our own UDP: a server and a client, on stacks at the ends of a wire in memory.
//!
//! `cargo run -p lightwait --example quic` sends questions on streams of one connection, prints the
//! answers and what the path did, and ends. `socket.rs` is all that quinn needs of us.

mod socket;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use lightwait::Stack;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use socket::endpoint;

/// Bytes of a question, at most.
const LONGEST: usize = 4 << 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A certificate of its own, and trust in it alone.
fn certified() -> Outcome<(ServerConfig, ClientConfig)> {
    let made = rcgen::generate_simple_self_signed(["quic.example".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    Ok((server, ClientConfig::with_root_certificates(Arc::new(roots))?))
}

/// Answers each stream of each connection with its own bytes, the last first.
async fn serve(endpoint: Endpoint) -> Outcome<()> {
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        println!("server: {} has connected", connection.remote_address());
        tokio::spawn(async move {
            while let Ok((mut answer, mut question)) = connection.accept_bi().await {
                let mut bytes = question.read_to_end(LONGEST).await?;
                bytes.reverse();
                answer.write_all(&bytes).await?;
                answer.finish()?;
            }
            Outcome::Ok(())
        });
    }
    Ok(())
}

async fn ask(connection: &Connection, question: &[u8]) -> Outcome<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(question).await?;
    send.finish()?;
    Ok(receive.read_to_end(LONGEST).await?)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let (server, client) = Stack::memory()?;
    let (server, client) = (server.spawn()?, client.spawn()?);
    let (of_server, of_client) = certified()?;
    let at = SocketAddr::from((server.address(), 443));
    let serving = endpoint(&server, at, Some(of_server)).await?;
    let served = tokio::spawn(serve(serving.clone()));

    let mut asking = endpoint(&client, "0.0.0.0:0".parse()?, None).await?;
    asking.set_default_client_config(of_client);
    let connection = asking.connect(at, "quic.example")?.await?;
    let answer = ask(&connection, b"!kcats ,olleh").await?;
    println!("client: {}", String::from_utf8(answer)?);
    let much: Vec<u8> = (0..LONGEST).map(|at| at as u8).collect();
    let (one, other) = tokio::join!(ask(&connection, &much), ask(&connection, &much));
    assert!(one?.iter().eq(much.iter().rev()) && other?.iter().eq(much.iter().rev()));
    let path = connection.stats().path;
    println!("client: {} bytes came back on each of two streams", much.len());
    println!("client: {} packets sent, {} lost", path.sent_packets, path.lost_packets);

    connection.close(0_u8.into(), b"done");
    asking.wait_idle().await;
    serving.close(0_u8.into(), b"done");
    served.await?
}
