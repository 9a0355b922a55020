use super::*;
use crate::files::source::Kind;

const SECOND: Duration = Duration::from_secs(1);

fn modified() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

fn validators() -> Validators {
    let (etag, weak) = ("\"a,b\"".to_owned(), "W/\"a,b-1\"".to_owned());
    Validators { etag, weak, modified: Some(modified()) }
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(*name, value.parse().unwrap());
    }
    map
}

fn verdict(fields: &[(&'static str, &str)]) -> Verdict {
    evaluate(&headers(fields), &validators())
}

fn at(offset_s: i64) -> String {
    let time = if offset_s < 0 {
        modified() - Duration::from_secs(offset_s.unsigned_abs())
    } else {
        modified() + Duration::from_secs(offset_s.unsigned_abs())
    };
    httpdate::fmt_http_date(time)
}

#[test]
fn without_conditions_a_request_proceeds() {
    assert_eq!(verdict(&[]), Verdict::Proceed);
}

#[test]
fn if_match_compares_strongly() {
    assert_eq!(verdict(&[("if-match", "\"a,b\"")]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-match", "*")]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-match", "\"x\", \"a,b\"")]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-match", "W/\"a,b\"")]), Verdict::Failed);
    assert_eq!(verdict(&[("if-match", "\"a\"")]), Verdict::Failed);
    assert_eq!(verdict(&[("if-match", "a,b")]), Verdict::Failed);
}

#[test]
fn the_tag_of_a_new_file_matches_weakly_later() {
    let metadata = Metadata {
        kind: Kind::File,
        len_bytes: 5,
        modified: Some(modified() + Duration::from_millis(300)),
        changed: None,
        identity: 1,
    };
    let early = Validators::of(&metadata, modified() + SECOND);
    let late = Validators::of(&metadata, modified() + 10 * SECOND);
    assert!(early.etag.starts_with("W/") && !late.etag.starts_with("W/"));
    let judge = |field: &'static str| evaluate(&headers(&[(field, &early.etag)]), &late);
    assert_eq!(judge("if-none-match"), Verdict::NotModified);
    assert_eq!(judge("if-match"), Verdict::Failed, "not strongly");
    // Modified again within that second.
    let again = Metadata { modified: Some(modified() + Duration::from_millis(301)), ..metadata };
    let again = Validators::of(&again, modified() + 10 * SECOND);
    let verdict = evaluate(&headers(&[("if-none-match", &early.etag)]), &again);
    assert_eq!(verdict, Verdict::Proceed);
}

#[test]
fn if_none_match_compares_weakly() {
    assert_eq!(verdict(&[("if-none-match", "\"a,b\"")]), Verdict::NotModified);
    assert_eq!(verdict(&[("if-none-match", "W/\"a,b\"")]), Verdict::NotModified);
    assert_eq!(verdict(&[("if-none-match", "*")]), Verdict::NotModified);
    assert_eq!(
        verdict(&[("if-none-match", "\"x\""), ("if-none-match", "\"a,b\"")]),
        Verdict::NotModified
    );
    assert_eq!(verdict(&[("if-none-match", "\"x\"")]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-none-match", "\"x\",\"a,b")]), Verdict::Proceed);
}

#[test]
fn dates_are_compared_to_the_second() {
    assert_eq!(verdict(&[("if-modified-since", &at(0))]), Verdict::NotModified);
    assert_eq!(verdict(&[("if-modified-since", &at(-1))]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-unmodified-since", &at(0))]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-unmodified-since", &at(-1))]), Verdict::Failed);
}

#[test]
fn what_is_no_date_is_ignored() {
    assert_eq!(verdict(&[("if-modified-since", "yesterday")]), Verdict::Proceed);
    assert_eq!(verdict(&[("if-unmodified-since", "-1")]), Verdict::Proceed);
    assert_eq!(
        verdict(&[("if-modified-since", &at(0)), ("if-modified-since", &at(0))]),
        Verdict::Proceed
    );
}

#[test]
fn precedence_follows_section_13_2_2() {
    // Tags win over dates, and a failed first step wins over a second.
    let tag = ("if-match", "\"a,b\"");
    assert_eq!(verdict(&[tag, ("if-unmodified-since", &at(-1))]), Verdict::Proceed);
    let other = ("if-none-match", "\"x\"");
    assert_eq!(verdict(&[other, ("if-modified-since", &at(0))]), Verdict::Proceed);
    let none = ("if-none-match", "\"a,b\"");
    assert_eq!(verdict(&[("if-match", "\"x\""), none]), Verdict::Failed);
    assert_eq!(verdict(&[tag, none]), Verdict::NotModified);
    assert_eq!(verdict(&[("if-unmodified-since", &at(-1)), none]), Verdict::Failed);
}

#[test]
fn a_file_without_a_date_was_modified_whenever_asked() {
    let undated = Validators { modified: None, ..validators() };
    let verdict = |name, value: &str| evaluate(&headers(&[(name, value)]), &undated);
    assert_eq!(verdict("if-modified-since", &at(0)), Verdict::Proceed);
    assert_eq!(verdict("if-unmodified-since", &at(0)), Verdict::Failed);
}

#[test]
fn if_range_wants_a_strong_validator() {
    let applies = |value: &str, age: Duration| {
        range_applies(&headers(&[("if-range", value)]), &validators(), modified() + age)
    };
    assert!(range_applies(&headers(&[]), &validators(), modified()));
    assert!(applies("\"a,b\"", SECOND));
    assert!(!applies("W/\"a,b\"", SECOND));
    assert!(!applies("\"x\"", SECOND));
    assert!(applies(&at(0), SECOND));
    assert!(!applies(&at(1), SECOND * 9), "a later date is another date");
    assert!(!applies(&at(0), SECOND - Duration::from_nanos(1)), "too young to be strong");
    assert!(!applies("nonsense", SECOND));
}

/// Ten bytes, modified a nanosecond after [`modified`].
fn ten_bytes() -> Metadata {
    let modified = Some(modified() + Duration::from_nanos(1));
    Metadata { kind: Kind::File, len_bytes: 10, modified, changed: None, identity: 7 }
}

#[test]
fn a_tag_follows_length_and_second_and_is_equal_on_a_replica() {
    let tag = |metadata: &Metadata| Validators::of(metadata, modified() + SECOND * 10).etag;
    let (first, metadata) = (tag(&ten_bytes()), ten_bytes());
    assert_ne!(first, tag(&Metadata { len_bytes: 11, ..metadata.clone() }));
    let later = Some(modified() + SECOND);
    assert_ne!(first, tag(&Metadata { modified: later, ..metadata.clone() }));
    assert!(first.starts_with('"') && first.ends_with('"'));
    // Another inode, and a copy that keeps seconds alone.
    assert_eq!(first, tag(&Metadata { identity: 8, ..metadata.clone() }));
    assert_eq!(first, tag(&Metadata { modified: Some(modified()), ..metadata }));
}

#[test]
fn a_tag_is_weak_within_the_files_second_and_then_another() {
    let at = |age: Duration| {
        let modified = ten_bytes().modified.unwrap();
        Validators::of(&ten_bytes(), modified + age)
    };
    let (young, settled) = (at(GRANULE - Duration::from_nanos(1)), at(GRANULE));
    assert!(young.etag.starts_with("W/\"") && settled.etag.starts_with('"'));
    let later = Metadata { modified: Some(modified() + SECOND / 2), ..ten_bytes() };
    assert_ne!(young.etag, Validators::of(&later, modified() + SECOND).etag);
    let asked = headers(&[("if-none-match", &young.etag)]);
    assert_eq!(evaluate(&asked, &young), Verdict::NotModified);
    assert_eq!(evaluate(&asked, &settled), Verdict::NotModified, "weakly they are the same");
    // A weak tag promises nothing about bytes.
    let asked = headers(&[("if-match", &young.etag)]);
    assert_eq!(evaluate(&asked, &young), Verdict::Failed);
    let asked = headers(&[("if-range", &young.etag)]);
    assert!(!range_applies(&asked, &young, modified() + SECOND));
}

#[test]
fn last_modified_is_never_in_the_future() {
    let metadata = Metadata {
        kind: Kind::File,
        len_bytes: 0,
        modified: Some(modified() + SECOND),
        changed: None,
        identity: 0,
    };
    assert_eq!(Validators::of(&metadata, modified()).modified, Some(modified()));
    assert_eq!(
        Validators::of(&metadata, modified() + SECOND * 2).modified,
        Some(modified() + SECOND)
    );
}
