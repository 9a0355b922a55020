//! The arguments of `lightwait wan`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use lightwait_core::config::parse_time;
use lightwait_wan::LinkText;

/// Join two devices by an emulated link: a delay router.
///
/// Frames that arrive on A leave on B, and the reverse, with the delay, the rate and the losses of
/// a link in each direction. All frames pass, ARP and neighbour discovery too. The router polls
/// without rest, which takes a processor for each of its threads, so that packets keep their
/// distances. The report shows how late they left, and whether the machine kept up.
///
/// A and B are interfaces without addresses of their own, such as one end of a veth pair each, or
/// new TAPs: `tap:lw0`. A profile applies first, then flags for both directions, then --a-to-b and
/// --b-to-a; each replaces earlier values of its keys.
///
/// SIGINT (Ctrl-C) and SIGTERM end it with the report. docs/wan.md describes the files' formats.
#[derive(Clone, Debug, Args)]
pub(crate) struct WanArgs {
    /// Device A: an interface's name (a packet socket on it), or tap:NAME
    pub(crate) a: DeviceName,

    /// Device B
    pub(crate) b: DeviceName,

    /// The links: lan, dsl, cable, 4g, 5g, satellite or transatlantic (A is the user's side), or a
    /// file that ends in .toml
    #[arg(long, value_name = "NAME|FILE", help_heading = "Link")]
    pub(crate) profile: Option<String>,

    #[command(flatten)]
    pub(crate) both: BothArgs,

    /// The direction from A to B: delay=30ms,rate=10Mbit,queue=64KiB,…, with the flags above as
    /// keys, or trace=FILE in mahimahi's format instead of a rate
    #[arg(long, value_name = "SPEC", help_heading = "Link")]
    pub(crate) a_to_b: Option<LinkText>,

    /// The direction from B to A, likewise
    #[arg(long, value_name = "SPEC", help_heading = "Link")]
    pub(crate) b_to_a: Option<LinkText>,

    /// A file of changes to the links at given times
    #[arg(long, value_name = "FILE", help_heading = "Link")]
    pub(crate) steps: Option<PathBuf>,

    /// Release packets only at such intervals, like a router that waits for the clock's interrupt:
    /// all due packets leave together
    #[arg(long, value_name = "TIME", help_heading = "Router", value_parser = parse_time)]
    pub(crate) interrupt: Option<Duration>,

    /// Threads: 1 for both directions, or 2, one for each. A thread takes a processor [default: 2
    /// where there are three processors, else 1]
    #[arg(long, value_name = "1|2", help_heading = "Router",
          value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) threads: Option<u8>,

    /// Time to run [default: until a signal]
    #[arg(long, short, value_name = "TIME", help_heading = "Router", value_parser = parse_time)]
    pub(crate) duration: Option<Duration>,

    /// Write every frame on A to a pcapng file
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) pcap_a: Option<PathBuf>,

    /// Write every frame on B to a pcapng file
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) pcap_b: Option<PathBuf>,

    /// Report what each flow got: its rate, its losses and the delay of its packets
    #[arg(long, help_heading = "Watching")]
    pub(crate) flows: bool,

    /// Print the report as JSON (docs/wan.md)
    #[arg(long, help_heading = "Watching")]
    pub(crate) json: bool,
}

/// The links of both directions.
#[derive(Clone, Debug, Args)]
pub(crate) struct BothArgs {
    /// Delay of each direction, such as 30ms: half of a round trip
    #[arg(long, value_name = "TIME", help_heading = "Link", value_parser = of("delay"))]
    delay: Option<String>,

    /// Variation of the delay: 2ms (uniform), 2ms:normal, 2ms:pareto; packets keep their order
    #[arg(long, value_name = "TIME", help_heading = "Link", value_parser = of("jitter"))]
    jitter: Option<String>,

    /// Rate, such as 100Mbit; frames count with their Ethernet headers
    #[arg(long, value_name = "RATE", help_heading = "Link", value_parser = of("rate"))]
    rate: Option<String>,

    /// A bound over a while, beside the rate: a token bucket's rate and burst, such as 20Mbit:64KiB
    #[arg(long, value_name = "RATE:SIZE", help_heading = "Link", value_parser = of("bucket"))]
    bucket: Option<String>,

    /// Capacity of the queue before a rate, such as 256KiB or 100packets; more is dropped [default:
    /// unlimited]
    #[arg(long, value_name = "SIZE", help_heading = "Link", value_parser = of("queue"))]
    queue: Option<String>,

    /// Drop packets that have waited too long, by CoDel: target and interval, such as 5ms:100ms;
    /// 5ms:100ms:ecn marks those whose ends use ECN
    #[arg(long, value_name = "TIME:TIME", help_heading = "Link", value_parser = of("codel"))]
    codel: Option<String>,

    /// Serve flows in turns from so many queues, such as 1024 (FQ-CoDel together with --codel)
    #[arg(long, value_name = "QUEUES", help_heading = "Link", value_parser = of("fq"))]
    fq: Option<String>,

    /// Mark packets whose ends use ECN from so long a queue on: 30packets, 64KiB or 1ms
    #[arg(long, value_name = "SIZE|TIME", help_heading = "Link", value_parser = of("mark"))]
    mark: Option<String>,

    /// Lose packets: 1%; gilbert:1%:25% (good to bad, bad to good); bursty:1%:30%
    #[arg(long, value_name = "LOSS", help_heading = "Link", value_parser = of("loss"))]
    loss: Option<String>,

    /// Reorder packets: 5%, or with the extra delay 5%:2ms, or how many overtake: 5%:3packets
    #[arg(long, value_name = "SHARE", help_heading = "Link", value_parser = of("reorder"))]
    reorder: Option<String>,

    /// Duplicate packets
    #[arg(long, value_name = "SHARE", help_heading = "Link", value_parser = of("duplicate"))]
    duplicate: Option<String>,

    /// Flip a bit in packets
    #[arg(long, value_name = "SHARE", help_heading = "Link", value_parser = of("corrupt"))]
    corrupt: Option<String>,

    /// Bytes of the longest IP packet that passes, such as 1280; a longer one vanishes without a
    /// report
    #[arg(long, value_name = "BYTES", help_heading = "Link", value_parser = of("mtu"))]
    mtu: Option<String>,

    /// Seed of every random choice; the same seed makes the same choices
    #[arg(long, value_name = "N", help_heading = "Link", value_parser = of("seed"))]
    seed: Option<String>,
}

impl BothArgs {
    /// The link of the flags.
    pub(crate) fn link(&self) -> LinkText {
        let given = [
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("rate", &self.rate),
            ("bucket", &self.bucket),
            ("queue", &self.queue),
            ("codel", &self.codel),
            ("fq", &self.fq),
            ("mark", &self.mark),
            ("loss", &self.loss),
            ("reorder", &self.reorder),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("mtu", &self.mtu),
            ("seed", &self.seed),
        ];
        let mut link = LinkText::default();
        for (key, value) in given {
            if let Some(value) = value {
                link.set(key, value).expect("checked when it was parsed");
            }
        }
        link
    }
}

/// Checks the value of that key.
fn of(key: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |value| {
        let checked = LinkText::default().set(key, value);
        checked.map(|()| value.to_owned()).map_err(|error| {
            // clap prints the flag and the value already.
            let text = error.to_string();
            text.split_once("`: ").map_or(text.clone(), |(_, expected)| expected.to_owned())
        })
    }
}

/// A device by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// A TAP, made if it does not exist.
    Tap(String),
    /// An existing interface.
    Interface(String),
}

impl DeviceName {
    /// The interface's name.
    pub(crate) fn interface(&self) -> &str {
        match self {
            DeviceName::Tap(name) | DeviceName::Interface(name) => name,
        }
    }
}

impl FromStr for DeviceName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<DeviceName, Self::Err> {
        let (kind, name) = text.split_once(':').unwrap_or(("af-packet", text));
        match kind {
            _ if name.is_empty() => Err("expected an interface's name, or tap:NAME"),
            "tap" => Ok(DeviceName::Tap(name.to_owned())),
            "af-packet" => Ok(DeviceName::Interface(name.to_owned())),
            _ => Err("expected an interface's name, tap:NAME or af-packet:NAME"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_an_interface_or_a_tap() {
        let name = |text: &str| text.parse::<DeviceName>();
        assert_eq!(name("eth0"), Ok(DeviceName::Interface("eth0".to_owned())));
        assert_eq!(name("af-packet:eth0"), name("eth0"));
        assert_eq!(name("tap:lw0"), Ok(DeviceName::Tap("lw0".to_owned())));
        assert!(name("tap:").is_err() && name("").is_err() && name("tun:x").is_err());
    }
}
