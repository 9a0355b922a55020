//! Several ranges in one response: builds the parts of a `multipart/byteranges` body
//! (RFC 9110 §14.6).

use std::ops::Range;

use bytes::Bytes;
use http::HeaderValue;

use crate::body::Piece;

/// Separates the parts. It need not be random: `Content-Range` gives each part's length. It is long
/// enough not to occur by chance.
const BOUNDARY: &str = "lightwait-part-6f1d0c5ba2e94387";

/// The value of `Content-Range` for a part of a representation of `length` bytes.
pub(super) fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end - 1)
}

/// The content type and the pieces of a body with all `parts` of a file of type `kind`.
pub(super) fn pieces(
    parts: &[Range<u64>],
    length: u64,
    kind: &HeaderValue,
) -> (HeaderValue, Vec<Piece>) {
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
    for (index, part) in parts.iter().enumerate() {
        let line = if index == 0 { "" } else { "\r\n" };
        let range = content_range(part, length);
        let head =
            format!("{line}--{BOUNDARY}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n");
        pieces.push(Piece::Text(Bytes::from(head)));
        pieces.push(Piece::File(part.clone()));
    }
    pieces.push(Piece::Text(Bytes::from(format!("\r\n--{BOUNDARY}--\r\n"))));
    let content_type = format!("multipart/byteranges; boundary={BOUNDARY}");
    let fallback = HeaderValue::from_static("multipart/byteranges");
    (HeaderValue::try_from(content_type).unwrap_or(fallback), pieces)
}
