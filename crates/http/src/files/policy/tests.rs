//! The rules by themselves, and over a whole connection.

use super::*;
use crate::files::path::resolve;
use crate::testing::{Client, MemoryFiles, Reply, clock, connect, connect_to, local};
use crate::{Files, Server, ServerConfig};

fn names(rule: &str, path: &str) -> bool {
    rule.parse::<CacheRule>().unwrap().names(&resolve(path).unwrap().path)
}

#[test]
fn a_pattern_is_of_names_or_with_a_slash_of_paths() {
    let css = "*.css=max-age=3600";
    assert!(names(css, "/a.css") && names(css, "/deep/down/a.css") && !names(css, "/a.css.map"));
    let assets = "/assets/**/*=max-age=31536000, immutable";
    assert!(names(assets, "/assets/a.js") && names(assets, "/assets/x/y.js"));
    assert!(!names(assets, "/other/assets/a.js") && !names(assets, "/assets"));
    assert!(names("index.html=no-cache", "/sub/index.html"));
    assert_eq!(css.parse::<CacheRule>().unwrap().value(), "max-age=3600");
}

#[test]
fn a_rule_that_makes_no_sense_is_told() {
    for (text, why) in [
        ("*.css", "PATTERN=VALUE"),
        ("*.css=", "no value"),
        ("*.css=max\nage", "no value"),
        ("[a=no-cache", "at character"),
    ] {
        let error = text.parse::<CacheRule>().unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

fn path(text: &str) -> RelativePath {
    resolve(text).unwrap().path
}

fn client(files: &[(&str, &[u8])], config: FilesConfig) -> Client {
    connect(Files::new(MemoryFiles::new(files), config, clock()), ServerConfig::default(), 1 << 16)
}

fn fields(reply: &Reply) -> [Option<&str>; 3] {
    ["content-encoding", "content-type", "vary"].map(|name| reply.field(name))
}

#[tokio::test]
async fn a_compressed_file_comes_in_place_of_the_plain_one() {
    let files = [
        ("a.css", &b"plain css"[..]),
        ("a.css.br", b"brotli"),
        ("a.css.gz", b"gz"),
        ("b.css", b"plain b"),
        ("sub/index.html", b"index"),
        ("sub/index.html.zst", b"zstd"),
    ];
    local(async {
        let config = FilesConfig { precompressed: true, ..FilesConfig::default() };
        let mut client = client(&files, config);
        let css = Some("text/css; charset=utf-8");
        let vary = Some("accept-encoding");
        // Twice: from the source, and from the cache.
        for _ in 0..2 {
            for (target, accept, body, coding) in [
                ("/a.css", "gzip, br", &b"brotli"[..], Some("br")),
                ("/a.css", "gzip", b"gz", Some("gzip")),
                ("/a.css", "gzip;q=0, zstd", b"plain css", None),
                ("/b.css", "gzip, br, zstd", b"plain b", None),
            ] {
                let reply = client.ask("GET", target, &encoded(accept)).await;
                assert_eq!((reply.status, &reply.body[..]), (200, body), "{target} {accept}");
                assert_eq!(fields(&reply), [coding, css, vary], "{target} {accept}");
            }
        }
        let index = client.ask("GET", "/sub/", &encoded("zstd")).await;
        assert_eq!((&index.body[..], fields(&index)[0]), (&b"zstd"[..], Some("zstd")));
        // Asked for by its own name it is what it is.
        let own = client.ask("GET", "/a.css.gz", &encoded("gzip")).await;
        assert_eq!((&own.body[..], fields(&own)[0]), (&b"gz"[..], None));
        // Each has a validator of its own, and ranges are of the coded bytes.
        let [plain, coded] = ["identity", "br"].map(encoded);
        let plain = client.ask("GET", "/a.css", &plain).await;
        let coded = client.ask("GET", "/a.css", &coded).await;
        let [plain, coded] = [&plain, &coded].map(|reply| reply.field("etag").unwrap());
        assert_ne!(plain, coded);
        let known = format!("{}If-None-Match: {coded}\r\n", encoded("br"));
        let again = client.ask("GET", "/a.css", &known).await;
        assert_eq!((again.status, fields(&again)), (304, [None, None, vary]));
        let ranges = format!("{}Range: bytes=0-1,3-4\r\n", encoded("br"));
        assert_eq!(client.ask("GET", "/a.css", &ranges).await.body, b"brotli", "no two parts");
        let range = format!("{}Range: bytes=1-2\r\n", encoded("br"));
        let part = client.ask("GET", "/a.css", &range).await;
        assert_eq!((part.status, &part.body[..], fields(&part)[0]), (206, &b"ro"[..], Some("br")));
    })
    .await;
}

fn encoded(accept: &str) -> String {
    format!("Accept-Encoding: {accept}\r\n")
}

#[tokio::test]
async fn without_the_switch_no_other_file_is_looked_for() {
    local(async {
        let files = [("a.css", &b"plain"[..]), ("a.css.br", b"brotli")];
        let reply =
            client(&files, FilesConfig::default()).ask("GET", "/a.css", &encoded("br")).await;
        assert_eq!(
            (&reply.body[..], fields(&reply)[0], fields(&reply)[2]),
            (&b"plain"[..], None, None)
        );
    })
    .await;
}

#[tokio::test]
async fn the_first_rule_that_names_a_file_says_how_long_it_is_kept() {
    local(async {
        let rules = ["/assets/*=immutable", "*.css=max-age=60"].map(|rule| rule.parse().unwrap());
        let config = FilesConfig { cache_control: rules.into(), ..FilesConfig::default() };
        let files = [("assets/a.css", &b"a"[..]), ("b.css", b"b"), ("c.txt", b"c")];
        let mut client = client(&files, config);
        for (target, rule) in
            [("/assets/a.css", Some("immutable")), ("/b.css", Some("max-age=60")), ("/c.txt", None)]
        {
            let reply = client.get(target).await;
            assert_eq!(reply.field("cache-control"), rule, "{target}");
            let known = format!("If-None-Match: {}\r\n", reply.field("etag").unwrap());
            let again = client.ask("GET", target, &known).await;
            assert_eq!((again.status, again.field("cache-control")), (304, rule), "{target}");
        }
        assert_eq!(client.get("/assets/none.css").await.field("cache-control"), None, "a 404");
    })
    .await;
}

#[tokio::test]
async fn pages_stand_for_paths_without_a_file_and_for_our_own() {
    local(async {
        let files = [("app.html", &b"app"[..]), ("404.html", b"gone"), ("sub/a", b"a")];
        let config = FilesConfig {
            fallback: Some(path("/app.html")),
            error_pages: vec![
                (StatusCode::NOT_FOUND, path("/404.html")),
                (StatusCode::METHOD_NOT_ALLOWED, path("/missing.html")),
            ],
            ..FilesConfig::default()
        };
        let mut client = client(&files, config);
        let html = Some("text/html; charset=utf-8");
        for (method, target, status, body) in [
            ("GET", "/users/7", 200, "app"),
            ("GET", "/users/", 200, "app"),
            ("HEAD", "/users/7", 200, ""),
            // A file that is missing is missing, and so is what is hidden.
            ("GET", "/main.js", 404, "gone"),
            ("HEAD", "/main.js", 404, ""),
            ("GET", "/.git/x", 404, "gone"),
        ] {
            let reply = client.ask(method, target, "").await;
            assert_eq!((reply.status, &reply.body[..]), (status, body.as_bytes()), "{target}");
            assert_eq!(reply.field("content-type"), html);
            assert_eq!(reply.field("content-security-policy"), None);
        }
        let ours = client.ask("PUT", "/app.html", "").await;
        assert_eq!((ours.status, ours.field("allow").is_some()), (405, true));
        assert!(ours.body.starts_with(b"405"), "its page is not there");
    })
    .await;
}

#[tokio::test]
async fn a_new_policy_holds_for_what_is_kept_as_well() {
    local(async {
        let tree = MemoryFiles::new(&[("a.css", b"a"), ("b.html", b"b")]);
        let files = Files::new(tree, FilesConfig::default(), clock());
        let server = Server::new(files, ServerConfig::default(), clock());
        let (mut client, server) = connect_to(server, 1 << 16);
        for _ in 0..2 {
            assert_eq!(client.get("/a.css").await.field("cache-control"), None);
        }
        server.handler().set_policy(&FilesConfig {
            index: "b.html".to_owned(),
            cache_control: vec!["*.css=max-age=5".parse().unwrap()],
            fallback: Some(path("/b.html")),
            chunk_bytes: 1,
            ..FilesConfig::default()
        });
        assert_eq!(client.get("/a.css").await.field("cache-control"), Some("max-age=5"));
        assert_eq!(
            (client.get("/").await.body, client.get("/x").await.body),
            (b"b".into(), b"b".into())
        );
        assert_ne!(server.handler().config().chunk_bytes, 1, "no limit has changed");
        // The same once more empties no cache.
        let hits = server.handler().cache_tally().hits;
        let same = FilesConfig::clone(&server.handler().config());
        server.handler().set_policy(&same);
        client.get("/a.css").await;
        assert_eq!(server.handler().cache_tally().hits, hits + 1);
    })
    .await;
}

#[tokio::test]
async fn scripts_of_the_origins_named_may_read() {
    let answer = async |origins: &[&str], method: &str, asked: &str| {
        let origins = origins.iter().map(|origin| HeaderValue::from_str(origin).unwrap());
        let config = FilesConfig { origins: origins.collect(), ..FilesConfig::default() };
        client(&[("a", b"a")], config).ask(method, "/a", asked).await
    };
    let allowed = |reply: &Reply| reply.field("access-control-allow-origin").map(str::to_owned);
    local(async {
        let (one, other) = ("Origin: https://one.test\r\n", "Origin: https://other.test\r\n");
        assert_eq!(allowed(&answer(&[], "GET", one).await), None);
        assert_eq!(allowed(&answer(&["*"], "GET", "").await).as_deref(), Some("*"));
        let origins = ["https://one.test", "https://two.test"];
        let reply = answer(&origins, "GET", one).await;
        assert_eq!(allowed(&reply).as_deref(), Some("https://one.test"));
        assert_eq!(reply.field("vary"), Some("origin"));
        let reply = answer(&origins, "GET", other).await;
        assert_eq!((allowed(&reply), reply.field("vary")), (None, Some("origin")));
        let preflight = format!(
            "{one}Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n"
        );
        let reply = answer(&origins, "OPTIONS", &preflight).await;
        assert_eq!((reply.status, allowed(&reply).is_some()), (204, true));
        assert_eq!(reply.field("access-control-allow-methods"), Some("GET, HEAD"));
        assert_eq!(reply.field("access-control-allow-headers"), Some("range"));
        let reply = answer(&[], "OPTIONS", &preflight).await;
        assert_eq!(reply.field("access-control-allow-methods"), None);
    })
    .await;
}
