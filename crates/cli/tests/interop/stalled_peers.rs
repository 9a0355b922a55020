//! Peers that ask for much and take nothing of it, for real: kernel sockets with full buffers, and
//! one client beside them that behaves well.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::namespace;
use crate::server::{Cable, OURS, Server, TWO_SHARDS};

/// What each asks for.
const FILE_BYTES: usize = 120_000;
/// Memory for each peer: a fifth of what it asks for.
const MEMORY_EACH: usize = FILE_BYTES / 5;
/// Peers, unless LIGHTWAIT_STALLED_PEERS says how many.
const PEERS: usize = 1500;
/// The peers come within that time, however many they are: a third of the memory would be theirs
/// in a second.
const ATTACK: Duration = Duration::from_secs(3);
/// A client asks so often, as long as they come and so long after.
const PACE: Duration = Duration::from_millis(10);
const AFTER: Duration = Duration::from_secs(5);
/// What the program may take beside its budget once it has work: records of TIME-WAIT and stacks of
/// threads that read files among them.
const PROGRAM_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks for `path` and reads nothing of the answer. Nothing if the server has no room for it.
fn stall(address: SocketAddr, path: &str) -> Option<TcpStream> {
    let socket = TcpStream::connect(address).ok()?;
    // The kernel's least: the answer waits at the server.
    sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    (&socket).write_all(request.as_bytes()).ok()?;
    Some(socket)
}

/// Asks for a small file on a new connection; whether it came whole, and in time.
fn is_answered(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(&[b's'; 1000]))
    };
    ask().unwrap_or(false)
}

fn resident_bytes(server: &Server) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn prepare(directory: &Path) {
    std::fs::write(directory.join("small"), [b's'; 1000]).unwrap();
    std::fs::write(directory.join("large"), vec![b'l'; FILE_BYTES]).unwrap();
}

/// What a well-behaved client saw, by the second of its asking: how often, and how often in vain.
#[derive(Default)]
struct Answers {
    asked: Vec<(u32, u32)>,
    longest: Duration,
}

impl Answers {
    fn ask(&mut self, begin: Instant, address: SocketAddr) {
        let asked_at = Instant::now();
        let second = (asked_at - begin).as_secs() as usize;
        self.asked.resize(self.asked.len().max(second + 1), (0, 0));
        let is_answered = is_answered(address);
        self.longest = self.longest.max(asked_at.elapsed());
        let (asked, missed) = &mut self.asked[second];
        (*asked, *missed) = (*asked + 1, *missed + u32::from(!is_answered));
    }
}

/// A client asks while many come that take nothing of what they ask for.
fn ask_beside_many(flags: &[&str]) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let peers = std::env::var("LIGHTWAIT_STALLED_PEERS").ok();
    let peers = peers.map_or(PEERS, |text| text.parse().expect("a number of peers"));
    let memory = peers * MEMORY_EACH;
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    let bytes = memory.to_string();
    let flags = [&["--memory", &bytes], flags].concat();
    let server = Server::on(Cable::best(), directory.path(), &flags);
    let address = SocketAddr::new(OURS[0].parse().unwrap(), 80);
    let (before, mut most) = (resident_bytes(&server), 0);
    let (begin, mut answers, mut held) = (Instant::now(), Answers::default(), Vec::new());
    let asks = (ATTACK + AFTER).as_millis() / PACE.as_millis();
    let (mut came, rounds) = (0, ATTACK.div_duration_f64(PACE));
    for ask in 1..=asks as u32 {
        let due = (peers as f64 * f64::from(ask) / rounds).min(peers as f64) as usize;
        held.extend((came..due).filter_map(|_| stall(address, "/large")));
        came = due;
        answers.ask(begin, address);
        most = most.max(resident_bytes(&server));
        std::thread::sleep((begin + PACE * ask).saturating_duration_since(Instant::now()));
    }
    assert_eq!(came, peers);
    drop(held);
    let resets = count(&server.stop_and_tell(), "reset_for_memory_closed_window");
    let [asked, missed]: [u32; 2] =
        [|a: &(u32, u32)| a.0, |a: &(u32, u32)| a.1].map(|of| answers.asked.iter().map(of).sum());
    println!(
        "{peers} peers, {} MB: {missed} of {asked} requests missed, the longest took {:?}; \
         {resets} reset; {} MB resident at most",
        memory / 1_000_000,
        answers.longest,
        most / 1_000_000,
    );
    assert!(missed * 100 <= asked, "{missed} of {asked}");
    let worst = answers.asked.iter().filter(|(asked, missed)| missed * 10 > *asked).count();
    assert_eq!(worst, 0, "{:?}", answers.asked);
    assert!(most > before + memory / 2, "{most} bytes: memory was short");
    assert!(most < before + memory / 4 * 5 + PROGRAM_BYTES, "{before} to {most} bytes");
}

#[test]
fn a_client_is_served_beside_many_that_take_nothing() {
    let test = "stalled_peers::a_client_is_served_beside_many_that_take_nothing";
    namespace::inside(test, &[], || ask_beside_many(&[]));
}

#[test]
fn two_shards_serve_a_client_beside_many_that_take_nothing() {
    let test = "stalled_peers::two_shards_serve_a_client_beside_many_that_take_nothing";
    namespace::inside(test, &[], || ask_beside_many(TWO_SHARDS));
}

/// The counter of that name in what the server said at its end.
fn count(text: &str, name: &str) -> u64 {
    let counts = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut counts = counts.filter(|event| event["event"] == "counts");
    counts.next_back().unwrap()["counters"][name].as_u64().unwrap()
}
