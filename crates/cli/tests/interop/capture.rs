//! Captures of the program, judged by tshark and by our own checker.

use std::path::Path;

use crate::audit::{Findings, audit};
use crate::namespace;
use crate::server::{Cable, Server, URLS};
use crate::tools::{self, command, curl, sha256_of_file, sha256_of_output};

/// What a capture was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// It loses nothing.
    Good,
    /// It does.
    Bad,
}

/// What tshark must not find in any capture.
const NEVER: &str = "tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\" \
                     || icmpv6.checksum.status == \"Bad\" || _ws.malformed";

/// What it must not find of ours if nothing was lost, either. (The kernel probes the tail after a
/// few milliseconds, in which a busy machine may not run us at all: RFC 8985 §7.)
const NOT_WITHOUT_LOSS: &str = "(ip.src == 10.77.0.2 || ipv6.src == fd77::2) \
     && (tcp.analysis.retransmission || tcp.analysis.fast_retransmission \
     || tcp.analysis.out_of_order || tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment \
     || tcp.analysis.keep_alive || tcp.flags.reset == 1 || icmp.type == 3)";

/// Holds a capture against both; returns what our own checker counted. A capture with a fault is
/// kept.
pub(crate) fn check(path: &Path, link: Link) -> Findings {
    let mut faults = tshark(path, NEVER);
    if link == Link::Good {
        faults.extend(tshark(path, NOT_WITHOUT_LOSS));
    }
    let mut found = audit(&std::fs::read(path).unwrap());
    faults.append(&mut found.faults);
    if !faults.is_empty() {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fault.pcapng");
        std::fs::copy(path, &kept).unwrap();
        panic!("{}:\n{}", kept.display(), faults.join("\n"));
    }
    found
}

/// The packets of the capture for which the filter holds, one a line; the first few.
fn tshark(path: &Path, filter: &str) -> Vec<String> {
    let mut tshark = command("tshark");
    // Its checks are off by default, since captures of a sender's own are seldom complete.
    for protocol in ["tcp", "ip"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    // Text is text. Cut otherwise when it is sent again it would be an error of HTTP's, and where
    // the kernel happens to choose the port of another protocol, one of that.
    tshark.args(["-o", "tcp.desegment_tcp_streams:FALSE", "-d", "tcp.port==1-65535,data"]);
    let text = tools::output(tshark.arg("-n").arg("-r").arg(path).args(["-Y", filter]));
    text.lines().take(10).map(str::to_owned).collect()
}

fn downloads_are_captured_without_a_fault(cable: Cable, flags: &[&str], largest: usize) {
    let directory = tools::directory();
    let file = directory.path().join("file");
    tools::write_file(&file, 16);
    let wanted = sha256_of_file(&file);
    let path = directory.path().join("capture.pcapng");
    let flags = [&["--pcap", path.to_str().unwrap()], flags].concat();
    let server = Server::on(cable, directory.path(), &flags);
    for url in URLS {
        assert_eq!(sha256_of_output(&mut curl(&format!("{url}/file"))), wanted);
        for _ in 0..20 {
            tools::output(&mut curl(&format!("{url}/?none")));
        }
    }
    server.stop();
    let found = check(&path, Link::Good);
    assert_eq!(found.repeated_segments, 0, "{found:?}");
    assert!(found.text_bytes >= 32 << 20 && found.connections >= 42, "{found:?}");
    assert!((largest / 2..=largest).contains(&found.largest_packet), "{found:?}");
}

#[test]
fn large_segments_are_captured_without_a_fault() {
    let test = "capture::large_segments_are_captured_without_a_fault";
    namespace::inside(test, &["curl", "tshark"], || {
        downloads_are_captured_without_a_fault(Cable::best(), &[], 65_535);
    });
}

/// A link, be it perfect, takes no large segments: checksums and cuts are then our own.
#[test]
fn packets_of_our_own_cutting_are_captured_without_a_fault() {
    let test = "capture::packets_of_our_own_cutting_are_captured_without_a_fault";
    namespace::inside(test, &["curl", "tshark"], || {
        downloads_are_captured_without_a_fault(Cable::best(), &["--fault", "loss=0%"], 1500);
    });
}

#[test]
fn packets_of_a_packet_socket_are_captured_without_a_fault() {
    let test = "capture::packets_of_a_packet_socket_are_captured_without_a_fault";
    namespace::inside(test, &["curl", "tshark"], || {
        downloads_are_captured_without_a_fault(Cable::PacketSocket, &[], 65_535);
    });
}
