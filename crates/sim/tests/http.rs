//! The HTTP server, unmodified, in virtual time, with a slow disk, a lossy link and slow clients.

mod site;
mod slow_source;
mod stalled_peers;
mod tight_pool;

use std::time::Duration;

use lightwait::rt::sleep;
use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_sim::pattern::Pattern;
use lightwait_sim::{Side, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use site::{LARGE, connect, get, run, site};

#[test]
fn files_arrive_whole_over_a_link_that_loses() {
    let mut site = site(0.02, Duration::from_millis(5));
    run(&mut site.world, async {
        // From then on a file is known to be the same when it is read again.
        sleep(Duration::from_secs(3)).await;
        let mut stream = connect().await;
        for (target, length, seed) in
            [("/small", 1000, 1), ("/large", LARGE, 2), ("/small", 1000, 1)]
        {
            let (head, body) = get(&mut stream, target).await;
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert_eq!(body.len() as u64, length);
            assert_eq!(Pattern::new(seed).first_difference(0, &body), None, "{target}");
        }
        // The last answer is logged once it is acknowledged.
        sleep(Duration::from_secs(1)).await;
    });
    assert!(site.records.borrow().iter().all(|record| record.complete));
    assert_eq!(site.records.borrow().len(), 3);
    let adopted = site.world.host(Side::B, |host| host.counters().adopted_bytes);
    assert!(adopted > LARGE / 2, "{adopted} bytes were sent without a copy");
}

#[test]
fn dates_are_the_worlds() {
    let mut site = site(0.0, Duration::ZERO);
    let (head, _) = run(&mut site.world, async { get(&mut connect().await, "/small").await });
    assert!(head.contains("date: Sun, 06 Nov 1994 08:49:37 GMT"), "{head}");
    assert!(head.contains("last-modified: Sun, 06 Nov 1994 08:49:37 GMT"), "{head}");
}

#[test]
fn a_slow_disk_holds_nobody_but_those_who_read_it() {
    let mut site = site(0.0, Duration::from_secs(2));
    let took = run(&mut site.world, async {
        let begin = Handle::current().now();
        let mut waiting = connect().await;
        waiting.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let mut refused = connect().await;
        refused
            .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        refused.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 405");
        Handle::current().now().since(begin)
    });
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[test]
fn reading_ahead_hides_the_disk_behind_the_link() {
    // Three million bytes: 240 ms of link, 23 chunks of 128 KiB with 5 ms of seek and 1.3 of
    // transfer each: 145 ms of disk. One after the other would be 385 ms.
    let mut site = site(0.0, Duration::from_millis(5));
    let took = run(&mut site.world, async {
        let mut stream = connect().await;
        // Slow start is over, and the window open.
        get(&mut stream, "/large").await;
        let begin = Handle::current().now();
        get(&mut stream, "/large").await;
        Handle::current().now().since(begin)
    });
    assert!(took < Duration::from_millis(330), "{took:?}");
}

#[test]
fn who_dawdles_is_let_go_in_time() {
    for (text, seconds) in [("", 60), ("GET / HT", 15)] {
        let mut site = site(0.0, Duration::ZERO);
        let took = run(&mut site.world, async move {
            let mut stream = connect().await;
            stream.write_all(text.as_bytes()).await.unwrap();
            let begin = Handle::current().now();
            let mut rest = Vec::new();
            // Closed or reset: the connection is over either way.
            let _ = stream.read_to_end(&mut rest).await;
            Handle::current().now().since(begin)
        });
        assert_eq!(took.as_secs(), seconds, "{text:?}");
    }
}

#[test]
fn a_stop_lets_the_response_finish_and_leaves_nothing() {
    let mut site = site(0.01, Duration::from_millis(5));
    let stop = site.server.stop().clone();
    let body = run(&mut site.world, async move {
        let mut stream = connect().await;
        let stopper = async {
            sleep(Duration::from_millis(50)).await;
            stop.request();
        };
        let ((_, body), ()) = tokio::join!(get(&mut stream, "/large"), stopper);
        body
    });
    assert_eq!(body.len() as u64, LARGE);
    assert_eq!(Pattern::new(2).first_difference(0, &body), None);
    let gone = |world: &World| {
        [Side::A, Side::B].iter().all(|side| world.host(*side, Host::connections) == 0)
    };
    site.world.run_until(Duration::from_secs(60), gone).unwrap();
    assert_eq!(site.server.stop().tracked(), 0);
    assert_eq!(site.world.host(Side::B, Host::pages_in_use), 0);
}
