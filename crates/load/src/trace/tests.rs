use super::*;

const COMMON: &str =
    r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?b HTTP/1.0" 200 2326"#;

fn trace(text: &str) -> Trace {
    let make = |line: &Line| Request::new(&line.method, &line.target, "h", &line.fields, &[]);
    Trace::read(text.as_bytes(), make).unwrap()
}

fn line(second: u32, request: &str) -> String {
    format!("::1 - - [01/Jan/2026:00:00:{second:02} +0000] \"{request}\" 200 -\n")
}

#[test]
fn a_line_of_common_log_format_is_a_request_at_its_time() {
    let (time, line) = parse(COMMON).unwrap();
    // `date -d '2000-10-10 13:55:36 -0700' +%s`
    assert_eq!(time, 971_211_336);
    assert_eq!((&*line.method, &*line.target, line.fields.len()), ("GET", "/a.gif?b", 0));
}

#[test]
fn combined_adds_what_the_browser_said() {
    let text = format!(r#"{COMMON} "http://h/\"x\"" "Mozilla/5.0 (\x41; \\)""#);
    let fields = parse(&text).unwrap().1.fields;
    let wanted = [("Referer", r#"http://h/"x""#), ("User-Agent", r"Mozilla/5.0 (A; \)")];
    assert_eq!(fields, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(parse(&format!(r#"{COMMON} "-" "-""#)).unwrap().1.fields, []);
}

#[test]
fn times_are_told_apart_over_zones_and_leap_days() {
    for (text, wanted) in [
        ("01/Jan/1970:00:00:00 +0000", 0),
        ("29/Feb/2024:23:59:59 +0000", 1_709_251_199),
        ("01/Mar/2024:00:00:00 +0000", 1_709_251_200),
        ("01/Mar/2024:05:30:00 +0530", 1_709_251_200),
        ("31/Dec/2099:00:00:00 -0100", 4_102_362_000),
    ] {
        assert_eq!(seconds(text), Some(wanted), "{text}");
    }
    for text in ["", "1/Foo/2024:00:00:00 +0000", "01/Jan/2024:24:00:00 +0000", "01/Jan/2024"] {
        assert_eq!(seconds(text), None, "{text}");
    }
}

#[test]
fn a_seconds_requests_are_spread_and_late_lines_find_a_place() {
    let log = [
        line(10, "GET /a HTTP/1.1"),
        line(12, "GET /b HTTP/1.1"),
        line(10, "POST /c HTTP/1.1"),
        line(12, "GET /a HTTP/1.1"),
    ]
    .concat();
    let trace = trace(&log);
    assert_eq!((trace.len(), trace.requests.len(), trace.skipped), (4, 3, 0));
    let ms = Duration::from_millis;
    let at = |speed| trace.schedule(speed).collect::<Vec<_>>();
    assert_eq!(at(1.0), [(ms(0), 0), (ms(500), 2), (ms(2000), 1), (ms(2500), 0)]);
    assert_eq!(at(2.0)[3], (ms(1250), 0));
    assert_eq!((trace.duration(1.0), trace.duration(2.0)), (ms(3000), ms(1500)));
}

#[test]
fn a_target_for_a_proxy_is_its_path() {
    for (target, wanted) in [
        ("http://h/a?b=http://c/d", "/a?b=http://c/d"),
        ("http://h", "/"),
        ("/a?b=http://c/d", "/a?b=http://c/d"),
    ] {
        assert_eq!(origin(target), wanted);
    }
}

#[test]
fn lines_that_are_no_request_are_counted_and_the_first_is_told() {
    let log = [
        line(1, "GET / HTTP/1.1"),
        line(1, "-"),
        line(1, "- /a HTTP/1.1"),
        line(1, "\\x16\\x03\\x01"),
        line(1, "GET /a b HTTP/1.1"),
        line(1, "GET /\\xc3\\xa4 HTTP/1.1"),
        "nothing\n\n".to_owned(),
        "a [b] \"GET / HTTP/1.1\"\n".to_owned(),
        "a [01/Jan/2026:00:00:00 +0000] \"GET /".to_owned(),
    ]
    .concat();
    let trace = trace(&log);
    assert_eq!((trace.len(), trace.skipped), (1, 8));
    assert!(trace.first_skipped.as_ref().unwrap().starts_with("line 2: \"-\" is not"), "{trace:?}");
}

#[test]
fn the_most_within_a_window_are_found_wherever_it_lies() {
    let times: Vec<Duration> = [0, 4, 5, 6, 9, 20].map(Duration::from_secs).into();
    let most = |seconds| most_within(&times, Duration::from_secs(seconds));
    assert_eq!((most(1), most(2), most(3), most(100)), (1, 2, 3, 6));
    assert_eq!(most_within(&[], Duration::from_secs(1)), 0);
}
