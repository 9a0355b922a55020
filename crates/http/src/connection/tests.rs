//! Connections: keep-alive, limits, timeouts, closing, and the record of each response.

use super::*;
use crate::testing::{
    Client, MemoryFiles, Purse, Transport, clock, connect, connect_files, connect_over, connect_to,
    local, peer, serve_over,
};
use crate::{Files, FilesConfig, Tally};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant as Time, sleep};

mod reset;
mod rest;

fn files() -> Files<MemoryFiles> {
    let big = vec![7; 1 << 20];
    let source = MemoryFiles::new(&[("a", b"aaa"), ("b", b"bb"), ("big", &big)]);
    Files::new(source, FilesConfig::default(), clock())
}

fn configured(config: ServerConfig) -> Client {
    connect(files(), config, 64 << 10)
}

fn client() -> Client {
    configured(ServerConfig::default())
}

#[tokio::test]
async fn a_connection_is_kept_for_one_request_after_another() {
    local(async {
        let mut client = client();
        for _ in 0..3 {
            assert_eq!(client.get("/a").await.body, b"aaa");
        }
        drop(client.stream);
        client.serving.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    local(async {
        let mut client = client();
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert_eq!(client.receive(false).await.body, b"aaa");
        assert_eq!(client.receive(false).await.body, b"bb");
    })
    .await;
}

#[tokio::test]
async fn who_closed_their_half_still_gets_the_answer() {
    local(async {
        let mut client = client();
        client.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.receive(false).await.body.len(), 1 << 20);
        assert!(client.rest().await.is_empty());
        client.serving.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn http_1_0_closes_and_needs_no_host() {
    local(async {
        let mut client = client();
        client.send("GET /a HTTP/1.0\r\n\r\n").await;
        assert!(client.rest().await.ends_with(b"\r\n\r\naaa"));
    })
    .await;
}

#[tokio::test]
async fn http_1_1_names_exactly_one_host() {
    local(async {
        let mut client = client();
        client.send("GET /a HTTP/1.1\r\n\r\n").await;
        assert_eq!(client.receive(false).await.status, 400);
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await;
        assert_eq!(client.receive(false).await.status, 400);
        assert_eq!(client.get("/a").await.status, 200);
    })
    .await;
}

/// The status of the answer to that head, and whether the connection closes.
async fn judged(head: &[u8]) -> (u16, bool) {
    local(async {
        let mut client = client();
        client.send(head).await;
        let reply = client.receive(false).await;
        (reply.status, reply.field("connection") == Some("close"))
    })
    .await
}

#[tokio::test]
async fn a_host_that_is_none_is_refused() {
    for host in ["a b/c@", "a/b", "x:99999999", "[::1", "\u{ff}"] {
        let head = format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(judged(head.as_bytes()).await, (400, false), "{host}");
    }
    assert_eq!(judged(b"GET /a HTTP/1.1\r\nHost: \xff\r\n\r\n").await.0, 400);
    assert_eq!(judged(b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").await.0, 200);
    assert_eq!(judged(b"GET /a HTTP/1.1\r\nHost:\r\n\r\n").await.0, 200);
}

#[tokio::test]
async fn the_authority_of_a_target_is_judged_as_a_host() {
    for (target, host, status) in [
        ("http://b:81/a", "h", 200),
        ("http://b/a", "", 200),
        ("http://b/a", "a b", 400),
        ("http://b:99999/a", "h", 400),
        ("http://u@b/a", "h", 400),
        ("http:///a", "h", 400),
        ("ftp://b/a", "h", 400),
        ("b:80", "h", 400),
        ("b", "h", 400),
        ("*", "h", 400),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(judged(head.as_bytes()).await.0, status, "{target} {host}");
    }
    // RFC 9112 §3.2 asks for `Host` all the same.
    assert_eq!(judged(b"GET http://b/a HTTP/1.1\r\n\r\n").await.0, 400);
}

#[tokio::test]
async fn a_body_whose_end_is_doubtful_is_refused_and_closes() {
    let te = |fields: &str| format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n0\r\n\r\n");
    for (fields, status) in [
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: chunked, gzip\r\n", 400),
        // The coding counts, and nothing behind the body.
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 200),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 200),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        ("Content-Length: +5\r\n", 400),
        ("Transfer-Encoding : chunked\r\n", 400),
        (" Transfer-Encoding: chunked\r\n", 400),
        ("X: y\r\n Transfer-Encoding: chunked\r\n", 400),
    ] {
        assert_eq!(judged(te(fields).as_bytes()).await, (status, true), "{fields}");
    }
    assert_eq!(judged(te("Transfer-Encoding: chunked\r\n").as_bytes()).await, (200, false));
}

#[tokio::test]
async fn versions_of_http_1_are_served_and_others_are_not() {
    let of = |version: &str| format!("GET /a HTTP/{version}\r\nHost: h\r\n\r\n");
    for (version, status) in
        [("1.1", 200), ("1.2", 200), ("1.9", 200), ("3.0", 505), ("2.0", 505), ("0.9", 505)]
    {
        assert_eq!(judged(of(version).as_bytes()).await.0, status, "{version}");
    }
    for version in ["1", "1.x", "11", "x"] {
        assert_eq!(judged(of(version).as_bytes()).await.0, 400, "{version}");
    }
    // Requests go on behind one of them.
    local(async {
        let mut client = client();
        client.send(of("1.2") + &of("1.1") + &of("1.7")).await;
        for _ in 0..3 {
            assert_eq!(client.receive(false).await.status, 200);
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_no_http_gets_400() {
    local(async {
        for bad in ["\u{16}\u{3}\u{1}", "GET\r\n\r\n", "GET / HTTP/9.x\r\n\r\n"] {
            let mut client = client();
            client.send(bad).await;
            client.stream.shutdown().await.unwrap();
            assert!(client.rest().await.starts_with(b"HTTP/1.1 400"), "{bad:?}");
            assert!(client.serving.await.unwrap().unwrap_err().is_parse(), "{bad:?}");
        }
    })
    .await;
}

/// Sends a request whose head has `bytes` bytes, the last one a moment later.
async fn head_of(bytes: usize) -> u16 {
    let config = ServerConfig { max_header_bytes: 10_000, ..ServerConfig::default() };
    let mut client = configured(config);
    let frame = "GET /a HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n".len();
    let head = format!("GET /a HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(bytes - frame));
    client.send(&head[..bytes - 1]).await;
    sleep(Duration::from_millis(1)).await;
    client.send(&head[bytes - 1..]).await;
    client.receive(false).await.status
}

#[tokio::test(start_paused = true)]
async fn a_head_as_long_as_the_limit_passes_and_a_longer_one_does_not() {
    local(async {
        assert_eq!(head_of(10_000).await, 200);
        assert_eq!(head_of(10_001).await, 431);
    })
    .await;
}

#[tokio::test]
async fn as_many_fields_as_the_limit_pass_and_one_more_does_not() {
    local(async {
        let config = ServerConfig { max_header_fields: 10, ..ServerConfig::default() };
        // `Host` is one of them.
        assert_eq!(
            configured(config.clone()).ask("GET", "/a", &"X: y\r\n".repeat(9)).await.status,
            200
        );
        assert_eq!(configured(config).ask("GET", "/a", &"X: y\r\n".repeat(10)).await.status, 431);
    })
    .await;
}

/// A head with a field of `bytes` bytes, or with a target of that length.
fn long_head(field: bool, bytes: usize) -> String {
    let long = "x".repeat(bytes);
    if field {
        format!("GET /a HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n")
    } else {
        format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n")
    }
}

#[tokio::test]
async fn what_is_refused_for_its_head_is_told_why_and_leaves_a_record() {
    local(async {
        let many = format!("GET /a HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(101));
        let long = format!("GET /{}...", "x".repeat(256 - "GET /".len()));
        let whole = format!("GET /{} HTTP/1.1", "x".repeat(5_000));
        for (status, head, line) in [
            (431, long_head(true, 20_000), "GET /a HTTP/1.1"),
            (431, many, "GET /a HTTP/1.1"),
            (414, long_head(false, 20_000), &*long),
            // hyper understands this one.
            (414, long_head(false, 5_000), &*whole),
            (505, "GET / HTTP/9.9\r\n\r\n".to_owned(), "GET / HTTP/9.9"),
            (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "PRI * HTTP/2.0"),
            (400, "GET /a HTTP/1.2\r\nX\u{1}: y\r\n\r\n".to_owned(), "GET /a HTTP/1.2"),
            (400, "GET  /a HTTP/1.1\r\n\r\n".to_owned(), "GET  /a HTTP/1.1"),
            (400, "GET /a\rb HTTP/1.1\r\n\r\n".to_owned(), "GET /a\rb HTTP/1.1"),
            (400, "\u{16}\u{3}\u{1}\r\n".to_owned(), "\u{16}\u{3}\u{1}"),
        ] {
            // Alone, and after a response.
            for before in [0, 1] {
                let mut client = client();
                for _ in 0..before {
                    client.get("/big").await;
                }
                client.send(&head).await;
                let reply = client.receive(false).await;
                assert_eq!(reply.status, status);
                let text = String::from_utf8(reply.body.clone()).unwrap();
                assert!(text.starts_with(&format!("{status} ")) && text.lines().count() == 2);
                assert!(reply.field("date").is_some());
                drop(client.stream);
                let _ = client.serving.await.unwrap();
                let records = client.records.borrow();
                assert_eq!(records.len(), before + 1);
                let record = &records[before];
                assert_eq!((record.status.as_u16(), &record.request), (status, &line.into()));
                assert_eq!(record.body_bytes, reply.body.len() as u64);
                assert!(record.complete);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_refused_head_has_no_other_requests_line() {
    let next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
    let long = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n";
    let garbage = "NO\u{1}HTTP\r\n\r\n";
    // hyper has dropped a head whose length it does not understand: a line is known if it was the
    // first that was read.
    for (sent, line) in [
        (["GET http:///a HTTP/1.1\r\n\r\n", next], "GET http:///a HTTP/1.1"),
        ([long, next], "POST /a HTTP/1.1"),
        ([next, long], ""),
        ([garbage, next], "NO\u{1}HTTP"),
        ([next, garbage], "NO\u{1}HTTP"),
    ] {
        local(async {
            let mut client = client();
            client.send(format!("{}{next}", sent.concat())).await;
            client.rest().await;
            let _ = client.serving.await.unwrap();
            let records = client.records.borrow();
            let record = records.last().unwrap();
            assert_eq!((record.status.as_u16(), &record.request), (400, &line.into()), "{sent:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_refused_head_is_answered_in_turn_and_ends_the_connection() {
    local(async {
        let mut client = client();
        let head = "HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n";
        client.send(format!("{head}{head}NO\u{1}HTTP\r\n\r\n{head}")).await;
        let rest = String::from_utf8(client.rest().await).unwrap();
        let statuses: Vec<_> = rest.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]).collect();
        assert_eq!(statuses, ["200", "200", "400"], "{rest}");
        assert!(rest.contains("\r\nconnection: close\r\n"), "{rest}");
    })
    .await;
}

#[tokio::test]
async fn the_last_request_of_a_connection_says_so() {
    local(async {
        let config = ServerConfig { max_requests: Some(2), ..ServerConfig::default() };
        let mut client = configured(config);
        assert_eq!(client.get("/a").await.field("connection"), None);
        assert_eq!(client.get("/a").await.field("connection"), Some("close"));
        assert!(client.rest().await.is_empty());
    })
    .await;
}

/// How long the server keeps a connection on which `bytes` were sent, and no more.
async fn patience(bytes: &str) -> Duration {
    let mut client = client();
    let begin = Time::now();
    client.send(bytes).await;
    let mut sink = Vec::new();
    let _ = client.stream.read_to_end(&mut sink).await;
    let _ = client.serving.await;
    begin.elapsed()
}

fn about(elapsed: Duration, seconds: u64) -> bool {
    // A timer may fire a millisecond late.
    (0..10).contains(&(elapsed.as_millis() as i64 - seconds as i64 * 1000))
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_closed() {
    local(async {
        assert!(about(patience("").await, 60));
        let served = patience("GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert!(about(served, 60), "{served:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_must_be_complete_in_time() {
    local(async {
        let elapsed = patience("GET /a HT").await;
        assert!(about(elapsed, 15), "{elapsed:?}");
        // After a response too; and dripping does not help.
        let mut client = client();
        client.get("/a").await;
        sleep(Duration::from_secs(30)).await;
        let begin = Time::now();
        while client.stream.write_all(b"G").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
            assert!(begin.elapsed() < Duration::from_secs(20), "dripping holds the connection");
        }
        assert!(begin.elapsed() >= Duration::from_secs(15), "{:?}", begin.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_client_was_too_slow_with_is_counted() {
    local(async {
        // A body is read for longer than it may stall.
        let read = FilesConfig { drain_timeout: Duration::from_secs(99), ..<_>::default() };
        let body = "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx";
        for (sent, counts) in [("", [1, 0, 0]), ("GET /a HT", [0, 1, 0]), (body, [0, 0, 1])] {
            let files = Files::new(MemoryFiles::new(&[("a", b"aaa")]), read.clone(), clock());
            let server = Server::new(files, ServerConfig::default(), clock());
            let (mut client, server) = connect_to(server, 1 << 16);
            client.send(sent).await;
            let _ = (&mut client.serving).await;
            let Tally { timed_out_idle, timed_out_heads, timed_out_bodies, .. } = server.tally();
            assert_eq!([timed_out_idle, timed_out_heads, timed_out_bodies], counts, "{sent}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_patient_client_keeps_its_connection() {
    local(async {
        let mut client = client();
        for _ in 0..5 {
            assert_eq!(client.get("/a").await.status, 200);
            sleep(Duration::from_secs(59)).await;
        }
        assert_eq!(client.get("/a").await.status, 200);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_given_up() {
    local(async {
        let mut client = connect(files(), ServerConfig::default(), 1000);
        client.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let begin = Time::now();
        let error = (&mut client.serving).await.unwrap().unwrap_err();
        assert!(about(begin.elapsed(), 30), "{:?}", begin.elapsed());
        assert!(format!("{error:?}").contains("TimedOut"), "{error:?}");
        let record = client.records.borrow()[0].clone();
        assert!(!record.complete && record.body_bytes < 1 << 20);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_drains_the_transport_too_slowly_is_reset() {
    // How much the peer takes in a second, and when it is reset.
    for (taken, seconds) in [(0, Some(30)), (1, Some(60)), (900, Some(60)), (1100, None)] {
        local(async {
            let transport = Transport::default();
            let idle_timeout = Duration::from_secs(1000);
            let config = ServerConfig { idle_timeout, ..ServerConfig::default() };
            let mut client = connect_over(&transport, files(), config);
            transport.undelivered.set(500_000);
            assert_eq!(client.get("/big").await.body.len(), 1 << 20);
            let begin = Time::now();
            while !client.serving.is_finished() && begin.elapsed() < Duration::from_secs(600) {
                sleep(Duration::from_secs(1)).await;
                transport.undelivered.set(transport.undelivered.get().saturating_sub(taken));
            }
            let error = (&mut client.serving).await.unwrap();
            match seconds {
                Some(seconds) => {
                    let elapsed = begin.elapsed().as_secs();
                    assert!((seconds..seconds + 9).contains(&elapsed), "{taken}: {elapsed}");
                    assert!(transport.is_reset.get(), "{taken}");
                }
                // It asks for nothing more, and is closed in order.
                None => assert!(!transport.is_reset.get() && error.is_ok()),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn requests_beyond_those_in_flight_are_told_to_come_again() {
    local(async {
        let config = ServerConfig { max_responses: 1, ..ServerConfig::default() };
        let (mut first, server) = connect_to(Server::new(files(), config, clock()), 1000);
        first.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await;
        first.stream.read_u8().await.unwrap();
        let (mut stream, io) = tokio::io::duplex(64 << 10);
        let _serving = tokio::task::spawn_local(
            server.clone().serve(hyper_util::rt::TokioIo::new(io), peer()),
        );
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(
            reply.starts_with("HTTP/1.1 503 ") && reply.contains("retry-after: 1\r\n"),
            "{reply}"
        );
        assert_eq!(server.tally().refused_responses, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_that_takes_something_is_served() {
    local(async {
        let mut client = connect(files(), ServerConfig::default(), 64 << 10);
        client.send("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        let (mut received, mut chunk) = (0, vec![0; 32 << 10]);
        loop {
            sleep(Duration::from_secs(20)).await;
            match client.stream.read(&mut chunk).await.unwrap() {
                0 => break,
                n => received += n,
            }
        }
        assert!(received > 1 << 20);
        assert!(client.records.borrow()[0].complete);
    })
    .await;
}

#[tokio::test]
async fn the_rest_of_a_refused_body_is_read_before_closing() {
    local(async {
        // A pipe too small for the body: without lingering the client could not send it.
        let mut client = connect(files(), ServerConfig::default(), 1000);
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n").await;
        assert_eq!(client.receive(false).await.status, 405);
        client.send(vec![b'x'; 500_000]).await;
        drop(client.stream);
        client.serving.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn lingering_ends_at_its_limit() {
    local(async {
        let config = ServerConfig { linger_bytes: 20_000, ..ServerConfig::default() };
        let mut client = connect(files(), config, 1000);
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n").await;
        assert_eq!(client.receive(false).await.status, 405);
        assert!(client.stream.write_all(&[b'x'; 500_000]).await.is_err());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lingering_ends_in_time() {
    local(async {
        let mut client = client();
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n").await;
        let begin = Time::now();
        client.serving.await.unwrap().unwrap();
        assert!(about(begin.elapsed(), 2), "{:?}", begin.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_close_does_not_linger() {
    local(async {
        let mut client = client();
        client.send("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        let begin = Time::now();
        client.serving.await.unwrap().unwrap();
        assert!(about(begin.elapsed(), 0), "{:?}", begin.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_stop_lets_responses_finish_and_closes_idle_connections() {
    local(async {
        let (mut idle, server) =
            connect_to(Server::new(files(), ServerConfig::default(), clock()), 1000);
        idle.get("/a").await;
        let (stream, io) = tokio::io::duplex(1000);
        let io = hyper_util::rt::TokioIo::new(io);
        let serving = tokio::task::spawn_local(server.clone().serve(io, peer()));
        let mut busy = Client { stream, serving, records: idle.records.clone() };
        busy.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let first = busy.stream.read_u8().await.unwrap();
        assert_eq!(server.stop().tracked(), 2);
        server.stop().request();
        assert!(idle.rest().await.is_empty());
        idle.serving.await.unwrap().unwrap();
        let rest = busy.rest().await;
        assert!(first == b'H' && rest.len() > 1 << 20, "the response came whole");
        server.stop().finished().await;
        busy.serving.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cut_ends_a_response_in_the_middle_and_its_record_says_so() {
    local(async {
        let (mut busy, server) =
            connect_to(Server::new(files(), ServerConfig::default(), clock()), 1000);
        busy.send("GET /big HTTP/1.1\r\nHost: h\r\n\r\n").await;
        busy.stream.read_u8().await.unwrap();
        server.stop().request();
        tokio::task::yield_now().await;
        assert_eq!(server.stop().tracked(), 1, "it may finish");
        server.stop().cut();
        server.stop().finished().await;
        busy.serving.await.unwrap().unwrap();
        assert_eq!(server.stop().cut_short(), 1);
        let record = busy.records.borrow()[0].clone();
        assert!(!record.complete && record.body_bytes < 1 << 20, "{record:?}");
    })
    .await;
}

#[tokio::test]
async fn each_response_leaves_a_record() {
    local(async {
        let mut client = client();
        client.get("/a?x=%20").await;
        client.ask("HEAD", "/none", "").await;
        client.get("http://h:81/a?x").await;
        client.send("GET /a HTTP/1.2\r\nHost: here\r\n\r\n").await;
        client.receive(false).await;
        client.get("/b").await;
        let records = client.records.borrow();
        let lines = records.iter().map(|record| str::from_utf8(record.request.as_bytes()).unwrap());
        let wanted = [
            "GET /a?x=%20 HTTP/1.1",
            "HEAD /none HTTP/1.1",
            "GET http://h:81/a?x HTTP/1.1",
            "GET /a HTTP/1.2",
            "GET /b HTTP/1.1",
        ];
        assert_eq!((records[0].peer, lines.collect::<Vec<_>>()), (peer(), wanted.to_vec()));
        let hosts = records.iter().map(|record| record.host.as_deref().unwrap());
        assert_eq!(hosts.collect::<Vec<_>>(), ["here", "here", "h:81", "here", "here"]);
        assert_eq!((records[0].status.as_u16(), records[0].body_bytes), (200, 3));
        assert!(records[0].complete && records[1].complete);
        assert_eq!((records[1].status.as_u16(), records[1].body_bytes), (404, 0));
    })
    .await;
}

/// Reads of a clock that goes on by 3 ms whenever it is read.
fn measured(reads: &Rc<Cell<u32>>) -> crate::Clock {
    let (reads, begin) = (reads.clone(), Instant::now());
    let measure = move || {
        reads.set(reads.get() + 1);
        begin + Duration::from_millis(3) * reads.get()
    };
    crate::Clock { measure: Rc::new(measure), ..clock() }
}

#[tokio::test]
async fn durations_take_three_clock_reads_and_none_without_a_hook() {
    local(async {
        let reads = Rc::new(Cell::new(0));
        let server = Server::new(files(), ServerConfig::default(), measured(&reads));
        let mut client = connect_to(server, 64 << 10).0;
        client.get("/a").await;
        client.get("/big").await;
        for record in &*client.records.borrow() {
            assert_eq!(record.first_byte, Some(Duration::from_millis(3)), "{:?}", record.request);
            assert_eq!(record.duration, Duration::from_millis(6), "{:?}", record.request);
        }
        assert_eq!((client.records.borrow().len(), reads.take()), (2, 6));

        let server = Rc::new(Server::new(files(), ServerConfig::default(), measured(&reads)));
        let (mut stream, io) = tokio::io::duplex(64 << 10);
        let serving =
            tokio::task::spawn_local(server.serve(hyper_util::rt::TokioIo::new(io), peer()));
        stream.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
        serving.await.unwrap().unwrap();
        assert_eq!(reads.get(), 0);
    })
    .await;
}

/// Gives back what it gets.
struct Echo;

impl Handler for Echo {
    fn respond(self: Rc<Self>, request: Request<RequestBody>) -> Pending<Response<Body>> {
        Box::pin(async move {
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(Body::from(bytes))
        })
    }
}

#[tokio::test]
async fn other_handlers_get_whole_bodies() {
    local(async {
        let mut client = connect(Echo, ServerConfig::default(), 1 << 16);
        let (mut reader, mut writer) = tokio::io::split(client.stream);
        let upload = async {
            let head =
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n";
            writer.write_all(head.as_bytes()).await.unwrap();
            writer.write_all(&[b'e'; 300_000]).await.unwrap();
        };
        let mut reply = Vec::new();
        tokio::join!(upload, async { reader.read_to_end(&mut reply).await.unwrap() });
        assert!(reply.ends_with(&[b'e'; 300_000]));
        (&mut client.serving).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_stalls_is_given_up() {
    local(async {
        let mut client = connect(Echo, ServerConfig::default(), 1 << 16);
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345").await;
        let begin = Time::now();
        let mut sink = Vec::new();
        let _ = client.stream.read_to_end(&mut sink).await;
        assert!(about(begin.elapsed(), 15), "{:?}", begin.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_missing_file_does_not_end_the_connection() {
    local(async {
        let mut client = connect_files(MemoryFiles::new(&[("a", b"x")]));
        assert_eq!(client.get("/none").await.status, 404);
        assert_eq!(client.get("/a").await.status, 200);
    })
    .await;
}
