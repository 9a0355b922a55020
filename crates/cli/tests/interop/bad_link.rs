//! Both ways over a link that loses, reorders, doubles and delays: everything arrives whole.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use lightwait::wrap::Link;

use crate::capture;
use crate::client;
use crate::namespace;
use crate::server::{Cable, OURS, Server, URLS, reach};
use crate::tools::{self, curl};

const BAD: &str = "loss=1%,reorder=5%,duplicate=1%,delay=30ms,seed=11";

/// Files of one MiB each, fetched at the same time.
const FILES: u64 = 16;

fn write_files(directory: &Path) {
    for n in 0..FILES {
        std::fs::write(directory.join(n.to_string()), tools::pattern(n)).unwrap();
    }
}

/// What `curl` gets is what the file has.
fn check(n: u64, curl: Child) {
    let output = curl.wait_with_output().unwrap();
    assert!(output.status.success(), "file {n}: {}", output.status);
    assert!(output.stdout == tools::pattern(n), "file {n}: {} bytes", output.stdout.len());
}

#[test]
fn files_of_ours_arrive_whole_over_a_bad_link() {
    let test = "bad_link::files_of_ours_arrive_whole_over_a_bad_link";
    namespace::inside(test, &["curl", "tshark"], || {
        let directory = tools::directory();
        write_files(directory.path());
        let path = directory.path().join("capture.pcapng");
        let flags = ["--fault", BAD, "--pcap", path.to_str().unwrap()];
        let server = Server::on(Cable::best(), directory.path(), &flags);
        let urls = URLS.iter().cycle();
        let fetch = |(n, url): (u64, &&str)| {
            let mut curl = curl(&format!("{url}/{n}"));
            (n, curl.stdout(Stdio::piped()).spawn().unwrap())
        };
        // In threads of their own: a pipe that nobody reads stops its writer.
        let fetches: Vec<_> = (0..FILES)
            .zip(urls)
            .map(|(n, url)| fetch((n, url)))
            .map(|(n, curl)| std::thread::spawn(move || check(n, curl)))
            .collect();
        fetches.into_iter().for_each(|fetch| fetch.join().unwrap());
        server.stop();
        let found = capture::check(&path, capture::Link::Bad);
        assert!(found.text_bytes >= FILES << 20, "{found:?}");
        assert!(found.repeated_segments > 0, "nothing was lost: {found:?}");
    });
}

#[test]
fn files_of_nginx_arrive_whole_over_a_bad_link() {
    let test = "bad_link::files_of_nginx_arrive_whole_over_a_bad_link";
    namespace::inside(test, &["nginx"], || {
        let directory = tools::directory();
        write_files(directory.path());
        client::fetch_all(directory.path(), FILES, |device| {
            Box::new(Link::both_ways(device, &BAD.parse().unwrap()))
        });
    });
}

#[test]
fn a_delay_asked_for_is_a_delay_both_ways() {
    let test = "bad_link::a_delay_asked_for_is_a_delay_both_ways";
    namespace::inside(test, &[], || {
        let directory = tools::directory();
        let server = Server::on(Cable::best(), directory.path(), &["--fault", "delay=30ms"]);
        for ours in OURS {
            let begin = Instant::now();
            reach(ours, 80);
            let took = begin.elapsed();
            assert!(took >= Duration::from_millis(60), "{ours} answers after {took:?}");
        }
        server.stop();
    });
}
