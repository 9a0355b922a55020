//! The privileges of a running server's threads. Without privileges at the start there is nothing
//! to see.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::{Server, site};

/// CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (linux/capability.h).
const KEPT: u64 = (1 << 1) | (1 << 2);

/// The threads of a process by name, each with the privileges that it may use.
fn privileges(process: u32) -> Vec<(String, u64)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let permitted = u64::from_str_radix(field("CapPrm:")?.trim(), 16).unwrap();
        Some((field("Name:")?.trim().to_owned(), permitted))
    };
    tasks.filter_map(of_task).collect()
}

#[test]
fn no_thread_keeps_more_than_those_that_read_files() {
    let site = site();
    let capture = site.path().join("capture.pcapng");
    let server = Server::start_with(site.path(), &["--pcap", capture.to_str().unwrap()]);
    // Those that serve have begun.
    assert_eq!(server.get("/hello.txt").0, 200);
    let begin = Instant::now();
    loop {
        let threads = privileges(server.process.id());
        assert!(threads.iter().any(|(name, _)| name == "capture"), "{threads:?}");
        if threads.iter().all(|(_, permitted)| permitted & !KEPT == 0) {
            break;
        }
        // One that has just begun may not have come to it.
        assert!(begin.elapsed() < Duration::from_secs(10), "{threads:x?}");
        thread::sleep(Duration::from_millis(10));
    }
}
