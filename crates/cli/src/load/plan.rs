//! From what was typed to a load: checked as a whole, before the first connection.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use lightwait_core::address::Cidr;
use lightwait_load::arrivals::{Arrivals, Spacing, Stage};
use lightwait_load::engine::{self, Close, Mode};
use lightwait_load::report::Setup;
use lightwait_load::request::Request;
use lightwait_load::sources::{Rule, Sources};

use super::args::{CloseArg, LoadArgs, StackKind};
use super::target::Target;
use crate::failure::Failure;
use crate::plan::{Knobs, Memory, Stack, device_stack, refuse_device_flags};

/// How much longer than TIME-WAIT a 4-tuple rests. Linux's timer wheel ends a TIME-WAIT of 60 s up
/// to 4.1 s late (kernel/time/timer.c, level 4 at 1000 Hz), and the server may close after us.
const GUARD: Duration = Duration::from_secs(5);
/// How long requests under way may take to end behind the load.
const GRACE: Duration = Duration::from_secs(5);
/// Connections a second that a closed loop is taken to open at most.
const ASSUMED_RATE: f64 = 100_000.0;
/// What an open loop may have at a time on our stack, if nothing is said.
const MOST_CONNECTIONS: u32 = 1_000_000;
/// RFC 6056 §3.2.
const OUR_PORTS: RangeInclusive<u16> = 1024..=65_535;
/// Linux's own range, where it cannot be read.
const LINUX_PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// Everything a load needs to know.
#[derive(Debug)]
pub(super) struct LoadPlan {
    pub(super) engine: engine::Plan,
    pub(super) sources: Sources,
    pub(super) ports: RangeInclusive<u16>,
    pub(super) rest: Duration,
    pub(super) setup: Setup,
    /// A line about the sources, for people.
    pub(super) about_sources: String,
    /// Our stack's device and knobs; `None`: the kernel's stack.
    pub(super) ours: Option<(Stack, Knobs)>,
    pub(super) json: bool,
    pub(super) csv: Option<PathBuf>,
    pub(super) html: Option<PathBuf>,
    pub(super) max_error_rate: Option<f64>,
    pub(super) max_p99: Option<Duration>,
}

impl LoadPlan {
    /// The plan, or what is wrong. On the kernel's stack `descriptors` bounds the connections.
    pub(super) fn new(args: &LoadArgs, descriptors: u32) -> Result<LoadPlan, Failure> {
        let ours = our_stack(args)?;
        let target = Target::new(&args.url)?;
        let to = choose_address(&target, args)?;
        let connections =
            connections(args, ours.is_some().then_some(MOST_CONNECTIONS), descriptors)?;
        let requests_per_connection = (!args.keep_alive).then_some(args.requests_per_connection);
        let ports = args.ports.clone().unwrap_or_else(|| match ours {
            Some(_) => OUR_PORTS,
            None => kernel_ports(),
        });
        let rest = args.time_wait + GUARD;
        let need = Need {
            rate: highest_rate(args),
            connections: u64::from(connections),
            per_connection: requests_per_connection,
            rule: Rule::new(rest, &ports),
        };
        let (sources, about_sources) = need.choose(&candidates(args, to, ours.as_ref())?)?;
        let steady_after = if args.keep_alive { Duration::ZERO } else { rest };
        let warm_up = args.warm_up.unwrap_or(steady_after);
        let (stages, duration) = stages(args, warm_up);
        if duration.is_zero() {
            return Err(usage(
                "nothing would be recorded: the warm-up takes all of it (--warm-up)",
            ));
        }
        let close = close(args);
        let method = method(args);
        let setup = Setup {
            url: target.url.clone(),
            method: method.clone(),
            stack: "the kernel's stack".to_owned(),
            rate: highest_rate(args),
            connections: u64::from(connections),
            requests_per_connection: requests_per_connection.map(NonZeroU32::get),
            pipeline: args.pipeline.get(),
            close,
            addresses: sources.len(),
            ports: need.rule.ports,
            rest,
            steady_after,
        };
        let engine = engine::Plan {
            to,
            request: request(args, &target, &method)?,
            mode: mode(args, stages, connections as usize),
            requests_per_connection,
            pipeline: args.pipeline,
            close,
            timeout: args.timeout,
            warm_up,
            duration,
            grace: GRACE.min(args.timeout),
        };
        Ok(LoadPlan {
            engine,
            sources,
            ports,
            rest,
            setup,
            about_sources,
            ours,
            json: args.json,
            csv: args.csv.clone(),
            html: args.html.clone(),
            max_error_rate: args.max_error_rate,
            max_p99: args.max_p99,
        })
    }
}

fn usage(text: impl Into<String>) -> Failure {
    Failure::LoadUsage(text.into())
}

/// Our stack, if that is whose it is.
fn our_stack(args: &LoadArgs) -> Result<Option<(Stack, Knobs)>, Failure> {
    let has_device = args.device.tap.is_some() || args.device.af_packet.is_some();
    match args.stack {
        Some(StackKind::Lightwait) if !has_device => {
            Err(usage("--stack lightwait needs a device: give --tap NAME or --af-packet IFACE"))
        }
        Some(StackKind::Kernel) if has_device => {
            Err(usage("--stack kernel has no device: leave out --tap and --af-packet"))
        }
        _ if has_device => {
            let as_load = |failure| match failure {
                Failure::Usage(text) => Failure::LoadUsage(text),
                other => other,
            };
            let stack = device_stack(&args.device, 80).map_err(as_load)?;
            let knobs = Knobs::new(Memory::of_machine().bytes(), &args.set).map_err(as_load)?;
            Ok(Some((stack, knobs)))
        }
        _ => {
            if !args.set.is_empty() {
                return Err(usage("--set is for our stack: give --tap or --af-packet as well"));
            }
            refuse_device_flags(&args.device).map_err(|failure| {
                usage(match failure {
                    Failure::Usage(text) => text,
                    other => other.to_string(),
                })
            })?;
            Ok(None)
        }
    }
}

/// The server's address: of the sources' IP version, if some are given.
fn choose_address(target: &Target, args: &LoadArgs) -> Result<SocketAddr, Failure> {
    let given = args.source.iter().chain(&args.device.ip);
    let versions: Vec<bool> = given.map(|cidr| cidr.address().is_ipv4()).collect();
    let fits = |to: &&SocketAddr| versions.is_empty() || versions.contains(&to.is_ipv4());
    target.addresses.iter().find(fits).copied().ok_or_else(|| {
        usage(format!("{}: no address of the IP version of --source or --ip", target.url))
    })
}

/// Connections at a time.
fn connections(args: &LoadArgs, ours: Option<u32>, descriptors: u32) -> Result<u32, Failure> {
    let most = ours.unwrap_or(descriptors);
    let Some(asked) = args.connections else {
        if highest_rate(args).is_some() {
            return Ok(most);
        }
        return Err(usage(
            "say how much: --rate R (an open loop) or --connections N (a closed one)",
        ));
    };
    if ours.is_none() && asked > descriptors {
        return Err(Failure::Load(format!(
            "--connections {asked}: this process may have {descriptors} at a time, by its limit on \
             file descriptors; raise it, as root: `ulimit -Hn {}`, or let several processes share \
             the load",
            asked + super::OTHER_DESCRIPTORS,
        )));
    }
    Ok(asked)
}

/// The most requests a second of an open loop.
fn highest_rate(args: &LoadArgs) -> Option<f64> {
    let stages = args.stage.iter().map(|stage| stage.rate);
    args.rate.into_iter().chain(stages).reduce(f64::max)
}

/// The stages of an open loop, the first rate through the warm-up, and how long to record.
fn stages(args: &LoadArgs, warm_up: Duration) -> (Vec<Stage>, Duration) {
    if let Some(rate) = args.rate {
        let duration = warm_up + args.duration;
        return (vec![Stage { duration, from: rate, to: rate }], args.duration);
    }
    if args.stage.is_empty() {
        return (Vec::new(), args.duration);
    }
    let mut from = 0.0;
    let mut stages = Vec::new();
    for stage in &args.stage {
        stages.push(Stage { duration: stage.duration, from, to: stage.rate });
        from = stage.rate;
    }
    let all: Duration = stages.iter().map(|stage| stage.duration).sum();
    (stages, all.saturating_sub(warm_up))
}

fn mode(args: &LoadArgs, stages: Vec<Stage>, connections: usize) -> Mode {
    if stages.is_empty() {
        return Mode::Closed { connections };
    }
    let spacing = if args.poisson { Spacing::Poisson } else { Spacing::Constant };
    let arrivals = Arrivals::new(stages, spacing, args.burst.get(), super::random());
    Mode::Open { arrivals, connections }
}

fn close(args: &LoadArgs) -> Close {
    match args.close {
        CloseArg::Server => Close::Server,
        CloseArg::Client => Close::Client,
    }
}

fn method(args: &LoadArgs) -> String {
    let default = if args.body.is_some() { "POST" } else { "GET" };
    args.method.clone().unwrap_or_else(|| default.to_owned())
}

fn request(args: &LoadArgs, target: &Target, method: &str) -> Result<Request, Failure> {
    let body = body(args)?;
    Request::new(method, &target.path, &target.host, &args.header, &body)
        .map_err(Failure::LoadUsage)
}

fn body(args: &LoadArgs) -> Result<Vec<u8>, Failure> {
    match args.body.as_deref() {
        None => Ok(Vec::new()),
        Some(text) => match text.strip_prefix('@') {
            None => Ok(text.as_bytes().to_vec()),
            Some(path) => fs::read(path)
                .map_err(|error| Failure::Load(format!("--body @{path}: cannot be read: {error}"))),
        },
    }
}

/// The kernel's ephemeral ports.
fn kernel_ports() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ports: Vec<u16> = text.split_whitespace().filter_map(|port| port.parse().ok()).collect();
    match ports[..] {
        [first, last] if first > 0 && first <= last => first..=last,
        _ => LINUX_PORTS,
    }
}

/// The addresses that there are to choose from.
fn candidates(
    args: &LoadArgs,
    to: SocketAddr,
    ours: Option<&(Stack, Knobs)>,
) -> Result<Sources, Failure> {
    let fits = |cidr: &&Cidr| cidr.address().is_ipv4() == to.is_ipv4();
    let whole = |address: IpAddr| Cidr::new(address, if address.is_ipv4() { 32 } else { 128 });
    let prefixes: Vec<Cidr> = if !args.source.is_empty() {
        args.source.clone()
    } else if ours.is_some() {
        args.device.ip.iter().filter(fits).filter_map(|cidr| whole(cidr.address())).collect()
    } else if to.is_ipv4() && to.ip().is_loopback() {
        Cidr::new(to.ip(), 8).into_iter().collect()
    } else {
        whole(routed_source(to)?).into_iter().collect()
    };
    Sources::new(&prefixes).map_err(|error| usage(format!("--source: {error}")))
}

/// The address that the kernel would take.
fn routed_source(to: SocketAddr) -> Result<IpAddr, Failure> {
    let any: SocketAddr =
        if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let find = || {
        let socket = UdpSocket::bind(any)?;
        // No packet is sent.
        socket.connect(to)?;
        socket.local_addr()
    };
    let found = find().map_err(|error| {
        Failure::Load(format!(
            "{to}: there is no way to it: {error} (see `ip route get {}`)",
            to.ip()
        ))
    })?;
    Ok(found.ip())
}

/// How many addresses a load takes.
struct Need {
    /// Requests a second at most; `None` if nobody knows.
    rate: Option<f64>,
    connections: u64,
    per_connection: Option<NonZeroU32>,
    rule: Rule,
}

impl Need {
    /// Chooses among the addresses, or says how many there should be. Says in a line what was
    /// chosen, and why.
    fn choose(&self, candidates: &Sources) -> Result<(Sources, String), Failure> {
        let per_connection = self.per_connection.map_or(f64::INFINITY, |n| f64::from(n.get()));
        let rate = self.rate.map(|rate| rate / per_connection);
        let at_a_time = if rate.is_none() { self.connections } else { 0 };
        let least = at_a_time.div_ceil(u64::from(self.rule.ports)).max(1);
        let wanted = match rate {
            Some(rate) => self.rule.addresses(rate).max(least),
            None if self.per_connection.is_none() => least,
            None => self.rule.addresses(ASSUMED_RATE).max(least),
        };
        let has = candidates.len();
        if let Some(rate) = rate
            && has < wanted
        {
            return Err(usage(format!(
                "{rate:.0} connections/s from {has} source address{}, which allow{} {:.0}/s: it \
                 takes {}; give so many, such as --source {}",
                if has == 1 { "" } else { "es" },
                if has == 1 { "s" } else { "" },
                self.rule.rate(has).floor(),
                self.rule.formula(rate),
                example(candidates, wanted),
            )));
        }
        if has < least {
            return Err(usage(format!(
                "{} connections at a time take {least} source addresses of {} ports; there are \
                 {has}: give more, such as --source {}",
                self.connections,
                self.rule.ports,
                example(candidates, least),
            )));
        }
        let chosen = candidates.first(wanted);
        let about = self.describe(rate, &chosen);
        Ok((chosen, about))
    }

    fn describe(&self, rate: Option<f64>, chosen: &Sources) -> String {
        let (first, last) = (chosen.nth(0), chosen.nth(chosen.len() - 1));
        let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let why = match rate {
            Some(rate) if rate > 0.0 => self.rule.formula(rate).to_string(),
            Some(_) => "connections are kept".to_owned(),
            None if self.per_connection.is_none() => "connections are kept".to_owned(),
            None => format!("enough for {:.0} connections/s", self.rule.rate(chosen.len()).floor()),
        };
        let plural = if chosen.len() == 1 { "" } else { "es" };
        format!("{} source address{plural}, {range}: {why}", chosen.len())
    }
}

/// A prefix with so many addresses.
fn example(candidates: &Sources, wanted: u64) -> String {
    if !candidates.nth(0).is_ipv4() {
        return "fd00:1::/64".to_owned();
    }
    let bits = 64 - (wanted + 1).leading_zeros();
    format!("10.1.0.0/{}", 32_u32.saturating_sub(bits.min(24)))
}

#[cfg(test)]
mod tests;
