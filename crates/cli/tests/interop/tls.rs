//! HTTPS and HTTP/2 to clients of others: openssl, curl, h2load, a browser.

use std::path::Path;

use crate::namespace;
use crate::server::{Cable, OURS, Server, TWO_SHARDS};
use crate::tools::{self, command, curl, output, sha256_of_file, sha256_of_output};

/// Names that the server has certificates for.
const NAMES: [&str; 2] = ["one.test", "two.test"];

/// Makes a certificate for each name; returns the flags that have the server show them.
fn flags(keys: &Path) -> Vec<String> {
    let path = |name: &str, kind: &str| keys.join(format!("{name}.{kind}")).display().to_string();
    for name in NAMES {
        let mut made = command("openssl");
        made.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048"]);
        made.args(["-subj", &format!("/CN={name}")]);
        made.args(["-addext", &format!("subjectAltName=DNS:{name}")]);
        made.args(["-keyout", &path(name, "key"), "-out", &path(name, "crt")]);
        output(&mut made);
    }
    let pair = |name| {
        let [chain, key] = ["crt", "key"].map(|kind| path(name, kind));
        ["--cert".to_owned(), chain, "--key".to_owned(), key]
    };
    NAMES.into_iter().flat_map(pair).collect()
}

/// `openssl s_client` that asks for `name`, trusts its certificate alone, and says nothing.
fn openssl(keys: &Path, name: &str, more: &[&str]) -> String {
    let trusted = keys.join(format!("{name}.crt"));
    let mut client = command("openssl");
    client.args(["s_client", "-connect", &format!("{}:443", OURS[0]), "-servername", name]);
    client.arg("-CAfile").arg(trusted).args(["-verify_return_error", "-verify_hostname", name]);
    client.args(more).stdin(std::process::Stdio::null());
    output(&mut client)
}

#[test]
fn openssl_gets_the_certificate_of_each_name() {
    let test = "tls::openssl_gets_the_certificate_of_each_name";
    namespace::inside(test, &["openssl"], || {
        let (directory, keys) = (tools::directory(), tempfile::tempdir().unwrap());
        let flags = flags(keys.path());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::on(Cable::best(), directory.path(), &flags);
        for name in NAMES {
            for (version, protocol) in [("-tls1_2", "h2"), ("-tls1_3", "http/1.1")] {
                let said = openssl(keys.path(), name, &[version, "-alpn", protocol]);
                let agreed = format!("ALPN protocol: {protocol}");
                assert!(said.contains(&agreed), "{said}");
                assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
            }
        }
        // By its ticket a client takes up its session again.
        let session = keys.path().join("session").display().to_string();
        let first = openssl(keys.path(), "two.test", &["-tls1_2", "-sess_out", &session]);
        let next = openssl(keys.path(), "two.test", &["-tls1_2", "-sess_in", &session]);
        assert!(first.contains("New, ") && next.contains("Reused, "), "{first}{next}");
        server.stop();
    });
}

#[test]
fn curl_gets_files_over_http_1_and_http_2() {
    let test = "tls::curl_gets_files_over_http_1_and_http_2";
    namespace::inside(test, &["openssl", "curl"], || {
        let (directory, keys) = (tools::directory(), tempfile::tempdir().unwrap());
        let large = directory.path().join("large");
        tools::write_file(&large, 64);
        let wanted = sha256_of_file(&large);
        let flags = flags(keys.path());
        let flags = flags.iter().map(String::as_str).chain(TWO_SHARDS.iter().copied());
        let flags: Vec<&str> = flags.collect();
        let server = Server::on(Cable::best(), directory.path(), &flags);
        for (name, ours) in NAMES.into_iter().zip(OURS) {
            for version in ["--http1.1", "--http2"] {
                let mut client = curl(&format!("https://{name}/large"));
                let host = if ours.contains(':') { format!("[{ours}]") } else { ours.to_owned() };
                client.args([version, "--resolve", &format!("{name}:443:{host}")]);
                client.arg("--cacert").arg(keys.path().join(format!("{name}.crt")));
                assert_eq!(sha256_of_output(&mut client), wanted, "{name} {version}");
            }
        }
        server.stop();
    });
}

#[test]
fn h2load_gets_every_answer() {
    let test = "tls::h2load_gets_every_answer";
    namespace::inside(test, &["h2load"], || {
        let directory = tools::directory();
        std::fs::write(directory.path().join("small"), "x".repeat(6000)).unwrap();
        let server = Server::on(Cable::best(), directory.path(), &["--self-signed"]);
        let url = format!("https://{}/small", OURS[0]);
        for streams in ["1", "32"] {
            let mut load = command("h2load");
            load.args(["-n", "4000", "-c", "20", "-m", streams, &url]);
            let said = output(&mut load);
            assert!(said.contains("4000 succeeded, 0 failed, 0 errored"), "{said}");
            assert!(said.contains("Application protocol: h2"), "{said}");
        }
        server.stop();
    });
}

#[test]
fn a_browser_shows_the_listing_over_http_2() {
    let test = "tls::a_browser_shows_the_listing_over_http_2";
    namespace::inside(test, &["chromium"], || {
        let (directory, logs) = (tools::directory(), tempfile::tempdir().unwrap());
        std::fs::write(directory.path().join("hello & welcome.txt"), "hello").unwrap();
        let log = logs.path().join("access");
        let file = log.display().to_string();
        let flags = ["--self-signed", "--access-log", &file, "--redirect-https"];
        let server = Server::on(Cable::best(), directory.path(), &flags);
        // It comes without TLS, and is sent to HTTPS.
        let flags = ["--ignore-certificate-errors"];
        let (page, _) = tools::browse_with(&format!("http://{}/", OURS[0]), &flags);
        assert!(page.contains("hello &amp; welcome.txt"), "{page}");
        server.stop();
        let lines = std::fs::read_to_string(log).unwrap();
        assert!(lines.contains("HTTP/1.1") && lines.contains("HTTP/2.0"), "{lines}");
    });
}
