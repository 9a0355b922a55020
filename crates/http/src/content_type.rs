//! The media type of a file, by its extension (`mime_guess`).

use http::HeaderValue;

use crate::path::RelativePath;

/// The `Content-Type` of a file: by its extension, or bytes of no known kind. Text is taken to be
/// UTF-8, as nearly all of it is.
pub(crate) fn of(path: &RelativePath) -> HeaderValue {
    let guess = path.extension().and_then(|extension| mime_guess::from_ext(extension).first_raw());
    let Some(essence) = guess else {
        return HeaderValue::from_static("application/octet-stream");
    };
    if is_text(essence) {
        let value = format!("{essence}; charset=utf-8");
        return HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("text/plain"));
    }
    HeaderValue::from_static(essence)
}

/// True for media types whose bytes are text.
fn is_text(essence: &str) -> bool {
    essence.starts_with("text/")
        || essence.ends_with("+xml")
        || essence.ends_with("+json")
        || matches!(
            essence,
            "application/javascript" | "application/json" | "application/toml" | "application/xml"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("a.unheard-of", "application/octet-stream"),
            ("Makefile", "application/octet-stream"),
        ] {
            let path = RelativePath::default().join(name.as_bytes()).unwrap();
            assert_eq!(of(&path), expected, "{name}");
        }
    }
}
