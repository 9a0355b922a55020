//! A server that is started again and again under load: `--takeover`.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::namespace;
use crate::server::{Cable, Server, TWO_SHARDS, reach};
use crate::tools::{self, curl};

const RESTARTS: usize = 10;
const BODY_BYTES: usize = 500;
const ADMIN: &str = "127.0.0.1:9100";
/// Where the server is on a device, and on the kernel's stack.
const ON_DEVICE: &str = "10.77.0.2:80";
const BRIDGED: &str = "127.0.0.1:8081";

/// What clients have seen.
#[derive(Default)]
struct Seen {
    answers: AtomicU64,
    connections: AtomicU64,
    /// The clients' ports: the kernel's own leave no TIME-WAIT, and come again.
    ports: Mutex<HashSet<u16>>,
    stop: AtomicBool,
}

/// A directory with one small file and one of 8 MiB.
fn site() -> tempfile::TempDir {
    let site = tools::directory();
    std::fs::write(site.path().join("small"), [b'x'; BODY_BYTES]).unwrap();
    tools::write_file(&site.path().join("large"), 8);
    site
}

/// The command of a server that can be taken over.
fn command(kind: &[&str], path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    command.arg("serve").args(kind).arg("--takeover").arg(path);
    command
}

fn on_device(cable: Cable) -> Vec<&'static str> {
    [cable.flags(), &["--ip", "10.77.0.2/24", "--admin", ADMIN]].concat()
}

/// One answer on a connection. Returns true if it closes. Any failure at all is one.
fn ask(stream: &mut TcpStream, closes: bool) -> io::Result<bool> {
    let close = if closes { "Connection: close\r\n" } else { "" };
    write!(stream, "GET /small HTTP/1.1\r\nHost: h\r\n{close}\r\n")?;
    let mut answer = Vec::new();
    let mut block = [0; 4096];
    loop {
        let len = stream.read(&mut block)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend(&block[..len]);
        let text = String::from_utf8_lossy(&answer);
        let Some(end) = text.find("\r\n\r\n") else { continue };
        if answer.len() >= end + 4 + BODY_BYTES {
            assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
            return Ok(text[..end].to_ascii_lowercase().contains("connection: close"));
        }
    }
}

fn connect(seen: &Seen, at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    seen.connections.fetch_add(1, Ordering::Relaxed);
    seen.ports.lock().unwrap().insert(stream.local_addr()?.port());
    Ok(stream)
}

/// Asks again and again, on connections of one request each, or of many.
fn client(seen: &Seen, at: SocketAddr, closes: bool) -> io::Result<()> {
    while !seen.stop.load(Ordering::Relaxed) {
        let mut stream = connect(seen, at)?;
        loop {
            let is_last = closes || seen.stop.load(Ordering::Relaxed);
            let is_over = ask(&mut stream, is_last)?;
            seen.answers.fetch_add(1, Ordering::Relaxed);
            if is_over {
                // The server closes first: the client's end leaves nothing.
                assert_eq!(stream.read(&mut [0; 16])?, 0);
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Loads a server that is started again ten times. Returns the last one, and what clients saw:
/// connections, their different ports, and answers.
fn restart_under_load(at: &str, start: impl Fn() -> Server) -> (Server, [u64; 3]) {
    let (seen, address) = (&Seen::default(), at.parse().unwrap());
    let mut server = start();
    thread::scope(|scope| {
        let clients: Vec<_> = [true, true, true, false, false, false]
            .into_iter()
            .map(|closes| scope.spawn(move || client(seen, address, closes)))
            .collect();
        for restart in 0..RESTARTS {
            thread::sleep(Duration::from_millis(300));
            let before = seen.answers.load(Ordering::Relaxed);
            let new = start();
            let log = ended(std::mem::replace(&mut server, new));
            assert!(log.contains("handed_over") && log.contains(r#""unfinished":0"#), "{log}");
            let answers = seen.answers.load(Ordering::Relaxed) - before;
            assert!(answers > 0, "restart {restart}");
        }
        seen.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap().expect("no connection is refused or reset");
        }
    });
    let ports = seen.ports.lock().unwrap().len() as u64;
    let [connections, answers] =
        [&seen.connections, &seen.answers].map(|it| it.load(Ordering::Relaxed));
    (server, [connections, ports, answers])
}

/// What a server that has handed over logged.
fn ended(server: Server) -> String {
    let Output { status, stdout, .. } = server.end();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{status}: {text}");
    text
}

/// Records of TIME-WAIT that the server tells of.
fn time_wait() -> u64 {
    let text = tools::output(&mut curl(&format!("http://{ADMIN}/metrics")));
    // A line for each shard.
    let lines = text.lines().filter(|line| line.starts_with("lightwait_time_wait{"));
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64;
    lines.map(count).sum()
}

fn restarts_on(cable: Cable, more: &[&str]) {
    let (site, run) = (site(), tools::directory());
    let path = run.path().join("takeover.sock");
    cable.prepare();
    // However long the ten take, no record's time is over.
    let long = ["--set", "time_wait.length=3600s"];
    let kind = [&on_device(cable)[..], &long, more].concat();
    let start = || Server::start(&mut command(&kind, &path), site.path());
    let (server, [connections, ports, answers]) = restart_under_load(ON_DEVICE, start);
    eprintln!("{connections} connections and {answers} answers in {RESTARTS} restarts");
    assert!(connections > 100 && answers > connections);
    // Each was closed by the server first, and none of them has been forgotten. A port that came
    // again took the place of its own record.
    let records = (0..50).find_map(|_| {
        thread::sleep(Duration::from_millis(100));
        Some(time_wait()).filter(|records| *records == ports)
    });
    assert_eq!(records, Some(ports), "and not {}", time_wait());
    let mode = std::fs::metadata(&path).unwrap();
    assert!(mode.file_type().is_socket() && mode.permissions().mode() & 0o777 == 0o600);
    server.stop();
    assert!(!path.exists());
}

#[test]
fn ten_restarts_on_a_tap_reset_nothing_and_forget_nothing() {
    let test = "restarts::ten_restarts_on_a_tap_reset_nothing_and_forget_nothing";
    namespace::inside(test, &["curl"], || restarts_on(Cable::best(), &[]));
}

#[test]
fn ten_restarts_on_a_tun_reset_nothing_and_forget_nothing() {
    let test = "restarts::ten_restarts_on_a_tun_reset_nothing_and_forget_nothing";
    namespace::inside(test, &["curl"], || {
        if namespace::can_make_tap() {
            restarts_on(Cable::Tun, &[]);
        } else {
            restarts_on(Cable::PacketSocket, &[]);
        }
    });
}

#[test]
fn ten_restarts_on_a_packet_socket_reset_nothing() {
    let test = "restarts::ten_restarts_on_a_packet_socket_reset_nothing";
    namespace::inside(test, &["curl"], || restarts_on(Cable::PacketSocket, &[]));
}

#[test]
fn ten_restarts_of_two_shards_reset_nothing() {
    let test = "restarts::ten_restarts_of_two_shards_reset_nothing";
    namespace::inside(test, &["curl"], || restarts_on(Cable::best(), TWO_SHARDS));
}

#[test]
fn ten_restarts_behind_the_bridge_reset_nothing() {
    let test = "restarts::ten_restarts_behind_the_bridge_reset_nothing";
    namespace::inside(test, &[], || {
        let (site, run) = (site(), tools::directory());
        let path = run.path().join("takeover.sock");
        let kind = ["--listen", BRIDGED];
        let start = || Server::start(&mut command(&kind, &path), site.path());
        let (server, [connections, _, answers]) = restart_under_load(BRIDGED, start);
        assert!(connections > 100 && answers > connections);
        server.stop();
    });
}

/// Begins a download that takes some seconds. It ends with the digest of what came.
fn slow_download() -> thread::JoinHandle<String> {
    let mut slow = curl("http://10.77.0.2/large");
    slow.args(["--limit-rate", "2M"]).stdout(Stdio::piped());
    let download = thread::spawn(move || tools::sha256_of_output(&mut slow));
    thread::sleep(Duration::from_millis(500));
    download
}

#[test]
fn a_download_goes_on_in_the_process_that_began_it() {
    let test = "restarts::a_download_goes_on_in_the_process_that_began_it";
    namespace::inside(test, &["curl", "sha256sum"], || {
        let (site, run) = (site(), tools::directory());
        let path = run.path().join("takeover.sock");
        let cable = Cable::best();
        cable.prepare();
        let start = || Server::start(&mut command(&on_device(cable), &path), site.path());
        let old = start();
        reach("10.77.0.2", 80);
        let download = slow_download();
        let new = start();
        // Both serve at once.
        let small = tools::output(&mut curl("http://10.77.0.2/small"));
        assert_eq!(small.len(), BODY_BYTES);
        assert_eq!(download.join().unwrap(), tools::sha256_of_file(&site.path().join("large")));
        ended(old);
        let mut new = new;
        assert_eq!(new.event("drained")["left"], 0);
        new.stop();
    });
}

#[test]
fn the_old_process_goes_on_if_the_new_one_is_not_alike_or_dies() {
    let test = "restarts::the_old_process_goes_on_if_the_new_one_is_not_alike_or_dies";
    namespace::inside(test, &["curl"], || {
        let (site, run) = (site(), tools::directory());
        let path = run.path().join("takeover.sock");
        let cable = Cable::best();
        cable.prepare();
        let server = Server::start(&mut command(&on_device(cable), &path), site.path());
        reach("10.77.0.2", 80);
        let answers = || {
            let answer = tools::output(&mut curl("http://10.77.0.2/small"));
            assert_eq!(answer.len(), BODY_BYTES);
        };
        for (flags, why) in [
            (vec!["--listen", BRIDGED], "serves on"),
            ([&on_device(cable)[..], TWO_SHARDS].concat(), "has --shards 1"),
            (
                [cable.flags(), &["--ip", "10.77.0.3/24"]].concat(),
                "give the new one --ip 10.77.0.2/24",
            ),
        ] {
            let output = command(&flags, &path).arg(site.path()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && text.contains(why), "{text}");
            answers();
        }
        dies_at(&path, &[hello(7)]);
        answers();
        for said in [vec![], vec![hello(2)], vec![hello(2), message(4, "")]] {
            dies_at(&path, &said);
            answers();
        }
        // Another can still take over.
        let new = Server::start(&mut command(&on_device(cable), &path), site.path());
        let log = ended(server);
        assert!(log.contains("version 2 of the protocol, and not by 7"), "{log}");
        answers();
        new.stop();
    });
}

#[test]
fn the_old_process_ends_its_connections_if_the_new_one_dies() {
    let test = "restarts::the_old_process_ends_its_connections_if_the_new_one_dies";
    namespace::inside(test, &["curl", "sha256sum"], || {
        let (site, run) = (site(), tools::directory());
        let path = run.path().join("takeover.sock");
        let cable = Cable::best();
        cable.prepare();
        let start = || Server::start(&mut command(&on_device(cable), &path), site.path());
        let old = start();
        reach("10.77.0.2", 80);
        let download = slow_download();
        drop(start());
        assert_eq!(download.join().unwrap(), tools::sha256_of_file(&site.path().join("large")));
        ended(old);
        // The socket of a process that is gone is in nobody's way.
        let new = start();
        reach("10.77.0.2", 80);
        new.stop();
    });
}

/// A message of the two processes.
fn message(kind: u8, text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], &[kind], text.as_bytes()].concat()
}

fn hello(version: u64) -> Vec<u8> {
    let stack = if namespace::can_make_tap() { "tap lw0" } else { "af-packet lw0" };
    let hello: Value = json!({
        "version": version,
        "pid": 1,
        "shards": 1,
        "stack": stack,
        "addresses": ["10.77.0.2/24"],
        "listens": [],
        "admin": null,
    });
    message(1, &hello.to_string())
}

/// A process that says that much, hears an answer to it, and dies.
fn dies_at(path: &Path, said: &[Vec<u8>]) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for message in said {
        stream.write_all(message).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
}
