//! hyper-util's auto server, and its client through a connector.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use lightwait::net::{StackHandle, TcpListener, TcpStream};

use crate::world::{run, stacks};

/// Opens connections for hyper-util's client from a stack of ours.
#[derive(Clone)]
struct Connector(StackHandle);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let stack = self.0.clone();
        Box::pin(async move {
            let to = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80));
            Ok(TokioIo::new(Stream(TcpStream::connect_on(&stack, to).await?)))
        })
    }
}

/// A stream of which hyper-util's client knows that it is no proxy.
struct Stream(TcpStream);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

crate::streams::delegate!(Stream);

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(Full::new(body)))
}

#[test]
fn hyper_utils_auto_server_answers_its_client() {
    run(async {
        let (server, client) = stacks();
        let listener = TcpListener::bind_on(&server, (server.address(), 80)).await.unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), service_fn(echo)).await
                });
            }
        });
        let client = Client::builder(TokioExecutor::new()).build(Connector(client));
        let bodies: Vec<Bytes> =
            [0, 1, 5000, 700_000].map(|len| (0..len).map(|at| (at % 251) as u8).collect()).into();
        for body in bodies {
            let request = Request::post(format!("http://{}/", server.address()));
            let request = request.body(Full::new(body.clone())).unwrap();
            let response = client.request(request).await.unwrap();
            assert!(response.into_body().collect().await.unwrap().to_bytes() == body);
        }
    });
}
