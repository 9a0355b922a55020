//! The kernel's memory of a connection: objects of its slab caches, which it counts itself.

use std::fs::read_to_string;

use super::{CONNECTIONS, Short};
use crate::connections::{self, Pair};
use crate::memory::{Outcome, Plan, State};

/// The caches for sockets, files and TIME-WAIT records of IPv4.
const CACHES: [&str; 8] = [
    "TCP",
    "sock_inode_cache",
    "filp",
    "dentry",
    "request_sock_TCP",
    "tw_sock_TCP",
    "tcp_bind_bucket",
    "tcp_bind2_bucket",
];
/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// Measures. Returns `None` if the kernel does not report the caches; it does so only to root.
/// Other programs' files count as well, which matters less the more connections there are.
pub fn memory(plan: &Plan) -> Option<Outcome> {
    let (idle, records) = match plan.state {
        State::Established | State::FinWait2 => (plan.count.min(CONNECTIONS), 0),
        State::TimeWait => (0, plan.count),
    };
    let of = |idle| connections::Plan { idle, ..connections::Plan::default() };
    let before = slabs()?;
    let mut short = Short::new(&of(idle));
    // Records of earlier runs end meanwhile, 60 s after they began.
    let earlier = short.time_waits();
    short.converse(records);
    let after = slabs()?;
    let records = short.time_waits().saturating_sub(earlier);
    // Both ends of a connection are sockets; a record has only one end.
    let (connections, ends) = if idle > 0 { (idle, 2 * idle) } else { (records, records) };
    let each = |number: usize| (after[number] - before[number]) / ends.max(1) as f64;
    let client_bytes = (idle > 0).then(|| each(0));
    Some(Outcome { connections, bytes: each(0), client_bytes, rss: each(1), ..Outcome::default() })
}

/// Bytes of objects, and of their pages.
fn slabs() -> Option<[f64; 2]> {
    let text = read_to_string("/proc/slabinfo").ok()?;
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        CACHES.contains(&words.next()?).then_some(())?;
        let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        // The fields: active, all, size, objects and pages a slab, three tunables, slabs in use and
        // in all.
        let [active, _, size, _, pages, .., slabs, _] = numbers[..] else { return None };
        Some([active * size, slabs * pages * PAGE])
    };
    let sums = text.lines().filter_map(of);
    Some(sums.fold([0.0; 2], |[bytes, pages], [more, most]| [bytes + more, pages + most]))
}
