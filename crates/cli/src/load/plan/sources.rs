//! Chooses the source addresses of a load among the available ones.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use lightwait_core::address::Cidr;
use lightwait_load::sources::{Rule, Sources, per_second};

use super::usage;
use crate::failure::Failure;
use crate::load::args::LoadArgs;
use crate::zone::Named;

/// More connections a second than one process opens. A closed loop takes addresses for this rate,
/// as far as they are available.
const CLOSED_LOOP_RATE: f64 = 1_000_000.0;
/// And so many from one connection after the other: each takes 20 us at least.
const ONE_BY_ONE_RATE: f64 = 50_000.0;
/// Linux's default range, if it cannot be read.
const LINUX_PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// The kernel's ephemeral ports.
pub(super) fn kernel_ports() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ports: Vec<u16> = text.split_whitespace().filter_map(|port| port.parse().ok()).collect();
    match ports[..] {
        [first, last] if first > 0 && first <= last => first..=last,
        _ => LINUX_PORTS,
    }
}

/// The available addresses.
pub(super) fn candidates(
    args: &LoadArgs,
    to: SocketAddr,
    on_device: bool,
) -> Result<Sources, Failure> {
    let fits = |cidr: &&Cidr| cidr.address().is_ipv4() == to.is_ipv4();
    let whole = |address: IpAddr| Cidr::new(address, if address.is_ipv4() { 32 } else { 128 });
    let prefixes: Vec<Cidr> = if !args.source.is_empty() {
        args.source.clone()
    } else if on_device {
        args.device.ip.iter().filter(fits).filter_map(|cidr| whole(cidr.address())).collect()
    } else if to.is_ipv4() && to.ip().is_loopback() {
        Cidr::new(to.ip(), 8).into_iter().collect()
    } else {
        whole(routed_source(to)?).into_iter().collect()
    };
    Sources::new(&prefixes).map_err(|error| usage(format!("--source: {error}")))
}

/// The address that the kernel would choose.
fn routed_source(to: SocketAddr) -> Result<IpAddr, Failure> {
    let any: SocketAddr =
        if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let find = || {
        let socket = UdpSocket::bind(any)?;
        // This sends no packet.
        socket.connect(to)?;
        socket.local_addr()
    };
    let found = find().map_err(|error| {
        let named = Named(to);
        Failure::Load(format!("{named}: no route to it: {error} (see `ip route get {}`)", to.ip()))
    })?;
    Ok(found.ip())
}

/// The needs of a load that determine the number of addresses.
pub(super) struct Need {
    /// Requests a second at most; `None` if unknown.
    pub(super) rate: Option<f64>,
    /// Connections at a time, beside the idle ones: all in a closed loop, the most in an open one.
    pub(super) connections: u64,
    /// Connections that are held beside the load.
    pub(super) idle: u64,
    pub(super) per_connection: Option<NonZeroU32>,
    /// The rule; its L is the longest time of one request and its connection's end.
    pub(super) rule: Rule,
    /// Chooses a block of the addresses, so that a load seldom takes those of the load before it.
    pub(super) place: u64,
}

/// Connections of an open loop.
#[derive(Clone, Copy)]
struct Opened {
    /// Connections a second.
    rate: f64,
    /// Connections at a time, at most.
    at_a_time: f64,
    /// The rule, with the longest time that they last.
    rule: Rule,
}

impl Need {
    /// Chooses among the addresses, or fails with the number that is needed. Returns a line that
    /// gives the choice and its reason, too.
    pub(super) fn choose(&self, candidates: &Sources) -> Result<(Sources, String), Failure> {
        let opened = self.opened();
        let at_a_time = self.idle + if opened.is_none() { self.connections } else { 0 };
        let ports = u64::from(self.rule.ports);
        let least = (at_a_time + self.probe()).div_ceil(ports).max(1);
        let wanted = match opened {
            Some(Opened { rate: 0.0, at_a_time, .. }) => {
                (at_a_time as u64 + self.idle + self.probe()).div_ceil(ports)
            }
            Some(Opened { rate, rule, .. }) => rule.addresses(rate) + self.idle.div_ceil(ports),
            None if self.per_connection.is_none() => least,
            None => {
                let paper = Rule { life: Duration::ZERO, ..self.rule };
                let rate = CLOSED_LOOP_RATE.min(self.connections as f64 * ONE_BY_ONE_RATE);
                let resting = paper.tuples(rate) as u64;
                (resting + at_a_time + self.probe()).div_ceil(ports)
            }
        };
        let (wanted, has) = (wanted.max(least), candidates.len());
        if let Some(opened) = opened
            && has < wanted
            && self.room(opened, has) < 1.0
        {
            return Err(self.too_few(opened, candidates, wanted));
        }
        if has < least {
            return Err(usage(format!(
                "{at_a_time} connections at a time{} take {least} source addresses of {} ports; \
                 there are {has}: give more, such as --source {}",
                if self.probe() > 0 { ", and the first one that tries the server," } else { "" },
                self.rule.ports,
                example(candidates, least),
            )));
        }
        let begin = self.place % (has.saturating_sub(wanted) + 1);
        let chosen = candidates.slice(begin, wanted);
        let about = self.describe(opened, &chosen, wanted);
        Ok((chosen, about))
    }

    /// The connections of an open loop; `None` in a closed one.
    fn opened(&self) -> Option<Opened> {
        let requests = self.rate?;
        let per_connection = self.per_connection.map_or(f64::INFINITY, |n| f64::from(n.get()));
        let rate = requests / per_connection;
        // Little's law gives the requests that are not done. Each may have a connection.
        let at_a_time = requests * self.rule.life.as_secs_f64();
        let at_a_time = at_a_time.min(self.connections as f64);
        let life = if rate > 0.0 { at_a_time / rate } else { 0.0 };
        let life = Duration::from_secs_f64(life);
        Some(Opened { rate, at_a_time, rule: Rule { life, ..self.rule } })
    }

    /// 4-tuples of `addresses` addresses for connections in progress: the others rest or are held.
    fn room(&self, opened: Opened, addresses: u64) -> f64 {
        let all = addresses * u64::from(self.rule.ports);
        let paper = Rule { life: Duration::ZERO, ..opened.rule };
        all as f64 - paper.tuples(opened.rate).floor() - (self.idle + self.probe()) as f64
    }

    fn too_few(&self, opened: Opened, candidates: &Sources, wanted: u64) -> Failure {
        let Opened { rate, rule, .. } = opened;
        let has = candidates.len();
        usage(format!(
            "{rate:.0} connections/s from {has} source address{}, which allow{} {:.0}/s at most: \
             it takes {}{}; give so many, such as --source {}",
            if has == 1 { "" } else { "es" },
            if has == 1 { "s" } else { "" },
            rule.rate(has, self.idle + self.probe() + 1).floor(),
            rule.formula(rate),
            self.for_idle(),
            example(candidates, wanted),
        ))
    }

    /// The 4-tuple of the connection that tries the server: it rests when the load begins.
    fn probe(&self) -> u64 {
        u64::from(!self.rule.rest.is_zero())
    }

    /// The addresses for idle connections beside a rate, as text.
    fn for_idle(&self) -> String {
        match self.idle.div_ceil(u64::from(self.rule.ports)) {
            0 => String::new(),
            more => format!(", and {more} for {} idle connections", self.idle),
        }
    }

    fn describe(&self, opened: Option<Opened>, chosen: &Sources, wanted: u64) -> String {
        let (first, last) = (chosen.nth(0), chosen.nth(chosen.len() - 1));
        let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let why = match opened {
            Some(opened) if opened.rate > 0.0 => {
                let formula = opened.rule.formula(opened.rate);
                format!("{formula}{}{}", self.for_idle(), self.shortage(opened, chosen, wanted))
            }
            Some(_) => "connections are kept".to_owned(),
            None if self.per_connection.is_none() => "connections are kept".to_owned(),
            None if self.rule.rest.is_zero() => "4-tuples do not rest".to_owned(),
            None => self.closed(chosen, wanted),
        };
        let plural = if chosen.len() == 1 { "" } else { "es" };
        format!("{} source address{plural}, {range}: {why}", chosen.len())
    }

    /// The rate that the addresses of a closed loop allow, as text. The loop's own rate shows only
    /// when it runs, so that the addresses are for any.
    fn closed(&self, chosen: &Sources, wanted: u64) -> String {
        let rate = self.rule.rate(chosen.len(), self.idle + self.connections);
        let told = per_second(if rate < 10.0 { rate } else { rate.floor() });
        if chosen.len() >= wanted {
            return format!("enough for any rate that this loop may reach, {told} connections/s");
        }
        let few = if rate < self.connections as f64 {
            ", fewer than one a second for each: they mostly wait for 4-tuples (--source)"
        } else {
            ""
        };
        format!("4-tuples for {told} connections/s{few}")
    }

    /// The time that connections may last where there are fewer addresses than wanted, as text.
    fn shortage(&self, opened: Opened, chosen: &Sources, wanted: u64) -> String {
        let has = chosen.len();
        if has >= wanted {
            return String::new();
        }
        let most = self.room(opened, has) / opened.rate * 1e3;
        format!(
            ", and there {} {has}: requests wait for 4-tuples if connections last {most:.0} ms or \
             more on average",
            if has == 1 { "is" } else { "are" },
        )
    }
}

/// An example of a prefix with `wanted` addresses.
pub(super) fn example(candidates: &Sources, wanted: u64) -> String {
    if !candidates.nth(0).is_ipv4() {
        return "fd00:1::/64".to_owned();
    }
    let bits = 64 - (wanted + 1).leading_zeros();
    format!("10.1.0.0/{}", 32_u32.saturating_sub(bits.min(24)))
}
