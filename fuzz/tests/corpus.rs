//! The stored corpora: every input still passes, and every malformed frame is counted and dropped.

use std::fs;
use std::path::{Path, PathBuf};

use lightwait_core::config::Limits;
use lightwait_core::frame::{Capabilities, Medium, Outbox, RxFrame};
use lightwait_core::wire::Malformed;
use lightwait_core::{Config, Host, Instant};
use lightwait_fuzz::Target;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn replay(target: Target) {
    let folder = corpus().join(target.name());
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 50, "a corpus of {} inputs", paths.len());
    for path in paths {
        let input = fs::read(&path).unwrap();
        // The output of a failing test names the input.
        println!("{}", path.display());
        target.run(&input, false);
    }
}

#[test]
fn every_stored_input_of_the_parsers_passes() {
    replay(Target::Wire);
}

#[test]
fn every_stored_input_of_the_hosts_passes() {
    replay(Target::Host);
}

/// One line of the corpus of malformed frames.
struct Bad {
    medium: Medium,
    /// The name under which it is counted: a reason's text, or a counter's name.
    counted: String,
    /// Its sender hears of it.
    is_told: bool,
    bytes: Vec<u8>,
}

fn malformed_frames() -> Vec<Bad> {
    let text = fs::read_to_string(corpus().join("malformed.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [medium, counted, hex] = line.split('|').collect::<Vec<_>>()[..] else {
                panic!("not three columns: {line}");
            };
            let medium = match medium.trim() {
                "ip" => Medium::Ip,
                "ethernet" => Medium::Ethernet,
                other => panic!("no medium is called {other}"),
            };
            let digits: Vec<u8> =
                hex.trim().chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
            let bytes = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            let counted = counted.trim();
            let reason = counted.strip_suffix(", told");
            let (counted, is_told) = (reason.unwrap_or(counted).to_owned(), reason.is_some());
            Bad { medium, counted, is_told, bytes }
        })
        .collect()
}

/// A listening host that has sent all its frames of its own accord.
fn host(medium: Medium) -> (Host, Instant) {
    let device = Capabilities::plain(medium, 1500);
    let mut config = Config::new(device, "10.0.0.2/24".parse().unwrap(), [7; 32]);
    config.addresses.push("fe80::2/64".parse().unwrap());
    config.hardware = [2, 0, 0, 0, 0, 2];
    config.limits = Limits { replies_per_second: 1_000_000, ..Limits::default() };
    let mut host = Host::new(config).unwrap();
    for address in ["0.0.0.0:80", "[::]:81"] {
        host.listen(address.parse().unwrap(), 4).unwrap();
    }
    let mut now = Instant::from_millis(1000);
    for _ in 0..100 {
        let mut outbox = Outbox::new(64);
        host.on_time(now);
        host.emit(now, &mut outbox);
        match host.deadline().filter(|at| at.as_millis() < 100_000) {
            Some(at) => now = now.max(at),
            None => break,
        }
    }
    (host, Instant::from_millis(100_000))
}

/// The counts since then, by name: the counters, and the reasons for malformed frames.
fn counted(host: &Host) -> Vec<(String, u64)> {
    let counters = host.counters().iter().map(|(name, count)| (name.to_owned(), count));
    let reasons = host.malformed().map(|(reason, count)| (reason.to_string(), count));
    counters.chain(reasons).collect()
}

#[test]
fn every_malformed_frame_is_counted_once_and_has_no_effect() {
    for Bad { medium, counted: expected, is_told, bytes } in malformed_frames() {
        let (mut host, now) = host(medium);
        let what = format!("{medium:?}, {expected}: {bytes:02x?}");
        let before = counted(&host);
        host.on_frame(now, RxFrame::plain(&bytes));
        host.on_time(now);
        let mut outbox = Outbox::new(64);
        host.emit(now, &mut outbox);
        // An answer may have asked for its neighbour.
        host.emit(now, &mut outbox);
        let changed: Vec<(String, u64)> = before
            .into_iter()
            .zip(counted(&host))
            .filter(|(before, after)| before != after)
            .map(|(before, after)| (after.0, after.1 - before.1))
            .collect();
        let mut names = vec!["frames_in"];
        let is_reason = Malformed::ALL.iter().any(|reason| reason.text() == expected);
        // The answer, or the question for the neighbour that it goes to.
        names.extend(is_told.then_some("frames_out"));
        names.extend(is_reason.then_some("frames_malformed"));
        names.extend(is_told.then_some("header_problems"));
        names.push(&expected);
        let once: Vec<(String, u64)> = names.iter().map(|name| (name.to_string(), 1)).collect();
        assert_eq!(changed, once, "{what}");
        assert_eq!(outbox.len(), usize::from(is_told), "answers to {what}");
        assert_eq!(host.event(), None, "{what}");
        assert_eq!((host.connections(), host.half_open()), (0, 0), "{what}");
        assert!(!host.wants_emit(), "{what}");
    }
}

#[test]
fn the_malformed_frames_are_of_every_kind() {
    let frames = malformed_frames();
    for reason in Malformed::ALL {
        // A segment or datagram with a wrong checksum has a counter of its own.
        let known = *reason == Malformed::TcpChecksum
            || frames.iter().any(|bad| bad.counted == reason.text());
        assert!(known, "no frame is malformed because of {reason}");
    }
    for counter in ["checksum_errors", "not_ours", "vlan_unknown", "protocol_unknown"] {
        assert!(frames.iter().any(|bad| bad.counted == counter), "no frame for {counter}");
    }
}
