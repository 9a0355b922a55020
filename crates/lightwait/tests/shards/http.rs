//! hyper, server and client, on our sockets.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use lightwait::bridge::SERVER_ADDRESS;
use lightwait::executor::spawn_local;
use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::Timer;

use crate::sockets::pattern;
use crate::world::World;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let len = request.uri().path().trim_start_matches('/').parse().unwrap();
    let posted = request.into_body().collect().await.unwrap().to_bytes();
    let body = if posted.is_empty() { pattern(len).into() } else { posted };
    Ok(Response::new(Full::new(body)))
}

async fn serve() {
    let listener = TcpListener::bind((SERVER_ADDRESS, 80)).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        spawn_local(
            hyper::server::conn::http1::Builder::new()
                .timer(Timer)
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(stream, service_fn(answer)),
        );
    }
}

#[test]
fn requests_are_answered_over_one_connection() {
    let mut world = World::new();
    let _service = world.on_server(serve());
    let client = world.on_client(async {
        let stream = TcpStream::connect((SERVER_ADDRESS, 80)).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(stream).await.unwrap();
        spawn_local(connection);
        for len in [0, 1, 500, 100_000, 5_000_000] {
            let request = Request::get(format!("/{len}")).body(Full::default()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(body == pattern(len), "{len} bytes");
            let posted = Bytes::from(pattern(len + 1));
            let request = Request::post("/0").body(Full::new(posted.clone())).unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert!(response.into_body().collect().await.unwrap().to_bytes() == posted);
        }
    });
    world.finish(&client);
}

#[test]
fn a_silent_client_is_dropped_by_hypers_timer_on_our_clock() {
    let mut world = World::new();
    let _service = world.on_server(serve());
    let start = world.now();
    let client = world.on_client(async {
        let mut stream = TcpStream::connect((SERVER_ADDRESS, 80)).await.unwrap();
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest).await.unwrap();
    });
    world.finish(&client);
    let waited = world.now().since(start);
    assert!((10..11).contains(&waited.as_secs()), "{waited:?}");
}
