//! Files for those who know a password: the Basic scheme (RFC 7617), over TLS alone.
//!
//! A password is checked on a thread of the source's: bcrypt takes a millisecond to a second by
//! intent. One that passed is known again by a keyed tag, so that a client pays once and not for
//! each request. Few are checked at a time, in order: many guesses make the first login of others
//! wait, and nothing else.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, request};
use ring::hmac;
use ring::rand::SystemRandom;

use super::Files;
use super::path::{RelativePath, resolve};
use super::source::FileSource;
use crate::answer::page;
use crate::body::Body;

/// Passwords that a shard checks at a time.
pub(super) const CHECKED_AT_A_TIME: usize = 2;

/// Users of one file, at most.
const USERS: usize = 10_000;

/// The cost of a hash: 2^14 rounds take about a second, and bcrypt has no fewer than 2^4.
const COSTS: RangeInclusive<u32> = 4..=14;

/// What a client is asked for. No more is said: not which names exist.
const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Basic realm=\"lightwait\", charset=\"UTF-8\"");

/// The users who may read what is under a path, and the hashes of their passwords.
#[derive(Clone)]
pub struct Passwords(Arc<Known>);

struct Known {
    under: RelativePath,
    hashes: HashMap<String, String>,
    /// The largest cost of a hash.
    cost: u32,
    /// A hash of that cost: to check a name that does not exist takes as long as one that does,
    /// where all hashes cost the same. Made by the first check that wants it, on its thread.
    none: OnceLock<String>,
    key: hmac::Key,
    /// The tag of each user's password that passed.
    passed: Mutex<HashMap<String, hmac::Tag>>,
}

/// What is wrong with a file of passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordFault {
    /// The line, from 1 on; 0: the file as a whole.
    pub line: usize,
    /// What is wrong there.
    pub why: &'static str,
}

impl fmt::Display for PasswordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(self.why),
            line => write!(f, "line {line}: {}", self.why),
        }
    }
}

impl std::error::Error for PasswordFault {}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Passwords");
        text.field("under", &self.0.under).field("users", &self.0.hashes.len());
        text.finish_non_exhaustive()
    }
}

impl PartialEq for Passwords {
    fn eq(&self, other: &Passwords) -> bool {
        self.0.under == other.0.under && self.0.hashes == other.0.hashes
    }
}

impl Eq for Passwords {}

impl Passwords {
    /// Those of a file's text, `USER:HASH` a line as `htpasswd -B` writes it, for what is under
    /// `under`; an empty path is everything.
    ///
    /// # Errors
    /// At the first line that has no name, or another kind of hash.
    pub fn parse(under: RelativePath, text: &str) -> Result<Passwords, PasswordFault> {
        let mut hashes = HashMap::new();
        let mut cost = 0;
        for (at, line) in text.lines().enumerate() {
            let fault = |why| PasswordFault { line: at + 1, why };
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, hash) = line.split_once(':').ok_or(fault("no colon: give USER:HASH"))?;
            // A log has it between spaces.
            let is_odd = |c: char| c.is_whitespace() || c.is_control();
            if user.is_empty() || hash.is_empty() || user.contains(is_odd) {
                return Err(fault("give USER:HASH, the name without spaces"));
            }
            let of_this = cost_of(hash)
                .ok_or(fault("this is no hash of bcrypt: make one with `htpasswd -B`"))?;
            if !COSTS.contains(&of_this) {
                return Err(fault("its cost is not from 4 to 14: a check takes a second with 14"));
            }
            cost = cost.max(of_this);
            if hashes.insert(user.to_owned(), hash.to_owned()).is_some() {
                return Err(fault("this name comes twice"));
            }
        }
        let fault = |why| PasswordFault { line: 0, why };
        if hashes.is_empty() || hashes.len() > USERS {
            return Err(fault("give 1 to 10,000 users"));
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| fault("the system gives no random bytes"))?;
        let (none, passed) = Default::default();
        Ok(Passwords(Arc::new(Known { under, hashes, cost, none, key, passed })))
    }

    /// True if that path needs one of the passwords.
    fn guards(&self, path: &RelativePath) -> bool {
        let mut segments = path.segments();
        self.0.under.segments().all(|segment| segments.next() == Some(segment))
    }

    /// True if that user's password passed before.
    fn has_passed(&self, user: &str, password: &[u8]) -> bool {
        let passed = self.0.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed
            .get(user)
            .is_some_and(|tag| hmac::verify(&self.0.key, password, tag.as_ref()).is_ok())
    }

    /// Checks a password, which takes long.
    fn check(&self, user: &str, password: &[u8]) -> bool {
        let hash = self.0.hashes.get(user);
        let none = || bcrypt::hash("", self.0.cost).unwrap_or_default();
        let checked = hash.unwrap_or_else(|| self.0.none.get_or_init(none));
        let is_right = bcrypt::verify(password, checked).unwrap_or(false);
        let passes = is_right && hash.is_some();
        if passes {
            let tag = hmac::sign(&self.0.key, password);
            let mut passed = self.0.passed.lock().unwrap_or_else(PoisonError::into_inner);
            passed.insert(user.to_owned(), tag);
        }
        passes
    }
}

/// The cost of a hash of bcrypt, as OpenBSD and Apache write it: `$2y$`, two digits, and 53
/// characters of salt and hash. `None` if it is none.
fn cost_of(hash: &str) -> Option<u32> {
    let rest = ["$2a$", "$2b$", "$2x$", "$2y$"].iter().find_map(|kind| hash.strip_prefix(kind))?;
    let (cost, rest) = rest.split_once('$')?;
    let is_coded = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let is_whole = cost.len() == 2 && rest.len() == 53 && rest.bytes().all(is_coded);
    cost.parse().ok().filter(|_| is_whole)
}

/// The user of a response that a password was needed for, for its record.
#[derive(Clone)]
pub(crate) struct User(pub(crate) String);

/// The name and the password of a request, if it has any (RFC 7617 §2).
fn credentials(asked: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = asked.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = std::str::from_utf8(&decoded[..colon]).ok()?.to_owned();
    Some((user, decoded[colon + 1..].to_vec()))
}

impl<S: FileSource> Files<S> {
    /// The user who may have what `head` asks for; `None` if everyone may.
    ///
    /// # Errors
    /// The answer to a client that may not.
    pub(super) async fn authorise(
        &self,
        head: &request::Parts,
        is_secured: bool,
    ) -> Result<Option<User>, Box<Response<Body>>> {
        let config = self.config();
        // A browser asks by OPTIONS without a password, and learns nothing (Fetch §4.8).
        if config.passwords.is_empty() || head.method == Method::OPTIONS {
            return Ok(None);
        }
        // Another path has no answer but an error.
        let Ok(target) = resolve(head.uri.path()) else { return Ok(None) };
        // A directory's index is served for it.
        let index = target.path.join(config.index.as_bytes()).filter(|_| target.directory);
        let guards = |one: &&Passwords| {
            one.guards(&target.path) || index.as_ref().is_some_and(|index| one.guards(index))
        };
        let guards = config.passwords.iter().filter(guards);
        let Some(passwords) = guards.max_by_key(|one| one.0.under.segments().count()) else {
            return Ok(None);
        };
        if !is_secured {
            let why = "A password is needed for this, and must come over TLS: ask by https.";
            return Err(Box::new(page(&head.headers, StatusCode::FORBIDDEN, why)));
        }
        if let Some((user, password)) = credentials(&head.headers)
            && self.passes(passwords, &user, password).await
        {
            return Ok(Some(User(user)));
        }
        let why = "A name and a password are needed for this.";
        let mut response = page(&head.headers, StatusCode::UNAUTHORIZED, why);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
        Err(Box::new(response))
    }

    async fn passes(&self, passwords: &Passwords, user: &str, password: Vec<u8>) -> bool {
        if passwords.has_passed(user, &password) {
            return true;
        }
        let Ok(turn) = self.checks.clone().acquire_owned().await else { return false };
        let (passwords, user) = (passwords.clone(), user.to_owned());
        // A client that goes away leaves the check, which has its turn until it is done.
        let checked = self.source.run(move || {
            let _turn = turn;
            passwords.check(&user, &password)
        });
        checked.await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
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
}
