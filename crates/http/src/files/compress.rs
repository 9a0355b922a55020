//! Files compressed as they are asked for: text that has no compressed file beside it. The result
//! is kept beside the files in memory, so that each version of a file is compressed once a shard.

use std::io::{self, Write};

use http::HeaderValue;

use super::coding::Coding;

/// Shorter files are not compressed: the answer's own fields are as long.
const LEAST_BYTES: u64 = 512;

/// Longer ones are not either: it would take a thread for long, and memory for both.
const MOST_BYTES: u64 = 1 << 20;

/// Files of a shard that are compressed at a time. Another client gets the plain file meanwhile: it
/// waits for nobody, and many files that are asked for at once take no more memory than these.
pub(super) const AT_A_TIME: usize = 2;

/// brotli's and zlib's effort: what servers choose that compress while a client waits.
const BROTLI_QUALITY: u32 = 5;
const BROTLI_WINDOW_BITS: u32 = 20;
const GZIP_LEVEL: u32 = 6;

/// The codings that are made, of those that a client takes.
pub(super) fn is_made(coding: Coding) -> bool {
    matches!(coding, Coding::Brotli | Coding::Gzip)
}

/// True if a file of that type and length is worth compressing.
pub(super) fn pays(content_type: &HeaderValue, len_bytes: u64) -> bool {
    let essence = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let is_text = essence.starts_with("text/")
        || essence.ends_with("+xml")
        || essence.ends_with("+json")
        || TEXT_BY_OTHER_NAMES.contains(&essence);
    is_text && (LEAST_BYTES..=MOST_BYTES).contains(&len_bytes)
}

/// Types under other trees than `text` whose files are text, or compress as well as text.
const TEXT_BY_OTHER_NAMES: [&str; 16] = [
    "application/geo+json",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/manifest+json",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-ndjson",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "font/otf",
    "font/ttf",
];

/// The bytes in that coding; `None` if they are not an eighth shorter, so that a client's work to
/// read them pays.
pub(super) fn compress(plain: &[u8], coding: Coding) -> Option<Vec<u8>> {
    let coded = match coding {
        Coding::Brotli => brotli(plain),
        Coding::Gzip => gzip(plain),
        Coding::Zstd => return None,
    };
    coded.ok().filter(|coded| coded.len() <= plain.len() / 8 * 7)
}

fn brotli(plain: &[u8]) -> io::Result<Vec<u8>> {
    let buffer_bytes = plain.len().min(64 << 10);
    let coded = Vec::with_capacity(plain.len() / 2);
    let mut writer =
        brotli::CompressorWriter::new(coded, buffer_bytes, BROTLI_QUALITY, BROTLI_WINDOW_BITS);
    writer.write_all(plain)?;
    Ok(writer.into_inner())
}

fn gzip(plain: &[u8]) -> io::Result<Vec<u8>> {
    let level = flate2::Compression::new(GZIP_LEVEL);
    let mut writer = flate2::write::GzEncoder::new(Vec::with_capacity(plain.len() / 2), level);
    writer.write_all(plain)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn both_codings_give_the_same_bytes_back() {
        let plain: Vec<u8> = (0..20_000u32).flat_map(|n| n.to_string().into_bytes()).collect();
        let coded = compress(&plain, Coding::Gzip).unwrap();
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&*coded).read_to_end(&mut back).unwrap();
        assert!(back == plain && coded.len() < plain.len() / 2, "{}", coded.len());
        let coded = compress(&plain, Coding::Brotli).unwrap();
        let mut back = Vec::new();
        brotli::Decompressor::new(&*coded, 4096).read_to_end(&mut back).unwrap();
        assert!(back == plain && coded.len() < plain.len() / 2, "{}", coded.len());
        assert!(compress(&plain, Coding::Zstd).is_none());
    }

    #[test]
    fn what_does_not_get_shorter_stays_plain() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(10_000)
        .collect();
        for coding in [Coding::Brotli, Coding::Gzip] {
            assert!(compress(&noise, coding).is_none());
        }
    }

    #[test]
    fn text_of_some_length_pays() {
        let pays = |kind: &'static str, bytes| pays(&HeaderValue::from_static(kind), bytes);
        for kind in ["text/html; charset=utf-8", "application/json", "image/svg+xml", "font/ttf"] {
            assert!(pays(kind, 512) && pays(kind, 1 << 20), "{kind}");
            assert!(!pays(kind, 511) && !pays(kind, (1 << 20) + 1), "{kind}");
        }
        for kind in ["image/png", "font/woff2", "application/zip", "video/mp4", ""] {
            assert!(!pays(kind, 10_000), "{kind}");
        }
    }
}
