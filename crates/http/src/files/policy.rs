//! What an operator says of files beside their bytes: how long clients may keep them, which pages
//! stand for others, and from which origins scripts may read them.

use std::fmt;
use std::str::FromStr;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

use crate::answer::empty;
use crate::body::Body;
use crate::config::FilesConfig;
use crate::files::path::RelativePath;

/// How long a browser may keep the answer to its question, in seconds: a day.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("86400");

/// The `Cache-Control` of the files that a pattern names (RFC 9111 §5.2).
#[derive(Clone, PartialEq, Eq)]
pub struct CacheRule {
    pattern: glob::Pattern,
    /// The pattern has a slash: it is one of whole paths, and not of names.
    is_of_paths: bool,
    value: HeaderValue,
}

impl CacheRule {
    /// True if it says how long that file may be kept.
    pub(crate) fn names(&self, path: &RelativePath) -> bool {
        let path = String::from_utf8_lossy(path.as_bytes());
        let name = path.rsplit('/').next().unwrap_or_default();
        self.pattern.matches(if self.is_of_paths { &path } else { name })
    }

    pub(crate) fn value(&self) -> &HeaderValue {
        &self.value
    }
}

/// From `PATTERN=VALUE`. A pattern with a slash is one of paths from the root on, and another one
/// of names: `*.css=max-age=3600`, `/assets/**=max-age=31536000, immutable`.
impl FromStr for CacheRule {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheRule, String> {
        let (pattern, value) =
            text.split_once('=').ok_or("give PATTERN=VALUE, as in *.css=max-age=3600")?;
        let is_of_paths = pattern.contains('/');
        let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
        let pattern = glob::Pattern::new(pattern)
            .map_err(|error| format!("{}, at character {}", error.msg, error.pos + 1))?;
        let value = value.trim();
        let field = HeaderValue::from_str(value).ok().filter(|_| !value.is_empty());
        let value = field.ok_or("this is no value of Cache-Control, such as max-age=3600")?;
        Ok(CacheRule { pattern, is_of_paths, value })
    }
}

impl fmt::Debug for CacheRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}", self.pattern, self.value)
    }
}

/// The answer to a browser that asks whether a page of another origin may ask for a file (Fetch
/// §4.8), or to OPTIONS.
pub(super) fn options(
    asked: &HeaderMap,
    config: &FilesConfig,
    allow: HeaderValue,
) -> Response<Body> {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, allow);
    let is_preflight = asked.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if is_preflight && !config.origins.is_empty() {
        let methods = HeaderValue::from_static("GET, HEAD");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE);
        // They change nothing here, so that a script may send any.
        if let Some(asked) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
        }
    }
    response
}

/// Lets scripts of the origins that may read files read this response (Fetch §3.2).
pub(super) fn allow_origin(asked: &HeaderMap, config: &FilesConfig, response: &mut HeaderMap) {
    if config.origins.is_empty() {
        return;
    }
    let any = HeaderValue::from_static("*");
    let allowed = if config.origins.contains(&any) {
        Some(any)
    } else {
        // The answer differs from one origin to another.
        response.append(header::VARY, HeaderValue::from_static("origin"));
        asked.get(header::ORIGIN).filter(|origin| config.origins.contains(origin)).cloned()
    };
    if let Some(allowed) = allowed {
        response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        let exposed = HeaderValue::from_static("accept-ranges, content-range, etag");
        response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

/// The file that stands for a path that names none: a page whose script knows it. One with an
/// extension means a file, whose absence a client should hear of.
pub(super) fn fallback<'a>(
    config: &'a FilesConfig,
    path: &RelativePath,
    method: &Method,
) -> Option<&'a RelativePath> {
    let reads = method == Method::GET || method == Method::HEAD;
    config.fallback.as_ref().filter(|_| reads && path.extension().is_none())
}

#[cfg(test)]
mod tests;
