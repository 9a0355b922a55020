//! Small responses that the server makes itself: errors and redirects, as pages that people can
//! read.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};

use crate::body::Body;
use crate::head;

/// A short page that says what happened: HTML for a client that asks for it (a browser), else text.
pub fn page(asked: &HeaderMap, status: StatusCode, detail: &str) -> Response<Body> {
    let title = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or(""));
    let (kind, text) = if wants_html(asked) {
        ("text/html; charset=utf-8", html(&title, detail))
    } else {
        ("text/plain; charset=utf-8", format!("{title}\n{detail}\n"))
    };
    let mut response = Response::new(Body::from(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    protect(headers);
    response
}

/// A response without a body.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Headers that keep a browser from guessing types, and our own pages from running scripts.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
}

/// True if `Accept` names HTML. Programs mostly send `*/*`; browsers name it.
fn wants_html(asked: &HeaderMap) -> bool {
    let values = asked.get_all(header::ACCEPT).iter();
    values.filter_map(|value| value.to_str().ok()).any(|value| value.contains("text/html"))
}

fn html(title: &str, detail: &str) -> String {
    let (title, detail) = (escape(title), escape(detail));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; }}</style>\n\
         <h1>{title}</h1>\n<p>{detail}</p>\n</html>\n"
    )
}

/// Text as it may stand in HTML, in attributes too.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters have no place in HTML, escaped or not. Those of Unicode's
            // Bidi_Control would show `exe.gpj` as `jpg.exe`.
            c if c.is_control() || is_bidi_control(c) => {
                let _ = write!(escaped, "\u{fffd}");
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// True for a character that changes the direction of the text around it (UAX #9).
fn is_bidi_control(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}');
    is_mark || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The answer to a request whose head has a fault.
pub(crate) fn refuse_head(asked: &HeaderMap, fault: head::Fault) -> Response<Body> {
    let mut response = page(asked, fault.status, fault.detail);
    if fault.closes {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer when too many responses are in flight.
pub(crate) fn too_many(asked: &HeaderMap) -> Response<Body> {
    let detail = "Too many answers are under way: try again in a moment.";
    let mut response = page(asked, StatusCode::SERVICE_UNAVAILABLE, detail);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn text(accept: &str, detail: &str) -> String {
        let mut asked = HeaderMap::new();
        asked.insert(header::ACCEPT, accept.parse().unwrap());
        let body = page(&asked, StatusCode::NOT_FOUND, detail).into_body();
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_browser_gets_html_and_a_program_gets_text() {
        assert_eq!(text("*/*", "No <such> file.").await, "404 Not Found\nNo <such> file.\n");
        let html = text("text/html,*/*;q=0.8", "No <such> file.").await;
        assert!(html.starts_with("<!DOCTYPE html>") && html.contains("No &lt;such&gt; file."));
    }

    #[test]
    fn nothing_escaped_can_end_text_or_attribute() {
        assert_eq!(escape("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
        assert_eq!(escape("a\u{0}\n\u{7f}é"), "a\u{fffd}\u{fffd}\u{fffd}é");
        for c in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(escape(&c.to_string()), "\u{fffd}", "{c:?}");
        }
        for c in "\u{61b}\u{200d}\u{2010}\u{2029}\u{202f}\u{2065}\u{206a}ש".chars() {
            assert_eq!(escape(&c.to_string()), c.to_string(), "{c:?}");
        }
    }
}
