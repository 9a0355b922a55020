//! Clients that hold every place that a limit leaves, and others that come later.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::namespace;
use crate::server::{Cable, OURS, Server};

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

/// How many of [`LATER`] clients are served, while [`WAITING`] others have made a request each and
/// keep their connections, or have made none.
fn served(flags: &[&str], has_asked: bool) -> (usize, usize) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), b"here").unwrap();
    let server = Server::start_on(Cable::best(), directory.path(), flags);
    let address = SocketAddr::new(OURS[0].parse().unwrap(), 80);
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let Ok(mut socket) = TcpStream::connect_timeout(&address, PATIENCE) else { continue };
        if !has_asked || is_answered(&mut socket) {
            waiting.push(socket);
        }
        // As slowly as people come: each has the time to ask.
        std::thread::sleep(Duration::from_millis(3));
    }
    let mut served = 0;
    for _ in 0..LATER {
        let socket = TcpStream::connect_timeout(&address, PATIENCE);
        served += usize::from(socket.is_ok_and(|mut socket| is_answered(&mut socket)));
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = server.stop_and_tell();
    let place = text.split("\"http_closed_for_place\":").nth(1).expect("it is counted");
    let digits = place.split(|byte: char| !byte.is_ascii_digit()).next().unwrap();
    (served, digits.parse().unwrap())
}

#[test]
fn connections_that_wait_make_room_where_a_limit_is_reached() {
    let test = "limits::connections_that_wait_make_room_where_a_limit_is_reached";
    namespace::inside(test, &[], || {
        Cable::best().prepare();
        let places = PLACES.to_string();
        for limit in ["--max-connections", "--max-client-connections"] {
            for has_asked in [false, true] {
                let (served, closed) = served(&[limit, &places], has_asked);
                assert_eq!(served, LATER, "{limit}, {has_asked}");
                assert!(closed >= LATER, "{closed} made room");
            }
        }
    });
}
