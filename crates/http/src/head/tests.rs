//! Heads with one fault each.

use super::*;

#[test]
fn a_host_is_a_name_or_an_address_and_a_port() {
    for host in [
        "a",
        "a.example",
        "A.example:80",
        "a:",
        "192.0.2.1",
        "192.0.2.1:8080",
        "[::1]",
        "[2001:db8::1]:65535",
        "[v1.fe80::a]",
        "a_b-c~d",
        "%41.example",
        "xn--bcher-kva",
        "*",
    ] {
        assert!(is_authority(host.as_bytes()), "{host}");
    }
    for host in [
        "a b",
        "a b/c@",
        "a/b",
        "u@a",
        "x:99999999",
        "x:65536",
        "x:-1",
        "x:+1",
        "x:8a",
        "a:1:2",
        "[::1",
        "::1",
        "[::1]x",
        "[::1]x:1",
        "[a]",
        "[]",
        "[v.a]",
        "[v1.]",
        ":80",
        "a%4",
        "a%zz",
        "a#b",
        "a?b",
        "a\\b",
        "a\"",
        "<a>",
    ] {
        assert!(!is_authority(host.as_bytes()), "{host}");
    }
    assert!(!is_authority(b"\xff") && !is_authority("é".as_bytes()));
}

#[test]
fn a_target_with_an_authority_has_a_scheme_of_ours_and_a_host() {
    let is_faulty = |method: Method, target: &str| {
        let fault = target_fault(&method, &target.parse().unwrap());
        fault.inspect(|fault| assert_eq!(fault.status, 400)).is_some()
    };
    for target in [
        "/a",
        "//a",
        "*",
        "http://b",
        "http://b/",
        "HTTP://B:80/a?b",
        "http://b:/",
        "http://b:65535/",
        "http://[::1]:80/",
        "https://b/",
    ] {
        assert!(!is_faulty(Method::GET, target), "{target}");
    }
    for target in [
        "http://b:99999/",
        "http://b:65536/",
        "http://u@b/",
        "http://u:p@b/",
        "http://@b/",
        "http://:80/",
        "http://[::1%25eth0]/",
        "ftp://b/",
        "ws://b/",
        "b:80",
        "b",
    ] {
        assert!(is_faulty(Method::GET, target), "{target}");
    }
    assert!(!is_faulty(Method::CONNECT, "b:80") && is_faulty(Method::CONNECT, "u@b:80"));
}

#[test]
fn in_http_2_the_field_names_the_host_of_the_authority() {
    let is_faulty = |version, target: &str, host: &str| {
        let request = Request::builder().version(version).uri(target);
        host_fault(&request.header(header::HOST, host).body(()).unwrap()).is_some()
    };
    for (target, host, faulty) in [
        ("https://a.test/", "a.test", false),
        ("https://a.test/", "A.Test:443", false),
        ("http://a.test:80/", "a.test", false),
        ("https://a.test/", "a.test:80", true),
        ("https://a.test/", "b.test", true),
        ("https://a.test:1/", "a.test", true),
        ("/", "b.test", false),
    ] {
        assert_eq!(is_faulty(Version::HTTP_2, target, host), faulty, "{target} {host}");
        assert!(!is_faulty(Version::HTTP_11, target, host), "{target} {host}");
    }
}

#[test]
fn what_makes_the_end_of_a_body_doubtful_is_refused() {
    let of = |fields: &[(&str, &str)], version| {
        let mut request = Request::builder().version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        framing_fault(request.headers(), version).map(|fault| (fault.status.as_u16(), fault.closes))
    };
    let te = "transfer-encoding";
    let v11 = Version::HTTP_11;
    assert_eq!(of(&[], v11), None);
    assert_eq!(of(&[(te, "chunked")], v11), None);
    assert_eq!(of(&[(te, " Chunked ,")], v11), None);
    for fields in [
        &[(te, "chunked"), (te, "chunked")][..],
        &[(te, "chunked, chunked")],
        &[(te, "chunked, gzip, chunked")],
        &[(te, "")],
        &[(te, ",")],
        &[(te, "chunked, gzip")],
        &[(te, "identity")],
        &[(te, "xchunked")],
        &[(te, "chunked;q=1")],
    ] {
        assert_eq!(of(fields, v11), Some((400, true)), "{fields:?}");
    }
    for fields in [
        &[(te, "gzip, chunked")][..],
        &[(te, "gzip"), (te, "chunked")],
        &[(te, "gzip, br, chunked")],
    ] {
        assert_eq!(of(fields, v11), Some((501, true)), "{fields:?}");
    }
    assert_eq!(of(&[(te, "chunked")], Version::HTTP_10), Some((400, true)));
}
