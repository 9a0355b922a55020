//! `lightwait load`: on our stack against the kernel's, and the other way round.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::namespace;
use crate::server::{Cable, Server, URLS};
use crate::tools;

/// Puts a load on, and returns its report.
fn load(arguments: &[&str]) -> Value {
    let mut load = Command::new(env!("CARGO_BIN_EXE_lightwait"));
    let output = load.arg("load").args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

fn answer(mut stream: TcpStream) {
    if stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
        let _ = stream.write_all(ANSWER);
    }
}

/// A server of the kernel's that keeps who has come.
fn kernels_server() -> Arc<Mutex<Vec<SocketAddr>>> {
    let listener = TcpListener::bind("0.0.0.0:8080").unwrap();
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            seen.lock().unwrap().push(stream.peer_addr().unwrap());
            answer(stream);
        }
    });
    peers
}

#[test]
fn our_stack_loads_a_server_on_the_kernels_from_a_range_of_addresses() {
    let test = "load::our_stack_loads_a_server_on_the_kernels_from_a_range_of_addresses";
    namespace::inside(test, &[], || {
        let cable = Cable::best();
        cable.prepare();
        let peers = kernels_server();
        let flags = ["--ip", "10.77.0.2/24", "--source", "10.77.0.128/25", "--rate", "500"];
        let more = ["--ports", "20000-20499", "--warm-up", "0", "--duration", "2s"];
        let url = &["http://10.77.0.1:8080/"];
        let report = load(&[&url[..], cable.flags(), &flags, &more].concat());
        assert_eq!(report["requests_answered"], 1000, "{report}");
        assert_eq!(report["requests_failed"], 0, "{report}");
        assert_eq!(report["closed_by_server"], 1000);
        // ceil(500/s · 65 s / 500 ports)
        assert_eq!(report["sources"]["addresses"], 65);
        let peers = peers.lock().unwrap();
        assert_eq!(peers.iter().collect::<HashSet<_>>().len(), 1001, "no 4-tuple comes twice");
        assert_eq!(peers.iter().map(SocketAddr::ip).collect::<HashSet<_>>().len(), 65);
    });
}

#[test]
fn the_kernels_stack_loads_our_server_from_a_range_that_it_was_given() {
    let test = "load::the_kernels_stack_loads_our_server_from_a_range_that_it_was_given";
    namespace::inside(test, &[], || {
        let site = tools::directory();
        std::fs::write(site.path().join("small"), [b'x'; 500]).unwrap();
        let server = Server::on(Cable::best(), site.path(), &["--gateway", "10.77.0.1"]);
        // The command that `load` names where the kernel lacks addresses.
        namespace::ip("route add local 10.78.0.0/16 dev lo");
        let url = format!("{}/small", URLS[0]);
        let flags = ["--source", "10.78.0.0/16", "--rate", "2000", "--duration", "2s"];
        let report = load(&[&[&*url], &flags[..], &["--warm-up", "0"]].concat());
        assert_eq!(report["requests_answered"], 4000, "{report}");
        assert_eq!(report["requests_failed"], 0, "{report}");
        assert!(report["sources"]["addresses"].as_u64().unwrap() >= 5, "{report}");
        server.stop();
    });
}
