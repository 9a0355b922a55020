//! The media type of a file, by its extension: what IANA's registry and nginx's table say, and
//! `mime_guess` for all that is not listed here.

use http::HeaderValue;

use crate::files::path::RelativePath;

/// The `Content-Type` of a file: by its extension, or bytes of no known kind. Text is taken to be
/// UTF-8, as nearly all of it is.
pub(crate) fn of(path: &RelativePath) -> HeaderValue {
    let Some(essence) = path.extension().and_then(essence) else {
        return HeaderValue::from_static("application/octet-stream");
    };
    if has_charset(essence) {
        let value = format!("{essence}; charset=utf-8");
        return HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("text/plain"));
    }
    HeaderValue::from_static(essence)
}

/// The `Content-Encoding` of a file that is stored compressed and is of use only uncompressed.
/// An archive is of use as it is, and has none.
pub(crate) fn coding(path: &RelativePath) -> Option<HeaderValue> {
    let is_svgz = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svgz"));
    is_svgz.then(|| HeaderValue::from_static("gzip"))
}

/// The media type that an extension stands for, without parameters.
fn essence(extension: &str) -> Option<&'static str> {
    let extension = &*extension.to_ascii_lowercase();
    if PLAIN_TEXT.binary_search(&extension).is_ok() {
        return Some("text/plain");
    }
    let listed = TYPES.binary_search_by_key(&extension, |(listed, _)| listed);
    listed.map_or_else(|_| mime_guess::from_ext(extension).first_raw(), |at| Some(TYPES[at].1))
}

/// True for media types that define a `charset`: under `application` XML alone (RFC 7303).
/// JSON (RFC 8259 §11), YAML and playlists (RFC 8216 §4) are always UTF-8.
fn has_charset(essence: &str) -> bool {
    essence.starts_with("text/")
        || essence.ends_with("+xml")
        || matches!(essence, "application/xml" | "application/xml-dtd")
}

/// Extensions that `mime_guess` does not know, or takes for something that servers of today do not
/// mean by them; in order.
const TYPES: [(&str, &str); 79] = [
    ("3mf", "model/3mf"),
    ("amr", "audio/AMR"),
    ("arrow", "application/vnd.apache.arrow.file"),
    ("avifs", "image/avif"),
    ("azw3", "application/vnd.amazon.mobi8-ebook"),
    ("cab", "application/vnd.ms-cab-compressed"),
    ("cbor", "application/cbor"),
    ("cbr", "application/vnd.comicbook-rar"),
    ("cbz", "application/vnd.comicbook+zip"),
    ("cer", "application/pkix-cert"),
    ("changelog", "text/plain"),
    ("cjs", "text/javascript"),
    ("cur", "image/x-icon"),
    ("dcm", "application/dicom"),
    ("deb", "application/vnd.debian.binary-package"),
    ("dtd", "application/xml-dtd"),
    ("dwg", "image/vnd.dwg"),
    ("dxf", "image/vnd.dxf"),
    ("emf", "image/emf"),
    ("fits", "image/fits"),
    ("gpkg", "application/geopackage+sqlite3"),
    ("har", "application/json"),
    ("ical", "text/calendar"),
    ("ipynb", "application/x-ipynb+json"),
    ("jsonl", "application/jsonl"),
    ("ktx2", "image/ktx2"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("man", "text/troff"),
    ("map", "application/json"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mka", "audio/matroska"),
    ("mkd", "text/markdown"),
    ("mkv", "video/matroska"),
    ("msgpack", "application/vnd.msgpack"),
    ("mtl", "model/mtl"),
    ("ndjson", "application/x-ndjson"),
    ("numbers", "application/vnd.apple.numbers"),
    ("obj", "model/obj"),
    ("otf", "font/otf"),
    ("p12", "application/pkcs12"),
    ("pages", "application/vnd.apple.pages"),
    ("pfx", "application/pkcs12"),
    ("properties", "text/plain"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("roff", "text/troff"),
    ("rpm", "application/x-redhat-package-manager"),
    ("sha256sum", "text/plain"),
    ("sha512sum", "text/plain"),
    ("sql", "application/sql"),
    ("sqlite", "application/vnd.sqlite3"),
    ("sqlite3", "application/vnd.sqlite3"),
    ("step", "model/step"),
    ("stl", "model/stl"),
    ("stp", "model/step"),
    ("tbz2", "application/x-bzip2"),
    ("tgz", "application/gzip"),
    ("toml", "application/toml"),
    ("topojson", "application/json"),
    ("ts", "video/mp2t"),
    ("ttml", "application/ttml+xml"),
    ("txz", "application/x-xz"),
    ("tzst", "application/zstd"),
    ("usda", "model/vnd.usda"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcf", "text/vcard"),
    ("wgsl", "text/wgsl"),
    ("wmf", "image/wmf"),
    ("woff", "font/woff"),
    ("wrl", "model/vrml"),
    ("x3db", "model/x3d+fastinfoset"),
    ("x3dv", "model/x3d-vrml"),
    ("xlf", "application/xliff+xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zst", "application/zstd"),
];

/// Text that people read rather than save: sources, sums, signatures, settings; in order. Browsers
/// show no other type of text for certain.
const PLAIN_TEXT: [&str; 160] = [
    "adb", "adoc", "ads", "am", "asc", "asciidoc", "ass", "astro", "awk", "b2", "b2sum", "b3",
    "bash", "bat", "bats", "bazel", "bib", "bzl", "capnp", "changes", "cjsx", "clj", "cljc",
    "cljs", "cls", "cmake", "cr", "csh", "cson", "cts", "cu", "cuh", "d", "desktop", "diff", "dsc",
    "ebuild", "edn", "ejs", "el", "erb", "erl", "ex", "exs", "f", "f90", "f95", "fish", "for",
    "frag", "fs", "fsi", "gcode", "gemspec", "glsl", "go", "gql", "gradle", "graphql", "groovy",
    "haml", "hcl", "hjson", "hlsl", "hrl", "hs", "ino", "j2", "java", "jinja", "jl", "jsonc",
    "ksh", "kt", "kts", "less", "lhs", "liquid", "lisp", "ll", "lock", "lrc", "lua", "m", "m4",
    "md5", "md5sum", "minisig", "ml", "mli", "mm", "mod", "mustache", "nfo", "nim", "ninja", "nix",
    "njk", "org", "ovpn", "pas", "patch", "po", "prisma", "proto", "ps1", "psd1", "psm1", "pub",
    "pug", "pyi", "pyx", "r", "rake", "rb", "rej", "rkt", "rmd", "rs", "rst", "sass", "scad",
    "scala", "scm", "scss", "service", "sfv", "sh", "sha1", "sha1sum", "sha224", "sha256",
    "sha384", "sha512", "sources", "spec", "ssa", "sty", "styl", "sum", "sums", "sv", "svelte",
    "swift", "tex", "textile", "tf", "tfvars", "thrift", "tmpl", "tsx", "v", "vert", "vhdl", "vim",
    "vue", "wast", "wat", "zig", "zsh",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order_and_each_entry_is_needed() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(PLAIN_TEXT.is_sorted_by(|one, next| one < next));
        let plain_text = PLAIN_TEXT.iter().map(|extension| (*extension, "text/plain"));
        for (extension, essence) in TYPES.into_iter().chain(plain_text) {
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
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml; charset=utf-8"),
            ("a.png", "image/png"),
            ("a.wasm", "application/wasm"),
            ("a.pdf", "application/pdf"),
            ("a.ts", "video/mp2t"),
            ("a.m3u8", "application/vnd.apple.mpegurl"),
            ("a.mpd", "application/dash+xml; charset=utf-8"),
            ("a.m4s", "video/iso.segment"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.avif", "image/avif"),
            ("a.webp", "image/webp"),
            ("a.woff2", "font/woff2"),
            ("a.woff", "font/woff"),
            ("a.ttf", "font/ttf"),
            ("a.jsonl", "application/jsonl"),
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
            ("a.xml", "text/xml; charset=utf-8"),
            ("a.xhtml", "application/xhtml+xml; charset=utf-8"),
            ("a.geojson", "application/geo+json"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.yaml", "application/yaml"),
            ("a.toml", "application/toml"),
            ("a.rpm", "application/x-redhat-package-manager"),
            ("a.otf", "font/otf"),
            ("a.stl", "model/stl"),
            ("a.obj", "model/obj"),
            ("a.usdz", "model/vnd.usdz+zip"),
            ("a.3mf", "model/3mf"),
            ("a.cur", "image/x-icon"),
            ("a.mid", "audio/midi"),
            ("a.vcf", "text/vcard; charset=utf-8"),
            ("a.svgz", "image/svg+xml; charset=utf-8"),
            ("a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            ("a.unheard-of", "application/octet-stream"),
            ("Makefile", "application/octet-stream"),
        ] {
            let path = RelativePath::default().join(name.as_bytes()).unwrap();
            assert_eq!(of(&path), expected, "{name}");
        }
    }

    #[test]
    fn sources_sums_logs_and_signatures_are_shown() {
        for extension in [
            "patch", "diff", "go", "java", "rb", "tsx", "vue", "sha256", "asc", "log", "rs", "sh",
            "c", "lock",
        ] {
            let path = RelativePath::default().join(format!("a.{extension}").as_bytes()).unwrap();
            assert_eq!(of(&path), "text/plain; charset=utf-8", "{extension}");
        }
    }

    #[test]
    fn a_drawing_is_compressed_and_an_archive_is_an_archive() {
        let coding = |name: &str| coding(&RelativePath::default().join(name.as_bytes()).unwrap());
        assert_eq!(coding("a.SVGZ"), Some(HeaderValue::from_static("gzip")));
        for name in ["a.svg", "a.svg.gz", "a.tgz", "svgz"] {
            assert_eq!(coding(name), None, "{name}");
        }
    }
}
