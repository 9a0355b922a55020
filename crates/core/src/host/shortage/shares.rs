//! What each send buffer may hold, by policies that give each connection a share: the same for all
//! (`naive`), or what max-min fairness gives (`psc`, Semke, Mahdavi & Mathis 1998).
//!
//! Max-min fairness is one level: a connection that needs less has what it needs, and all others
//! have the same. A scan finds that one number, and keeps nothing about any connection.

use alloc::vec::Vec;

use crate::buffer::PagePool;
use crate::config::{Config, PageSize, PoolConfig, PoolPolicy, SendSize, TcpConfig};
use crate::event::ConnectionId;
use crate::host::Host;
use crate::tcp::connection::{Blocked, Shape};
use crate::tcp::{Connection, SocketOptions};
use crate::time::{Duration, Instant};

/// The pages of a host so configured.
pub(in crate::host) fn pool(config: &Config) -> PagePool {
    let (limits, policy) = (&config.limits, &config.tcp.pool);
    let mut pool = match limits.page {
        PageSize::Auto => PagePool::new(limits.pages),
        PageSize::Segment => PagePool::of_segments(limits.pages),
    };
    if !policy.newcomers_first {
        pool.set_one_line();
    }
    if policy.policy == PoolPolicy::Psc {
        pool.set_scanned();
    }
    if policy.policy == PoolPolicy::Naive {
        pool.set_share(Some(limits.pages / policy.most_connections as usize));
    }
    pool
}

/// What a new connection starts with on a host with this configuration and pool.
pub(in crate::host) fn options(config: &TcpConfig, pool: &PagePool) -> SocketOptions {
    let mut options = SocketOptions::new(config);
    if let (PoolPolicy::Naive, SendSize::Round) = (config.pool.policy, options.send_size) {
        // Every connection has one size, whatever it needs.
        let share = pool.share_pages().unwrap_or(1) * pool.page_bytes();
        options.send_size = SendSize::Fixed(share.min(u32::MAX as usize) as u32);
    }
    options
}

/// When shares are found.
#[derive(Debug)]
pub(super) struct Shares {
    /// When all connections are scanned next; never, by the other policies.
    scan_at: Instant,
    every: Duration,
}

impl Shares {
    pub(super) fn new(config: &PoolConfig) -> Self {
        let scans = config.policy == PoolPolicy::Psc;
        let scan_at = if scans { Instant::ZERO } else { Instant::FAR_FUTURE };
        Shares { scan_at, every: config.scan }
    }
}

/// The level to which `pages` fill up what each of `needs`, in pages, leaves empty; `None` if they
/// are enough for all.
fn fair_level(mut needs: Vec<usize>, pages: usize) -> Option<usize> {
    needs.sort_unstable();
    let mut left = pages;
    let count = needs.len();
    for (at, need) in needs.into_iter().enumerate() {
        let each = left / (count - at);
        if need > each {
            return Some(each);
        }
        left -= need;
    }
    None
}

impl Host {
    /// Finds the fair shares, if it is time to.
    pub(super) fn scan_shares(&mut self, now: Instant) {
        if now < self.shortage.shares.scan_at {
            return;
        }
        self.shortage.shares.scan_at = now + self.shortage.shares.every;
        self.shared.counters.share_scans += 1;
        let cx = self.shared.sizing(now);
        let needs = self.slots.iter().filter_map(|(_, slot)| {
            let connection = slot.awake()?;
            let send = &connection.synchronized()?.send;
            // A connection that sends nothing needs nothing.
            let waits = connection.blocked.is_in_line() || connection.blocked == Blocked::ForRoom;
            let is_sending = !send.buffer.is_empty() || waits;
            let hiwat = send.info(&connection.options, cx).hiwat;
            is_sending.then(|| hiwat.div_ceil(cx.pool.page_bytes()))
        });
        let level = fair_level(needs.collect(), cx.pool.limit_in_line());
        self.shared.pool.set_share(level);
        self.tell_those_with_room(now);
    }

    /// Notifies the connections that waited for room and may have some now that their share is
    /// larger.
    fn tell_those_with_room(&mut self, now: Instant) {
        for index in 0..self.slots.end() {
            let Some((slot, generation)) = self.slots.named_mut(index) else { continue };
            let Some(Connection { common, shape }) = slot.awake_mut() else { continue };
            if let Shape::Synchronized(s) = shape
                && common.blocked == Blocked::ForRoom
            {
                common.on_freed(&mut s.send, self.shared.at(now));
                self.tell_notices(ConnectionId { index, generation });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn the_level_fills_small_needs_and_gives_others_the_same() {
        assert_eq!(fair_level(vec![], 10), None);
        assert_eq!(fair_level(vec![4, 6], 10), None);
        assert_eq!(fair_level(vec![4, 7], 10), Some(6));
        assert_eq!(fair_level(vec![100, 1, 100, 5], 26), Some(10));
        assert_eq!(fair_level(vec![9, 9, 9], 2), Some(0));
    }
}
