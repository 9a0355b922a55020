//! Peers that ask for much and take nothing of it, for real: kernel sockets with full buffers, and
//! one client beside them that behaves well.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::namespace;
use crate::server::{Cable, OURS, Server};

/// In bytes; as the flag has it.
const MEMORY: (usize, &str) = (32 << 20, "32M");
/// What each asks for: the peers together ask for five times the memory, and more.
const FILE_BYTES: usize = 120_000;
const PEERS: usize = 1500;
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks for `path` and reads nothing of the answer.
fn stall(address: SocketAddr, path: &str) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    // The kernel's least: the answer waits at the server.
    sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
    (&socket).write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
    socket
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

#[test]
fn a_client_is_served_beside_many_that_take_nothing() {
    namespace::inside(
        "stalled_peers::a_client_is_served_beside_many_that_take_nothing",
        &[],
        || {
            let limit = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
            let directory = tempfile::tempdir().unwrap();
            prepare(directory.path());
            let server = Server::on(Cable::best(), directory.path(), &["--memory", MEMORY.1]);
            let address = SocketAddr::new(OURS[0].parse().unwrap(), 80);
            let before = resident_bytes(&server);
            let (mut peers, mut asked, mut answered) = (Vec::new(), 0, 0);
            for number in 0..PEERS {
                peers.push(stall(address, "/large"));
                if number % 10 == 0 {
                    asked += 1;
                    answered += usize::from(is_answered(address));
                }
            }
            let end = Instant::now() + Duration::from_secs(5);
            let mut most = resident_bytes(&server);
            while Instant::now() < end {
                asked += 1;
                answered += usize::from(is_answered(address));
                most = most.max(resident_bytes(&server));
            }
            assert!(answered * 100 >= asked * 99, "{answered} of {asked}");
            // Beside the budget: what a connection takes without its buffers.
            let connections = PEERS * (24 << 10);
            assert!(most < before + MEMORY.0 / 4 * 5 + connections, "{before} to {most} bytes");
            drop(peers);
            let text = server.stop_and_tell();
            let resets = |name: &str| count(&text, name);
            assert!(resets("reset_for_memory_closed_window") > 500, "{text}");
        },
    );
}

/// The counter of that name in what the server said at its end.
fn count(text: &str, name: &str) -> u64 {
    let counts = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut counts = counts.filter(|event| event["event"] == "counts");
    counts.next_back().unwrap()["counters"][name].as_u64().unwrap()
}
