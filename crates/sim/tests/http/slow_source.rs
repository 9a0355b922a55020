//! Downloads from a source that takes its time, with send buffers that follow the window (Cohen &
//! Cohen 2002 §3).

use std::time::Duration;

use lightwait::local::{TcpSocket, TcpStream};
use lightwait::rt::sleep;
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_core::buffer::PAGE_BYTES;
use lightwait_core::config::SendRule;
use lightwait_netem::{LinkConfig, Rate};
use lightwait_sim::Side;
use lightwait_sim::disk::Disk;
use lightwait_sim::pattern::Pattern;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::site::{self, Site, connect, get, read_head, run, site_of};

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(20);
const BYTES: u64 = 20_000_000;
/// What the client's window carries in a round trip: 26 MB a second.
const WINDOW: u32 = 512 << 10;

/// A server each of whose reads takes so long, however many are under way, and a client.
fn site_with_reads_of(read_time: Duration) -> Site {
    let rate = Rate::BitsPerSecond(10_000_000_000);
    let link = LinkConfig { rate, delay: RTT / 2, ..LinkConfig::default() };
    let disk = Disk::new(&[("large", BYTES, 2)], read_time, u64::MAX).with_many_arms();
    site_of(&link, disk, |side, config| match side {
        Side::A => config.tcp.buffers.receive_max = WINDOW,
        Side::B => {
            config.tcp.buffers.send_size = SendRule::Los;
            config.tcp.buffers.send = 4 << 20;
        }
    })
}

/// A client that offers its whole window from the start.
async fn connect_with_window() -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(WINDOW).unwrap();
    socket.connect((site::host(Side::B), 80).into()).await.unwrap()
}

/// How long the download takes, and how often the server had nothing to send.
fn download(read_time: Duration) -> (Duration, u64) {
    let mut site = site_with_reads_of(read_time);
    let took = run(&mut site.world, async {
        let mut stream = connect_with_window().await;
        let begin = Handle::current().now();
        let (_, body) = get(&mut stream, "/large").await;
        assert_eq!(Pattern::new(2).first_difference(0, &body), None);
        Handle::current().now().since(begin)
    });
    (took, site.world.host(Side::B, |host| host.counters().buffer_misses))
}

/// What a source takes for a read shows once, before the first byte: each download waits for the
/// file to be opened and for the first read, and for nothing else.
#[test]
fn reads_of_two_round_trips_cost_a_download_only_the_first() {
    let (at_once, _) = download(Duration::ZERO);
    // A round trip of reads is kept ahead, and two where a read takes longer than one.
    for read_time in [MS, MS * 10, MS * 15, MS * 19, RTT, MS * 30, RTT * 2] {
        let (took, misses) = download(read_time);
        assert_eq!(misses, 0, "{read_time:?}: {took:?}");
        assert!(took <= at_once + read_time * 2 + MS, "{read_time:?}: {took:?} after {at_once:?}");
    }
}

/// A client's window that grows lets out more than it ever offered, and that is not foreseen. Once
/// it has grown nothing is missed.
#[test]
fn a_window_that_has_grown_is_followed() {
    let mut site = site_with_reads_of(MS * 15);
    let server = site.world.handle(Side::B);
    let (growing, grown) = run(&mut site.world, async move {
        let mut stream = connect().await;
        let misses = || server.with_host(|host| host.counters().buffer_misses);
        get(&mut stream, "/large").await;
        let growing = misses();
        get(&mut stream, "/large").await;
        (growing, misses() - growing)
    });
    assert!(growing < 20 && grown == 0, "{growing}, {grown}");
}

/// Bytes that the server holds for a reader that takes so much of a file and then nothing. Later
/// the reader takes the rest, and it is right.
fn held_for_a_stalled_reader(read_time: Duration, taken: usize) -> usize {
    let mut site = site_with_reads_of(read_time);
    let server = site.world.handle(Side::B);
    run(&mut site.world, async move {
        // A change of a file that was just written could not be detected.
        sleep(MS * 3000).await;
        let mut stream = connect().await;
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        read_head(&mut stream).await.unwrap();
        let mut body = vec![0; BYTES as usize];
        let (first, rest) = body.split_at_mut(taken);
        stream.read_exact(first).await.unwrap();
        sleep(MS * 2000).await;
        let held = server.with_host(Host::pages_in_use) * PAGE_BYTES;
        stream.read_exact(rest).await.unwrap();
        assert_eq!(Pattern::new(2).first_difference(0, &body), None);
        held
    })
}

/// A window's worth of data and the reads for the next rounds are taken back once the window has
/// been closed for a while. Two segments stay, for the probes and for when the window opens.
#[test]
fn a_reader_that_stalls_holds_two_segments() {
    const CONNECTION: usize = 24 << 10;
    const STAYS: usize = 8 << 10;
    for read_time in [Duration::ZERO, MS * 15, RTT * 2] {
        for taken in [0, 10_000_000] {
            let held = held_for_a_stalled_reader(read_time, taken);
            let what = format!("reads of {read_time:?}, stalled after {taken}");
            assert!(held <= CONNECTION + STAYS, "{what}: {held} bytes");
        }
    }
}
