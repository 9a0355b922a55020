//! Files as real clients ask for them: apt, and a log that grows while it is sent.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::namespace;
use crate::server::{Cable, OURS, Server, URLS};
use crate::tools::{self, command};

/// Makes a package, and the index of a flat repository with nothing but that.
fn make_repository(directory: &Path) {
    let tree = directory.join("tree/DEBIAN");
    fs::create_dir_all(&tree).unwrap();
    let control = "Package: lightwait-test\nVersion: 1.0\nArchitecture: all\n\
                   Maintainer: nobody <nobody@example.invalid>\nDescription: nothing\n";
    fs::write(tree.join("control"), control).unwrap();
    let deb = directory.join("lightwait-test.deb");
    tools::output(command("dpkg-deb").arg("--build").arg(directory.join("tree")).arg(&deb));
    fs::remove_dir_all(directory.join("tree")).unwrap();
    let (size, sum) = (fs::metadata(&deb).unwrap().len(), tools::sha256_of_file(&deb));
    let index = format!("{control}Filename: ./lightwait-test.deb\nSize: {size}\nSHA256: {sum}\n\n");
    fs::write(directory.join("Packages"), index).unwrap();
}

#[test]
fn apt_installs_from_a_flat_repository() {
    let test = "files::apt_installs_from_a_flat_repository";
    namespace::inside(test, &["apt-get", "dpkg-deb"], || {
        let [site, own] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        make_repository(site.path());
        let server = Server::on(Cable::best(), site.path(), &[]);
        let at = own.path().display();
        let sources = own.path().join("sources.list");
        fs::write(&sources, format!("deb [trusted=yes] {}/ ./\n", URLS[0])).unwrap();
        for directory in ["lists/partial", "cache/archives/partial", "parts"] {
            fs::create_dir_all(own.path().join(directory)).unwrap();
        }
        File::create(own.path().join("status")).unwrap();
        let apt = |arguments: &[&str]| {
            let mut apt = command("apt-get");
            apt.current_dir(own.path()).stderr(Stdio::inherit());
            for setting in [
                format!("Dir::Etc::sourcelist={at}/sources.list"),
                format!("Dir::Etc::sourceparts={at}/parts"),
                format!("Dir::State={at}"),
                format!("Dir::State::status={at}/status"),
                format!("Dir::Cache={at}/cache"),
                "Acquire::http::Proxy=false".to_owned(),
                "Acquire::Retries=0".to_owned(),
                "APT::Sandbox::User=root".to_owned(),
                "Debug::NoLocking=1".to_owned(),
            ] {
                apt.args(["-o", &setting]);
            }
            tools::output(apt.args(arguments))
        };
        // It asks for compressed indexes first, which are not there.
        apt(&["update"]);
        apt(&["download", "lightwait-test"]);
        let [loaded, served] =
            [own.path().join("lightwait-test_1.0_all.deb"), site.path().join("lightwait-test.deb")];
        assert_eq!(tools::sha256_of_file(&loaded), tools::sha256_of_file(&served));
        server.stop();
    });
}

/// Bytes of a log, and how much is appended while it is sent.
const LOG_BYTES: usize = 60_000_000;
const APPENDED: usize = 1_000_000;

#[test]
fn a_log_that_grows_arrives_as_long_as_its_head_said() {
    let test = "files::a_log_that_grows_arrives_as_long_as_its_head_said";
    namespace::inside(test, &["curl"], || {
        let site = tempfile::tempdir().unwrap();
        let log = site.path().join("log");
        fs::write(&log, vec![b'l'; LOG_BYTES]).unwrap();
        // Its version can be told from then on.
        thread::sleep(Duration::from_secs(3));
        let server = Server::on(Cable::best(), site.path(), &[]);
        // The first reads for itself, the others from what is in memory. The last one comes while
        // the file is new.
        for turn in 0..4 {
            let length = fs::metadata(&log).unwrap().len();
            let url = format!("{}/log", URLS[0]);
            let mut curl = tools::curl(&url);
            curl.args(["--limit-rate", "60M", "--output", "-"]);
            let mut download = curl.stdout(Stdio::piped()).spawn().unwrap();
            let mut body = download.stdout.take().unwrap();
            // The head has promised a length by then.
            let mut got = vec![0; 1000];
            body.read_exact(&mut got).unwrap();
            let appending = thread::spawn({
                let log = log.clone();
                move || {
                    let mut log = OpenOptions::new().append(true).open(log).unwrap();
                    for _ in 0..10 {
                        thread::sleep(Duration::from_millis(30));
                        log.write_all(&[b'm'; APPENDED / 10]).unwrap();
                    }
                }
            });
            body.read_to_end(&mut got).unwrap();
            appending.join().unwrap();
            let status = download.wait().unwrap();
            assert!(status.success(), "{turn}: {status}");
            assert_eq!(got.len() as u64, length, "{turn}");
            if turn < 2 {
                thread::sleep(Duration::from_secs(3));
            }
        }
        server.stop();
    });
}

/// Bytes that the client asks for, and those that it takes before it breaks off.
const ASKED: u64 = 200_000;
const TAKEN: u64 = 131_000;

/// Asks for `/large`, takes `TAKEN` bytes of it at 200 kB/s, and breaks off.
fn break_off() {
    let mut socket = TcpStream::connect((OURS[0], 80)).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 8 << 10).unwrap();
    socket.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let (mut taken, mut bytes) = (0, [0; 2000]);
    while taken < TAKEN {
        taken += socket.read(&mut bytes).unwrap() as u64;
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_access_log_tells_of_what_the_client_has() {
    namespace::inside("files::the_access_log_tells_of_what_the_client_has", &["curl"], || {
        let site = tempfile::tempdir().unwrap();
        fs::write(site.path().join("large"), vec![7; ASKED as usize]).unwrap();
        let log = site.path().join("log");
        let flags = ["--access-log", log.to_str().unwrap()];
        let server = Server::on(Cable::best(), site.path(), &flags);
        break_off();
        let url = format!("{}/large", URLS[0]);
        let rate = ["-s", "-o", "/dev/null", "--limit-rate", "100k"];
        let slow = Instant::now();
        tools::output(command("curl").args(rate).arg(&url));
        let slow = slow.elapsed();
        tools::output(command("curl").args(["-sI", "-o", "/dev/null"]).args([&url, &url]));
        server.stop();
        let text = fs::read_to_string(log).unwrap();
        let records: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [broken, slowly, head, again] = &records[..] else { panic!("{text}") };
        let bytes = |record: &serde_json::Value| record["body_bytes"].as_u64().unwrap();
        // The client's kernel acknowledges what it buffers.
        assert!((TAKEN..ASKED).contains(&bytes(broken)), "{broken}");
        assert_eq!(broken["complete"], false);
        assert!(broken["duration_us"].as_u64().unwrap() > 300_000, "{broken}");
        assert_eq!((bytes(slowly), &slowly["complete"]), (ASKED, &true.into()));
        let us = slowly["duration_us"].as_u64().unwrap();
        assert!(u128::from(us) <= slow.as_micros(), "{slowly} {slow:?}");
        assert!(slowly["srtt_us"].as_u64().unwrap() > 0 && slowly["retransmits"] == 0, "{slowly}");
        for record in [head, again] {
            assert_eq!((bytes(record), &record["complete"]), (0, &true.into()), "{record}");
        }
    });
}

/// Asks for `/shrinks`, takes a part of it, and has `shrink` cut the file off: at once, or when its
/// window has been closed for a while. Returns the bytes it got in all.
fn download_what_shrinks(stops: bool, shrink: impl Fn()) -> usize {
    let mut socket = TcpStream::connect((OURS[0], 80)).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 64 << 10).unwrap();
    socket.write_all(b"GET /shrinks HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut taken = vec![0; 100_000];
    socket.read_exact(&mut taken).unwrap();
    if stops {
        thread::sleep(Duration::from_millis(500));
    }
    shrink();
    if stops {
        thread::sleep(Duration::from_millis(500));
    }
    let begin = Instant::now();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // In order or by a reset: what was promised does not come.
    let broken = socket.read_to_end(&mut taken);
    assert!(begin.elapsed() < Duration::from_secs(5), "{broken:?} after {:?}", begin.elapsed());
    taken.len()
}

#[test]
fn a_transfer_that_breaks_ends_at_once_on_every_device() {
    let test = "files::a_transfer_that_breaks_ends_at_once_on_every_device";
    namespace::inside(test, &[], || {
        const LENGTH: u64 = 64 << 20;
        let tap = namespace::can_make_tap().then_some(Cable::Tap);
        for cable in tap.into_iter().chain([Cable::PacketSocket]) {
            let site = tempfile::tempdir().unwrap();
            let log = site.path().join("log");
            let file = File::create(site.path().join("shrinks")).unwrap();
            let flags = ["--access-log", log.to_str().unwrap()];
            let server = Server::on(cable, site.path(), &flags);
            for stops in [false, true] {
                file.set_len(LENGTH).unwrap();
                // Nothing of the version before is kept.
                thread::sleep(Duration::from_millis(1500));
                let taken = download_what_shrinks(stops, || file.set_len(1 << 20).unwrap());
                assert!((taken as u64) < LENGTH, "{cable:?}, {stops}");
            }
            server.stop();
            let text = fs::read_to_string(log).unwrap();
            let records: Vec<serde_json::Value> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(records.len(), 2, "{text}");
            assert!(records.iter().all(|record| record["complete"] == false), "{text}");
        }
    });
}
