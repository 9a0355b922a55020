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
mod tests;
