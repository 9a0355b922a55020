//! Checks a configuration: refuses values that no host could work with.

use core::time::Duration;

use super::{Config, SHARDS_MAX, SLOTS_MAX, TimeWaitState};
use crate::error::Error;

/// Segments of an initial window at most: times the largest MSS it is a number of 32 bits.
const INITIAL_WINDOW_MAX: u32 = 65_535;

/// The largest cap of a priority for pages: the levels of priority are bits of one word.
pub(crate) const PRIORITY_CAP_MAX: u8 = 14;

impl Config {
    /// Whether there can be a host like this: [`Host::new`](crate::Host::new) asks it first.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] says what makes no sense.
    pub fn check(&self) -> Result<(), Error> {
        let (tcp, limits, ports) = (&self.tcp, &self.limits, self.ephemeral_ports);
        let has_ipv6 = self.addresses.iter().any(|cidr| cidr.address().is_ipv6());
        // Slots are numbered by 26 bits; whole blocks in TIME-WAIT have some besides.
        let whole = tcp.time_wait.state == TimeWaitState::Full;
        let blocks = if whole { limits.time_wait } else { 0 };
        let slots = limits.connections.max(limits.syn_cache).max(blocks);
        let faults = [
            (self.device.mtu < 576, "the device's MTU is below 576 bytes (RFC 791)"),
            (has_ipv6 && self.device.mtu < 1280, "IPv6 needs an MTU of 1280 bytes (RFC 8200 §5)"),
            (
                tcp.ack.timer.max(tcp.ack.bucket_max) >= Duration::from_millis(500),
                "an ACK is delayed for less than 500 ms (RFC 9293)",
            ),
            (
                tcp.ack.bucket_min > tcp.ack.bucket_max,
                "the least delay of an ACK is longer than the longest",
            ),
            (self.hop_limit == 0, "a hop limit of 0 lets no packet leave"),
            (
                tcp.congestion.initial_window == 0,
                "the initial window is one segment at least (RFC 5681)",
            ),
            (
                tcp.congestion.initial_window > INITIAL_WINDOW_MAX,
                "the initial window is 65 535 segments at most",
            ),
            (
                tcp.quirks.window_shift.is_some_and(|shift| shift > 14),
                "a window is shifted by 14 bits at most (RFC 7323 §2.3)",
            ),
            (
                tcp.rto.max < tcp.rto.initial.max(tcp.rto.floor),
                "the largest RTO is less than the initial one or its floor",
            ),
            (
                !matches!(tcp.time_wait.option_kind, 253 | 254),
                "the option that negotiates TIME-WAIT is of kind 253 or 254 (RFC 4727)",
            ),
            (tcp.buffers.send == 0, "a send buffer of no bytes takes none"),
            (tcp.buffers.send_lowat == Some(0), "a bound of no unsent bytes lets none be written"),
            (tcp.buffers.send_factor == 0, "a read takes one round trip at least"),
            (
                !(1..=PRIORITY_CAP_MAX).contains(&tcp.pool.priority_cap),
                "the cap of a priority for pages is 1 to 14",
            ),
            (tcp.pool.most_connections == 0, "pages are shared by one connection at least"),
            (tcp.pool.scan.is_zero(), "scans of all connections have some time between them"),
            (tcp.buffers.receive_max == 0, "a receive window of no bytes lets none come"),
            (limits.pages == 0, "without a page no byte is sent or received"),
            (limits.frames_per_turn == 0, "a turn of no frames lets none leave"),
            (limits.connections == 0, "a limit of no connections lets none begin"),
            (
                slots > SLOTS_MAX / 2,
                "a host has no more than 33 554 432 connections, half-open ones, and control \
                 blocks in TIME-WAIT",
            ),
            (
                !(1..=SHARDS_MAX).contains(&self.member.of) || self.member.index >= self.member.of,
                "a host has 1 to 64 shards, and a shard is one of them",
            ),
            (ports.0 == 0 || ports.0 > ports.1, "the range of ephemeral ports is empty"),
        ];
        let fault = faults.iter().find(|(is_fault, _)| *is_fault);
        fault.map_or(Ok(()), |(_, text)| Err(Error::InvalidInput(text)))
    }
}
