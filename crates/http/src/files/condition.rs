//! Conditional requests (RFC 9110 §13): makes the validators of a file, and evaluates the
//! preconditions of a request against them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::files::source::{GRANULE, Metadata};

/// The validators of a representation (RFC 9110 §8.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// An entity tag, quotes included; a weak one begins with `W/`.
    pub(crate) etag: String,
    /// The weak tag that it has, or had while it was new: the two are equal only by what they stand
    /// for.
    pub(crate) weak: String,
    /// When it was last modified, in whole seconds, never in the future (§8.8.2.1).
    pub(crate) modified: Option<SystemTime>,
}

impl Validators {
    /// The validators of a file at the time `now`.
    ///
    /// The tag uses only what a copy on another server has too: the length, and the second of the
    /// last modification (archives and some copies keep no finer time). A file that was modified
    /// within that second could be modified again unseen. Until the second is over ([`GRANULE`])
    /// the tag is weak and contains the nanoseconds: it does not stand for later states of the
    /// file.
    pub(crate) fn of(metadata: &Metadata, now: SystemTime) -> Validators {
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
        let length = metadata.len_bytes;
        let time = metadata.modified.and_then(since).unwrap_or_default();
        let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
        let is_settled = metadata.modified.is_some_and(|modified| modified + GRANULE <= now);
        let weak = format!("W/\"{seconds:x}-{length:x}-{nanos:x}\"");
        let etag = if is_settled { format!("\"{seconds:x}-{length:x}\"") } else { weak.clone() };
        let modified = metadata.modified.map(|time| time.min(now)).and_then(since);
        let modified = modified.map(|d| UNIX_EPOCH + Duration::from_secs(d.as_secs()));
        Validators { etag, weak, modified }
    }
}

impl Validators {
    /// The tag of what the file is in a coding that was made of it.
    pub(crate) fn coded_etag(&self, coding: &str) -> String {
        let opaque = self.etag.trim_start_matches("W/").trim_matches('"');
        format!("W/\"{opaque}-{coding}\"")
    }
}

/// The outcome of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer it.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD in the order of §13.2.2, steps 1 to 4.
pub(crate) fn evaluate(headers: &HeaderMap, validators: &Validators) -> Verdict {
    if headers.contains_key(header::IF_MATCH) {
        if !any_tag_matches(headers, &header::IF_MATCH, &validators.etag, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if let Some(limit) = date(headers, &header::IF_UNMODIFIED_SINCE)
        && validators.modified.is_none_or(|modified| modified > limit)
    {
        return Verdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        // A client that got the file while it was new has its weak tag.
        let matches = |tag| any_tag_matches(headers, &header::IF_NONE_MATCH, tag, Comparison::Weak);
        if matches(&validators.etag) || matches(&validators.weak) {
            return Verdict::NotModified;
        }
    } else if let Some(limit) = date(headers, &header::IF_MODIFIED_SINCE)
        && validators.modified.is_some_and(|modified| modified <= limit)
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Step 5: whether a `Range` is to be honoured, by `If-Range` (§13.1.5).
///
/// A date counts only if it is a strong validator (§8.8.2.2): the file was last modified at least a
/// second before `now`, so that a second change within the same second would have been seen.
pub(crate) fn range_applies(headers: &HeaderMap, validators: &Validators, now: SystemTime) -> bool {
    let Some(value) = headers.get(header::IF_RANGE) else { return true };
    if value.as_bytes().contains(&b'"') {
        return tag_matches(value.as_bytes().trim_ascii(), &validators.etag, Comparison::Strong);
    }
    match (parse_date(value), validators.modified) {
        (Some(date), Some(modified)) => {
            date == modified && now.duration_since(modified).is_ok_and(|age| age.as_secs() >= 1)
        }
        _ => false,
    }
}

/// How two entity tags are compared (§8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Equal, and neither is weak.
    Strong,
    /// Equal but for `W/`.
    Weak,
}

/// True if `*` or one of the tags in all fields of that name matches ours.
fn any_tag_matches(headers: &HeaderMap, name: &HeaderName, ours: &str, how: Comparison) -> bool {
    headers.get_all(name).iter().any(|value| {
        let value = value.as_bytes().trim_ascii();
        value == b"*" || tags(value).any(|tag| tag_matches(tag, ours, how))
    })
}

/// The members of a list of entity tags. A comma within the quotes belongs to the tag; a member
/// that is not a tag matches nothing.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    list.split(move |byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    })
    .map(<[u8]>::trim_ascii)
}

/// Compares a tag with our own.
fn tag_matches(theirs: &[u8], ours: &str, how: Comparison) -> bool {
    let opaque = |tag| <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag);
    let is_weak = |tag: &[u8]| tag.starts_with(b"W/");
    match how {
        Comparison::Strong => theirs == ours.as_bytes() && !is_weak(theirs),
        Comparison::Weak => opaque(theirs) == opaque(ours.as_bytes()),
    }
}

/// The date in a field. If the field is absent, repeated or not a date, `None`: then it is ignored.
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { parse_date(value) }
}

fn parse_date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests;
