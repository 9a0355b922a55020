//! CLIENT_CLOSE at the server: which requests it obeys, which it refuses, and which are none.

mod asking;

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant as Time, sleep};

use super::*;
use crate::body::RequestBody;
use crate::testing::{
    Client, Failing, MemoryFiles, Reply, Transport, clock, connect_over, connect_through,
    connect_to, local, serve_over,
};
use crate::{Body, Files, FilesConfig, Handler, Pending, Server, ServerConfig, Tally};

const GET_A: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_BIG: &str = "GET /big HTTP/1.1\r\nHost: h\r\n\r\n";

fn files() -> Files<MemoryFiles> {
    let big = vec![7; 1 << 20];
    let source = MemoryFiles::new(&[("a", b"aaa"), ("big", &big), ("secret", b"secret")]);
    Files::new(source, FilesConfig::default(), clock())
}

fn client() -> (Client, Rc<Server<Files<MemoryFiles>>>) {
    connect_to(Server::new(files(), ServerConfig::default(), clock()), 64 << 10)
}

fn close() -> String {
    String::from_utf8(request("h")).unwrap()
}

/// The server's counts of CLIENT_CLOSE: obeyed, not ended, refused.
fn counted(tally: Tally) -> (u64, u64, u64) {
    (tally.client_closes, tally.client_closes_unended, tally.client_closes_refused)
}

/// Sends the bytes in pieces of that size and closes the client's half. Returns everything that the
/// server sends until it closes, its counts, and how many requests it answered.
async fn say(text: &str, piece: usize) -> (String, (u64, u64, u64), usize) {
    let (mut client, server) = client();
    for piece in text.as_bytes().chunks(piece) {
        // A server that has refused a request accepts no more.
        let _ = client.stream.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    let _ = client.stream.shutdown().await;
    let said = String::from_utf8_lossy(&client.rest().await).into_owned();
    let _ = client.serving.await.unwrap();
    let answered = client.records.borrow().len();
    (said, counted(server.tally()), answered)
}

#[tokio::test]
async fn it_is_obeyed_without_a_reply_behind_all_answers() {
    local(async {
        for piece in [1, 7, 1 << 20] {
            assert_eq!(say(&close(), piece).await, (String::new(), (1, 0, 0), 0), "{piece}");
            let (said, counted, answered) = say(&[GET_A, GET_A, &close()].concat(), piece).await;
            assert_eq!((counted, answered), ((1, 0, 0), 2), "{piece}: {said}");
            assert_eq!(said.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{said}");
            assert!(said.ends_with("\r\n\r\naaa"), "{said}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_large_answer_before_it_is_delivered_whole() {
    local(async {
        let (said, counted, answered) = say(&[GET_A, GET_BIG, &close()].concat(), 1 << 20).await;
        assert_eq!((counted, answered), ((1, 0, 0), 2));
        assert!(said.len() > 1 << 20 && said.ends_with(&"\u{7}".repeat(1 << 20)));
    })
    .await;
}

/// Answers at once, and reads the request's body beside that.
struct Hasty;

impl Handler for Hasty {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        tokio::task::spawn_local(request.into_body().collect());
        let answer = Response::new(Body::from(Bytes::from_static(&[7; 200_000])));
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::test]
async fn an_answer_that_is_not_written_yet_is_written_first() {
    local(async {
        let server = Server::new(Hasty, ServerConfig::default(), clock());
        let (mut client, server) = connect_to(server, 1000);
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na").await;
        sleep(Duration::from_millis(1)).await;
        // The answer is in flight, and the peer takes none of it yet.
        client.send(["bc", &close()].concat()).await;
        client.stream.shutdown().await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(client.receive(false).await.body.len(), 200_000);
        assert!(client.rest().await.is_empty());
        client.serving.await.unwrap().unwrap();
        assert_eq!(counted(server.tally()), (1, 0, 0));
    })
    .await;
}

#[tokio::test]
async fn what_comes_behind_it_is_never_a_request() {
    local(async {
        let get = "GET /secret HTTP/1.1\r\nHost: h\r\n\r\n";
        let chunked = format!("{:x}\r\n{get}\r\n0\r\n\r\n", get.len());
        for behind in [get, &chunked, &close(), "\u{16}\u{3}\u{1}", "\r\n\r\n", "G"] {
            for piece in [1, 11, 1 << 20] {
                let (said, counted, answered) =
                    say(&[GET_A, &close(), behind].concat(), piece).await;
                assert_eq!((counted, answered), ((1, 0, 0), 1), "{behind:?} by {piece}: {said}");
                assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn any_other_form_is_refused_by_an_answer_that_ends_all() {
    local(async {
        let get = "GET /secret HTTP/1.1\r\nHost: h\r\n\r\n";
        let length = format!("Content-Length: {}\r\n", get.len());
        let chunked = "Transfer-Encoding: chunked\r\n";
        let both = format!("{length}{chunked}");
        let in_chunks = format!("{:x}\r\n{get}\r\n0\r\n\r\n", get.len());
        for (line, fields, body) in [
            ("* HTTP/1.1", "Host: h\r\n", ""),
            ("* HTTP/1.1", "Host: h\r\nConnection: keep-alive\r\n", ""),
            ("* HTTP/1.1", "Connection: close\r\n", ""),
            ("* HTTP/1.1", "Host: h\r\nHost: i\r\nConnection: close\r\n", ""),
            ("* HTTP/1.0", "Host: h\r\nConnection: close\r\n", ""),
            ("/ HTTP/1.1", "Host: h\r\nConnection: close\r\n", ""),
            ("http://h/ HTTP/1.1", "Host: h\r\nConnection: close\r\n", ""),
            ("* HTTP/1.1", "Host: h\r\nConnection: close\r\nContent-Length: 0\r\n", ""),
            ("* HTTP/1.1", &format!("Host: h\r\nConnection: close\r\n{length}"), get),
            ("* HTTP/1.1", &format!("Host: h\r\nConnection: close\r\n{chunked}"), &in_chunks),
            ("* HTTP/1.1", &format!("Host: h\r\nConnection: close\r\n{both}"), &in_chunks),
        ] {
            for piece in [1, 1 << 20] {
                let close = format!("{METHOD} {line}\r\n{fields}\r\n{body}");
                let (said, counted, answered) = say(&[GET_A, &close, get].concat(), piece).await;
                assert_eq!((counted, answered), ((0, 0, 1), 2), "{close}: {said}");
                let second = said.split("aaa").nth(1).unwrap();
                assert!(second[8..].starts_with(" 400 "), "{said}");
                assert!(second.contains("\r\nconnection: close\r\n"), "{close}: {said}");
                assert!(!said.contains("secret"), "{close}: {said}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_method_that_only_looks_like_it_is_any_other() {
    local(async {
        for method in ["client_close", "CLIENT_CLOSE2", "CLIENT-CLOSE"] {
            let text = close().replace(METHOD, method);
            let (said, counted, answered) = say(&text, 1 << 20).await;
            assert!(said.starts_with("HTTP/1.1 405 "), "{said}");
            assert_eq!((counted, answered), ((0, 0, 0), 1));
        }
    })
    .await;
}

/// How long the server keeps a connection behind a CLIENT_CLOSE whose client keeps its half open,
/// and sends that every tenth of a second.
async fn patience(sent: &[u8]) -> (Duration, (u64, u64, u64)) {
    let (mut client, server) = client();
    client.send([GET_A, &close()].concat()).await;
    assert_eq!(client.receive(false).await.body, b"aaa");
    let begin = Time::now();
    while !client.serving.is_finished() {
        // The pipe of a server that has gone accepts nothing.
        let _ = client.stream.write_all(sent).await;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(client.rest().await.is_empty());
    (begin.elapsed(), counted(server.tally()))
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_close_is_closed_after_the_grace() {
    local(async {
        for sent in [&b""[..], b"x", &[b'x'; 60_000]] {
            let (elapsed, counted) = patience(sent).await;
            assert_eq!(counted, (0, 1, 0));
            let grace = Duration::from_secs(1);
            assert!((grace..grace + Duration::from_millis(200)).contains(&elapsed), "{elapsed:?}");
        }
        // More bytes than the server may drop.
        let (elapsed, counted) = patience(&[b'x'; 300_000]).await;
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
        assert_eq!(counted, (0, 1, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_closes_within_the_grace_is_obeyed() {
    local(async {
        let (mut client, server) = client();
        client.send([GET_A, &close()].concat()).await;
        client.receive(false).await;
        sleep(Duration::from_millis(990)).await;
        assert!(!client.serving.is_finished(), "it waits for the client to close first");
        client.stream.shutdown().await.unwrap();
        client.serving.await.unwrap().unwrap();
        assert_eq!(counted(server.tally()), (1, 0, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_resets_behind_it_has_not_closed() {
    local(async {
        for (kind, wanted) in [
            (io::ErrorKind::ConnectionReset, (0, 1, 0)),
            // TLS without its close_notify.
            (io::ErrorKind::UnexpectedEof, (1, 0, 0)),
        ] {
            let server = Server::new(files(), ServerConfig::default(), clock());
            let (mut client, server) = connect_through(server, 64 << 10, |io| Failing(io, kind));
            client.send([GET_A, &close()].concat()).await;
            client.receive(false).await;
            sleep(Duration::from_millis(500)).await;
            client.stream.shutdown().await.unwrap();
            let begin = Time::now();
            let _ = client.serving.await.unwrap();
            assert!(begin.elapsed() < Duration::from_millis(10), "its end is seen at once");
            assert_eq!(counted(server.tally()), wanted, "{kind}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_grace_begins_when_the_client_has_all_answers() {
    local(async {
        let transport = Transport::default();
        let mut client = connect_over(&transport, files(), ServerConfig::default());
        client.send([GET_A, &close()].concat()).await;
        client.receive(false).await;
        transport.undelivered.set(100);
        sleep(Duration::from_millis(2500)).await;
        assert!(!client.serving.is_finished(), "an answer is under way");
        transport.undelivered.set(0);
        sleep(Duration::from_millis(1600)).await;
        assert!(client.serving.is_finished());
        assert!(!transport.is_reset.get());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_cuts_does_not_wait_for_the_client() {
    local(async {
        let (mut client, server) = client();
        client.send(close()).await;
        sleep(Duration::from_millis(10)).await;
        server.stop().cut();
        sleep(Duration::from_millis(10)).await;
        assert!(client.serving.is_finished());
        assert_eq!(server.stop().tracked(), 0);
    })
    .await;
}

#[test]
#[should_panic = "is no host"]
fn a_host_that_would_be_another_field_is_refused() {
    request("h\r\nContent-Length: 3");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However requests and CLIENT_CLOSE are mixed and cut, those before it are answered, each
    /// once, and none behind it.
    #[test]
    fn what_is_before_it_is_answered_and_nothing_behind(
        before in 0usize..6,
        behind in prop::collection::vec(prop::sample::select(vec![
            "GET /secret HTTP/1.1\r\nHost: h\r\n\r\n", "CLIENT_CLOSE", "\r\n", "0\r\n\r\n", "x",
        ]), 0..6),
        piece in 1usize..200,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let text = [&*GET_A.repeat(before), &close(), &behind.concat()].concat();
        let (said, counted, answered) = runtime.block_on(local(say(&text, piece)));
        prop_assert_eq!((counted, answered), ((1, 0, 0), before));
        prop_assert_eq!(said.matches("HTTP/1.1 200").count(), before);
        prop_assert!(!said.contains("secret"));
    }
}
