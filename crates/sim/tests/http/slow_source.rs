//! Downloads from a source that takes its time, with send buffers that follow the window (Cohen &
//! Cohen 2002 §3).

use std::time::Duration;

use lightwait::net::{TcpSocket, TcpStream};
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

use crate::site::{self, Site, connect, get, run, site_of};

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

/// Bytes that the server holds for a reader that takes so much of a file and then nothing.
fn held_for_a_stalled_reader(read_time: Duration, taken: usize) -> usize {
    let mut site = site_with_reads_of(read_time);
    let _stream = run(&mut site.world, async move {
        let mut stream = connect().await;
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        stream.read_exact(&mut vec![0; taken]).await.unwrap();
        sleep(MS * 2000).await;
        stream
    });
    site.world.host(Side::B, Host::pages_in_use) * PAGE_BYTES
}

/// What a window lets out, what k reads of a round trip each are kept ahead, and as much read for
/// the next (Cohen & Cohen 2002 §3.3).
#[test]
fn a_reader_that_stalls_holds_what_the_scheme_allows() {
    const CONNECTION: usize = 24 << 10;
    for (read_time, reads) in [(Duration::ZERO, 1), (MS * 15, 1), (RTT * 2, 2)] {
        for (taken, window) in [(0, 64 << 10), (10_000_000, WINDOW as usize)] {
            let (held, most) =
                (held_for_a_stalled_reader(read_time, taken), (1 + 2 * reads) * window);
            let what = format!("reads of {read_time:?}, stalled after {taken}");
            assert!(held <= most + CONNECTION, "{what}: {held} bytes, of {most}");
        }
    }
}
