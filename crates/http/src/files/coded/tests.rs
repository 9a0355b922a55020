//! Compression of what is asked for, over a whole connection. Compressed files that lie beside the
//! plain ones are tested with the other rules.

use std::cell::Cell;
use std::io::Read;

use super::*;
use crate::testing::{Client, MemoryFiles, Purse, Reply, clock, connect, local};
use crate::{Memory, ServerConfig};

fn text(bytes: usize) -> Vec<u8> {
    (0u32..).flat_map(|n| n.to_string().into_bytes()).take(bytes).collect()
}

fn files(config: FilesConfig) -> Files<MemoryFiles> {
    let tree = [
        ("a.txt", &*text(50_000)),
        ("long.txt", &*text(300_000)),
        ("too-long.txt", &*text((1 << 20) + 1)),
        ("short.txt", &*text(100)),
        ("picture.png", &*text(50_000)),
        ("beside.css", &*text(5_000)),
        ("beside.css.gz", b"gz"),
    ];
    let config = FilesConfig { compress: true, ..config };
    Files::new(MemoryFiles::new(&tree), config, clock())
}

fn client(config: FilesConfig) -> Client {
    connect(files(config), ServerConfig::default(), 1 << 16)
}

async fn ask(client: &mut Client, target: &str, accept: &str) -> Reply {
    client.ask("GET", target, &format!("Accept-Encoding: {accept}\r\n")).await
}

fn decoded(reply: &Reply) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = match reply.field("content-encoding") {
        Some("br") => brotli::Decompressor::new(&*reply.body, 4096).read_to_end(&mut plain),
        Some("gzip") => flate2::read::GzDecoder::new(&*reply.body).read_to_end(&mut plain),
        _ => {
            plain.clone_from(&reply.body);
            Ok(0)
        }
    };
    read.unwrap();
    plain
}

#[tokio::test]
async fn text_comes_compressed_to_clients_that_take_it() {
    local(async {
        let mut client = client(FilesConfig::default());
        for (target, accept, coding) in [
            ("/a.txt", "gzip, br", Some("br")),
            ("/a.txt", "gzip", Some("gzip")),
            ("/a.txt", "gzip", Some("gzip")),
            ("/a.txt", "zstd", None),
            ("/a.txt", "identity", None),
            // Longer than what the cache keeps of plain files.
            ("/long.txt", "br", Some("br")),
        ] {
            let reply = ask(&mut client, target, accept).await;
            assert_eq!((reply.status, reply.field("content-encoding")), (200, coding), "{target}");
            let plain = text(if target == "/a.txt" { 50_000 } else { 300_000 });
            assert!(decoded(&reply) == plain, "{target} {accept}");
            assert_eq!(reply.field("content-type"), Some("text/plain; charset=utf-8"));
            assert_eq!(reply.field("vary"), Some("accept-encoding"), "{target} {accept}");
            let length = reply.field("content-length").unwrap().parse::<usize>().unwrap();
            assert_eq!(length, reply.body.len());
        }
        for target in ["/too-long.txt", "/short.txt", "/picture.png"] {
            let reply = ask(&mut client, target, "gzip, br").await;
            assert_eq!(reply.field("content-encoding"), None, "{target}");
            assert_eq!(reply.field("vary"), None, "{target}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_compressed_file_beside_it_goes_first() {
    local(async {
        let config = FilesConfig { precompressed: true, ..FilesConfig::default() };
        let reply = ask(&mut client(config), "/beside.css", "gzip").await;
        assert_eq!((&reply.body[..], reply.field("content-encoding")), (&b"gz"[..], Some("gzip")));
    })
    .await;
}

#[tokio::test]
async fn each_coding_has_a_weak_tag_of_its_own() {
    local(async {
        let mut client = client(FilesConfig::default());
        let mut tags = Vec::new();
        for accept in ["identity", "br", "gzip"] {
            let reply = ask(&mut client, "/a.txt", accept).await;
            tags.push(reply.field("etag").unwrap().to_owned());
        }
        assert!(!tags[0].starts_with("W/") && tags[1..].iter().all(|tag| tag.starts_with("W/")));
        assert!(tags[0] != tags[1] && tags[1] != tags[2]);
        let known = format!("Accept-Encoding: br\r\nIf-None-Match: {}\r\n", tags[1]);
        assert_eq!(client.ask("GET", "/a.txt", &known).await.status, 304);
        // A range is of the plain bytes, and not of what happens to be made of them.
        let range = "Accept-Encoding: br\r\nRange: bytes=10-19\r\n";
        let part = client.ask("GET", "/a.txt", range).await;
        assert_eq!((part.status, part.field("content-encoding")), (206, None));
        assert_eq!(part.body, &text(20)[10..]);
        assert_eq!(part.field("vary"), Some("accept-encoding"));
    })
    .await;
}

#[tokio::test]
async fn a_file_is_compressed_once() {
    local(async {
        let files = Rc::new(files(FilesConfig::default()));
        let (mut head, _) = http::Request::get("/a.txt").body(()).unwrap().into_parts();
        head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("br"));
        for _ in 0..3 {
            let reply = files.answer(&head).await;
            assert_eq!(reply.headers()[header::CONTENT_ENCODING], "br");
        }
        assert_eq!(files.cache_tally().compressed, 1);
        files.set_policy(&FilesConfig { compress: false, ..FilesConfig::default() });
        assert!(!files.answer(&head).await.headers().contains_key(header::CONTENT_ENCODING));
    })
    .await;
}

#[tokio::test]
async fn where_memory_is_scarce_files_stay_plain() {
    local(async {
        let purse = Purse::default();
        let is_scarce = Rc::new(Cell::new(true));
        let files = files(FilesConfig::default())
            .with_memory(Memory::new(Purse { is_scarce: is_scarce.clone(), ..purse.clone() }));
        let (mut head, _) = http::Request::get("/a.txt").body(()).unwrap().into_parts();
        head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let is_coded =
            |reply: &http::Response<Body>| reply.headers().contains_key(header::CONTENT_ENCODING);
        assert!(!is_coded(&files.answer(&head).await));
        is_scarce.set(false);
        let reply = files.answer(&head).await;
        assert!(is_coded(&reply));
        drop((reply, files));
        assert_eq!(purse.held.load(std::sync::atomic::Ordering::Relaxed), 0, "all charges end");
    })
    .await;
}

#[test]
fn a_compressed_file_that_is_older_is_stale() {
    let at = |seconds| Metadata {
        kind: crate::files::source::Kind::File,
        len_bytes: 1,
        modified: Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)),
        changed: None,
        identity: 1,
    };
    assert!(!is_stale(&at(100), &at(100)) && !is_stale(&at(101), &at(100)));
    assert!(!is_stale(&at(98), &at(100)) && is_stale(&at(97), &at(100)));
    assert!(!is_stale(&Metadata { modified: None, ..at(0) }, &at(100)), "nothing is known");
}
