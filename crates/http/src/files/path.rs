//! Parses a request's path into a path under the root (RFC 3986 §3.3, RFC 9110 §4.2.3).
//!
//! A path from this module cannot name anything above the root: no segment is empty, `.` or `..`,
//! and none contains a slash or a NUL. The file source judges symbolic links.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Bytes that stand for themselves in a URL: RFC 3986's unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes in one segment, at most: what Linux's file systems allow (NAME_MAX).
const SEGMENT_BYTES: usize = 255;

/// A path under the root: segments of raw bytes, none of them able to leave it.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelativePath {
    /// The segments joined by single slashes; empty for the root itself.
    bytes: Vec<u8>,
}

impl RelativePath {
    /// The path as bytes, `a/b/c`; empty for the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its segments, from the root on.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty())
    }

    /// The path of an entry in this directory, or `None` if `name` is none that an entry can have.
    pub fn join(&self, name: &[u8]) -> Option<RelativePath> {
        check_segment(name).ok()?;
        let mut bytes = self.bytes.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Some(RelativePath { bytes })
    }

    /// The path whose last segment is this one's with that behind it; `None` if that is too long.
    pub fn followed_by(&self, suffix: &[u8]) -> Option<RelativePath> {
        let name = [self.segments().last()?, suffix].concat();
        check_segment(&name).ok()?;
        Some(RelativePath { bytes: [&self.bytes, suffix].concat() })
    }

    /// Removes the last segment. False if there is none.
    fn pop(&mut self) -> bool {
        let has_some = !self.bytes.is_empty();
        self.bytes.truncate(self.bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
        has_some
    }

    /// True if a segment starts with a dot, `.well-known` (RFC 8615) aside.
    pub fn is_hidden(&self) -> bool {
        self.segments().any(|segment| segment.starts_with(b".") && segment != b".well-known")
    }

    /// The extension of the last segment: what follows its last dot, if that is not its first byte.
    pub fn extension(&self) -> Option<&str> {
        let name = self.segments().last()?;
        let dot = name.iter().rposition(|byte| *byte == b'.')?;
        if dot == 0 { None } else { std::str::from_utf8(&name[dot + 1..]).ok() }
    }

    /// As the path of a URL, from the root's slash on.
    pub fn to_url(&self) -> String {
        self.segments().flat_map(|segment| ["/".to_owned(), encode(segment)]).collect()
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.bytes))
    }
}

/// A name as one segment of a URL's path.
pub(crate) fn encode(name: &[u8]) -> String {
    percent_encode(name, ENCODED).to_string()
}

/// A request's path, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The path that it names.
    pub path: RelativePath,
    /// It ends in a slash: the client means a directory.
    pub directory: bool,
}

/// Why a request's path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// No client of good faith sends this; the text says what is wrong.
    Malformed(&'static str),
    /// A segment is longer than any file's name.
    NoSuchName,
}

/// Understands the path of a request's target. Empty segments are skipped, as file systems do. Dot
/// segments are removed (RFC 3986 §5.2.4), encoded ones too: some clients send them, such as apt
/// for a flat repository. A path that would leave the root is malformed, as it is to nginx.
pub fn resolve(path: &str) -> Result<Target, PathError> {
    let Some(path) = path.strip_prefix('/') else {
        return Err(PathError::Malformed("the path does not start with a slash"));
    };
    let mut resolved = RelativePath::default();
    let mut directory = true;
    for segment in path.split('/') {
        directory = segment.is_empty();
        if directory {
            continue;
        }
        let name = decode(segment)?;
        directory = matches!(&*name, b"." | b"..");
        if directory {
            if name == b".." && !resolved.pop() {
                return Err(PathError::Malformed("the path leaves the root"));
            }
            continue;
        }
        check_segment(&name)?;
        if !resolved.bytes.is_empty() {
            resolved.bytes.push(b'/');
        }
        resolved.bytes.extend_from_slice(&name);
    }
    Ok(Target { path: resolved, directory })
}

/// Undoes percent-encoding (RFC 3986 §2.1), strictly.
fn decode(segment: &str) -> Result<Vec<u8>, PathError> {
    let bad = PathError::Malformed("a percent sign is not followed by two hexadecimal digits");
    let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16)).ok_or(bad);
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
            decoded.push(value as u8);
        } else {
            decoded.push(byte);
        }
    }
    Ok(decoded)
}

/// The error in a decoded segment that is to be a name, if it has one. A backslash is a byte of a
/// name like any other.
fn check_segment(name: &[u8]) -> Result<(), PathError> {
    match name {
        b"" => return Err(PathError::Malformed("a name is empty")),
        b"." | b".." => return Err(PathError::Malformed("a segment is `.` or `..`")),
        _ => {}
    }
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(PathError::Malformed("a name holds a slash or a NUL"));
    }
    if name.len() > SEGMENT_BYTES { Err(PathError::NoSuchName) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> String {
        let target = resolve(text).unwrap();
        String::from_utf8(target.path.bytes).unwrap()
    }

    #[test]
    fn ordinary_paths_are_decoded() {
        assert_eq!(path("/"), "");
        assert_eq!(path("/a/b.txt"), "a/b.txt");
        assert_eq!(path("/a%20b/%C3%A9.html"), "a b/é.html");
        assert_eq!(path("//a///b"), "a/b");
        assert_eq!(path("/..."), "...");
        assert_eq!(path("/a/..b"), "a/..b");
        assert_eq!(path("/100%25"), "100%");
        assert_eq!(path("/%252e%252e/x"), "%2e%2e/x", "decoded once, and once only");
    }

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        for (text, directory) in [("/", true), ("/a/", true), ("/a", false), ("/a/b", false)] {
            assert_eq!(resolve(text).unwrap().directory, directory, "{text}");
        }
    }

    #[test]
    fn dot_segments_are_removed() {
        for (text, expected, directory) in [
            ("/deb/./Packages", "deb/Packages", false),
            ("/./a", "a", false),
            ("/a/.", "a", true),
            ("/a/b/..", "a", true),
            ("/a/..", "", true),
            ("/a/b/c/./../../g", "a/g", false),
            ("/a/%2e/b", "a/b", false),
            ("/a/%2E%2e/b", "b", false),
            ("/a/.%2e/b/", "b", true),
            ("/a//../b", "b", false),
            ("/a\\b", "a\\b", false),
            ("/a/..%5c..", "a/..\\..", false),
        ] {
            assert_eq!((&*path(text), resolve(text).unwrap().directory), (expected, directory));
        }
    }

    #[test]
    fn every_way_up_is_refused() {
        for attempt in [
            "/..",
            "/../etc/passwd",
            "/a/../../b",
            "/./..",
            "/%2e%2e/b",
            "/%2E./b",
            "/.%2e",
            "/a/..//..",
            "/a%2fb",
            "/..%2f..%2fetc",
            "/a%00b",
            "/%00",
            "a/b",
            "",
            "*",
        ] {
            assert!(matches!(resolve(attempt), Err(PathError::Malformed(_))), "{attempt:?}");
        }
    }

    #[test]
    fn percent_encoding_is_strict() {
        for attempt in ["/%", "/%4", "/%4g", "/%zz", "/%+1", "/a%é"] {
            assert!(matches!(resolve(attempt), Err(PathError::Malformed(_))), "{attempt:?}");
        }
    }

    #[test]
    fn a_name_of_255_bytes_passes_and_one_of_256_does_not() {
        assert!(resolve(&format!("/{}", "a".repeat(255))).is_ok());
        assert_eq!(resolve(&format!("/{}", "a".repeat(256))), Err(PathError::NoSuchName));
    }

    #[test]
    fn hidden_names_and_extensions_are_seen() {
        let of = |text: &str| resolve(text).unwrap().path;
        assert!(of("/.git/config").is_hidden() && of("/a/.b").is_hidden());
        assert!(!of("/.well-known/x").is_hidden() && !of("/a.b").is_hidden());
        assert_eq!(of("/a.tar.gz").extension(), Some("gz"));
        assert_eq!((of("/a.d/b").extension(), of("/.bashrc").extension()), (None, None));
    }

    proptest! {
        #[test]
        fn nothing_escapes(text in "/[./%25ceEfF0\\\\a-c\u{e9}]{0,40}") {
            if let Ok(target) = resolve(&text) {
                for segment in target.path.segments() {
                    prop_assert!(segment != b"." && segment != b"..");
                    prop_assert!(!segment.contains(&0));
                }
                prop_assert!(!target.path.as_bytes().starts_with(b"/"));
                prop_assert!(!target.path.as_bytes().windows(2).any(|pair| pair == b"//"));
            }
        }

        #[test]
        fn a_link_leads_back_to_the_name_it_was_made_from(name: Vec<u8>) {
            if let Some(made) = RelativePath::default().join(&name) {
                prop_assert_eq!(resolve(&made.to_url()).unwrap().path, made);
            }
        }
    }
}
