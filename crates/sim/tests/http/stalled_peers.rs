//! Peers that ask for much and take nothing of it, or next to nothing, and one that behaves well.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lightwait::rt::{sleep, timeout};
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_sim::Side;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::site::{LARGE, Site, connect, get, run, site_with};

/// 4 MiB: what some twenty of the peers would hold.
const PAGES: usize = 1024;
const PEERS: usize = 300;
const PEERS_A_SECOND: u64 = 30;
/// How long the attack lasts, from the first peer on.
const ATTACK: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn small_site() -> Site {
    site_with(0.0, Duration::ZERO, |config| {
        config.limits.pages = PAGES;
        config.limits.receive_window_bytes = (PAGES as u64 * 4096) / 2;
    })
}

/// Asks for the large file and takes a byte of it every `step`, or nothing, until the attack ends.
async fn stall(step: Option<Duration>, ends: lightwait_core::Instant) {
    let mut stream = connect().await;
    let _ = stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await;
    while Handle::current().now() < ends {
        sleep(step.unwrap_or(SECOND)).await;
        if step.is_some() && stream.read_u8().await.is_err() {
            return;
        }
    }
    // It vanishes: nobody closes what it had.
    std::mem::forget(stream);
}

/// Asks for a small file on new connections, ten a second; whether each was answered in 3 s, by the
/// second in which it began.
async fn ask(ends: lightwait_core::Instant) -> Vec<(u64, bool)> {
    let (answers, begin) = (Rc::new(RefCell::new(Vec::new())), Handle::current().now());
    while Handle::current().now() < ends {
        let note = answers.clone();
        Handle::current().spawn_local(async move {
            let second = Handle::current().now().since(begin).as_secs();
            let asked = async {
                let (head, body) = get(&mut connect().await, "/small").await;
                head.starts_with("HTTP/1.1 200") && body.len() == 1000
            };
            let answer = timeout(SECOND * 3, asked).await;
            note.borrow_mut().push((second, answer.is_ok_and(|whole| whole)));
        });
        sleep(SECOND / 10).await;
    }
    sleep(SECOND * 4).await;
    answers.take()
}

/// Fetches the large file again and again; how many bytes those were.
async fn download(ends: lightwait_core::Instant) -> u64 {
    let mut stream = connect().await;
    let mut bytes = 0;
    while Handle::current().now() < ends {
        get(&mut stream, "/large").await;
        bytes += LARGE;
    }
    bytes
}

/// How many of the well-behaved client's requests were answered in each second, and how many bytes
/// it fetched, beside so many stalling peers.
fn attack(site: &mut Site, peers: usize, step: Option<Duration>) -> (Vec<(u64, bool)>, u64) {
    run(&mut site.world, async move {
        let ends = Handle::current().now() + ATTACK;
        Handle::current().spawn_local(async move {
            for _ in 0..peers {
                Handle::current().spawn_local(stall(step, ends));
                sleep(SECOND / PEERS_A_SECOND as u32).await;
            }
        });
        tokio::join!(ask(ends), download(ends))
    })
}

fn held(site: &Site) -> (usize, usize) {
    let held = site.memory.held().load(Ordering::Relaxed);
    (site.world.host(Side::B, Host::pages_in_use), held)
}

#[test]
fn those_who_take_nothing_keep_nobody_from_being_served() {
    let (_, undisturbed) = attack(&mut small_site(), 0, None);
    for step in [None, Some(SECOND * 20)] {
        let mut site = small_site();
        let (answers, fetched) = attack(&mut site, PEERS, step);
        let resets =
            site.world.host(Side::B, |host| host.counters().reset_for_memory_closed_window);
        assert!(resets as usize > PEERS / 2, "{resets}: memory was short");
        let total = answers.len();
        let answered = answers.iter().filter(|(_, whole)| *whole).count();
        assert!(answered * 100 >= total * 99, "{step:?}: {answered} of {total}");
        for second in 0..ATTACK.as_secs() {
            let of_then = answers.iter().filter(|(at, _)| *at == second);
            let whole = of_then.clone().filter(|(_, whole)| *whole).count();
            assert!(whole * 10 >= of_then.count() * 9, "{step:?}: second {second}: {whole}");
        }
        assert!(fetched * 2 >= undisturbed, "{step:?}: {fetched} of {undisturbed} bytes");
        // They are silent from here on, and hold nothing a minute later.
        site.world.run_for(SECOND * 60).unwrap();
        assert_eq!(held(&site), (0, 0), "{step:?}");
        let tally = site.server.tally();
        assert!(tally.reset_stalled + tally.reset_slow > 0, "{tally:?}");
    }
}

/// Clients that all read what they ask for, and ask for more than the memory holds, do not hold
/// one another up: the link is the limit.
#[test]
fn many_downloads_in_little_memory_go_on_all_the_time() {
    const CLIENTS: u64 = 150;
    let mut site = small_site();
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
