//! Clients that hold every place that a limit leaves, and others that come later.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt;

use crate::namespace;
use crate::server::{Cable, OURS, Server, TWO_SHARDS};

/// `--max-connections`.
const PLACES: usize = 200;
/// Clients that wait, more than there are places.
const WAITING: usize = 220;
/// Clients that come later.
const LATER: usize = 20;
const PATIENCE: Duration = Duration::from_secs(3);

const REQUEST: &[u8] = b"GET /file HTTP/1.1\r\nHost: h\r\n\r\n";

/// Asks on that connection; whether the answer came.
fn is_answered(socket: &mut TcpStream) -> bool {
    let mut answer = [0; 4096];
    let read = |socket: &mut TcpStream, answer: &mut [u8]| {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(REQUEST)?;
        socket.read(answer)
    };
    read(socket, &mut answer).is_ok_and(|read| answer[..read].starts_with(b"HTTP/1.1 200 OK"))
}

/// The clients that hold the places.
#[derive(Clone, Copy, Debug)]
enum Holders {
    /// They send nothing.
    Silent,
    /// They have had an answer each.
    Answered,
    /// They send nothing, and one peer opens all of them anew again and again.
    Reopening,
    /// Each asks for a file after which the server closes, and takes nothing of it: the file fits
    /// the server's buffer, so that the server is done with it.
    Stalled,
}

/// Asks for the long file on that connection. The kernel's buffer holds little of it.
fn stall(socket: &mut TcpStream) {
    sockopt::set_socket_recv_buffer_size(&*socket, 1).unwrap();
    let _ = socket.write_all(b"GET /long HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
}

/// Holds places from before the first of the others comes until all of them have been.
struct Held {
    _waiting: Vec<TcpStream>,
    stop: Arc<AtomicBool>,
    reopening: Option<JoinHandle<()>>,
}

impl Held {
    fn by(holders: Holders, address: SocketAddr) -> Held {
        let open = move || {
            let connect = |_| TcpStream::connect_timeout(&address, PATIENCE).ok();
            (0..WAITING).filter_map(connect).collect::<Vec<TcpStream>>()
        };
        let mut waiting = open();
        match holders {
            Holders::Answered => waiting.iter_mut().for_each(|socket| _ = is_answered(socket)),
            Holders::Stalled => {
                waiting.iter_mut().for_each(stall);
                // Three timeouts show that they take nothing.
                std::thread::sleep(Duration::from_secs(2));
            }
            Holders::Silent | Holders::Reopening => {}
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let reopening = matches!(holders, Holders::Reopening).then(|| {
            std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let opened = open();
                    std::thread::sleep(Duration::from_millis(400));
                    drop(opened);
                }
            })
        });
        Held { _waiting: waiting, stop, reopening }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.reopening.take().map(JoinHandle::join);
    }
}

/// How many of [`LATER`] clients are served while others hold all places, and how many made room.
/// Those who hold them have done so for that long when the first one comes.
fn served(flags: &[&str], holders: Holders, long: Duration) -> (usize, usize) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), b"here").unwrap();
    std::fs::write(directory.path().join("long"), [b'l'; 30_000]).unwrap();
    let server = Server::start_on(Cable::best(), directory.path(), flags);
    let address = SocketAddr::new(OURS[0].parse().unwrap(), 80);
    let held = Held::by(holders, address);
    std::thread::sleep(long);
    let (mut served, mut stay) = (0, Vec::new());
    for _ in 0..LATER {
        let socket = TcpStream::connect_timeout(&address, PATIENCE);
        served += usize::from(socket.is_ok_and(|mut socket| {
            let is_answered = is_answered(&mut socket);
            // It stays, so that the limit is reached for the next one as well.
            stay.push(socket);
            is_answered
        }));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((held, stay));
    let text = server.stop_and_tell();
    let place = text.split("\"http_closed_for_place\":").nth(1).expect("it is counted");
    let digits = place.split(|byte: char| !byte.is_ascii_digit()).next().unwrap();
    (served, digits.parse().unwrap())
}

/// Those who come later find room, whatever the clients do that hold all places.
fn make_room(flags: &[&str]) {
    Cable::best().prepare();
    let places = PLACES.to_string();
    for limit in ["--max-connections", "--max-client-connections"] {
        let all = [Holders::Silent, Holders::Answered, Holders::Reopening, Holders::Stalled];
        for holders in all {
            let flags = [&[limit, &places], flags].concat();
            let (served, closed) = served(&flags, holders, Duration::ZERO);
            assert_eq!(served, LATER, "{flags:?}, {holders:?}");
            assert!(closed >= LATER, "{closed} made room");
        }
    }
}

#[test]
fn connections_that_wait_make_room_where_a_limit_is_reached() {
    let test = "limits::connections_that_wait_make_room_where_a_limit_is_reached";
    namespace::inside(test, &[], || make_room(&[]));
}

#[test]
fn connections_that_wait_make_room_on_two_shards() {
    let test = "limits::connections_that_wait_make_room_on_two_shards";
    namespace::inside(test, &[], || make_room(TWO_SHARDS));
}

/// Hardly ever does one that waits share its shard with one that comes later.
#[test]
fn a_client_with_a_place_for_each_shard_finds_room_on_all() {
    let test = "limits::a_client_with_a_place_for_each_shard_finds_room_on_all";
    namespace::inside(test, &[], || {
        Cable::best().prepare();
        for holders in [Holders::Silent, Holders::Answered] {
            let flags = ["--max-client-connections", "4", "--shards", "4"];
            // All are new: for half a second each may be about to ask.
            let (served, _) = served(&flags, holders, Duration::from_millis(1500));
            assert_eq!(served, LATER, "{holders:?}");
        }
    });
}

#[test]
fn stalled_peers_cost_no_answer_at_the_limit_on_orphans() {
    let test = "limits::stalled_peers_cost_no_answer_at_the_limit_on_orphans";
    namespace::inside(test, &[], || {
        Cable::best().prepare();
        let (served, _) = served(&["--set", "limits.orphans=50"], Holders::Stalled, Duration::ZERO);
        assert_eq!(served, LATER);
    });
}
