//! Passwords by themselves, and of a service of files.

use super::*;
use crate::FilesConfig;
use crate::body::RequestBody;
use crate::testing::{Client, MemoryFiles, clock, local};

fn at(path: &str) -> RelativePath {
    resolve(path).unwrap().path
}

fn line(user: &str, password: &str) -> String {
    format!("{user}:{}\n", bcrypt::hash(password, 4).unwrap())
}

#[test]
fn a_file_is_read_line_by_line_and_told_where_it_is_wrong() {
    // As `htpasswd -nbB ann secret` printed it.
    let ann = "ann:$2y$05$GUz3.Rm37U4p.V/AuS3hWuRMNWWpgo/KixL5cdRkhNAiwOzgLjM2C";
    let parse = |text: &str| Passwords::parse(RelativePath::default(), text);
    let read = parse(&format!("# of the house\n\n{ann}\n")).unwrap();
    assert!(read.check("ann", b"secret") && !read.check("ann", b"secre"));
    for (text, line, why) in [
        ("", 0, "users"),
        ("ann", 1, "no colon"),
        ("\nann:", 2, "USER:HASH"),
        (":$2y$", 1, "USER:HASH"),
        ("a b:$2y$", 1, "USER:HASH"),
        ("ann:{SHA}xyz", 1, "htpasswd -B"),
        ("ann:$apr1$abc$def", 1, "htpasswd -B"),
        (&format!("{ann}\n{ann}"), 2, "twice"),
        (&ann.replace("$05$", "$15$"), 1, "cost"),
        (&ann.replace("$05$", "$03$"), 1, "cost"),
        (&ann.replace("$05$", "$05$!"), 1, "htpasswd -B"),
        (&ann[..ann.len() - 1], 1, "htpasswd -B"),
    ] {
        let fault = parse(text).unwrap_err();
        assert!(fault.line == line && fault.why.contains(why), "{text}: {fault}");
    }
}

#[test]
fn a_password_is_known_again_and_no_other_one() {
    let passwords = Passwords::parse(at("/"), &line("ann", "right")).unwrap();
    assert!(!passwords.has_passed("ann", b"right"));
    assert!(!passwords.check("ann", b"wrong") && !passwords.check("bob", b"right"));
    assert!(!passwords.check("bob", b""), "the hash of no password lets nobody in");
    assert!(!passwords.has_passed("ann", b"wrong"));
    assert!(passwords.check("ann", b"right") && passwords.has_passed("ann", b"right"));
    assert!(!passwords.has_passed("ann", b"wrong") && !passwords.has_passed("bob", b"right"));
}

#[test]
fn whole_segments_are_guarded() {
    let guards = |under: &str, path: &str| {
        Passwords::parse(at(under), &line("a", "b")).unwrap().guards(&at(path))
    };
    assert!(guards("/", "/") && guards("/", "/a/b"));
    assert!(guards("/a", "/a") && guards("/a", "/a/b") && guards("/a/b", "/a//./b/"));
    assert!(!guards("/a", "/ab") && !guards("/a", "/") && !guards("/a/b", "/a/c"));
}

#[test]
fn credentials_are_read_strictly() {
    let read = |value: &str| {
        let mut asked = HeaderMap::new();
        asked.insert(header::AUTHORIZATION, value.parse().unwrap());
        credentials(&asked)
    };
    // The example of RFC 7617 §2.
    let aladdin = Some(("Aladdin".to_owned(), b"open sesame".to_vec()));
    assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
    assert_eq!(read("bASIC  QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
    for wrong in ["Basic", "Basic x", "Bearer QTpi", "Basic QWxhZGRpbg==", "Basic /////w=="] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
}

fn files() -> Files<MemoryFiles> {
    let tree = [
        ("open.txt", &b"open"[..]),
        ("in/a.txt", b"a"),
        ("in/deep/b.txt", b"b"),
        ("site/index.html", b"index"),
        ("site/other.txt", b"other"),
    ];
    let all = Passwords::parse(at("/in"), &line("ann", "one")).unwrap();
    let deep = Passwords::parse(at("/in/deep"), &line("bob", "two")).unwrap();
    let index = Passwords::parse(at("/site/index.html"), &line("eve", "three")).unwrap();
    let config = FilesConfig { passwords: vec![all, deep, index], ..FilesConfig::default() };
    Files::new(MemoryFiles::new(&tree), config, clock())
}

async fn ask(files: &Files<MemoryFiles>, target: &str, user: &str, is_secured: bool) -> u16 {
    let (mut head, _) = http::Request::get(target).body(()).unwrap().into_parts();
    if !user.is_empty() {
        let value = format!("Basic {}", BASE64_STANDARD.encode(user));
        head.headers.insert(header::AUTHORIZATION, value.parse().unwrap());
    }
    match files.authorise(&head, is_secured).await {
        Ok(_) => files.answer(&head).await.status().as_u16(),
        Err(refused) => {
            let asks = refused.headers().contains_key(header::WWW_AUTHENTICATE);
            assert_eq!(asks, refused.status() == StatusCode::UNAUTHORIZED);
            refused.status().as_u16()
        }
    }
}

#[tokio::test]
async fn the_longest_path_says_whose_password_is_needed() {
    local(async {
        let files = files();
        for (target, user, status) in [
            ("/open.txt", "", 200),
            ("/in/a.txt", "", 401),
            ("/in/a.txt", "ann:one", 200),
            ("/in/a.txt", "ann:two", 401),
            ("/in/a.txt", "bob:two", 401),
            ("/in/deep/b.txt", "bob:two", 200),
            ("/in/deep/b.txt", "ann:one", 401),
            // Not by another spelling of the path either.
            ("/x/..//in/./a.txt", "", 401),
            ("/%69n/a.txt", "", 401),
            ("/in", "", 401),
            ("/in/none", "", 401),
            // The index of a directory is guarded as its file is.
            ("/site/index.html", "", 401),
            ("/site/", "", 401),
            ("/site/", "eve:three", 200),
            ("/site/other.txt", "", 200),
        ] {
            assert_eq!(ask(&files, target, user, true).await, status, "{target} {user}");
        }
        assert_eq!(ask(&files, "/in/a.txt", "ann:one", false).await, 403, "without TLS");
        assert_eq!(ask(&files, "/open.txt", "", false).await, 200);
    })
    .await;
}

/// Over a plain connection the whole server refuses, whatever the client sends.
#[tokio::test]
async fn a_connection_without_tls_gets_nothing_guarded() {
    local(async {
        let mut client: Client = crate::testing::connect(files(), <_>::default(), 1 << 16);
        let field = format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode("ann:one"));
        assert_eq!(client.ask("GET", "/in/a.txt", &field).await.status, 403);
        assert_eq!(client.get("/open.txt").await.status, 200);
        assert!(RequestBody::empty().is_secured(), "a caller's own request");
    })
    .await;
}
