//! The client against our server, and against one that the test scripts.

use super::*;
use crate::testing::{Failing, MemoryFiles, clock, local, peer};
use crate::{Files, FilesConfig, Server, ServerConfig};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::task::spawn_local;
use tokio::time::{Instant as Time, sleep};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CLOSE: &[u8] = b"CLIENT_CLOSE * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

async fn client<I>(io: I) -> Client<Empty<Bytes>>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (timer, config) = (Rc::new(TokioTimer::new()), ClientConfig::default());
    let (client, driver) = Client::new(TokioIo::new(io), "h", timer, config).await.unwrap();
    spawn_local(driver);
    client
}

fn request() -> Request<Empty<Bytes>> {
    Request::get("/a").header("host", "h").body(Empty::new()).unwrap()
}

async fn get(client: &mut Client<Empty<Bytes>>) -> Bytes {
    let answer = client.request(request()).await.unwrap();
    answer.into_body().collect().await.unwrap().to_bytes()
}

/// A client of a scripted server.
async fn played() -> (Client<Empty<Bytes>>, DuplexStream) {
    let (io, server) = tokio::io::duplex(64 << 10);
    (client(io).await, server)
}

/// Takes a request and answers with that.
async fn answer(server: &mut DuplexStream, with: &[u8]) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(server.read_u8().await.unwrap());
    }
    server.write_all(with).await.unwrap();
}

/// All bytes that arrive until the client has closed its half.
async fn rest(server: &mut DuplexStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn it_closes_first_and_our_server_obeys() {
    local(async {
        let (io, served) = tokio::io::duplex(64 << 10);
        let files = Files::new(MemoryFiles::new(&[("a", b"aaa")]), FilesConfig::default(), clock());
        let server = Rc::new(Server::new(files, ServerConfig::default(), clock()));
        let serving = spawn_local(server.clone().serve(TokioIo::new(served), peer()));
        let mut client = client(io).await;
        for _ in 0..3 {
            assert_eq!(get(&mut client).await, "aaa");
        }
        assert_eq!(client.close().await, Closed::ByUs);
        serving.await.unwrap().unwrap();
        assert_eq!((server.tally().client_closes, server.tally().client_closes_unended), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn an_asked_client_makes_no_further_request_and_obeys() {
    local(async {
        let (io, served) = tokio::io::duplex(64 << 10);
        let files = Files::new(MemoryFiles::new(&[("a", b"aaa")]), FilesConfig::default(), clock());
        let server = Server::new(files, ServerConfig::default(), clock());
        let server = Rc::new(server.ask_clients_while(|| true));
        spawn_local(server.clone().serve(TokioIo::new(served), peer()));
        let mut client = client(io).await;
        assert!(!client.is_asked_to_close());
        assert_eq!(get(&mut client).await, "aaa");
        assert!(client.is_asked_to_close());
        assert!(matches!(client.request(request()).await, Err(ClientError::Asked)));
        assert_eq!(client.close().await, Closed::ByUs);
        tokio::task::yield_now().await;
        assert_eq!((server.tally().asked, server.tally().asked_obeyed), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn behind_an_answer_that_closes_it_closes_without_a_word() {
    local(async {
        let (mut client, mut server) = played().await;
        let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\
                        Connection: close, client-close\r\n\r\nok";
        let (body, ()) = tokio::join!(get(&mut client), answer(&mut server, closing));
        assert_eq!(body, "ok");
        let close = spawn_local(client.close());
        assert_eq!(rest(&mut server).await, b"");
        drop(server);
        assert_eq!(close.await.unwrap(), Closed::ByUs);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_server_that_does_not_know_it_is_dropped() {
    local(async {
        let (mut client, mut server) = played().await;
        tokio::join!(get(&mut client), answer(&mut server, ANSWER));
        let close = spawn_local(client.close());
        assert_eq!(rest(&mut server).await, CLOSE);
        server.write_all(b"HTTP/1.1 501 Not Implemented\r\n\r\n").await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert!(!close.is_finished(), "it waits for the server's FIN");
        drop(server);
        assert_eq!(close.await.unwrap(), Closed::ByUs);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_close_or_sends_without_end_is_left() {
    local(async {
        for (sent, at_once) in
            [(&b""[..], false), (&[b'x'; 60_000], false), (&[b'x'; 70_000], true)]
        {
            let (mut client, mut server) = played().await;
            tokio::join!(get(&mut client), answer(&mut server, ANSWER));
            let (begin, close) = (Time::now(), spawn_local(client.close()));
            assert_eq!(rest(&mut server).await, CLOSE);
            let _ = server.write_all(sent).await;
            assert_eq!(close.await.unwrap(), Closed::Unended);
            assert_eq!(begin.elapsed() < Duration::from_secs(2), at_once, "{:?}", begin.elapsed());
            assert!(begin.elapsed() < Duration::from_millis(2010));
        }
    })
    .await;
}

#[tokio::test]
async fn where_the_server_has_closed_nothing_is_said() {
    local(async {
        let (mut client, mut server) = played().await;
        tokio::join!(get(&mut client), answer(&mut server, ANSWER));
        server.shutdown().await.unwrap();
        assert_eq!(client.close().await, Closed::ByServer);
        assert_eq!(rest(&mut server).await, b"");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_resets_has_not_closed_behind_us() {
    local(async {
        for (kind, closed) in [
            (io::ErrorKind::ConnectionReset, Closed::ByServer),
            // TLS without its close_notify.
            (io::ErrorKind::UnexpectedEof, Closed::ByUs),
        ] {
            let (io, mut server) = tokio::io::duplex(64 << 10);
            let mut client = client(Failing(io, kind)).await;
            tokio::join!(get(&mut client), answer(&mut server, ANSWER));
            let close = spawn_local(client.close());
            assert_eq!(rest(&mut server).await, CLOSE);
            drop(server);
            assert_eq!(close.await.unwrap(), closed, "{kind}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_to_a_server_before_http_1_1() {
    local(async {
        let (mut client, mut server) = played().await;
        let kept = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
        let (body, ()) = tokio::join!(get(&mut client), answer(&mut server, kept));
        assert_eq!(body, "ok");
        let close = spawn_local(client.close());
        assert_eq!(rest(&mut server).await, b"");
        drop(server);
        assert_eq!(close.await.unwrap(), Closed::ByUs);
    })
    .await;
}

const HALF: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok";

#[tokio::test(start_paused = true)]
async fn an_answer_that_stalls_does_not_keep_it_from_closing() {
    local(async {
        let (mut client, mut server) = played().await;
        let (held, ()) = tokio::join!(client.request(request()), answer(&mut server, HALF));
        let (begin, close) = (Time::now(), spawn_local(client.close()));
        assert_eq!(rest(&mut server).await, b"", "it has not all that it asked for");
        assert_eq!(begin.elapsed().as_secs(), 30);
        drop(server);
        assert_eq!(close.await.unwrap(), Closed::ByUs);
        assert!(held.unwrap().into_body().collect().await.is_err());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_slowly_is_waited_for() {
    local(async {
        let (mut client, mut server) = played().await;
        let (held, ()) = tokio::join!(client.request(request()), answer(&mut server, HALF));
        let close = spawn_local(client.close());
        let body = spawn_local(held.unwrap().into_body().collect());
        for _ in 0..2 {
            sleep(Duration::from_secs(29)).await;
            server.write_all(b"x").await.unwrap();
        }
        assert_eq!(body.await.unwrap().unwrap().to_bytes(), "okxx");
        assert_eq!(rest(&mut server).await, CLOSE);
        drop(server);
        assert_eq!(close.await.unwrap(), Closed::ByUs);
    })
    .await;
}
