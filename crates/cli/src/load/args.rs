//! The arguments of `lightwait load`.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lightwait_core::address::Cidr;
use lightwait_core::config::parse_time;
use lightwait_load::share::Share;

use crate::args::{CONGESTION, DeviceArgs, ShardArgs};
use crate::plan::Setting;

/// Put load on an HTTP server, from as many source addresses as the rate needs.
///
/// A client that opens a connection per request runs out of ports: each stays in TIME-WAIT for a
/// minute, so that one address with 28,232 ports allows fewer than 470 connections a second. R
/// connections a second need N = ceil(R·T/P) addresses. `load` uses that many in turn, uses no pair
/// of address and port again within T, and reports its choice. The loopback offers 127.0.0.0/8.
///
/// With --rate requests start at given times, independent of the server (an open loop), and latency
/// counts from these times. With --connections each request starts when the one before is answered
/// (a closed loop). Recording begins after the warm-up: one whole TIME-WAIT, unless connections are
/// kept alive.
///
/// SIGINT (Ctrl-C) and SIGTERM end the load early: pending requests get 5 s, and the recorded part
/// is reported. A second signal ends the wait; the exit status is then 130. It is 1 if a threshold
/// is missed, or cannot be judged as nothing was recorded.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    pub(crate) action: Option<LoadAction>,

    /// The URL to request, such as http://127.0.0.1:8080/, by HTTP/1.1
    #[arg(required = true)]
    pub(crate) url: Option<String>,

    /// The TCP stack [default: lightwait on a device, else kernel]. Without a device `lightwait`
    /// needs no privileges: connections of our stack are joined in memory to the kernel's, and the
    /// server sees the kernel's TCP, with its source addresses and ports
    #[arg(long, value_enum)]
    pub(crate) stack: Option<StackKind>,

    /// Requests a second, in an open loop
    #[arg(long, value_name = "R", value_parser = parse_rate, help_heading = "Load",
          conflicts_with = "stage")]
    pub(crate) rate: Option<f64>,

    /// Change the rate linearly to R in that time, from the rate before (first: from 0), as in
    /// --stage 30s:2000 --stage 60s:2000 --stage 10s:0; replaces --rate and --duration. The warm-up
    /// is the first part of the stages: --warm-up 0 records all of them
    #[arg(long, value_name = "TIME:R", help_heading = "Load", conflicts_with = "duration")]
    pub(crate) stage: Vec<StageArg>,

    /// Make the requests of an access log (Common or Combined Log Format) at its times; replaces
    /// --rate and --duration. The warm-up is the first part of the log. --header and --body add
    /// what a log lacks; --body is for POST, PUT and PATCH
    #[arg(long, value_name = "FILE", help_heading = "Load",
          conflicts_with_all = ["rate", "stage", "poisson", "burst", "duration", "method", "mix"])]
    pub(crate) trace: Option<PathBuf>,

    /// Replay the log X times as fast
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse_speed,
          help_heading = "Load", requires = "trace")]
    pub(crate) trace_speed: f64,

    /// Start the requests of an open loop at random (a Poisson process), not at equal distances
    #[arg(long, help_heading = "Load")]
    pub(crate) poisson: bool,

    /// Start N requests of an open loop at a time, at the same average rate
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Load",
          value_parser = parse_count)]
    pub(crate) burst: NonZeroU32,

    /// Number of connections: exact in a closed loop, the maximum in an open one [default of an
    /// open loop: as many as possible]
    #[arg(long, short, value_name = "N", help_heading = "Load",
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) connections: Option<u32>,

    /// Time to record
    #[arg(long, short, value_name = "TIME", default_value = "10s", value_parser = parse_time_or_0,
          help_heading = "Load")]
    pub(crate) duration: Duration,

    /// Time before recording [default: --time-wait plus 5s for new connections, 0s for kept ones]
    #[arg(long, value_name = "TIME", value_parser = parse_time_or_0, help_heading = "Load")]
    pub(crate) warm_up: Option<Duration>,

    /// Requests per connection
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        help_heading = "Connections",
        conflicts_with = "keep_alive",
        value_parser = parse_count
    )]
    pub(crate) requests_per_connection: NonZeroU32,

    /// Keep each connection until the server closes it
    #[arg(long, help_heading = "Connections")]
    pub(crate) keep_alive: bool,

    /// Hold N more connections from before the load to its end: each makes one request, and no
    /// more. Without --rate, --connections and --trace this is the whole load
    #[arg(long, value_name = "N", help_heading = "Connections", value_parser = parse_count)]
    pub(crate) idle: Option<NonZeroU32>,

    /// Make no request on idle connections: for servers that do not speak HTTP, or that wait for
    /// the first request
    #[arg(long, requires = "idle", help_heading = "Connections")]
    pub(crate) idle_silent: bool,

    /// Send N requests at once, before the first is answered
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Connections",
          value_parser = parse_pipeline)]
    pub(crate) pipeline: NonZeroU32,

    /// The end that closes a connection first and so keeps its TIME-WAIT, unless it is swapped or
    /// negotiated. The load obeys a server that asks it to close in any case
    /// [default: server; over HTTP/2 client, as its clients cannot ask a server to close]
    #[arg(long, value_enum, hide_default_value = true, help_heading = "Connections")]
    pub(crate) close: Option<CloseArg>,

    /// Speak HTTP/2: on an https:// URL by ALPN, else from the first byte on
    #[arg(long, help_heading = "Connections")]
    pub(crate) http2: bool,

    /// Requests at a time on each connection of HTTP/2, each on a stream
    #[arg(long, value_name = "N", default_value = "1", requires = "http2",
          help_heading = "Connections", value_parser = parse_pipeline)]
    pub(crate) streams: NonZeroU32,

    /// Accept any certificate for an https:// URL. (SSL_CERT_FILE names authorities to trust
    /// instead of the system's.)
    #[arg(long, help_heading = "Connections")]
    pub(crate) insecure: bool,

    /// Resume TLS sessions, as a client does that comes again. Else each connection makes a full
    /// handshake. The report has the times of either kind
    #[arg(long, help_heading = "Connections")]
    pub(crate) resume: bool,

    /// The time limit of a request, including its connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time,
          help_heading = "Connections")]
    pub(crate) timeout: Duration,

    /// Addresses to connect from: A/N, A, or a list of them [default: 127.0.0.0/8 on the loopback;
    /// else --ip, or the kernel's address]
    #[arg(long, value_name = "A/N", value_delimiter = ',', value_parser = parse_source,
          help_heading = "Sources")]
    pub(crate) source: Vec<Cidr>,

    /// Ports of each address [default: 1024-65535 on a device; else the kernel's
    /// net.ipv4.ip_local_port_range]
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_ports, help_heading = "Sources")]
    pub(crate) ports: Option<RangeInclusive<u16>>,

    /// Time that a closed connection stays in TIME-WAIT, at either end. Its address and port rest
    /// for five more seconds (T), since Linux's timers are up to that late. With 0 they do not
    /// rest: a new SYN ends the TIME-WAIT before it, which hides most TIME-WAITs, as in common
    /// benchmarks
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time_wait,
          help_heading = "Sources")]
    pub(crate) time_wait: Duration,

    #[command(flatten)]
    pub(crate) shards: ShardArgs,

    /// Run part I of a load that N processes share, on this machine or others. All have the same
    /// arguments but for I, from 1/N to N/N. Each has its part of the rate, the connections and the
    /// source addresses; `lightwait load merge` merges their reports
    #[arg(long, value_name = "I/N", value_parser = parse_part_of, help_heading = "Sources")]
    pub(crate) part: Option<Share>,

    /// The request's method
    #[arg(long, short = 'X', value_name = "NAME", help_heading = "Request")]
    pub(crate) method: Option<String>,

    /// Make different requests, each as often as its weight says: a file with a line
    /// `WEIGHT [METHOD] /PATH [BODY or @FILE]` for each; webstone, for WebSTONE's file500.html,
    /// file5k.html, file50k.html, file500k.html and file5m.html; or `zipf:N[:S]`, for files 1 to N,
    /// file k in proportion to 1/k^S [S: 1]. The files of webstone and zipf are in the URL's
    /// directory
    #[arg(long, value_name = "MIX", help_heading = "Request",
          conflicts_with_all = ["method", "body"])]
    pub(crate) mix: Option<MixArg>,

    /// A header field, such as 'Accept: text/html'; may be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = parse_field,
          help_heading = "Request")]
    pub(crate) header: Vec<(String, String)>,

    /// The request's body, or @FILE for a file's contents. The default method is then POST
    #[arg(long, value_name = "TEXT", help_heading = "Request")]
    pub(crate) body: Option<String>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// The congestion control of our stack [default: cubic]
    #[arg(long, value_name = "NAME", value_parser = CONGESTION, help_heading = "Device")]
    pub(crate) congestion: Option<String>,

    /// Set a knob of our stack, such as time_wait.length=30s; may be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Device")]
    pub(crate) set: Vec<Setting>,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

impl LoadArgs {
    /// The end that closes first.
    pub(crate) fn close(&self) -> CloseArg {
        let default = if self.http2 { CloseArg::Client } else { CloseArg::Server };
        self.close.unwrap_or(default)
    }
}

/// The form of the report, and its thresholds.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Print the report as JSON (docs/load-report.md)
    #[arg(long, help_heading = "Report")]
    pub(crate) json: bool,

    /// Write a line for every second to a file
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) csv: Option<PathBuf>,

    /// Write a page with charts to a file: throughput, TIME-WAIT, the distribution of latency
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(crate) html: Option<PathBuf>,

    /// Exit with status 1 if a larger part of the requests failed, such as 0.1%
    #[arg(long, value_name = "PART", value_parser = parse_part, help_heading = "Report")]
    pub(crate) max_error_rate: Option<f64>,

    /// Exit with status 1 if the 99th percentile of the total latency is longer. Here a missing
    /// answer is longer than any other
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Report")]
    pub(crate) max_p99: Option<Duration>,
}

/// The other actions of `load`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LoadAction {
    /// Merge the JSON reports of the parts of one load (--part) into one report.
    ///
    /// Counts and histograms are added up, so that nothing is lost. Rates are over the time from
    /// the first part's beginning to the last one's end.
    Merge(MergeArgs),
}

/// The arguments of `lightwait load merge`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MergeArgs {
    /// JSON reports, from --json
    #[arg(required = true, value_name = "REPORT")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// The TCP stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackKind {
    /// The kernel's stack.
    Kernel,
    /// Our stack, on a device or joined in memory to the kernel's.
    Lightwait,
}

/// The end that closes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CloseArg {
    /// The server: the last request says `Connection: close`.
    Server,
    /// The load, after the last answer.
    Client,
    /// The server, but the load takes TIME-WAIT over from it (only on our stack).
    Swap,
    /// The load, announced by CLIENT_CLOSE after the last answer (docs/client-close.md).
    ClientClose,
    /// The server, but the load holds TIME-WAIT if the server's stack agrees (only on our stack).
    Negotiate,
}

/// `TIME:R`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StageArg {
    pub(crate) duration: Duration,
    pub(crate) rate: f64,
}

impl FromStr for StageArg {
    type Err = String;

    fn from_str(text: &str) -> Result<StageArg, String> {
        let (time, rate) = text.split_once(':').ok_or("give TIME:R, as in 30s:2000")?;
        let duration = parse_time(time).map_err(|error| error.to_string())?;
        if duration.is_zero() {
            return Err("a stage takes some time".to_owned());
        }
        let rate = if rate == "0" { 0.0 } else { parse_rate(rate)? };
        Ok(StageArg { duration, rate })
    }
}

/// A mix of requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MixArg {
    /// WebSTONE's standard list of files.
    Webstone,
    /// `zipf:N[:S]`.
    Zipf { count: u32, exponent: f64 },
    /// The mix in a file.
    File(PathBuf),
}

impl FromStr for MixArg {
    type Err = String;

    fn from_str(text: &str) -> Result<MixArg, String> {
        if text == "webstone" {
            return Ok(MixArg::Webstone);
        }
        let Some(shape) = text.strip_prefix("zipf:") else { return Ok(MixArg::File(text.into())) };
        let (count, exponent) = shape.split_once(':').unwrap_or((shape, "1"));
        let count = count.parse().ok().filter(|count| (1..=10_000_000).contains(count));
        let exponent = exponent.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
        match (count, exponent) {
            (Some(count), Some(exponent)) => Ok(MixArg::Zipf { count, exponent }),
            _ => Err("give zipf:N or zipf:N:S, N from 1 to 10000000, S from 0 to 10".to_owned()),
        }
    }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (1e-3..=1e6).contains(speed));
    speed.ok_or_else(|| "give a factor from 0.001 to 1000000".to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.001..=1e8).contains(rate));
    rate.ok_or_else(|| "give requests a second, from 0.001 to 100000000".to_owned())
}

fn parse_count(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "give a number from 1 on".to_owned())
}

fn parse_pipeline(text: &str) -> Result<NonZeroU32, String> {
    let count = parse_count(text).ok().filter(|count| count.get() <= 1000);
    count.ok_or_else(|| "give a number from 1 to 1000".to_owned())
}

/// A time, or just 0.
fn parse_time_or_0(text: &str) -> Result<Duration, String> {
    if text == "0" {
        Ok(Duration::ZERO)
    } else {
        parse_time(text).map_err(|error| error.to_string())
    }
}

/// The length of TIME-WAIT. `serve` has a flag of that name that takes a word.
fn parse_time_wait(text: &str) -> Result<Duration, String> {
    let hint = "; --close says which end holds TIME-WAIT";
    parse_time_or_0(text).map_err(|error| format!("{error}{hint}"))
}

/// A prefix, or one address.
fn parse_source(text: &str) -> Result<Cidr, String> {
    let one = text
        .parse::<IpAddr>()
        .ok()
        .and_then(|address| Cidr::new(address, if address.is_ipv4() { 32 } else { 128 }));
    let prefix = one.map_or_else(|| text.parse().ok(), Some);
    prefix.ok_or_else(|| "give an address or a prefix, such as 10.1.0.0/16".to_owned())
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let ports = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?));
    let ports = ports.filter(|ports| *ports.start() > 0 && !ports.is_empty());
    ports.ok_or_else(|| "give the first and the last, such as 1024-65535".to_owned())
}

fn parse_field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("give NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// `1/4`.
fn parse_part_of(text: &str) -> Result<Share, String> {
    let share = text.split_once('/').and_then(|(number, of)| {
        let of = of.parse().ok().filter(|of| (1..=100_000).contains(of))?;
        Share::new(number.parse::<u32>().ok()?.checked_sub(1)?, of)
    });
    share.ok_or_else(|| "give I/N, such as 1/4 to 4/4".to_owned())
}

/// `0.1%`, or `0.001`.
fn parse_part(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let part = number.parse::<f64>().ok().map(|number| number / unit);
    let part = part.filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "give a part, such as 0.1% or 0.001".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_people_write_them() {
        assert_eq!(parse_part("0.5%"), Ok(0.005));
        assert_eq!(parse_part("1"), Ok(1.0));
        assert_eq!(parse_ports("1024-1024"), Ok(1024..=1024));
        assert_eq!(parse_source("10.1.2.3").unwrap(), "10.1.2.3/32".parse().unwrap());
        assert_eq!(parse_source("fd00::/64").unwrap(), "fd00::/64".parse().unwrap());
        assert_eq!(parse_time_or_0("0"), Ok(Duration::ZERO));
        assert_eq!(parse_field("A:b: c "), Ok(("A".to_owned(), "b: c".to_owned())));
        let stage = StageArg { duration: Duration::from_secs(30), rate: 0.0 };
        assert_eq!("30s:0".parse(), Ok(stage));
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for part in ["101%", "-1%", "1.1", "x", ""] {
            assert!(parse_part(part).is_err(), "{part}");
        }
        for ports in ["0-5", "5-4", "5", "1-65536", "-"] {
            assert!(parse_ports(ports).is_err(), "{ports}");
        }
        for rate in ["0", "-1", "nan", "inf", "1e9"] {
            assert!(parse_rate(rate).is_err(), "{rate}");
        }
        for stage in ["30s", "0s:5", "30:5", "30s:-5"] {
            assert!(stage.parse::<StageArg>().is_err(), "{stage}");
        }
        assert!(parse_count("0").is_err() && parse_count("1").is_ok());
        assert!(parse_pipeline("0").is_err() && parse_pipeline("1001").is_err());
        assert!(parse_source("10.1.0.0/33").is_err() && parse_field("x").is_err());
    }
}
