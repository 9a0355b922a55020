//! `axum::serve`.

use std::future::Future;
use std::process::Command;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use lightwait::Stack;
use lightwait::net::{PeerAddr, StackHandle, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::namespace;
use crate::world::{run, stacks};

/// A router that greets, and returns what is posted to it.
fn router() -> Router {
    let router = Router::new().route("/hello", get(|| async { "hello from axum" }));
    router.route("/echo", post(|body: axum::body::Bytes| async { body }))
}

/// Listens at port 80, and serves until `end`.
async fn serve(
    stack: &StackHandle,
    end: impl Future<Output = ()> + Send + 'static,
) -> tokio::task::JoinHandle<std::io::Result<()>> {
    let listener = TcpListener::bind_on(stack, (stack.address(), 80)).await.unwrap();
    let serving = axum::serve(listener, router()).with_graceful_shutdown(end);
    tokio::spawn(async move { serving.await })
}

async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"hello from axum") {
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
    }
    String::from_utf8(heard).unwrap()
}

#[test]
fn axum_serves_kept_connections_and_shuts_down_in_order() {
    run(async {
        let (server, client) = stacks();
        let (end, ends) = oneshot::channel();
        let serving = serve(&server, async move { ends.await.unwrap() }).await;
        let at = (server.address(), 80);
        let mut stream = TcpStream::connect_on(&client, at).await.unwrap();
        for _ in 0..3 {
            assert!(ask(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
        }
        end.send(()).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "FIN");
        serving.await.unwrap().unwrap();
    });
}

#[test]
fn a_handler_of_axum_knows_its_peer() {
    run(async {
        let (server, client) = stacks();
        let tell = |ConnectInfo(PeerAddr(peer)): ConnectInfo<PeerAddr>| async move {
            format!("{peer} hello from axum")
        };
        let app = Router::new().route("/hello", get(tell));
        let app = app.into_make_service_with_connect_info::<PeerAddr>();
        let listener = TcpListener::bind_on(&server, (server.address(), 80)).await.unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut stream = TcpStream::connect_on(&client, (server.address(), 80)).await.unwrap();
        let own = stream.local_addr().unwrap();
        assert!(ask(&mut stream).await.contains(&format!("\r\n\r\n{own} hello")));
    });
}

#[test]
fn axum_ends_with_its_stack() {
    run(async {
        let (server, client) = stacks();
        let ending = server.clone();
        let serving = serve(&server, async move { ending.ended().await.unwrap() }).await;
        let at = (server.address(), 80);
        let mut stream = TcpStream::connect_on(&client, at).await.unwrap();
        ask(&mut stream).await;
        server.shutdown();
        serving.await.unwrap().unwrap();
    });
}

#[test]
fn curl_is_served_over_a_tap() {
    namespace::inside("axum_serve::curl_is_served_over_a_tap", || {
        if !namespace::can_make_tap() {
            return;
        }
        let stack = Stack::tap("lwt0", "10.78.0.2/24").unwrap().spawn().unwrap();
        run(async {
            let serving = serve(&stack, std::future::pending()).await;
            let heard = curl(&["http://10.78.0.2/hello", "http://10.78.0.2/hello"]).await;
            assert_eq!(heard, b"hello from axumhello from axum");
            // Under axum's limit of 2 MB, and many times what is on the way at once.
            let sent: Vec<u8> = (0..1_500_000).map(|index| (index % 251) as u8).collect();
            let file = std::env::temp_dir().join(format!("lightwait-{}", std::process::id()));
            std::fs::write(&file, &sent).unwrap();
            let body = format!("@{}", file.display());
            let heard = curl(&["--data-binary", &body, "http://10.78.0.2/echo"]).await;
            std::fs::remove_file(file).unwrap();
            assert!(heard == sent);
            serving.abort();
        });
    });
}

/// What curl gets.
async fn curl(arguments: &[&str]) -> Vec<u8> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "20"]).args(arguments);
    let run = tokio::task::spawn_blocking(move || curl.output().expect("curl runs"));
    let output = run.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
