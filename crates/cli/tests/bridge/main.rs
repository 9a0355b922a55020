//! `lightwait serve` through the bridge: an ordinary client on 127.0.0.1, the whole stack between.

mod admin;
mod config_file;
mod manager;
mod privileges;
mod ss;
mod tls;
mod top;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lightwait_core::capture::pcapng::{Block, Reader};

/// A server in a process of its own, and what it logs.
struct Server<L = BufReader<ChildStdout>> {
    process: Child,
    address: SocketAddr,
    /// Where its admin door is, if it has one.
    admin: Option<String>,
    lines: L,
}

impl Server {
    /// Serves `directory` on a port of the kernel's choice.
    fn start(directory: &std::path::Path) -> Server {
        Server::start_with(directory, &[])
    }

    /// Serves `directory` on a port of the kernel's choice, with more flags.
    fn start_with(directory: &std::path::Path, flags: &[&str]) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
            .args(["serve", "--listen", "127.0.0.1:0", "--json"])
            .args(flags)
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Server::new(process, lines)
    }
}

impl<L: BufRead> Server<L> {
    /// A server that logs to `lines`, as soon as it is ready.
    fn new(process: Child, mut lines: L) -> Self {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = serving["urls"][0].as_str().unwrap();
        let address = url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        let admin = serving["admin"].as_str().map(str::to_owned);
        Server { process, address, admin, lines }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Asks for `target` on a connection of its own; returns the status and the body.
    fn get(&self, target: &str) -> (u16, Vec<u8>) {
        let mut stream = self.connect();
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let status = String::from_utf8_lossy(&reply[9..12]).parse().unwrap();
        (status, reply.split_off(end))
    }

    /// The next line of the log that tells of that event.
    fn next(&mut self, event: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no {event}");
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            if value["event"] == event {
                return value;
            }
        }
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Sends a signal, waits for the end, and returns the status and the rest of the log.
    fn finish_after(self, signal: &str) -> (ExitStatus, Vec<serde_json::Value>) {
        self.signal(signal);
        self.finish()
    }

    /// Waits for the end, and returns the status and the rest of the log.
    fn finish(mut self) -> (ExitStatus, Vec<serde_json::Value>) {
        let mut text = String::new();
        self.lines.read_to_string(&mut text).unwrap();
        let status = self.process.wait().unwrap();
        (status, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

impl<L> Drop for Server<L> {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Bytes that show where they belong.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32 / 4 + 1)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .take(len)
        .collect()
}

fn site() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("hello.txt"), "hello").unwrap();
    fs::write(directory.path().join("large"), pattern(8 << 20)).unwrap();
    directory
}

#[test]
fn files_and_listings_arrive_whole() {
    let site = site();
    let server = Server::start(site.path());
    assert_eq!(server.get("/hello.txt"), (200, b"hello".to_vec()));
    let (status, large) = server.get("/large");
    assert!(status == 200 && large == pattern(8 << 20), "{} bytes", large.len());
    let (status, listing) = server.get("/");
    assert_eq!(status, 200);
    assert!(String::from_utf8(listing).unwrap().contains("./hello.txt"));
    assert_eq!(server.get("/../../etc/hostname").0, 400);
    assert_eq!(server.get("/none").0, 404);
}

#[test]
fn a_listing_shows_every_file_made_before_the_request() {
    let site = site();
    let server = Server::start(site.path());
    for number in 0..100 {
        let name = format!("new-{number}");
        fs::write(site.path().join(&name), "").unwrap();
        let (_, listing) = server.get("/");
        assert!(String::from_utf8(listing).unwrap().contains(&format!("./{name}\"")), "{name}");
    }
}

#[test]
fn many_clients_are_served_at_a_time() {
    let site = site();
    let server = Server::start(site.path());
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(server.get("/hello.txt"), (200, b"hello".to_vec()));
                }
            });
        }
    });
}

#[test]
fn who_closed_their_half_still_gets_the_answer() {
    let site = site();
    let server = Server::start(site.path());
    let mut stream = server.connect();
    stream.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert!(reply.ends_with(&pattern(8 << 20)), "{} bytes", reply.len());
}

#[test]
fn a_signal_lets_the_response_finish_and_the_log_has_the_client() {
    let site = site();
    let server = Server::start(site.path());
    let mut stream = server.connect();
    let client = stream.local_addr().unwrap().to_string();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    server.signal("TERM");
    thread::sleep(Duration::from_millis(100));
    assert!(TcpStream::connect(server.address).is_err(), "no new connections");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&pattern(8 << 20)[8_000_000..]), "{} bytes", rest.len());
    let (status, log) = server.finish();
    assert!(status.success(), "{status}");
    let access = log.iter().find(|line| line["event"] == "access").unwrap();
    assert_eq!((&access["peer"], &access["complete"]), (&client.into(), &true.into()));
    assert_eq!(log.last().unwrap()["event"], "stopped");
    assert_eq!(log.last().unwrap()["unfinished"], 0);
}

#[test]
fn the_log_tells_how_long_even_the_shortest_response_took() {
    let site = site();
    let server = Server::start(site.path());
    for _ in 0..20 {
        assert_eq!(server.get("/hello.txt").0, 200);
    }
    server.signal("TERM");
    let (_, log) = server.finish();
    let durations = log.iter().filter(|line| line["event"] == "access");
    let durations: Vec<_> = durations.map(|line| line["duration_us"].as_u64().unwrap()).collect();
    assert_eq!(durations.len(), 20);
    // A file is opened, described and read.
    assert!(durations.iter().all(|us| (1..1_000_000).contains(us)), "{durations:?}");
}

#[test]
fn a_second_signal_ends_it_at_once_and_in_order() {
    let site = site();
    let capture = site.path().join("capture.pcapng");
    let mut server = Server::start_with(site.path(), &["--pcap", capture.to_str().unwrap()]);
    let mut stream = server.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut first = [0; 1000];
    stream.read_exact(&mut first).unwrap();
    server.signal("INT");
    thread::sleep(Duration::from_millis(100));
    assert!(server.process.try_wait().unwrap().is_none(), "it waits for the response");
    server.signal("INT");
    let (status, log) = server.finish();
    assert_eq!(status.code(), Some(130));
    assert_eq!(log[0]["event"], "sandbox", "what is said once it serves");
    let log = &log[1..];
    let events: Vec<_> = log.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["stopping", "access", "counts", "counts", "stopped"]);
    assert_eq!((&log[1]["complete"], &log[4]["unfinished"]), (&false.into(), &1.into()));
    // The client read a thousand bytes, with the head; what its kernel had taken is more.
    let body_bytes = log[1]["body_bytes"].as_u64().unwrap();
    assert!((500..8 << 20).contains(&body_bytes) && log[1]["srtt_us"].is_u64(), "{}", log[1]);
    let pcap = fs::read(capture).unwrap();
    let begin = pattern(64);
    let large = pcap.windows(64).any(|bytes| bytes == begin);
    assert!(large, "the capture has what was sent before the signal: {} bytes", pcap.len());
}

#[test]
fn a_second_signal_cuts_no_answer_that_its_client_has() {
    let site = site();
    // The first keeps its connection open, the other owes the server a body that is not wanted.
    for request in ["GET /hello.txt", "POST /hello.txt"] {
        let mut server = Server::start(site.path());
        let mut stream = server.connect();
        let body = if request.starts_with("POST") { "Content-Length: 9\r\n" } else { "" };
        write!(stream, "{request} HTTP/1.1\r\nHost: h\r\n{body}\r\n").unwrap();
        server.next("access");
        server.signal("INT");
        server.next("stopping");
        thread::sleep(Duration::from_millis(100));
        server.signal("INT");
        let (status, log) = server.finish();
        assert_eq!((status.code(), &log.last().unwrap()["unfinished"]), (Some(130), &0.into()));
    }
}

#[test]
fn a_third_signal_ends_it_though_nobody_reads_its_log() {
    let site = site();
    let mut server = Server::start_with(site.path(), &["--trace"]);
    // A line for each frame, more than a pipe holds.
    for _ in 0..10 {
        server.get("/large");
    }
    server.signal("INT");
    thread::sleep(Duration::from_millis(100));
    server.signal("INT");
    thread::sleep(Duration::from_millis(300));
    assert!(server.process.try_wait().unwrap().is_none(), "it wants to be heard");
    server.signal("INT");
    let begin = Instant::now();
    assert_eq!(server.process.wait().unwrap().code(), Some(130));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// The counts at a server's end, of each stack.
fn counts(log: &[serde_json::Value]) -> Vec<&serde_json::Value> {
    let counts: Vec<_> = log.iter().filter(|line| line["event"] == "counts").collect();
    assert_eq!(counts.len(), 2, "one for each stack");
    counts
}

/// A counter of all stacks.
fn sum(counts: &[&serde_json::Value], counter: &str) -> u64 {
    counts.iter().map(|counts| counts["counters"][counter].as_u64().unwrap()).sum()
}

#[test]
fn most_of_a_large_file_is_sent_without_a_copy() {
    let site = site();
    // A file of the last two seconds may change without a trace. So it is not read again, and its
    // chunks are not adopted.
    thread::sleep(Duration::from_millis(2100));
    let server = Server::start(site.path());
    assert_eq!(server.get("/large").1.len(), 8 << 20);
    let (status, log) = server.finish_after("TERM");
    assert!(status.success(), "{status}");
    let adopted = sum(&counts(&log), "adopted_bytes");
    assert!((4 << 20..=8 << 20).contains(&adopted), "{adopted} bytes");
}

#[test]
fn knobs_are_set_and_counters_shown_in_between_and_at_the_end() {
    let site = site();
    let knobs = ["--set", "time_wait.length=50s", "--set", "limits.time_wait=3"];
    let mut server = Server::start_with(site.path(), &knobs);
    for _ in 0..5 {
        assert_eq!(server.get("/hello.txt").0, 200);
    }
    server.signal("USR1");
    let [first, second] = ["counts"; 2].map(|event| server.next(event));
    assert_ne!(first["stack"], second["stack"]);
    assert_eq!(first["counters"]["passive_opens"], 5);
    assert_eq!(first["levels"]["time_wait"]["limit"], 3);
    server.signal("TERM");
    let (status, log) = server.finish();
    assert!(status.success(), "{status}");
    let counts = counts(&log);
    assert_eq!(sum(&counts, "time_wait_entered"), 5);
    assert_eq!(sum(&counts, "time_wait_evicted"), 2);
    let held = counts.iter().map(|counts| counts["levels"]["time_wait"]["held"].as_u64());
    assert_eq!(held.flatten().sum::<u64>(), 3);
}

/// The frames in a capture, by our own reader; `None` if it does not end with a whole block.
fn frames_in(capture: &[u8]) -> Option<usize> {
    let blocks: Result<Vec<_>, _> = Reader::new(capture).collect();
    let is_frame = |block: &&Block<'_>| matches!(block, Block::Packet { .. });
    blocks.ok().map(|blocks| blocks.iter().filter(is_frame).count())
}

#[test]
fn a_capture_is_written_while_the_server_idles() {
    let site = site();
    let path = site.path().join("capture.pcapng");
    let server = Server::start_with(site.path(), &["--pcap", path.to_str().unwrap()]);
    let first = fs::read(&path).unwrap();
    assert_eq!(frames_in(&first), Some(0), "a whole header: {} bytes", first.len());
    assert_eq!(server.get("/hello.txt").0, 200);
    thread::sleep(Duration::from_millis(200));
    let capture = fs::read(&path).unwrap();
    let frames = frames_in(&capture).unwrap();
    // A handshake, a request, its answer, and the end of both halves.
    assert!(frames >= 7, "{frames}");
    assert!(capture.windows(5).any(|bytes| bytes == b"hello"));
    assert_eq!(server.finish_after("TERM").0.code(), Some(0));
    assert_eq!(frames_in(&fs::read(&path).unwrap()), Some(frames));
}

#[test]
fn a_bounded_capture_keeps_the_latest_and_cut_frames_are_short() {
    let site = site();
    let path = site.path().join("capture.pcapng");
    let flags = ["--pcap", path.to_str().unwrap(), "--pcap-limit", "256K"];
    let server = Server::start_with(site.path(), &flags);
    assert_eq!(server.get("/large").0, 200);
    server.finish_after("TERM");
    let [newer, older] = [path.clone(), site.path().join("capture.pcapng.1")].map(fs::read);
    let (newer, older) = (newer.unwrap(), older.unwrap());
    assert!(newer.len() + older.len() <= 256 << 10);
    assert!(frames_in(&newer).unwrap() > 0 && frames_in(&older).unwrap() > 0);

    let flags = ["--pcap", path.to_str().unwrap(), "--snaplen", "96"];
    let server = Server::start_with(site.path(), &flags);
    assert_eq!(server.get("/large").0, 200);
    server.finish_after("TERM");
    let capture = fs::read(&path).unwrap();
    assert!(capture.len() < 1 << 20, "{} bytes of 8 MiB", capture.len());
    let longest = Reader::new(&capture).filter_map(|block| match block.unwrap() {
        Block::Packet { bytes, original_len, .. } => Some((bytes.len(), original_len)),
        _ => None,
    });
    let longest = longest.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
    assert!(longest.0 == 96 && longest.1 >= 1500, "{longest:?}");
}

#[test]
fn a_capture_goes_to_stdout_and_the_log_to_stderr() {
    let site = site();
    // `/dev/stdout` is another name for it.
    for name in ["-", "/dev/stdout"] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
            .args(["serve", "--listen", "127.0.0.1:0", "--json", "--pcap", name])
            .arg(site.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut capture = process.stdout.take().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut server = Server::new(process, log);
        assert_eq!(server.get("/hello.txt").0, 200);
        let mut bytes = vec![0; 64 << 10];
        let mut read = 0;
        let begin = Instant::now();
        while frames_in(&bytes[..read]).is_none_or(|frames| frames < 7) {
            read += capture.read(&mut bytes[read..]).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(5), "{read} bytes");
        }
        // Whoever reads no more ends the capture, not the service.
        drop(capture);
        while server.get("/hello.txt").0 == 200 && begin.elapsed() < Duration::from_secs(1) {}
        assert!(server.next("trouble")["text"].as_str().unwrap().contains("capture ended"));
        assert_eq!(server.get("/hello.txt").0, 200);
    }
}

#[test]
fn a_capture_into_a_fifo_waits_for_its_reader_alone() {
    let site = site();
    let fifo = site.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let server = Server::start_with(site.path(), &["--pcap", fifo.to_str().unwrap()]);
    assert_eq!(server.get("/hello.txt").0, 200, "served before anybody reads");
    let mut reader = fs::File::open(&fifo).unwrap();
    let reading = thread::spawn(move || {
        let mut capture = Vec::new();
        reader.read_to_end(&mut capture).unwrap();
        capture
    });
    server.finish_after("TERM");
    assert!(frames_in(&reading.join().unwrap()).unwrap() >= 7);
}

#[test]
fn a_hang_up_opens_the_logs_again_and_ends_nothing() {
    let site = site();
    let [log, access] = ["log", "access"].map(|name| site.path().join(name));
    let process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["serve", "--listen", "127.0.0.1:0", "--json", "--log", log.to_str().unwrap()])
        .args(["--access-log", access.to_str().unwrap()])
        .arg(site.path())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let wait = |is_there: &dyn Fn() -> bool| {
        while !is_there() {
            assert!(begin.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
    };
    let has = |path: &std::path::Path, text: &str| {
        fs::read_to_string(path).is_ok_and(|log| log.contains(text))
    };
    wait(&|| has(&log, "serving"));
    let lines = BufReader::new(fs::File::open(&log).unwrap());
    let server = Server::new(process, lines);
    server.get("/hello.txt?first");
    wait(&|| has(&access, "first"));
    let moved = [&log, &access].map(|path| path.with_extension("1"));
    fs::rename(&log, &moved[0]).unwrap();
    fs::rename(&access, &moved[1]).unwrap();
    server.signal("HUP");
    wait(&|| log.exists() && access.exists());
    server.get("/hello.txt?second");
    wait(&|| has(&access, "second"));
    server.signal("TERM");
    wait(&|| has(&log, "stopped"));
    assert!(!has(&moved[1], "second") && !has(&log, "serving") && !has(&log, "access"));
    assert!(has(&moved[0], "serving") && !has(&moved[0], "stopped"));
}

#[test]
fn a_transfer_that_breaks_ends_at_once_and_is_logged_as_cut() {
    let site = site();
    let file = fs::File::create(site.path().join("shrinks")).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut server = Server::start(site.path());
    let mut stream = server.connect();
    stream.write_all(b"GET /shrinks HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut taken = vec![0; 1 << 20];
    stream.read_exact(&mut taken).unwrap();
    file.set_len(2 << 20).unwrap();
    let begin = Instant::now();
    // In order or by a reset: what was promised does not come.
    let _ = stream.read_to_end(&mut taken);
    assert!(taken.len() < 64 << 20);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let record = server.next("access");
    assert_eq!(record["complete"], false, "{record}");
    assert!(record["body_bytes"].as_u64().unwrap() <= taken.len() as u64, "{record}");
}

/// A connection whose receive buffer the kernel does not enlarge.
fn connect_with_buffer(address: SocketAddr, buffer_bytes: usize) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    // Before the SYN, which tells of the largest window (RFC 7323 §2.2).
    sockopt::set_socket_recv_buffer_size(&socket, buffer_bytes).unwrap();
    connect(&socket, &address).unwrap();
    TcpStream::from(socket)
}

#[test]
fn a_client_that_breaks_off_is_logged_with_what_it_has() {
    const WHOLE: usize = 200_000;
    let site = site();
    fs::write(site.path().join("f"), vec![b'x'; WHOLE]).unwrap();
    let mut server = Server::start(site.path());
    // The kernel takes all of it at once, and gives the client as much as it has room for.
    let mut stream = connect_with_buffer(server.address, 16 << 10);
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    thread::sleep(Duration::from_millis(200));
    drop(stream);
    let record = server.next("access");
    let taken = record["body_bytes"].as_u64().unwrap();
    assert!(record["complete"] == false && (1000..WHOLE as u64).contains(&taken), "{record}");
    // The record of one that closes its half early, and reads late, waits for it.
    let mut stream = server.connect();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    thread::sleep(Duration::from_millis(200));
    assert!(stream.read_to_end(&mut Vec::new()).unwrap() > WHOLE);
    let record = server.next("access");
    assert!(record["complete"] == true && record["body_bytes"] == WHOLE, "{record}");
    assert!(record["duration_us"].as_u64().unwrap() > 200_000, "{record}");
}

/// A server that logs for people, and its URL.
fn serve_for_people(directory: &std::path::Path, flags: &[&str]) -> (Child, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(flags)
        .arg(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.split(' ').find(|word| word.starts_with("http://"));
    (process, url.unwrap().to_owned())
}

/// Stops a server in order.
fn stop(mut server: Child) {
    let id = server.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    server.wait().unwrap();
}

#[test]
fn a_load_replays_the_access_log_line_by_line() {
    let site = site();
    let file = |name: &str| site.path().join(name);
    let start = |access: &str, flags: &[&str]| {
        let access = file(access);
        serve_for_people(
            site.path(),
            &[&["--access-log", access.to_str().unwrap()], flags].concat(),
        )
    };
    let (first, url) = start("first", &[]);
    for target in ["hello.txt?a=b", "none", "hello.txt"] {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-A", "a \"b\" \\", "-e", "http://from/"]);
        assert!(curl.arg(format!("{url}{target}")).status().unwrap().success());
    }
    stop(first);
    // The second server writes fields of its own behind each line.
    let (second, url) = start("second", &["--log-fields"]);
    let load = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["load", &url, "--json", "--warm-up", "0", "--trace"])
        .arg(file("first"))
        .output()
        .unwrap();
    assert!(load.status.success(), "{load:?}");
    let report: serde_json::Value = serde_json::from_slice(&load.stdout).unwrap();
    assert_eq!(report["statuses"], serde_json::json!({ "200": 2, "404": 1 }), "{report}");
    stop(second);
    // What is behind the time, and before the fields of our own.
    let requests = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(file(name)).unwrap();
        let lines = text.lines().map(|line| line.split_once("] ").unwrap().1);
        lines.map(|line| line.split(" host=").next().unwrap().to_owned()).collect()
    };
    let replayed = requests("second");
    assert_eq!(replayed, requests("first"));
    assert!(replayed[0].ends_with(r#" "http://from/" "a \x22b\x22 \x5C""#), "{replayed:?}");
    let fields = fs::read_to_string(file("second")).unwrap();
    assert!(fields.lines().all(|line| line.contains(r#" host="127.0.0.1:"#)), "{fields}");
}

#[test]
fn where_descriptors_run_out_idle_connections_make_room() {
    let site = site();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lightwait")]);
    let mut process = shell
        .args(["serve", "--listen", "127.0.0.1:0", "--json"])
        .arg(site.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap());
    let server = Server::new(process, lines);
    // A place of its own for each would take more descriptors than there are.
    let idle: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    thread::sleep(Duration::from_secs(1));
    for _ in 0..20 {
        assert_eq!(server.get("/hello.txt").0, 200);
    }
    drop(idle);
    server.finish_after("TERM");
}

#[test]
fn people_get_a_table_on_standard_error() {
    let site = site();
    let mut process = Command::new(env!("CARGO_BIN_EXE_lightwait"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg(site.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("Z Serving "), "{line}");
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    let output = process.wait_with_output().unwrap();
    let table = String::from_utf8(output.stderr).unwrap();
    let heads = table.lines().filter(|line| !line.starts_with(' '));
    assert_eq!(heads.count(), 2, "{table}");
    assert!(table.contains("  time_wait ") && table.contains(" of 1048576"), "{table}");
    assert!(output.status.success(), "{}", output.status);
}

#[test]
fn shards_share_the_port_and_stop_as_one() {
    let directory = site();
    let server = Server::start_with(directory.path(), &["--shards", "2", "--quiet"]);
    for _ in 0..40 {
        assert_eq!(server.get("/hello.txt"), (200, b"hello".to_vec()));
    }
    assert_eq!(server.get("/large").1, pattern(8 << 20));
    let (status, log) = server.finish_after("TERM");
    assert!(status.success());
    let events = |name: &str| log.iter().filter(|line| line["event"] == name).count();
    assert_eq!((events("stopping"), events("counts"), events("stopped")), (1, 2, 1));
    let counts = log.iter().find(|line| line["event"] == "counts").unwrap();
    assert_eq!(counts["counters"]["http_responses_2xx"], 41);
    // The parts of both add up.
    assert_eq!(counts["levels"]["syn_cache"]["limit"], 4096);
}
