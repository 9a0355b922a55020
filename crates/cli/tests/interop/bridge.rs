//! The bridge as a user without privileges meets it: a large file, many clients, a browser.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::namespace;
use crate::server::Server;
use crate::tools::{self, curl, sha256_of_file, sha256_of_output};

const PARALLEL_CLIENTS: usize = 200;

#[test]
fn a_gibibyte_arrives_whole_through_the_bridge() {
    let test = "bridge::a_gibibyte_arrives_whole_through_the_bridge";
    namespace::inside(test, &["curl"], || {
        let directory = tools::directory();
        let file = directory.path().join("large");
        tools::write_file(&file, 1024);
        let server = Server::bridged(directory.path(), &[]);
        let got = sha256_of_output(&mut curl(&format!("{}/large", server.url)));
        assert_eq!(got, sha256_of_file(&file));
        server.stop();
    });
}

/// Fetches `/file` on a connection of its own; true if it is as it should be.
fn fetch(server: SocketAddr, wanted: &[u8]) -> bool {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    reply.starts_with(b"HTTP/1.1 200 ") && reply.ends_with(wanted)
}

#[test]
fn two_hundred_clients_at_a_time_get_their_files() {
    let test = "bridge::two_hundred_clients_at_a_time_get_their_files";
    namespace::inside(test, &[], || {
        let directory = tools::directory();
        let wanted = &tools::pattern(7)[..300_000];
        std::fs::write(directory.path().join("file"), wanted).unwrap();
        let server = Server::bridged(directory.path(), &[]);
        let address = server.address();
        // Nobody is done before all have begun.
        let barrier = std::sync::Barrier::new(PARALLEL_CLIENTS);
        thread::scope(|scope| {
            for _ in 0..PARALLEL_CLIENTS {
                scope.spawn(|| {
                    barrier.wait();
                    assert!((0..3).all(|_| fetch(address, wanted)));
                });
            }
        });
        server.stop();
    });
}

#[test]
fn a_browser_shows_the_listing() {
    let test = "bridge::a_browser_shows_the_listing";
    namespace::inside(test, &["chromium"], || {
        let directory = tools::directory();
        std::fs::write(directory.path().join("hello & welcome.txt"), "hello").unwrap();
        std::fs::create_dir(directory.path().join("more")).unwrap();
        let server = Server::bridged(directory.path(), &[]);
        let (page, picture) = tools::browse(&format!("{}/", server.url));
        assert!(page.contains("hello &amp; welcome.txt") && page.contains("more/"), "{page}");
        assert!(picture.starts_with(b"\x89PNG"));
        server.stop();
    });
}
