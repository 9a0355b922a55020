//! Responses of the file service that have no file.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body as _;

use crate::answer::page;
use crate::body::Body;
use crate::files::path::RelativePath;
use crate::files::source::OpenError;

pub(super) fn not_found(asked: &HeaderMap) -> Response<Body> {
    page(asked, StatusCode::NOT_FOUND, "There is no such file here.")
}

pub(super) fn refuse(asked: &HeaderMap, error: &OpenError) -> Response<Body> {
    match error {
        OpenError::NotFound => not_found(asked),
        OpenError::Forbidden => page(asked, StatusCode::FORBIDDEN, "This is not to be served."),
        OpenError::Unavailable(_) => {
            page(asked, StatusCode::SERVICE_UNAVAILABLE, "The file cannot be read now.")
        }
    }
}

/// A redirect to the same path with a slash. It is built from the parsed path, so that it cannot
/// lead to another host (`//elsewhere`).
pub(super) fn redirect(
    asked: &HeaderMap,
    path: &RelativePath,
    query: Option<&str>,
) -> Response<Body> {
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    let location = format!("{}/{query}", path.to_url());
    let mut response = page(asked, StatusCode::MOVED_PERMANENTLY, "A directory ends in a slash.");
    insert(response.headers_mut(), header::LOCATION, location);
    response
}

pub(super) fn insert(headers: &mut HeaderMap, name: header::HeaderName, value: String) {
    // Values of our own making are valid: digits, ASCII names and percent signs.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// The response to a HEAD: the same fields, the length of the body among them, and no body
/// (RFC 9110 §9.3.2).
pub(super) fn strip_body(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact()
        && response.status() != StatusCode::NOT_MODIFIED
    {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.body_mut() = Body::empty();
}
