//! Many downloads at a time in a pool that is far too small for them.

use std::time::Duration;

use lightwait::shard::Handle;
use lightwait_core::buffer::PAGE_BYTES;
use lightwait_core::config::{PoolPolicy, SendRule};
use lightwait_sim::Side;

use super::site::{LARGE, connect, get, run, site_with};

const CLIENTS: u64 = 30;
/// A megabyte: the connections take six tenths of it as long as they live, and each has two to
/// three pages, or as much of a file on its way into pages.
const PAGES: usize = 260;

/// Mbit/s of all clients together.
fn goodput(rule: SendRule, policy: PoolPolicy) -> f64 {
    let mut site = site_with(0.0, Duration::from_micros(200), |config| {
        config.limits.pages = PAGES;
        config.limits.receive_window_bytes = (PAGES * PAGE_BYTES / 2) as u64;
        config.tcp.buffers.send_size = rule;
        config.tcp.pool.policy = policy;
    });
    let took = run(&mut site.world, async {
        let begin = Handle::current().now();
        let fetch = || async {
            get(&mut connect().await, "/large").await;
        };
        let fetching: Vec<_> =
            (0..CLIENTS).map(|_| Handle::current().spawn_local(fetch())).collect();
        for one in fetching {
            one.await.unwrap();
        }
        Handle::current().now().since(begin)
    });
    let counters = site.world.host(Side::B, |host| *host.counters());
    assert!(counters.writes_short_of_pages > 1000, "the pool is short all the time");
    (CLIENTS * LARGE * 8) as f64 / took.as_secs_f64() / 1e6
}

/// Files on their way into pages and the pages that they go into must not keep each other out: by
/// `round` and `line` all stood still for ever, and by the others a fifth of the link was used.
#[test]
fn a_pool_that_is_far_too_small_is_used_by_every_rule() {
    let line = goodput(SendRule::Round, PoolPolicy::Line);
    assert!(line > 60.0, "of 100 Mbit/s {line:.1}");
    for policy in [PoolPolicy::RoundRobin, PoolPolicy::Priority] {
        let los = goodput(SendRule::Los, policy);
        println!("round, line {line:.1} Mbit/s; LOS, {policy:?} {los:.1}");
        assert!(los > line, "LOS, {policy:?} {los:.1} against {line:.1} Mbit/s");
    }
}
