//! `wrk` over a device and through the bridge: one request a connection, and many.

use std::time::{Duration, Instant};

use crate::namespace;
use crate::server::{Cable, Server, URLS};
use crate::tools::{self, command};

/// How many connections, one after the other and many at a time, must go without an error.
const SHORT_CONNECTIONS: u64 = 200_000;

/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(150);

/// A directory with one file of 500 bytes.
fn site() -> tempfile::TempDir {
    let directory = tools::directory();
    std::fs::write(directory.path().join("small"), &tools::pattern(0)[..500]).unwrap();
    directory
}

/// Asks `url` from 64 connections for so many seconds; returns how often, all without an error.
fn wrk(url: &str, seconds: u32, flags: &[&str]) -> u64 {
    let mut wrk = command("wrk");
    wrk.args(["--threads", "1", "--connections", "64", "--timeout", "20s"]);
    let text = tools::output(wrk.args(["--duration", &format!("{seconds}s")]).args(flags).arg(url));
    let is_trouble = |line: &str| line.contains("Socket errors") || line.contains("Non-2xx");
    assert!(!text.lines().any(is_trouble), "{url} {flags:?}: {text}");
    let requests = text.lines().find(|line| line.contains(" requests in ")).unwrap();
    requests.split_whitespace().next().unwrap().parse().unwrap()
}

/// A connection for each request, until there were enough of them.
fn wrk_with_short_connections(url: &str, wanted: u64) {
    let begin = Instant::now();
    let mut done = 0;
    while done < wanted {
        assert!(begin.elapsed() < PATIENCE, "{done} connections in {PATIENCE:?}");
        done += wrk(url, 3, &["--header", "Connection: close"]);
    }
    println!("{url}: {done} connections in {:?}", begin.elapsed());
}

#[test]
fn wrk_is_answered_over_the_best_device() {
    let test = "short_connections::wrk_is_answered_over_the_best_device";
    namespace::inside(test, &["wrk"], || {
        let site = site();
        let server = Server::on(Cable::best(), site.path(), &[]);
        let urls = URLS.map(|url| format!("{url}/small"));
        for url in &urls {
            println!("{url}: {} requests in 2 s", wrk(url, 2, &[]));
        }
        wrk_with_short_connections(&urls[0], SHORT_CONNECTIONS);
        wrk_with_short_connections(&urls[1], 10_000);
        server.stop();
    });
}

#[test]
fn wrk_is_answered_through_the_bridge() {
    let test = "short_connections::wrk_is_answered_through_the_bridge";
    namespace::inside(test, &["wrk"], || {
        let site = site();
        let server = Server::bridged(site.path(), &[]);
        let url = format!("{}/small", server.url);
        println!("{url}: {} requests in 2 s", wrk(&url, 2, &[]));
        wrk_with_short_connections(&url, SHORT_CONNECTIONS);
        server.stop();
    });
}
