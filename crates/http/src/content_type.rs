//! The media type of a file, by its extension: what IANA's registry and nginx's table say, and
//! `mime_guess` for all that is not listed here.

use http::HeaderValue;

use crate::path::RelativePath;

/// The `Content-Type` of a file: by its extension, or bytes of no known kind. Text is taken to be
/// UTF-8, as nearly all of it is.
pub(crate) fn of(path: &RelativePath) -> HeaderValue {
    let guess = path.extension().and_then(|extension| {
        let extension = extension.to_ascii_lowercase();
        let listed = TYPES.binary_search_by_key(&&*extension, |(listed, _)| listed);
        listed.map_or_else(|_| mime_guess::from_ext(&extension).first_raw(), |at| Some(TYPES[at].1))
    });
    let Some(essence) = guess else {
        return HeaderValue::from_static("application/octet-stream");
    };
    if is_text(essence) {
        let value = format!("{essence}; charset=utf-8");
        return HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("text/plain"));
    }
    HeaderValue::from_static(essence)
}

/// Extensions that `mime_guess` does not know, or takes for something that servers of today do not
/// mean by them; in order.
const TYPES: [(&str, &str); 16] = [
    ("cjs", "text/javascript"),
    ("deb", "application/vnd.debian.binary-package"),
    ("jsonl", "application/jsonl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json"),
    ("mjs", "text/javascript"),
    ("mkv", "video/matroska"),
    ("ndjson", "application/x-ndjson"),
    ("tgz", "application/gzip"),
    ("ts", "video/mp2t"),
    ("woff", "font/woff"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
];

/// True for media types whose bytes are text.
fn is_text(essence: &str) -> bool {
    essence.starts_with("text/")
        || essence.ends_with("+xml")
        || essence.ends_with("+json")
        || matches!(
            essence,
            "application/javascript"
                | "application/json"
                | "application/jsonl"
                | "application/toml"
                | "application/vnd.apple.mpegurl"
                | "application/x-ndjson"
                | "application/xml"
                | "application/yaml"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_each_entry_is_a_type() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (extension, essence) in TYPES {
            assert!(
                essence.split_once('/').is_some_and(|(kind, name)| kind.len() * name.len() > 0)
            );
            let is_known = mime_guess::from_ext(extension).first_raw() == Some(essence);
            assert!(!is_known, "{extension} needs no entry");
        }
    }

    #[test]
    fn types_follow_extensions() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.svg", "image/svg+xml; charset=utf-8"),
            ("a.png", "image/png"),
            ("a.wasm", "application/wasm"),
            ("a.pdf", "application/pdf"),
            ("a.ts", "video/mp2t"),
            ("a.m3u8", "application/vnd.apple.mpegurl; charset=utf-8"),
            ("a.mpd", "application/dash+xml; charset=utf-8"),
            ("a.m4s", "video/iso.segment"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.avif", "image/avif"),
            ("a.webp", "image/webp"),
            ("a.woff2", "font/woff2"),
            ("a.woff", "font/woff"),
            ("a.ttf", "font/ttf"),
            ("a.jsonl", "application/jsonl; charset=utf-8"),
            ("a.MD", "text/markdown; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a.mp4", "video/mp4"),
            ("a.webm", "video/webm"),
            ("a.mp3", "audio/mpeg"),
            ("a.ico", "image/x-icon"),
            ("a.csv", "text/csv; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.htm", "text/html; charset=utf-8"),
            ("a.jpeg", "image/jpeg"),
            ("a.tar", "application/x-tar"),
            ("a.epub", "application/epub+zip"),
            ("a.rss", "application/rss+xml; charset=utf-8"),
            ("a.unheard-of", "application/octet-stream"),
            ("Makefile", "application/octet-stream"),
        ] {
            let path = RelativePath::default().join(name.as_bytes()).unwrap();
            assert_eq!(of(&path), expected, "{name}");
        }
    }
}
