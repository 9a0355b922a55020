//! HTTPS of `lightwait serve`: certificates of files, by name, read again; one made for a try.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::*;

/// A client that takes any certificate, and shows which.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _own: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, own, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The address of HTTPS, as a server says it.
fn secure_address(serving: &serde_json::Value) -> SocketAddr {
    let url = serving["urls"][1].as_str().unwrap();
    url.strip_prefix("https://").unwrap().trim_end_matches('/').parse().unwrap()
}

/// A connection that asks for that name.
fn connect(address: SocketAddr, name: &str) -> Stream {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    StreamOwned::new(session, stream)
}

/// Asks for `target`, and returns the head and the body, as long as it says.
fn get(stream: &mut Stream, target: &str) -> (String, Vec<u8>) {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split_once("content-length: ").unwrap().1;
    let length = length.split_once('\r').unwrap().0.parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

/// The SHA-256 of the certificate that a server shows for that name.
fn shown(address: SocketAddr, name: &str) -> String {
    let mut stream = connect(address, name);
    get(&mut stream, "/hello.txt");
    sha256(&stream.conn.peer_certificates().unwrap()[0])
}

fn sha256(bytes: &[u8]) -> String {
    let suite = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let hash = suite.common.hash_provider.hash(bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

/// Writes a certificate for that name and its key; returns its SHA-256.
fn write_pair(directory: &Path, name: &str) -> String {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let path = |kind: &str| directory.join(format!("{name}.{kind}"));
    fs::write(path("crt"), pem("CERTIFICATE", made.cert.der())).unwrap();
    fs::write(path("key"), pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    sha256(made.cert.der())
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Starts a server with these flags for HTTPS, on a port of the kernel's choice.
fn start(site: &Path, flags: &[&str]) -> (Server, SocketAddr) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["serve", "--listen", "127.0.0.1:0", "--https-port", "0", "--json", "-v"])
        .args(["--admin", "127.0.0.1:0"])
        .args(flags)
        .arg(site)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
    let url = serving["urls"][0].as_str().unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let admin = serving["admin"].as_str().map(str::to_owned);
    (Server { process, address, admin, lines }, secure_address(&serving))
}

/// The flags of a pair that [`write_pair`] wrote.
fn pair(directory: &Path, name: &str) -> [String; 4] {
    let path = |kind: &str| directory.join(format!("{name}.{kind}")).display().to_string();
    ["--cert".to_owned(), path("crt"), "--key".to_owned(), path("key")]
}

#[test]
fn a_server_to_try_says_what_it_shows_and_serves() {
    let site = site();
    for shards in ["1", "2"] {
        let (mut server, secure) = start(site.path(), &["--self-signed", "--shards", shards]);
        let said = server.next("certificates")["sha256"][0].as_str().unwrap().to_owned();
        for _ in 0..8 {
            let mut stream = connect(secure, "localhost");
            let (head, body) = get(&mut stream, "/large");
            assert!(head.starts_with("http/1.1 200") && body == pattern(8 << 20));
            assert_eq!(get(&mut stream, "/hello.txt").1, b"hello");
            assert_eq!(sha256(&stream.conn.peer_certificates().unwrap()[0]), said);
        }
        assert_eq!(server.get("/hello.txt"), (200, b"hello".to_vec()));
        let (status, log) = server.finish_after("TERM");
        assert!(status.success());
        let lines = log.iter().filter(|line| line["event"] == "access");
        let (whole, all): (Vec<_>, Vec<_>) = lines.partition(|line| line["complete"] == true);
        assert_eq!((whole.len(), all.len()), (17, 0));
    }
}

#[test]
fn certificates_are_chosen_by_name_and_read_again_on_a_signal() {
    let (site, keys) = (site(), tempfile::tempdir().unwrap());
    let [one, two] = ["one.test", "two.test"].map(|name| write_pair(keys.path(), name));
    let flags = ["one.test", "two.test"].map(|name| pair(keys.path(), name)).concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (mut server, secure) = start(site.path(), &flags);
    assert_eq!(server.next("certificates")["sha256"], serde_json::json!([one, two]));
    let mut kept = connect(secure, "two.test");
    get(&mut kept, "/hello.txt");
    for (name, shown_for_it) in [("one.test", &one), ("two.test", &two), ("three.test", &one)] {
        assert_eq!(&shown(secure, name), shown_for_it, "{name}");
    }
    // A bad file changes nothing.
    fs::write(keys.path().join("two.test.crt"), "no certificate").unwrap();
    server.signal("HUP");
    let text = server.next("trouble")["text"].as_str().unwrap().to_owned();
    assert!(text.contains("two.test.crt: there is no certificate in it"), "{text}");
    assert!(text.ends_with("The certificates stay as they were."), "{text}");
    assert_eq!(shown(secure, "two.test"), two);
    // A good one is for those who come later, and nobody is cut off.
    let renewed = write_pair(keys.path(), "two.test");
    server.signal("HUP");
    assert_eq!(server.next("certificates")["sha256"], serde_json::json!([one, renewed]));
    assert_eq!(shown(secure, "two.test"), renewed);
    assert_eq!(get(&mut kept, "/hello.txt").1, b"hello");
}

#[test]
fn a_file_names_other_certificates_and_what_is_said_of_https() {
    let (site, keys) = (site(), tempfile::tempdir().unwrap());
    let [one, two] = ["one.test", "two.test"].map(|name| write_pair(keys.path(), name));
    let file = keys.path().join("serve.toml");
    let write = |name: &str, more: &str| {
        let [_, chain, _, key] = pair(keys.path(), name);
        fs::write(&file, format!("cert = ['{chain}']\nkey = ['{key}']\n{more}")).unwrap();
    };
    write("one.test", "");
    let (mut server, secure) = start(site.path(), &["--config", file.to_str().unwrap()]);
    assert_eq!(server.next("certificates")["sha256"], serde_json::json!([one]));
    assert_eq!(server.get("/hello.txt").0, 200);
    write("two.test", "hsts = 60\nredirect-https = true\n");
    server.signal("HUP");
    let keys_taken = serde_json::json!(["cert", "hsts", "key", "redirect-https"]);
    assert_eq!(server.next("reloaded")["keys"], keys_taken);
    assert_eq!(server.next("certificates")["sha256"], serde_json::json!([two]));
    assert_eq!(shown(secure, "one.test"), two);
    // A shard takes the rest between two turns.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(server.get("/hello.txt").0, 301);
    let head = get(&mut connect(secure, "two.test"), "/hello.txt").0;
    assert!(head.contains("strict-transport-security: max-age=60\r\n"), "{head}");
    // One that cannot be shown changes nothing.
    write("none.test", "hsts = 90\n");
    server.signal("HUP");
    let text = server.next("trouble")["text"].as_str().unwrap().to_owned();
    assert!(text.contains("none.test.crt"), "{text}");
    assert_eq!(shown(secure, "one.test"), two);
    assert_eq!(server.get("/hello.txt").0, 301);
}

#[test]
fn handshakes_are_counted_and_their_failures_logged() {
    let site = site();
    let (mut server, secure) = start(site.path(), &["--self-signed"]);
    get(&mut connect(secure, "localhost"), "/hello.txt");
    let mut plain = TcpStream::connect(secure).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    plain.read_to_end(&mut Vec::new()).unwrap();
    let failed = server.next("failed")["error"].as_str().unwrap().to_owned();
    assert!(failed.starts_with("the TLS handshake failed: "), "{failed}");
    let door = server.admin.as_ref().unwrap();
    let door = door.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(door).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let value = |name: &str| {
        let lines = metrics.lines().filter(|line| line.contains(name) && !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
    };
    assert_eq!((value("tls_handshakes"), value("tls_failed_not_tls")), (1.0, 1.0), "{metrics}");
    assert_eq!(value("tls_failed_unfinished"), 0.0);
}

#[test]
fn plain_requests_are_sent_to_https_where_that_is_asked_for() {
    let site = site();
    let flags = ["--self-signed", "--redirect-https", "--hsts", "3600"];
    let (server, secure) = start(site.path(), &flags);
    let mut stream = server.connect();
    stream.write_all(b"GET /hello.txt?x HTTP/1.1\r\nHost: here:1\r\n\r\n").unwrap();
    let mut reply = [0; 4096];
    let length = stream.read(&mut reply).unwrap();
    let reply = String::from_utf8_lossy(&reply[..length]).to_lowercase();
    let location = format!("\r\nlocation: https://here:{}/hello.txt?x\r\n", secure.port());
    assert!(reply.starts_with("http/1.1 301") && reply.contains(&location), "{reply}");
    let (head, body) = get(&mut connect(secure, "localhost"), "/hello.txt");
    assert!(head.contains("strict-transport-security: max-age=3600\r\n"), "{head}");
    assert_eq!(body, b"hello");
}

#[test]
fn a_pair_that_does_not_serve_is_named_at_the_start() {
    let keys = tempfile::tempdir().unwrap();
    write_pair(keys.path(), "one");
    write_pair(keys.path(), "two");
    fs::write(keys.path().join("empty"), "").unwrap();
    for (chain, key, wanted) in [
        ("one.crt", "two.key", "two.key: this is not the key of the first certificate in"),
        ("one.key", "one.key", "one.key: there is no certificate in it"),
        ("one.crt", "one.crt", "one.crt: there is no private key in it"),
        ("empty", "one.key", "empty: there is no certificate in it"),
        ("none", "one.key", "none: No such file"),
    ] {
        let [chain, key] = [chain, key].map(|name| keys.path().join(name));
        let output = Command::new(env!("CARGO_BIN_EXE_lightwait"))
            .args(["serve", "--listen", "127.0.0.1:0", "--https-port", "0"])
            .arg("--cert")
            .arg(chain)
            .arg("--key")
            .arg(key)
            .arg(keys.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(wanted), "{text}");
        assert_eq!(output.status.code(), Some(1), "{text}");
    }
}
