//! Peers that request much data and read little or nothing of it, and one well-behaved client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lightwait::executor::JoinHandle;
use lightwait::local::{TcpSocket, TcpStream};
use lightwait::rt::{sleep, timeout};
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_core::buffer::PAGE_BYTES;
use lightwait_core::config::PoolPolicy;
use lightwait_sim::Side;
use lightwait_sim::pattern::Pattern;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::site::{self, LARGE, Site, connect, get, run, site_with, try_connect, try_get};

/// 8 MiB: the buffers of some thirty of the peers, or all peers without buffers.
const PAGES: usize = 2048;
const PEERS: usize = 300;
const PEERS_A_SECOND: u64 = 30;
/// The length of the attack, from the first peer on.
const ATTACK: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn small_site() -> Site {
    site_of(PAGES)
}

fn site_of(pages: usize) -> Site {
    site_with(0.0, Duration::ZERO, |config| {
        config.limits.pages = pages;
        config.limits.receive_window_bytes = (pages as u64 * 4096) / 2;
    })
}

/// A peer's way to waste its connection.
#[derive(Clone, Copy, Debug)]
enum Waste {
    /// Requests the large file, and reads none of it.
    Nothing,
    /// Requests the large file with a window of a segment, and reads none of it.
    Closed,
    /// Reads that many bytes of it in each step.
    Little(usize, Duration),
    /// Sends a head a byte a second, without an end.
    Head,
    /// Sends a head, and then a body a byte a second.
    Body,
    /// Sends nothing.
    Silence,
}

impl Waste {
    fn request(self) -> &'static [u8] {
        match self {
            Waste::Nothing | Waste::Closed | Waste::Little(..) => {
                b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n"
            }
            Waste::Head => b"GET /large HTTP/1.1\r\nX: ",
            Waste::Body => b"POST /large HTTP/1.1\r\nHost: h\r\nContent-Length: 9999\r\n\r\n",
            Waste::Silence => b"",
        }
    }
}

/// Wastes a connection until the attack ends, or the server ends it.
async fn waste(what: Waste, ends: lightwait_core::Instant) {
    let connected = match what {
        Waste::Closed => {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(1460).unwrap();
            socket.connect((site::host(Side::B), 80).into()).await
        }
        _ => try_connect().await,
    };
    let Ok(mut stream) = connected else { return };
    let mut goes_on = stream.write_all(what.request()).await.is_ok();
    while goes_on && Handle::current().now() < ends {
        goes_on = match what {
            Waste::Little(bytes, step) => {
                sleep(step).await;
                stream.read_exact(&mut vec![0; bytes]).await.is_ok()
            }
            Waste::Head | Waste::Body => {
                sleep(SECOND).await;
                stream.write_all(b"x").await.is_ok()
            }
            // The check for an error reads no data.
            Waste::Nothing | Waste::Closed | Waste::Silence => {
                sleep(SECOND).await;
                stream.take_error().is_ok_and(|error| error.is_none())
            }
        };
    }
    // The peer vanishes: its connection is never closed.
    std::mem::forget(stream);
}

/// Requests a small file on new connections, ten a second. Returns whether each was answered in 3
/// s, by the second in which it began.
async fn ask(ends: lightwait_core::Instant) -> Vec<(u64, bool)> {
    let (answers, begin) = (Rc::new(RefCell::new(Vec::new())), Handle::current().now());
    while Handle::current().now() < ends {
        let note = answers.clone();
        Handle::current().spawn_local(async move {
            let second = Handle::current().now().since(begin).as_secs();
            let asked = async {
                let mut stream = try_connect().await.ok()?;
                let (head, body) = try_get(&mut stream, "/small").await.ok()?;
                (head.starts_with("HTTP/1.1 200") && body.len() == 1000).then_some(())
            };
            let answer = timeout(SECOND * 3, asked).await;
            note.borrow_mut().push((second, matches!(answer, Ok(Some(())))));
        });
        sleep(SECOND / 10).await;
    }
    sleep(SECOND * 4).await;
    answers.take()
}

/// Fetches the large file again and again. Returns the number of bytes.
async fn download(ends: lightwait_core::Instant) -> u64 {
    let mut stream = connect().await;
    let mut bytes = 0;
    while Handle::current().now() < ends {
        get(&mut stream, "/large").await;
        bytes += LARGE;
    }
    bytes
}

/// Runs an attack by `peers` stalling peers. Returns the well-behaved client's answered requests in
/// each second, and the bytes that it fetched.
fn attack(site: &mut Site, peers: usize, what: Waste) -> (Vec<(u64, bool)>, u64) {
    attack_by(site, (peers, PEERS_A_SECOND), what)
}

/// Runs an attack by that many new peers a second.
fn attack_by(
    site: &mut Site,
    (peers, a_second): (usize, u64),
    what: Waste,
) -> (Vec<(u64, bool)>, u64) {
    run(&mut site.world, async move {
        let ends = Handle::current().now() + ATTACK;
        Handle::current().spawn_local(async move {
            for _ in 0..peers {
                Handle::current().spawn_local(waste(what, ends));
                sleep(SECOND / a_second as u32).await;
            }
        });
        tokio::join!(ask(ends), download(ends))
    })
}

fn held(site: &Site) -> (usize, usize) {
    let held = site.memory.held().load(Ordering::Relaxed);
    (site.world.host(Side::B, Host::pages_in_use), held)
}

/// At least 99 % of the requests were answered, and 90 % in each second.
fn assert_answered(answers: &[(u64, bool)], what: &str) {
    assert_answered_for(ATTACK.as_secs(), answers, what);
}

/// At least 99 % of the requests of so many seconds were answered, and 90 % in each second.
fn assert_answered_for(seconds: u64, answers: &[(u64, bool)], what: &str) {
    let count = |all: &[(u64, bool)]| (all.len(), all.iter().filter(|(_, whole)| *whole).count());
    let (total, answered) = count(answers);
    assert!(answered * 100 >= total * 99, "{what}: {answered} of {total}");
    for second in 0..seconds {
        let of_then: Vec<_> = answers.iter().filter(|(at, _)| *at == second).copied().collect();
        let (total, answered) = count(&of_then);
        assert!(answered * 10 >= total * 9, "{what}: second {second}: {answered}");
    }
}

/// Runs an attack. Returns also the most pages that the server held.
fn attack_and_watch(site: &mut Site, peers: usize, what: Waste) -> (Vec<(u64, bool)>, u64, usize) {
    let (most, handle) = (Rc::new(Cell::new(0)), site.world.handle(Side::B));
    let (note, watched) = (most.clone(), handle.clone());
    let watcher = handle.spawn_local(async move {
        loop {
            note.set(note.get().max(watched.with_host(Host::pages_in_use)));
            sleep(SECOND / 20).await;
        }
    });
    let (answers, fetched) = attack(site, peers, what);
    watcher.abort();
    (answers, fetched, most.get())
}

#[test]
fn peers_that_waste_connections_keep_nobody_from_service() {
    let (_, undisturbed) = attack(&mut small_site(), 0, Waste::Nothing);
    let wastes = [
        Waste::Nothing,
        Waste::Little(1, SECOND * 20),
        Waste::Little(32, SECOND * 3),
        // Just above the rate below which the server resets a peer in any case.
        Waste::Little(1100, SECOND),
        Waste::Head,
        Waste::Body,
        Waste::Silence,
    ];
    for waste in wastes {
        let (mut site, what) = (small_site(), format!("{waste:?}"));
        let (answers, fetched, most) = attack_and_watch(&mut site, PEERS, waste);
        assert_answered(&answers, &what);
        assert!(fetched * 2 >= undisturbed, "{what}: {fetched} of {undisturbed} bytes");
        let tally = site.server.tally();
        // Silent peers take so little that memory is not short.
        let is_short = !matches!(waste, Waste::Silence);
        assert!((most > PAGES / 2) == is_short && most <= PAGES, "{what}: {most}; {tally:?}");
        // They are silent from here on, and hold no memory a minute later; the cache may.
        site.world.run_for(SECOND * 61).unwrap();
        site.server.handler().set_cache_bytes(0);
        site.world.run_for(SECOND).unwrap();
        assert_eq!(held(&site), (0, 0), "{what}: {tally:?}");
    }
}

/// Peers that keep coming; each is reset only after it has stalled for a while. Until then they
/// would fill several times the memory.
#[test]
fn peers_that_keep_coming_keep_nobody_from_being_served() {
    let (_, undisturbed) = attack(&mut site_of(4 * PAGES), 0, Waste::Nothing);
    // Whether the memory fills at once or by and by hangs on the rate.
    for a_second in [95, 98, 100, 105] {
        let mut site = site_of(4 * PAGES);
        let peers = (a_second * ATTACK.as_secs()) as usize;
        let (answers, fetched) = attack_by(&mut site, (peers, a_second), Waste::Closed);
        assert_answered(&answers, &format!("{a_second} a second"));
        assert!(fetched * 10 >= undisturbed * 9, "{a_second}: {fetched} of {undisturbed} bytes");
    }
}

/// Readers that stall and read on later: the server gives back the memory of what was never sent to
/// them, and reads that again. Meanwhile others are served, and nobody is reset.
#[test]
fn readers_that_stall_give_memory_back_and_read_on_later() {
    let taken_back = stall_and_read_on(|site| site.server.handler().set_cache_bytes(0));
    assert!(taken_back > (PAGES / 3 * PAGE_BYTES) as u64, "{taken_back}");
}

/// All have the same file: its blocks are in memory once, and there is nothing to give back.
#[test]
fn readers_that_stall_and_share_a_file_hold_next_to_nothing() {
    assert_eq!(stall_and_read_on(|_| ()), 0);
}

/// Readers stall, and read on. Returns the bytes that were taken back meanwhile.
fn stall_and_read_on(prepare: impl Fn(&Site)) -> u64 {
    const READERS: u32 = 60;
    const STALL: u64 = 8;
    let mut site = site_with(0.0, Duration::ZERO, |config| {
        config.limits.pages = PAGES;
        config.limits.receive_window_bytes = (PAGES * PAGE_BYTES / 2) as u64;
        config.tcp.pool.policy = PoolPolicy::Priority;
    });
    // The files are old enough for a change to be told.
    site.world.run_for(SECOND * 3).unwrap();
    prepare(&site);
    let handle = site.world.handle(Side::B);
    let (answers, fetched, resets) = run(&mut site.world, async move {
        let ends = Handle::current().now() + SECOND * STALL as u32;
        let begin = |number| Handle::current().spawn_local(begin_to_read(SECOND / 12 * number));
        let readers: Vec<_> = (0..READERS).map(begin).collect();
        let (answers, fetched) = tokio::join!(ask(ends), download(ends));
        let resets = handle.with_host(resets);
        // Some at a time, or the last would have stalled for half a minute.
        let mut readers = readers.into_iter();
        while readers.len() > 0 {
            let some = readers.by_ref().take(6);
            let some = some.map(|reader| Handle::current().spawn_local(read_on(reader)));
            for reading in some.collect::<Vec<_>>() {
                reading.await.unwrap();
            }
        }
        (answers, fetched, resets)
    });
    assert_answered_for(STALL, &answers, "others");
    assert!(fetched > 10 * LARGE, "{fetched}");
    let counters = site.world.host(Side::B, |host| *host.counters());
    assert_eq!((resets, site.world.host(Side::B, self::resets)), (0, 0));
    counters.taken_back_closed_window_bytes
}

/// Asks for the large file and reads the first bytes, so that its window grows, and no more.
async fn begin_to_read(after: Duration) -> (TcpStream, Vec<u8>) {
    sleep(after).await;
    let mut stream = connect().await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut bytes = vec![0; 300_000];
    stream.read_exact(&mut bytes).await.unwrap();
    (stream, bytes)
}

/// Reads the rest, which is what the file has.
async fn read_on(begun: JoinHandle<(TcpStream, Vec<u8>)>) {
    let (mut stream, mut bytes) = begun.await.unwrap();
    let begun = bytes.len();
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    bytes.resize(head + LARGE as usize, 0);
    stream.read_exact(&mut bytes[begun..]).await.unwrap();
    assert_eq!(Pattern::new(2).first_difference(0, &bytes[head..]), None);
}

/// Connections that were reset so that there is memory.
fn resets(host: &Host) -> u64 {
    let counters = host.counters();
    counters.reset_for_memory_closed_window + counters.reset_for_memory_slow
}

/// Clients that all read what they ask for, and ask for more than the memory holds, do not hold
/// one another up: the link is the limit.
#[test]
fn many_downloads_in_little_memory_go_on_all_the_time() {
    const CLIENTS: u64 = 150;
    // Half of it is the connections' memory without their buffers.
    let mut site = site_of(PAGES / 4 * 3);
    let longest = run(&mut site.world, async {
        let longest = Rc::new(RefCell::new(Duration::ZERO));
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let longest = longest.clone();
                Handle::current().spawn_local(async move {
                    let mut stream = connect().await;
                    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
                    let (mut left, mut buffer) = (LARGE as usize, vec![0; 64 << 10]);
                    let mut last = Handle::current().now();
                    while left > 0 {
                        left -= stream.read(&mut buffer).await.unwrap().min(left);
                        let now = Handle::current().now();
                        let mut longest = longest.borrow_mut();
                        *longest = longest.max(now.since(last));
                        last = now;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        longest.take()
    });
    // 450 MB at 100 Mbit/s.
    let took = site.world.now().since(lightwait_core::Instant::from_millis(784_111_777_000));
    assert!(took < Duration::from_secs(45), "{took:?}, {longest:?} without a byte");
    site.world.run_for(SECOND).unwrap();
    assert_eq!(held(&site), (0, 0));
}
