//! Source addresses, and the number of addresses that a rate needs.
//!
//! Between one of its addresses and one port of a server a client has P ports. Each connection
//! keeps its port for T seconds of TIME-WAIT at either end. R connections a second need N ≥
//! ceil(R·T/P) addresses (Aron and Druschel 1999, §2.1). The paper's connections are short. A port
//! is also in use for its connection's lifetime, L at most, which makes it ceil(R·(T+L)/P). Where
//! connections come at random, more than R·(T+L) of them may come within that time: four standard
//! deviations are added.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use lightwait::Cidr;

/// Addresses at most: a tuple names its address by 32 bits.
const MOST: u128 = 1 << 32;

/// The source addresses of a load: all of one IP version, no address twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    ranges: Vec<Range>,
    len: u64,
}

/// The addresses of one prefix that a host can have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    cidr: Cidr,
    /// The first address, relative to the prefix: a subnet's own address is excluded.
    first: u128,
    len: u64,
}

impl Range {
    fn new(cidr: Cidr) -> Range {
        // An IPv4 prefix with a broadcast address has a subnet address as well.
        let first = u128::from(cidr.broadcast().is_some());
        let len = (cidr.size() - 2 * first).min(MOST);
        Range { cidr, first, len: u64::try_from(len).expect("2^32 at most") }
    }
}

impl Sources {
    /// The addresses of these prefixes. An IPv4 prefix shorter than 31 bits excludes its first and
    /// its last address.
    ///
    /// # Errors
    /// A line that names the wrong prefix: there is none, there are two IP versions, two prefixes
    /// overlap, or there are more than 2^32 addresses.
    pub fn new(prefixes: &[Cidr]) -> Result<Sources, String> {
        let Some(first) = prefixes.first() else {
            return Err("no source address".to_owned());
        };
        for (index, cidr) in prefixes.iter().enumerate() {
            if cidr.address().is_ipv4() != first.address().is_ipv4() {
                return Err(format!("{cidr}: not of the same IP version as {first}"));
            }
            let overlaps =
                |other: &&Cidr| other.contains(cidr.address()) || cidr.contains(other.address());
            if let Some(other) = prefixes[..index].iter().find(overlaps) {
                return Err(format!("{cidr}: has addresses of {other}"));
            }
        }
        let ranges: Vec<Range> = prefixes.iter().map(|cidr| Range::new(*cidr)).collect();
        let len: u128 = ranges.iter().map(|range| u128::from(range.len)).sum();
        if len > MOST {
            return Err("more than 2^32 source addresses".to_owned());
        }
        Ok(Sources { ranges, len: len as u64 })
    }

    /// The number of addresses: at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Keeps the first `len` addresses, or all if there are fewer.
    ///
    /// # Panics
    /// If `len` is zero.
    #[must_use]
    pub fn first(&self, len: u64) -> Sources {
        self.slice(0, len)
    }

    /// Keeps `len` addresses from number `begin` on, or all that follow if there are fewer.
    ///
    /// # Panics
    /// If `len` is zero, or no address has the number `begin`.
    #[must_use]
    pub fn slice(&self, begin: u64, len: u64) -> Sources {
        assert!(len > 0 && begin < self.len, "a load needs an address");
        let (mut passed, mut left) = (begin, len);
        let mut ranges = self.ranges.clone();
        for range in &mut ranges {
            let skipped = passed.min(range.len);
            passed -= skipped;
            range.first += u128::from(skipped);
            range.len = (range.len - skipped).min(left);
            left -= range.len;
        }
        ranges.retain(|range| range.len > 0);
        Sources { len: ranges.iter().map(|range| range.len).sum(), ranges }
    }

    /// The address of that number, from 0.
    ///
    /// # Panics
    /// If there are no more than `number` addresses.
    pub fn nth(&self, number: u64) -> IpAddr {
        let mut left = number;
        for range in &self.ranges {
            if left < range.len {
                return range.cidr.nth(range.first + u128::from(left));
            }
            left -= range.len;
        }
        panic!("address {number} of {}", self.len);
    }

    /// All addresses, in order.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..self.len).map(|number| self.nth(number))
    }

    /// The prefixes of the addresses.
    pub fn prefixes(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.ranges.iter().map(|range| range.cidr)
    }
}

/// Standard deviations of the connections within T+L for which there are addresses.
const DEVIATIONS: f64 = 4.0;

/// The rule N ≥ ceil(R·(T+L)/P).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// T: the time that a tuple rests after its connection.
    pub rest: Duration,
    /// L: the longest time that a connection lasts. With zero, the rule is the paper's.
    pub life: Duration,
    /// P: ports of an address.
    pub ports: u32,
    /// Connections that come at a time, where such bursts come at random (a Poisson process).
    pub random: Option<u32>,
}

impl Rule {
    /// The rule for the ports of that range, and connections that take no time.
    pub fn new(rest: Duration, ports: &RangeInclusive<u16>) -> Rule {
        Rule { rest, life: Duration::ZERO, ports: ports.len() as u32, random: None }
    }

    /// The tuples that `rate` connections a second need.
    pub fn tuples(&self, rate: f64) -> f64 {
        let mean = rate * (self.rest + self.life).as_secs_f64();
        // A Poisson process of bursts has the variance of its mean, times the burst.
        let burst = f64::from(self.random.unwrap_or(0));
        mean + DEVIATIONS * (mean * burst).sqrt()
    }

    /// The number of addresses that `rate` connections a second need; at least one.
    pub fn addresses(&self, rate: f64) -> u64 {
        ((self.tuples(rate) / f64::from(self.ports)).ceil() as u64).max(1)
    }

    /// The connections a second that `addresses` addresses allow, beside `held` tuples that are in
    /// use throughout.
    pub fn rate(&self, addresses: u64, held: u64) -> f64 {
        let free = (addresses * u64::from(self.ports)).saturating_sub(held);
        free as f64 / self.rest.as_secs_f64()
    }

    /// The formula with its numbers filled in.
    pub fn formula(&self, rate: f64) -> impl fmt::Display {
        let Rule { rest, life, ports, random } = *self;
        let (addresses, rate) = (self.addresses(rate), per_second(rate));
        let (time, spent) = if life.is_zero() {
            ("T", format!("{} s", rest.as_secs_f64()))
        } else {
            ("(T+L)", format!("({} s + {} s)", rest.as_secs_f64(), rounded(life)))
        };
        let product = format!("{rate}/s · {spent}");
        match random {
            None => format!("N = ceil(R·{time}/P) = ceil({product} / {ports} ports) = {addresses}"),
            Some(burst) => {
                let root =
                    if burst == 1 { product.clone() } else { format!("{product} · {burst}") };
                format!(
                    "N = ceil((R·{time} + 4·√(R·{time}))/P) = ceil(({product} + 4·√({root})) / \
                     {ports} ports) = {addresses}",
                )
            }
        }
    }
}

/// Seconds, to a hundredth: exact for times that people give.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

/// A rate for people: a whole number, except for small rates.
pub fn per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.2}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(prefixes: &[&str]) -> Result<Sources, String> {
        let prefixes: Vec<Cidr> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        Sources::new(&prefixes)
    }

    #[test]
    fn a_range_leaves_out_the_subnets_network_and_broadcast_address() {
        let all: Vec<String> = sources(&["10.1.0.0/29", "10.2.0.7/32", "10.3.0.0/31"])
            .unwrap()
            .iter()
            .map(|address| address.to_string())
            .collect();
        let subnet = (1..=6).map(|host| format!("10.1.0.{host}"));
        let rest = ["10.2.0.7", "10.3.0.0", "10.3.0.1"].map(str::to_owned);
        assert_eq!(all, subnet.chain(rest).collect::<Vec<_>>());
        assert_eq!(sources(&["10.1.0.0/16"]).unwrap().len(), 65_534);
        assert_eq!(sources(&["fd00::/126"]).unwrap().len(), 4);
    }

    #[test]
    fn addresses_in_a_row_are_a_part_of_all() {
        let all = sources(&["10.2.0.7/32", "10.1.0.0/29", "10.3.0.0/16"]).unwrap();
        for len in 1..10 {
            let some = all.first(len);
            assert_eq!(some.len(), len);
            assert!(some.iter().eq(all.iter().take(len as usize)));
            for begin in 0..10 {
                let some = all.slice(begin, len);
                assert!(some.iter().eq(all.iter().skip(begin as usize).take(len as usize)));
                assert_eq!(some.len(), len);
            }
        }
        assert_eq!(all.first(u64::MAX), all);
    }

    #[test]
    fn ranges_that_make_no_sources_are_refused_by_name() {
        for (prefixes, why) in [
            (&[][..], "no source address"),
            (&["10.1.0.0/16", "fd00::/64"], "fd00::/64: not of the same IP version"),
            (&["10.1.0.0/16", "10.1.7.0/24"], "10.1.7.0/24: has addresses of 10.1.0.0/16"),
            (&["10.1.7.0/24", "10.1.0.0/16"], "10.1.0.0/16: has addresses of 10.1.7.0/24"),
            (&["fd00::/64", "fd01::/128"], "more than 2^32"),
        ] {
            let error = sources(prefixes).unwrap_err();
            assert!(error.contains(why), "{prefixes:?}: {error}");
        }
        assert!(sources(&["10.1.0.0/16", "10.2.0.0/16"]).is_ok());
        assert_eq!(sources(&["fd00::/96"]).unwrap().len(), 1 << 32);
    }

    #[test]
    fn the_paper_takes_five_addresses_for_300_connections_a_second() {
        // §2.1: 60 s of TIME-WAIT, 4000 ports, 300 connections a second.
        let rule = Rule::new(Duration::from_secs(60), &(1..=4000));
        assert_eq!(rule.addresses(300.0), 5);
        assert_eq!(
            rule.formula(300.0).to_string(),
            "N = ceil(R·T/P) = ceil(300/s · 60 s / 4000 ports) = 5"
        );
        // One address with Linux's ports: the limit of other load generators.
        let rule = Rule::new(Duration::from_secs(60), &(32_768..=60_999));
        assert_eq!(rule.rate(1, 0).floor() as u64, 470);
        assert_eq!((rule.addresses(470.5), rule.addresses(470.6)), (1, 2));
        assert_eq!(rule.addresses(0.0), 1);
    }

    #[test]
    fn a_connection_takes_its_tuple_for_its_lifetime_too() {
        let paper = Rule::new(Duration::from_secs(60), &(1..=4000));
        let rule = Rule { life: Duration::from_secs(10), ..paper };
        // 300 connections a second for 70 s: 21,000 of 4000 each.
        assert_eq!(rule.addresses(300.0), 6);
        assert_eq!(
            rule.formula(300.0).to_string(),
            "N = ceil(R·(T+L)/P) = ceil(300/s · (60 s + 10 s) / 4000 ports) = 6"
        );
        assert_eq!((paper.rate(1, 0), paper.rate(1, 1000)), (4000.0 / 60.0, 50.0));
    }

    #[test]
    fn connections_at_random_take_four_deviations_more() {
        let rule = Rule { random: Some(1), ..Rule::new(Duration::from_secs(10), &(1..=100)) };
        // 1000 within T, and 4·√1000 = 126.
        assert_eq!(rule.addresses(100.0), 12);
        assert_eq!(
            rule.formula(100.0).to_string(),
            "N = ceil((R·T + 4·√(R·T))/P) = ceil((100/s · 10 s + 4·√(100/s · 10 s)) / 100 ports) \
             = 12"
        );
        let bursts = Rule { random: Some(16), ..rule };
        assert_eq!(bursts.addresses(100.0), 16);
    }
}
