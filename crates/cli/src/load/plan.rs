//! Makes a load of the command line, checked as a whole before the first connection.

mod requests;
mod sources;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use lightwait_http::client_close;
use lightwait_load::arrivals::{Arrivals, Spacing, Stage};
use lightwait_load::engine::http2::Http2;
use lightwait_load::engine::{self, CLOSE_PATIENCE, Close, IdlePlan, Mode};
use lightwait_load::mix::Mix;
use lightwait_load::network::{Tls, Trust};
use lightwait_load::report::Setup;
use lightwait_load::share::Share;
use lightwait_load::sources::{Rule, Sources};
use lightwait_load::trace::most_within;

use super::args::{CloseArg, LoadArgs, StackKind};
use super::joined::client_addresses;
use super::target::Target;
use crate::failure::Failure;
use crate::plan::{
    Knobs, Memory, Setting, Stack, device_stack, refuse_device_flags, refuse_two_values,
};
use requests::{Requests, Times};
use sources::{Need, candidates, kernel_ports};

/// The time that a 4-tuple rests beyond TIME-WAIT. Linux's timer wheel ends a TIME-WAIT of 60 s up
/// to 4.1 s late (kernel/time/timer.c, level 4 at 1000 Hz), and the server may close after us.
const GUARD: Duration = Duration::from_secs(5);
/// The time that pending requests get if a signal ends the load. Else they get their time limit.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// The default limit of an open loop's connections on our stack.
const MOST_CONNECTIONS: u32 = 1_000_000;
/// The window of a log's highest rate.
const SECOND: Duration = Duration::from_secs(1);
/// Ports of RFC 6056 §3.2.
const OUR_PORTS: RangeInclusive<u16> = 1024..=65_535;

/// The plan of a load.
#[derive(Debug)]
pub(super) struct LoadPlan {
    pub(super) engine: engine::Plan,
    pub(super) sources: Sources,
    pub(super) ports: RangeInclusive<u16>,
    pub(super) rest: Duration,
    pub(super) setup: Setup,
    /// A line about the sources, for users.
    pub(super) about: String,
    pub(super) carrier: Carrier,
    /// The TLS configuration, for https.
    pub(super) tls: Option<Tls>,
    /// Addresses of the server that the load may go to.
    pub(super) all: usize,
}

/// The stack that carries the load.
#[derive(Debug)]
pub(super) enum Carrier {
    /// The kernel's stack.
    Kernel,
    /// Our stack, on a device.
    Device(Box<(Stack, Knobs)>),
    /// Our stack, joined in memory to the kernel's. The sources, ports and descriptors are the
    /// kernel's.
    Joined(Box<Joined>),
}

impl Carrier {
    /// The TCP stack, for the report. A device has its name only once it is open.
    fn stack(&self) -> &'static str {
        match self {
            Carrier::Joined(_) => "our stack, joined in memory to the kernel's",
            Carrier::Kernel | Carrier::Device(..) => "the kernel's stack",
        }
    }
}

/// The knobs of the two stacks on the wire in memory.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) client: Knobs,
    pub(super) server: Knobs,
}

impl LoadPlan {
    /// Makes the plan for that one of the addresses of the server's name, or returns the mistake.
    /// Unless the load is on a device, `descriptors` limits the connections.
    pub(super) fn new(
        args: &LoadArgs,
        descriptors: u32,
        which: usize,
    ) -> Result<LoadPlan, Failure> {
        refuse_idle_flags(args)?;
        let carrier = carrier(args)?;
        let on_device = matches!(carrier, Carrier::Device(..));
        let url = args.url.as_deref().expect("clap asks for it");
        let target = Target::new(url)?;
        let tls = tls(args, &target)?;
        let addresses = fitting_addresses(&target, args, on_device)?;
        let (to, all) = (addresses[which], addresses.len());
        let requests = Requests::new(args, &target)?;
        let http2 = http2(args, &target, &requests.mix)?;
        let idle = share(args).count(args.idle.map_or(0, NonZeroU32::get).into()) as u32;
        let most = on_device.then_some(MOST_CONNECTIONS);
        let connections = connections(args, idle, most, descriptors)?;
        let requests_per_connection = (!args.keep_alive).then_some(args.requests_per_connection);
        let rest = rest(args);
        let times = requests.times.as_ref();
        let rate = times.map(|times| most_within(&times.starts, SECOND) as f64);
        let rate = rate.or(highest_rate(args).map(|rate| share(args).rate(rate)));
        let (sources, ports, about) = choose_sources(args, &carrier, to, |rule, place| Need {
            rate: times.map(|times| mean_rate(times, rest)).or(rate),
            connections: u64::from(connections),
            idle: u64::from(idle),
            per_connection: requests_per_connection.filter(|_| connections > 0),
            rule,
            place,
        })?;
        let is_new = !args.keep_alive && connections > 0;
        let steady_after = if is_new { rest } else { Duration::ZERO };
        let warm_up = args.warm_up.unwrap_or(steady_after);
        let timing = Timing::new(args, requests.times, warm_up)?;
        let setup = Setup {
            url: target.url.clone(),
            method: requests.method,
            mix: requests.name,
            stack: carrier.stack().to_owned(),
            rate,
            connections: u64::from(connections),
            requests_per_connection: requests_per_connection.map(NonZeroU32::get),
            pipeline: args.pipeline.get(),
            http2_streams: http2.map(|http2| http2.streams.get()),
            close: close(args),
            addresses: sources.len(),
            ports: rule(args, rest, &ports).ports,
            rest,
            steady_after,
            shares: args.part.into_iter().collect(),
        };
        let engine = engine::Plan {
            to,
            mix: requests.mix,
            duration: timing.duration,
            mode: timing.mode(connections as usize),
            idle: IdlePlan { connections: idle as usize, is_silent: args.idle_silent },
            requests_per_connection,
            pipeline: args.pipeline,
            http2,
            close: close(args),
            farewell: client_close::request(&target.host),
            timeout: args.timeout,
            warm_up,
            grace: args.timeout,
            stop_grace: STOP_GRACE.min(args.timeout),
        };
        Ok(LoadPlan { engine, sources, ports, rest, setup, about, carrier, tls, all })
    }
}

/// The source addresses and ports of a load to `to`, by what it needs, and a line about them.
/// `need` is made of the rule for the addresses, and of the place of the first among those there
/// are.
fn choose_sources(
    args: &LoadArgs,
    carrier: &Carrier,
    to: SocketAddr,
    need: impl FnOnce(Rule, u64) -> Need,
) -> Result<(Sources, RangeInclusive<u16>, String), Failure> {
    let on_device = matches!(carrier, Carrier::Device(..));
    let all_ports = || if on_device { OUR_PORTS } else { kernel_ports() };
    let all_ports = args.ports.clone().unwrap_or_else(all_ports);
    let tuples = share(args).tuples(&candidates(args, to, on_device)?, &all_ports);
    let (mut candidates, ports) = tuples.map_err(|why| usage(format!("--part: {why}")))?;
    if let Carrier::Joined(_) = carrier {
        candidates = candidates.first(client_addresses().len());
    }
    let need = need(rule(args, rest(args), &ports), place(args, to, carrier));
    let (sources, about) = need.choose(&candidates)?;
    Ok((sources, ports, about))
}

/// The rule for the number of addresses. A server that stalls may hold each connection up to the
/// timeout, and then leave it to us to close. The first connection could not tell: it makes no
/// request.
fn rule(args: &LoadArgs, rest: Duration, ports: &RangeInclusive<u16>) -> Rule {
    let random = args.poisson.then_some(args.burst.get());
    Rule { random, life: args.timeout + CLOSE_PATIENCE, ..Rule::new(rest, ports) }
}

/// Where a load takes its addresses among those there are. If it can use all of them, without a
/// setting on this machine, that is anywhere: a load after it seldom meets its TIME-WAITs.
fn place(args: &LoadArgs, to: SocketAddr, carrier: &Carrier) -> u64 {
    let are_usable = match carrier {
        Carrier::Device(_) => true,
        Carrier::Kernel | Carrier::Joined(_) => args.source.is_empty() && to.ip().is_loopback(),
    };
    if are_usable && args.part.is_none() { super::random() } else { 0 }
}

/// HTTP/2 in place of HTTP/1.1, if that is asked for.
fn http2(args: &LoadArgs, target: &Target, mix: &Mix) -> Result<Option<Http2>, Failure> {
    if !args.http2 {
        return Ok(None);
    }
    if args.close() != CloseArg::Client {
        let why = "its clients cannot ask a server to close: leave out --close";
        return Err(usage(format!("--http2: {why}")));
    }
    if args.pipeline.get() > 1 {
        return Err(usage("--http2 has no --pipeline: give --streams N"));
    }
    if args.idle.is_some() && !args.idle_silent {
        return Err(usage("--http2: idle connections make no request: give --idle-silent"));
    }
    let http2 = Http2 { streams: args.streams, is_secured: target.is_secured };
    let made = mix.request(0).http2(http2.scheme());
    made.map_err(|why| usage(format!("--http2: {why}")))?;
    Ok(Some(http2))
}

/// The TLS configuration for the server, for https.
fn tls(args: &LoadArgs, target: &Target) -> Result<Option<Tls>, Failure> {
    if !target.is_secured {
        let flags = [("--insecure", args.insecure), ("--resume", args.resume)];
        return match flags.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(usage(format!("{flag} is for URLs that begin with https://"))),
            None => Ok(None),
        };
    }
    let trust = if args.insecure { Ok(Trust::Anybody) } else { Trust::of_the_system() };
    let trust = trust.map_err(|why| Failure::Load(format!("{}: {why}", target.url)))?;
    let tls = Tls::new(&target.name, trust).map_err(usage)?;
    let tls = if args.http2 { tls.for_http2() } else { tls };
    Ok(Some(if args.resume { tls.resuming() } else { tls }))
}

/// The time that a tuple rests; zero means not at all.
fn rest(args: &LoadArgs) -> Duration {
    args.time_wait + if args.time_wait.is_zero() { Duration::ZERO } else { GUARD }
}

/// This process's part of the load.
fn share(args: &LoadArgs) -> Share {
    args.part.unwrap_or(Share::ALL)
}

fn usage(text: impl Into<String>) -> Failure {
    Failure::Usage(text.into())
}

/// The stack that carries the load, with the knobs if it is ours.
fn carrier(args: &LoadArgs) -> Result<Carrier, Failure> {
    let has_device = args.device.name_one();
    match args.stack {
        Some(StackKind::Kernel) if has_device => {
            Err(usage("--stack kernel has no device: leave out the flag that names one"))
        }
        _ if has_device => {
            let stack = device_stack(&args.device, 80)?;
            let knobs = knobs(args, Memory::of_machine().bytes(), client_setting(args.close()))?;
            Ok(Carrier::Device(Box::new((stack, knobs))))
        }
        Some(StackKind::Lightwait) => {
            refuse_device_flags(&args.device)?;
            let memory = Memory::of_machine().bytes() / 2;
            let client = knobs(args, memory, client_setting(args.close()))?;
            let server = knobs(args, memory, server_setting(args.close()))?;
            Ok(Carrier::Joined(Box::new(Joined { client, server })))
        }
        Some(StackKind::Kernel) | None => {
            refuse_device_flags(&args.device)?;
            refuse_our_flags(args)?;
            Ok(Carrier::Kernel)
        }
    }
}

/// Refuses flags that would have no effect.
fn refuse_idle_flags(args: &LoadArgs) -> Result<(), Failure> {
    let is_open = args.rate.is_some() || !args.stage.is_empty();
    let is_single = args.requests_per_connection.get() == 1 && !args.keep_alive;
    if args.poisson && !is_open {
        return Err(usage("--poisson is for an open loop: give --rate or --stage"));
    }
    if args.burst.get() > 1 && !is_open {
        return Err(usage("--burst is for an open loop: give --rate or --stage"));
    }
    if args.duration.is_zero() {
        return Err(usage("--duration 0 would record nothing"));
    }
    if args.timeout.is_zero() {
        return Err(usage("--timeout 0s would let every request fail"));
    }
    if args.pipeline.get() > 1 && is_single {
        return Err(usage(
            "--pipeline is for connections that carry several requests: give --keep-alive or \
             --requests-per-connection",
        ));
    }
    Ok(())
}

/// Refuses flags that only our stack supports.
fn refuse_our_flags(args: &LoadArgs) -> Result<(), Failure> {
    const WAY_OUT: &str = "give --stack lightwait, --tap or --af-packet as well";
    let does = match args.close() {
        CloseArg::Swap => "swap takes TIME-WAIT over",
        CloseArg::Negotiate => "negotiate agrees on who holds TIME-WAIT",
        CloseArg::Server | CloseArg::Client | CloseArg::ClientClose => {
            let flag = match (args.set.is_empty(), &args.congestion) {
                (true, None) => return Ok(()),
                (false, _) => "--set",
                (true, Some(_)) => "--congestion",
            };
            return Err(usage(format!("{flag} is for our stack: {WAY_OUT}")));
        }
    };
    Err(usage(format!("--close {does}, which the kernel's stack cannot: {WAY_OUT}")))
}

/// The knobs of a stack with `memory` bytes: those of `--close` and `--congestion`, then those of
/// `--set`.
fn knobs(args: &LoadArgs, memory: u64, of_close: Option<Setting>) -> Result<Knobs, Failure> {
    let of_congestion = args.congestion.as_deref().map(Setting::congestion);
    let flags = [("--close", &of_close), ("--congestion", &of_congestion)];
    let flags = flags.iter().filter_map(|(flag, setting)| Some((*flag, setting.as_ref()?.name())));
    refuse_two_values(&flags.collect::<Vec<_>>(), &args.set)?;
    let of_flags = of_close.into_iter().chain(of_congestion);
    let settings: Vec<Setting> = of_flags.chain(args.set.iter().cloned()).collect();
    Knobs::new(memory, &settings)
}

/// The knob that `close` needs at the client.
fn client_setting(close: CloseArg) -> Option<Setting> {
    match close {
        CloseArg::Swap => Some(Setting::new("time_wait.close_swap", "on")),
        CloseArg::Negotiate => Some(Setting::new("time_wait.negotiate", "client")),
        CloseArg::Server | CloseArg::Client | CloseArg::ClientClose => None,
    }
}

/// The knob that `close` needs at the server, if that is ours, too.
fn server_setting(close: CloseArg) -> Option<Setting> {
    client_setting(close).filter(|_| close == CloseArg::Negotiate)
}

/// The server's addresses, of the sources' IP version if sources are given; at least one.
fn fitting_addresses(
    target: &Target,
    args: &LoadArgs,
    on_device: bool,
) -> Result<Vec<SocketAddr>, Failure> {
    let given = args.source.iter().chain(&args.device.ip);
    let versions: Vec<bool> = given.map(|cidr| cidr.address().is_ipv4()).collect();
    let fits = |to: &&SocketAddr| versions.is_empty() || versions.contains(&to.is_ipv4());
    let fitting: Vec<SocketAddr> = target.addresses.iter().filter(fits).copied().collect();
    if fitting.is_empty() {
        let url = &target.url;
        return Err(usage(format!("{url}: no address of the IP version of --source or --ip")));
    }
    // A device has one link, the kernel one for each interface.
    let is_complete = |to: &SocketAddr| on_device || !lacks_zone(*to);
    let (complete, incomplete): (Vec<_>, Vec<_>) = fitting.into_iter().partition(is_complete);
    match (complete.first(), incomplete.first()) {
        (None, Some(to)) => Err(usage(format!(
            "{}: {ip} is on the link of some interface: say which, such as http://[{ip}%25eth0]/",
            target.url,
            ip = to.ip(),
        ))),
        _ => Ok(complete),
    }
}

/// True for a link-local address without its interface.
fn lacks_zone(to: SocketAddr) -> bool {
    let SocketAddr::V6(v6) = to else { return false };
    v6.ip().is_unicast_link_local() && v6.scope_id() == 0
}

/// The number of connections beside `idle` idle ones.
fn connections(
    args: &LoadArgs,
    idle: u32,
    ours: Option<u32>,
    descriptors: u32,
) -> Result<u32, Failure> {
    let most = ours.unwrap_or(descriptors);
    let is_open = highest_rate(args).is_some() || args.trace.is_some();
    let asked = match args.connections {
        Some(asked) => {
            let asked = share(args).count(u64::from(asked)) as u32;
            if asked == 0 {
                return Err(usage(
                    "--connections: give one at least for each part (--part) and shard (--shards)",
                ));
            }
            asked
        }
        None if is_open => most.saturating_sub(idle).max(1),
        None if idle > 0 => 0,
        None => {
            return Err(usage(
                "say how much: --rate R (an open loop), --connections N (a closed one), --trace \
                 FILE or --idle N",
            ));
        }
    };
    let all = asked.saturating_add(idle);
    if ours.is_none() && all > descriptors {
        return Err(Failure::Load(format!(
            "{all} connections: this process may have {descriptors} at a time, by its limit on \
             file descriptors; raise it, as root: `ulimit -Hn {}`, or let several processes share \
             the load",
            all.saturating_add(super::OTHER_DESCRIPTORS),
        )));
    }
    Ok(asked)
}

/// The highest rate of an open loop, in requests a second.
fn highest_rate(args: &LoadArgs) -> Option<f64> {
    let stages = args.stage.iter().map(|stage| stage.rate);
    args.rate.into_iter().chain(stages).reduce(f64::max)
}

/// The rate that needs as many addresses as the log: the most requests within one time of rest, a
/// second. Without a rest it is the highest rate.
fn mean_rate(times: &Times, rest: Duration) -> f64 {
    let rest = rest.max(SECOND);
    most_within(&times.starts, rest) as f64 / rest.as_secs_f64()
}

/// The times at which requests start, and the length of the recorded part.
struct Timing {
    /// `None` in a closed loop.
    arrivals: Option<Arrivals>,
    duration: Duration,
}

impl Timing {
    fn new(args: &LoadArgs, times: Option<Times>, warm_up: Duration) -> Result<Timing, Failure> {
        let timing = match times {
            Some(Times { starts, duration }) => {
                let duration = duration.saturating_sub(warm_up);
                Timing { arrivals: Some(Arrivals::at(starts)), duration }
            }
            None => Timing::rated(args, warm_up),
        };
        if timing.duration.is_zero() {
            return Err(usage(
                "nothing would be recorded: the warm-up is part of the stages or the log, and \
                 takes all of it; --warm-up 0 records all",
            ));
        }
        Ok(timing)
    }

    fn rated(args: &LoadArgs, warm_up: Duration) -> Timing {
        let (mut stages, duration) = stages(args, warm_up);
        let share = share(args);
        for stage in &mut stages {
            [stage.from, stage.to] = [stage.from, stage.to].map(|rate| share.rate(rate));
        }
        let spacing = if args.poisson { Spacing::Poisson } else { Spacing::Constant };
        let shift = f64::from(share.number()) / f64::from(share.of());
        let new = || Arrivals::new(stages.clone(), spacing, args.burst.get(), super::random());
        let arrivals = (!stages.is_empty()).then(|| new().shifted(shift));
        Timing { arrivals, duration }
    }

    fn mode(self, connections: usize) -> Mode {
        match self.arrivals {
            Some(arrivals) => Mode::Open { arrivals, connections },
            None => Mode::Closed { connections },
        }
    }
}

/// The stages of an open loop, with the first rate through the warm-up, and the length of the
/// recorded part.
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

fn close(args: &LoadArgs) -> Close {
    match args.close() {
        CloseArg::Server => Close::Server,
        CloseArg::Client => Close::Client,
        CloseArg::Swap => Close::Swap,
        CloseArg::ClientClose => Close::ClientClose,
        CloseArg::Negotiate => Close::Negotiate,
    }
}

#[cfg(test)]
mod tests;
