//! `lightwait tunnel`: all that comes from a TUN, through a proxy.

pub(crate) mod args;

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lightwait::device::{TapConfig, Tun};
use lightwait::driver;
use lightwait::shard::Shard;
use lightwait::shards::{self, Seat};
use lightwait::stack::secret;
use lightwait_core::address::Cidr;
use lightwait_core::config::Member;
use lightwait_core::flow::Steering;
use lightwait_core::{Capabilities, Config, Medium};
use lightwait_tunnel::{News, Proxy, Tally, Tunnel};
use tokio::runtime::Builder;

use crate::failure::Failure;
use crate::plan::{Knobs, Memory};
use crate::serve::raise_descriptor_limit;
use crate::serve::signals::Signals;
use args::{EVERYTHING, HOST_ADDRESSES, TunnelArgs};

/// Carries what comes until a signal, or a failure of the device.
pub(crate) fn tunnel(args: &TunnelArgs) -> Result<ExitCode, Failure> {
    let config = configuration(args)?;
    let (shards, cores) = args.shards.plan()?;
    let signals = Signals::install().map_err(Failure::Stack)?;
    raise_descriptor_limit();
    let mut queues = open(args, &config, shards)?;
    let name = queues[0].name().to_owned();
    let carrier =
        Carrier { to: &args.to, config, signals: &signals, tally: Mutex::new(Tally::default()) };
    eprintln!(
        "TUN {name} → {}: what is routed to {name} is carried; Ctrl-C ends it with a report.",
        args.to
    );
    if shards == 1 {
        carrier.carry(queues.remove(0), None)?;
    } else {
        let work = |seat, queue| carrier.carry(queue, Some(seat));
        shards::threads(queues, cores, work, || signals.cut())?;
    }
    eprintln!("{}", report(*carrier.tally()));
    Ok(signals.exit_code())
}

/// Opens the TUN, with a queue for each shard.
fn open(args: &TunnelArgs, config: &Config, shards: u16) -> Result<Vec<Tun>, Failure> {
    let host_addresses = or_default(&args.host_ip, HOST_ADDRESSES);
    let tun = TapConfig { mtu: args.mtu, host_addresses, ..TapConfig::new(&args.tun) };
    let queues = Tun::open_queues(&tun, shards.into());
    let queues = queues.map_err(|error| Failure::Device(format!("--tun {}", args.tun), error))?;
    if shards > 1
        && let Err(error) = queues[0].steer(&Steering::new(&config.secret, shards))
    {
        eprintln!(
            "lightwait: the kernel does not steer packets to their shards ({error}): the shards \
             hand them over to each other"
        );
    }
    Ok(queues)
}

/// What all shards of a tunnel have.
struct Carrier<'a> {
    to: &'a Proxy,
    config: Config,
    signals: &'a Signals,
    /// What the shards that have ended have carried.
    tally: Mutex<Tally>,
}

impl Carrier<'_> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries what comes through one queue.
    fn carry(&self, queue: Tun, seat: Option<Seat>) -> Result<(), Failure> {
        let member = seat.as_ref().map_or(Member::ALONE, Seat::member);
        let shard = Shard::new(self.config.member(member), Box::new(queue));
        let mut shard = shard.map_err(Failure::Stack)?;
        if let Some(seat) = seat {
            shard = shard.seated(seat);
        }
        let handle = shard.handle();
        handle.contain_panics(true);
        let news = News::new(|text| eprintln!("lightwait: {text}"));
        let tunnel = Tunnel::new(&handle, self.to.clone(), news.clone()).map_err(Failure::Stack)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::Stack)?;
        let carried = handle.spawn_local(tunnel.run());
        let ended = runtime.block_on(async {
            tokio::select! {
                end = driver::drive(vec![shard]) => {
                    end.map(|never| match never {}).map_err(Failure::Stack)
                }
                _ = carried => Ok(()),
                () = self.signals.stop() => Ok(()),
            }
        });
        let mut tally = self.tally();
        *tally = tally.and(news.tally());
        ended
    }
}

/// A host without an address that takes destinations.
fn configuration(args: &TunnelArgs) -> Result<Config, Failure> {
    let memory = args.memory.unwrap_or_else(Memory::of_machine);
    if let Some(text) = args.memory.and_then(Memory::excess) {
        return Err(Failure::Usage(text));
    }
    let knobs = Knobs::new(memory.bytes(), &args.set)?;
    // The device says what it can when the shard is made.
    let device = Capabilities::plain(Medium::Ip, args.mtu);
    let [any, _] = EVERYTHING.map(cidr);
    let config = knobs.on(Config::new(device, any, secret().map_err(Failure::Stack)?));
    let destinations = or_default(&args.take, EVERYTHING);
    Ok(Config { addresses: Vec::new(), destinations, ..config })
}

fn or_default(given: &[Cidr], default: [&str; 2]) -> Vec<Cidr> {
    if given.is_empty() { default.map(cidr).to_vec() } else { given.to_vec() }
}

fn cidr(text: &str) -> Cidr {
    text.parse().expect("a constant")
}

/// What was carried, in a line.
fn report(tally: Tally) -> String {
    let Tally { requested, connected, refused, ended, reset, flows, flows_refused } = tally;
    format!(
        "{requested} connections: {connected} carried, {refused} refused; {ended} ended, {reset} \
         reset. {flows} UDP flows, {flows_refused} refused."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, CommandLine};
    use clap::Parser;

    fn configured(flags: &[&str]) -> Result<Config, String> {
        let line = ["lightwait", "tunnel", "--tun", "lw0", "--to", "direct"];
        let line = CommandLine::try_parse_from(line.iter().chain(flags)).unwrap();
        let Command::Tunnel(args) = line.command else { panic!("another command") };
        configuration(&args).map_err(|failure| failure.to_string())
    }

    #[test]
    fn everything_is_taken_unless_a_prefix_is_named() {
        let texts = |config: Config| {
            assert!(config.addresses.is_empty());
            config.destinations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(texts(configured(&[]).unwrap()), EVERYTHING);
        let some = configured(&["--take", "10.0.0.0/8", "--take", "fd00::/8"]).unwrap();
        assert_eq!(texts(some), ["10.0.0.0/8", "fd00::/8"]);
    }

    #[test]
    fn knobs_are_set_and_wrong_ones_refused() {
        let config = configured(&["--set", "limits.held_syns=7", "--memory", "64M"]).unwrap();
        assert_eq!((config.limits.held_syns, config.limits.pages), (7, 16 << 10));
        let error = configured(&["--set", "limits.held_sins=7"]).unwrap_err();
        assert!(error.contains("limits.held_syns"), "{error}");
        let error = configured(&["--memory", "1000000G"]).unwrap_err();
        assert!(error.contains("more than the"), "{error}");
    }
}
