//! hyper-util's auto server, and its client through a connector.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use lightwait::net::TcpListener;

use crate::streams::Connector;
use crate::world::{run, stacks};

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
