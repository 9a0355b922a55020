//! A shard's place among the shards of one host, and its part of what they have together.

use super::{Config, Limits};
use crate::time::Duration;

/// Shards of one host, at most: who waits for a neighbour is a bit of one word.
pub const SHARDS_MAX: u16 = 64;

/// A shard's place among the shards of one host. They have one configuration, secret and set of
/// addresses, and each owns the connections that [`Steering`](crate::flow::Steering) gives it.
///
/// The first speaks for the host on the link: it alone answers ARP, neighbour discovery and echo
/// requests, claims and configures addresses, and puts fragments together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which one it is, from 0.
    pub index: u16,
    /// How many there are.
    pub of: u16,
}

impl Member {
    /// The only shard of its host.
    pub const ALONE: Member = Member { index: 0, of: 1 };

    /// True if the host has no other shard.
    pub fn is_alone(self) -> bool {
        self.of == 1
    }

    /// True if another shard speaks for the host.
    pub fn is_replica(self) -> bool {
        self.index > 0
    }

    /// The whole, or little more, if `part` is its part.
    pub(crate) fn whole_at_most(self, part: usize) -> usize {
        part.saturating_mul(self.of.into()) + usize::from(self.of - 1)
    }

    /// Its part of a whole number. The parts of all shards add up to it.
    pub fn part(self, whole: usize) -> usize {
        let (index, of) = (usize::from(self.index), usize::from(self.of));
        whole / of + usize::from(index < whole % of)
    }
}

impl Config {
    /// The configuration of a shard of the host that this one configures: its place, and its part
    /// of every [limit](Limits) that counts what connections need. The parts of all shards add up
    /// to the limits. What every shard must know of the link (neighbours, path MTUs) has its limit
    /// in each of them.
    ///
    /// ```
    /// # use lightwait_core::config::{Config, Member};
    /// # use lightwait_core::{Capabilities, Medium};
    /// # let device = Capabilities::plain(Medium::Ip, 1500);
    /// let host = Config::new(device, "10.9.0.2/24".parse().unwrap(), [7; 32]);
    /// let parts = (0..3).map(|index| host.member(Member { index, of: 3 }));
    /// assert_eq!(parts.map(|part| part.limits.pages).sum::<usize>(), host.limits.pages);
    /// ```
    #[must_use]
    pub fn member(&self, member: Member) -> Config {
        // The first shard claims addresses, and publishes them when they are the host's.
        let address_probe = if member.is_replica() { Duration::ZERO } else { self.address_probe };
        let limits = self.limits.part(member);
        let mut part = Config { member, limits, address_probe, ..self.clone() };
        // A connection's share of the pages is what it would be on the only shard.
        let among = &mut part.tcp.pool.most_connections;
        *among = (*among / u32::from(member.of)).max(1);
        part
    }
}

impl Limits {
    /// The part of a shard of every limit that counts what connections need.
    #[must_use]
    pub fn part(&self, member: Member) -> Limits {
        let part = |whole: usize| member.part(whole);
        let part_u32 = |whole: u32| member.part(whole as usize) as u32;
        Limits {
            connections: part(self.connections),
            syn_cache: part(self.syn_cache),
            held_syns: part(self.held_syns),
            time_wait: part(self.time_wait),
            unheard_peers: part(self.unheard_peers),
            orphans: part(self.orphans),
            pages: part(self.pages),
            udp_sockets: part(self.udp_sockets),
            udp_flows: part(self.udp_flows),
            receive_window_bytes: part(self.receive_window_bytes as usize) as u64,
            replies_per_second: part_u32(self.replies_per_second),
            challenge_acks_per_second: part_u32(self.challenge_acks_per_second),
            neighbour_queue: part(self.neighbour_queue),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Capabilities, Medium};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_a_limit_add_up_to_it(
            of in 1u16..=SHARDS_MAX, connections in 0usize..1 << 21, bytes in 0u64..1 << 32,
            rate: u32,
        ) {
            let device = Capabilities::plain(Medium::Ip, 1500);
            let mut host = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
            host.limits.connections = connections;
            host.limits.receive_window_bytes = bytes;
            host.limits.challenge_acks_per_second = rate;
            let parts: std::vec::Vec<Config> =
                (0..of).map(|index| host.member(Member { index, of })).collect();
            let sum = |part: fn(&Limits) -> u64| parts.iter().map(|c| part(&c.limits)).sum::<u64>();
            prop_assert_eq!(sum(|l| l.connections as u64), connections as u64);
            prop_assert_eq!(sum(|l| l.receive_window_bytes), bytes);
            prop_assert_eq!(sum(|l| l.challenge_acks_per_second.into()), u64::from(rate));
            prop_assert!(parts.iter().all(|c| c.limits.neighbours == host.limits.neighbours));
            let among = host.tcp.pool.most_connections / u32::from(of);
            prop_assert!(parts.iter().all(|c| c.tcp.pool.most_connections == among.max(1)));
        }
    }

    #[test]
    fn the_only_shard_has_the_whole_configuration() {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let mut host = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        host.address_probe = Duration::from_secs(1);
        assert_eq!(std::format!("{:?}", host.member(Member::ALONE)), std::format!("{host:?}"));
        let replica = host.member(Member { index: 1, of: 2 });
        assert!(replica.address_probe.is_zero(), "the first asks for all");
    }
}
