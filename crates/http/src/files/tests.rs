//! Each rule of the file service, over a whole connection.

use super::*;
use crate::ServerConfig;
use crate::testing::{Client, MemoryFiles, clock, connect, connect_files, local};

fn tree() -> MemoryFiles {
    MemoryFiles::new(&[
        ("hello.txt", b"0123456789"),
        ("empty", b""),
        ("sub/page.html", b"<p>"),
        ("with index/index.html", b"<h1>index</h1>"),
        (".git/config", b"secret"),
        (".well-known/security.txt", b"open"),
    ])
}

fn client() -> Client {
    connect_files(tree())
}

fn configured(config: FilesConfig) -> Client {
    connect(Files::new(tree(), config, clock()), ServerConfig::default(), 1 << 16)
}

#[tokio::test]
async fn a_file_comes_whole_with_its_fields() {
    local(async {
        let reply = client().get("/hello.txt").await;
        assert_eq!((reply.status, reply.body.as_slice()), (200, &b"0123456789"[..]));
        assert_eq!(reply.field("content-length"), Some("10"));
        assert_eq!(reply.field("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.field("accept-ranges"), Some("bytes"));
        assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.field("last-modified"), Some("Sun, 09 Sep 2001 01:46:30 GMT"));
        assert_eq!(reply.field("date"), Some("Sun, 09 Sep 2001 01:46:40 GMT"));
        assert!(reply.field("etag").unwrap().starts_with('"'));
        assert_eq!(reply.field("server"), Some("lightwait"));
    })
    .await;
}

#[tokio::test]
async fn an_empty_file_is_a_file() {
    local(async {
        let reply = client().get("/empty").await;
        assert_eq!((reply.status, reply.field("content-length")), (200, Some("0")));
        assert_eq!(client().ask("GET", "/empty", "Range: bytes=0-\r\n").await.status, 416);
    })
    .await;
}

#[tokio::test]
async fn a_compressed_drawing_is_sent_with_its_coding() {
    local(async {
        let plain = client().get("/hello.txt").await;
        assert_eq!(plain.field("content-encoding"), None);
        let mut client = connect_files(MemoryFiles::new(&[("a.svgz", b"0123456789")]));
        for (method, range, status, body) in [
            ("GET", "", 200, "0123456789"),
            ("HEAD", "", 200, ""),
            ("GET", "Range: bytes=2-4\r\n", 206, "234"),
            // Several parts cannot have one coding: the whole is sent.
            ("GET", "Range: bytes=0-1,5-6\r\n", 200, "0123456789"),
        ] {
            let reply = client.ask(method, "/a.svgz", range).await;
            assert_eq!((reply.status, reply.body.as_slice()), (status, body.as_bytes()), "{range}");
            assert_eq!(reply.field("content-encoding"), Some("gzip"), "{method} {range}");
            assert_eq!(reply.field("content-type"), Some("image/svg+xml; charset=utf-8"));
        }
        for (range, status) in [("Range: bytes=10-\r\n", 416), ("If-None-Match: *\r\n", 304)] {
            let reply = client.ask("GET", "/a.svgz", range).await;
            assert_eq!((reply.status, reply.field("content-encoding")), (status, None));
        }
    })
    .await;
}

#[tokio::test]
async fn head_gets_the_fields_of_get_and_no_body() {
    local(async {
        let mut client = client();
        for target in ["/hello.txt", "/none", "/sub/", "/sub", "/empty"] {
            let (head, get) = (client.ask("HEAD", target, "").await, client.get(target).await);
            assert_eq!(head.status, get.status, "{target}");
            for field in ["content-length", "content-type", "etag", "location"] {
                assert_eq!(head.field(field), get.field(field), "{target} {field}");
            }
        }
        // Range is for GET alone.
        let reply = client.ask("HEAD", "/hello.txt", "Range: bytes=0-0\r\n").await;
        assert_eq!((reply.status, reply.field("content-length")), (200, Some("10")));
    })
    .await;
}

#[tokio::test]
async fn other_methods_are_told_what_is_allowed() {
    local(async {
        let mut client = client();
        for method in ["POST", "PUT", "DELETE", "BREW"] {
            let reply = client.ask(method, "/hello.txt", "Content-Length: 0\r\n").await;
            assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
        }
        for target in ["/", "/hello.txt", "*"] {
            let reply = client.ask("OPTIONS", target, "").await;
            assert_eq!((reply.status, reply.field("allow")), (204, Some("GET, HEAD, OPTIONS")));
        }
    })
    .await;
}

#[tokio::test]
async fn a_range_selects_bytes() {
    local(async {
        let mut client = client();
        let mut ask = async |range: &str| {
            let reply = client.ask("GET", "/hello.txt", &format!("Range: {range}\r\n")).await;
            let text = String::from_utf8(reply.body.clone()).unwrap();
            (reply.status, text, reply.field("content-range").map(str::to_owned))
        };
        let part = |text: &str, range: &str| (206, text.to_owned(), Some(range.to_owned()));
        assert_eq!(ask("bytes=2-4").await, part("234", "bytes 2-4/10"));
        assert_eq!(ask("bytes=8-").await, part("89", "bytes 8-9/10"));
        assert_eq!(ask("bytes=-3").await, part("789", "bytes 7-9/10"));
        assert_eq!(ask("bytes=0-99").await, part("0123456789", "bytes 0-9/10"));
        let (status, _, range) = ask("bytes=10-").await;
        assert_eq!((status, range.as_deref()), (416, Some("bytes */10")));
        assert_eq!(ask("lines=1-2").await, (200, "0123456789".to_owned(), None));
        assert_eq!(ask("bytes=0-5,3-7").await.0, 200, "overlaps are ignored");
    })
    .await;
}

#[tokio::test]
async fn several_ranges_come_as_parts() {
    local(async {
        let reply = client().ask("GET", "/hello.txt", "Range: bytes=0-1,-1\r\n").await;
        assert_eq!(reply.status, 206);
        let kind = reply.field("content-type").unwrap();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |range: &str, text: &str| {
            format!(
                "--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Range: bytes {range}/10\r\n\r\n{text}\r\n"
            )
        };
        let expected = format!("{}{}--{boundary}--\r\n", part("0-1", "01"), part("9-9", "9"));
        assert_eq!(String::from_utf8(reply.body).unwrap(), expected);
    })
    .await;
}

#[tokio::test]
async fn as_many_ranges_as_the_limit_and_not_one_more() {
    local(async {
        let mut client = configured(FilesConfig { max_ranges: 2, ..FilesConfig::default() });
        let mut status = async |range| {
            client.ask("GET", "/hello.txt", &format!("Range: bytes={range}\r\n")).await.status
        };
        assert_eq!(status("0-0,2-2").await, 206);
        assert_eq!(status("0-0,2-2,4-4").await, 200);
    })
    .await;
}

#[tokio::test]
async fn conditions_are_kept() {
    local(async {
        let mut client = client();
        let first = client.get("/hello.txt").await;
        let etag = first.field("etag").unwrap().to_owned();
        let date = first.field("last-modified").unwrap().to_owned();
        let mut client = connect_files(tree());
        client
            .send(format!("GET /hello.txt HTTP/1.1\r\nHost: h\r\nIf-None-Match: W/{etag}\r\n\r\n"))
            .await;
        let reply = client.receive(true).await;
        assert_eq!((reply.status, reply.field("etag")), (304, Some(etag.as_str())));
        assert_eq!(reply.field("content-type"), None);
        let fields = format!("If-Match: \"x\"\r\nIf-None-Match: {etag}\r\n");
        assert_eq!(client.ask("GET", "/hello.txt", &fields).await.status, 412);
        let fields = format!("If-Modified-Since: {date}\r\n");
        client.send(format!("GET /hello.txt HTTP/1.1\r\nHost: h\r\n{fields}\r\n")).await;
        assert_eq!(client.receive(true).await.status, 304);
        for (validator, status) in [(etag.as_str(), 206), (&date, 206), ("\"x\"", 200)] {
            let fields = format!("Range: bytes=1-1\r\nIf-Range: {validator}\r\n");
            assert_eq!(client.ask("GET", "/hello.txt", &fields).await.status, status);
        }
    })
    .await;
}

#[tokio::test]
async fn a_directory_has_a_slash_an_index_or_a_listing() {
    local(async {
        let mut client = client();
        let reply = client.get("/with%20index?q=1").await;
        assert_eq!((reply.status, reply.field("location")), (301, Some("/with%20index/?q=1")));
        let reply = client.get("//with%20index").await;
        assert_eq!(reply.field("location"), Some("/with%20index/"), "never another host");
        let reply = client.get("/with%20index/").await;
        assert_eq!((reply.status, reply.body.as_slice()), (200, &b"<h1>index</h1>"[..]));
        assert_eq!(reply.field("content-type"), Some("text/html; charset=utf-8"));
        let listing = client.get("/").await;
        let text = String::from_utf8(listing.body.clone()).unwrap();
        assert!(text.contains("./hello.txt") && text.contains("./sub/") && !text.contains(".git"));
        assert!(listing.field("content-security-policy").unwrap().contains("default-src 'none'"));
        assert_eq!(client.get("/hello.txt/").await.status, 404);
    })
    .await;
}

#[tokio::test]
async fn listings_and_hidden_files_follow_the_configuration() {
    local(async {
        let mut client = configured(FilesConfig { listing: false, ..FilesConfig::default() });
        assert_eq!(client.get("/").await.status, 403);
        assert_eq!(client.get("/.git/config").await.status, 404);
        assert_eq!(client.get("/.well-known/security.txt").await.status, 200);
        let mut client = configured(FilesConfig { hidden: true, ..FilesConfig::default() });
        assert_eq!(client.get("/.git/config").await.status, 200);
        assert!(String::from_utf8(client.get("/").await.body).unwrap().contains("./.git/"));
        let mut client = configured(FilesConfig { max_listing: 1, ..FilesConfig::default() });
        let text = String::from_utf8(client.get("/").await.body).unwrap();
        assert!(text.contains("there are more"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_served_has_its_status() {
    local(async {
        let mut client = client();
        for (target, status) in [
            ("/none", 404),
            ("/sub/none", 404),
            ("/forbidden", 403),
            ("/broken", 503),
            ("/%2e%2e/x", 400),
            ("/a%00", 400),
            ("/a%2fb", 400),
            ("/%zz", 400),
        ] {
            let reply = client.get(target).await;
            assert_eq!(reply.status, status, "{target}");
            assert!(!reply.body.is_empty() && reply.field("date").is_some(), "{target}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_path_at_the_limit_is_looked_up_and_a_longer_one_is_not() {
    local(async {
        let mut client = configured(FilesConfig { max_path_bytes: 10, ..FilesConfig::default() });
        assert_eq!(client.get("/hello.txt").await.status, 200);
        assert_eq!(client.get("/hello.txtt").await.status, 414);
    })
    .await;
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_drained_and_a_longer_one_closes() {
    local(async {
        let config = FilesConfig { max_drain_bytes: 100, ..FilesConfig::default() };
        let mut client = configured(config.clone());
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n").await;
        client.send([b'x'; 100]).await;
        let reply = client.receive(false).await;
        assert_eq!((reply.status, reply.field("connection")), (405, None));
        assert_eq!(client.get("/hello.txt").await.status, 200, "the connection is kept");

        let mut client = configured(config.clone());
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n").await;
        let reply = client.receive(false).await;
        assert_eq!((reply.status, reply.field("connection")), (405, Some("close")));

        let mut client = configured(config);
        let chunk = format!("65\r\n{}\r\n0\r\n\r\n", "x".repeat(101));
        client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        client.send(chunk).await;
        let reply = client.receive(false).await;
        assert_eq!((reply.status, reply.field("connection")), (405, Some("close")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_too_slowly_closes() {
    local(async {
        let mut client = client();
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345").await;
        let begin = tokio::time::Instant::now();
        let reply = client.receive(false).await;
        assert_eq!((reply.status, reply.field("connection")), (405, Some("close")));
        assert_eq!(begin.elapsed().as_secs(), 5);
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_100_is_answered_without_it() {
    local(async {
        let mut client = client();
        let fields = "Content-Length: 10\r\nExpect: 100-continue\r\n";
        let reply = client.ask("POST", "/", fields).await;
        assert_eq!((reply.status, reply.field("connection")), (405, Some("close")));
    })
    .await;
}

#[tokio::test]
async fn a_file_that_shrinks_ends_the_connection_early() {
    local(async {
        let mut source = tree();
        source.shrunk_to = Some(5);
        let mut client = connect_files(source);
        client.send("GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let rest = client.rest().await;
        assert!(!rest.ends_with(b"56789"), "no made-up bytes");
        assert!(client.serving.await.unwrap().is_err());
        assert!(!client.records.borrow()[0].complete);
    })
    .await;
}
