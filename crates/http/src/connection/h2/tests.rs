//! HTTP/2 by a client that writes each frame itself: answers, limits, and attacks.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant as Time, sleep, timeout};

use super::*;
use crate::access::Access;
use crate::connection::h2::frames::{END_HEADERS, END_STREAM, kind};
use crate::testing::{MemoryFiles, Purse, Transport, clock, local};
use crate::{Files, FilesConfig, Memory, Server, ServerConfig as Knobs};

mod attacks;
mod stalls;

type Site = Server<Files<MemoryFiles>>;

const CANCEL: u8 = 8;
const REFUSED_STREAM: u8 = 7;
/// `:status: 200`, as h2 writes it.
const OK: u8 = 0x88;
/// `:status: 404`.
const NOT_FOUND: u8 = 0x8d;

fn site(knobs: Knobs) -> Site {
    let big = vec![7; 1 << 20];
    let source = MemoryFiles::new(&[("a", b"aaa"), ("big", &big)]);
    Server::new(Files::new(source, FilesConfig::default(), clock()), knobs, clock())
}

/// A frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Came {
    kind: u8,
    flags: u8,
    stream: u32,
    content: Vec<u8>,
}

/// A client that writes frames.
struct Peer {
    stream: DuplexStream,
    server: Rc<Site>,
    records: Rc<RefCell<Vec<Access>>>,
    serving: JoinHandle<Outcome>,
    transport: Transport,
}

impl Peer {
    /// Connects to that server, and sends nothing.
    fn silent(server: Site) -> Peer {
        let records: Rc<RefCell<Vec<Access>>> = Rc::default();
        let log = records.clone();
        let server = server.on_access(move |access| log.borrow_mut().push(access));
        let server = Rc::new(server);
        let (stream, io) = tokio::io::duplex(4 << 20);
        let transport = Transport::default();
        let peer = SocketAddr::from(([192, 0, 2, 1], 1));
        let served = server.clone().serve_http2(TokioIo::new(io), transport.clone(), peer);
        Peer { stream, server, records, serving: spawn_local(served), transport }
    }

    /// Connects and says that it speaks HTTP/2, with these settings.
    async fn with(server: Site, settings: &[(u16, u32)]) -> Peer {
        let mut peer = Peer::silent(server);
        peer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        peer.set(settings).await;
        peer
    }

    async fn new(server: Site) -> Peer {
        Peer::with(server, &[]).await
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) {
        let bytes = frame(kind, flags, stream, content);
        // A server that has closed reads no more.
        let _ = self.stream.write_all(&bytes).await;
    }

    async fn set(&mut self, settings: &[(u16, u32)]) {
        let each =
            |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let content: Vec<u8> = settings.iter().flat_map(each).collect();
        self.send(kind::SETTINGS, 0, 0, &content).await;
    }

    /// Asks for a target, as the whole of a request.
    async fn get(&mut self, stream: u32, target: &str) {
        self.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &head("GET", target)).await;
    }

    async fn open_window(&mut self, stream: u32, bytes: u32) {
        self.send(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()).await;
    }

    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<Came> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut content = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut content).await.ok()?;
        Some(Came { kind, flags, stream: u32::from_be_bytes(stream), content })
    }

    /// The next frame that is none of the connection's upkeep.
    async fn next_of_note(&mut self) -> Option<Came> {
        loop {
            let frame = self.next().await?;
            if !matches!(frame.kind, kind::SETTINGS | kind::PING | kind::WINDOW_UPDATE) {
                return Some(frame);
            }
        }
    }

    /// The first byte of an answer's head, and its body.
    async fn answer(&mut self, stream: u32) -> (u8, Vec<u8>) {
        let (mut status, mut body) = (0, Vec::new());
        loop {
            let frame = self.next_of_note().await.expect("an answer");
            assert_eq!(frame.stream, stream, "{frame:?}");
            match frame.kind {
                kind::HEADERS => status = frame.content[0],
                kind::DATA => body.extend(&frame.content),
                _ => panic!("{frame:?}"),
            }
            if frame.flags & END_STREAM != 0 {
                return (status, body);
            }
        }
    }

    /// The error with which the server ends the connection, and whether nothing follows.
    async fn goaway(&mut self) -> u32 {
        loop {
            let frame = self.next_of_note().await.expect("a GOAWAY");
            if frame.kind == kind::GOAWAY {
                let error = u32::from_be_bytes(frame.content[4..8].try_into().unwrap());
                while self.next().await.is_some() {}
                return error;
            }
        }
    }

    fn counts(&self) -> Http2 {
        let counts = self.server.http2();
        Http2 { connections: 0, requests: 0, ..counts }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()[..]].concat();
    [&head, content].concat()
}

/// A string as HPACK has it, not compressed (RFC 7541 §5.2).
fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match text.len() {
        length @ ..127 => bytes.push(length as u8),
        length => {
            bytes.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
    }
    bytes.extend(text);
    bytes
}

/// A field with a name of its own that is not kept (RFC 7541 §6.2.2).
fn field(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name.as_bytes()), string(value.as_bytes())].concat()
}

fn head(method: &str, target: &str) -> Vec<u8> {
    let fields =
        [(":method", method), (":scheme", "https"), (":authority", "here"), (":path", target)];
    fields.into_iter().flat_map(|(name, value)| field(name, value)).collect()
}

#[tokio::test]
async fn requests_are_answered_in_turn_and_beside_each_other() {
    local(async {
        let mut peer = Peer::new(site(Knobs::default())).await;
        peer.get(1, "/a").await;
        assert_eq!(peer.answer(1).await, (OK, b"aaa".to_vec()));
        peer.get(3, "/none").await;
        assert_eq!(peer.answer(3).await.0, NOT_FOUND);
        peer.open_window(0, 4 << 20).await;
        for stream in [5, 7] {
            peer.get(stream, "/big").await;
            peer.open_window(stream, 1 << 20).await;
        }
        let (mut bytes, mut order) = ([0, 0], Vec::new());
        while bytes != [1 << 20, 1 << 20] {
            let frame = peer.next_of_note().await.unwrap();
            if frame.kind == kind::DATA {
                let which = usize::from(frame.stream == 7);
                bytes[which] += frame.content.len();
                order.push(which);
            }
        }
        assert!(order.windows(2).filter(|two| two[0] != two[1]).count() > 10, "{order:?}");
        drop(peer.stream);
        peer.serving.await.unwrap().unwrap();
        let records = peer.records.borrow();
        let lines = records.iter().map(|record| {
            (String::from_utf8_lossy(record.request.as_bytes()).into_owned(), record.body_bytes)
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        assert_eq!(lines[0], ("GET /a HTTP/2.0".to_owned(), 3));
        assert_eq!(lines[1], ("GET /big HTTP/2.0".to_owned(), 1 << 20));
        assert_eq!(lines.len(), 4);
        assert!(records.iter().all(|record| record.complete), "{records:?}");
        assert_eq!(records[0].host.as_deref(), Some("here"));
        let tally = peer.server.tally();
        assert_eq!((tally.responses[1], tally.responses[3]), (3, 1));
        let counts = peer.server.http2();
        assert_eq!(counts, Http2 { connections: 1, requests: 4, ..Http2::default() });
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_the_client_takes_back_is_not_complete() {
    local(async {
        let mut peer = Peer::new(site(Knobs::default())).await;
        peer.get(1, "/big").await;
        let mut bytes = 0;
        while bytes < 65_535 {
            let frame = peer.next_of_note().await.unwrap();
            bytes += if frame.kind == kind::DATA { frame.content.len() } else { 0 };
        }
        peer.send(kind::RST_STREAM, 0, 1, &[0, 0, 0, CANCEL]).await;
        peer.open_window(0, 1 << 20).await;
        peer.get(3, "/a").await;
        assert_eq!(peer.answer(3).await, (OK, b"aaa".to_vec()));
        let records = peer.records.borrow();
        assert_eq!((records[0].complete, records[0].body_bytes), (false, 65_535));
        assert!(records[1].complete);
        assert_eq!(peer.counts(), Http2::default());
    })
    .await;
}

#[tokio::test]
async fn what_has_no_place_is_refused_by_the_stream() {
    local(async {
        let knobs = Knobs { max_streams: 3, ..Knobs::default() };
        let mut peer = Peer::with(site(knobs), &[(4, 0)]).await;
        for stream in [1, 3, 5, 7] {
            peer.get(stream, "/big").await;
        }
        loop {
            let frame = peer.next_of_note().await.unwrap();
            if frame.kind == kind::RST_STREAM {
                assert_eq!((frame.stream, frame.content[3]), (7, REFUSED_STREAM));
                break;
            }
            assert!(frame.kind == kind::HEADERS && frame.content[0] == OK);
        }
        // Responses have a limit of their own, for all connections.
        let knobs = Knobs { max_responses: 1, ..Knobs::default() };
        let mut peer = Peer::with(site(knobs), &[(4, 0)]).await;
        for stream in [1, 3] {
            peer.get(stream, "/big").await;
        }
        let statuses = [peer.next_of_note().await, peer.next_of_note().await];
        let refused = statuses.into_iter().flatten().filter(|frame| frame.content[0] != OK);
        assert_eq!((refused.count(), peer.server.tally().refused_responses), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_ends_as_one_of_http_1() {
    local(async {
        // PINGs are no requests.
        let mut peer = Peer::new(site(Knobs::default())).await;
        peer.get(1, "/a").await;
        peer.answer(1).await;
        let began = Time::now();
        let mut pings = 0;
        let error = loop {
            match timeout(Duration::from_secs(7), peer.goaway()).await {
                Ok(error) => break error,
                Err(_) => peer.send(kind::PING, 0, 0, &[pings; 8]).await,
            }
            pings += 1;
        };
        assert_eq!((error, began.elapsed().as_secs()), (NO_ERROR, 60));
        // A preface, a frame and a head have the time of a head.
        let whole = head("GET", "/a");
        let in_head = [frame(kind::SETTINGS, 0, 0, b""), frame(kind::HEADERS, 0, 1, &whole)];
        for begun in [b"PRI *".to_vec(), vec![0, 0], in_head.concat()] {
            let mut peer = Peer::silent(site(Knobs::default()));
            let began = Time::now();
            sleep(Duration::from_secs(5)).await;
            if begun != b"PRI *" {
                peer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            }
            peer.write(&begun).await;
            while peer.next().await.is_some() {}
            assert_eq!(began.elapsed().as_secs(), 20, "{begun:?}");
            assert!(peer.serving.await.unwrap().is_err());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_may_take_longer_than_a_client_may_be_silent() {
    local(async {
        let mut peer = Peer::new(site(Knobs::default())).await;
        peer.get(1, "/big").await;
        for _ in 0..40 {
            peer.open_window(1, 25_000).await;
            peer.open_window(0, 25_000).await;
            sleep(Duration::from_secs(20)).await;
        }
        peer.open_window(1, 1 << 20).await;
        peer.open_window(0, 1 << 20).await;
        assert_eq!(peer.answer(1).await.1.len(), 1 << 20);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_streams_finish_and_takes_no_more() {
    local(async {
        let mut idle = Peer::new(site(Knobs::default())).await;
        idle.get(1, "/a").await;
        idle.answer(1).await;
        idle.server.stop().request();
        assert_eq!(idle.goaway().await, NO_ERROR);
        idle.serving.await.unwrap().unwrap();
        let mut busy = Peer::new(site(Knobs::default())).await;
        busy.get(1, "/big").await;
        sleep(Duration::from_millis(10)).await;
        busy.server.stop().request();
        let mut bytes = 0;
        while bytes < 1 << 20 {
            let frame = busy.next_of_note().await.expect("the rest of the answer");
            bytes += if frame.kind == kind::DATA { frame.content.len() } else { 0 };
            for stream in [0, 1] {
                busy.open_window(stream, (frame.content.len() as u32).max(1)).await;
            }
        }
        while busy.next().await.is_some() {}
        busy.serving.await.unwrap().unwrap();
        assert!(busy.records.borrow()[0].complete);
        // A cut leaves it.
        let mut cut = Peer::new(site(Knobs::default())).await;
        cut.get(1, "/big").await;
        sleep(Duration::from_millis(10)).await;
        cut.server.stop().request();
        cut.server.stop().cut();
        cut.serving.await.unwrap().unwrap();
        assert!(cut.transport.is_reset.get() && !cut.records.borrow()[0].complete);
        assert_eq!(cut.server.stop().cut_short(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_held_is_charged_and_goes_where_memory_is_short() {
    local(async {
        let purse = Purse::default();
        let server = site(Knobs::default()).with_memory(Memory::new(purse.clone()));
        let held = || purse.by_connections.load(Ordering::Relaxed);
        let mut peer = Peer::with(server, &[(4, 0)]).await;
        peer.get(1, "/a").await;
        peer.next_of_note().await;
        let with_one = held();
        assert!(with_one > HTTP2_BYTES, "{with_one}");
        peer.get(3, "/a").await;
        peer.next_of_note().await;
        let with_two = held();
        assert!(with_two > with_one, "{with_one} {with_two}");
        // Streams that are answered are no reason to go; without any, it does.
        let admissions = &peer.server.admissions;
        assert!(!admissions.evict(std::time::Instant::now(), 1));
        for stream in [1, 3] {
            peer.open_window(stream, 3).await;
            peer.answer(stream).await;
        }
        assert!(peer.server.admissions.evict(std::time::Instant::now(), 1));
        assert_eq!(peer.goaway().await, NO_ERROR);
        let _ = peer.serving.await;
        assert_eq!((held(), peer.server.tally().closed_for_memory), (0, 1));
    })
    .await;
}
