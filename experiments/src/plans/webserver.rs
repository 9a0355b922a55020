//! Aron and Druschel's benchmark of a web server (§2), on devices of this machine. Three client
//! machines saturate `lightwait serve` with requests for a cached file of 6 KB, each on a
//! connection of its own.
//!
//! ```text
//!   processor 0              processor 1
//!   serve ── TAP ── bridge ──┬─ TAP ── load --part 1/3, our stack
//!                            ├─ TAP ── load
//!                            └─ TAP ── load
//! ```
//!
//! *Conventional*: a client has one address with 3976 ports and uses them in turn; a new SYN ends
//! the server's TIME-WAIT of the connection before. *Modified*: it has N ≥ ceil(R·T/P) addresses,
//! and uses no 4-tuple again within TIME-WAIT.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::plan::Failure;
use crate::report::Report;
use lightwait_bench::live::{self, Namespace, Process, Server};

/// The paper's number of client machines.
pub(crate) const MACHINES: usize = 3;
/// The ports of the paper's clients: 11 928 in TIME-WAIT were three times as many.
pub(crate) const PORTS: u64 = 3976;
/// TIME-WAIT: a third of the paper's 60 s, since this server opens fifty times as many connections
/// a second. With 60 s 4.4BSD's server would hold two million blocks, and do nothing but scan them;
/// with 20 s its scans take a quarter of the processor, as the paper's did.
pub(crate) const TIME_WAIT_S: u64 = 20;
/// The time that a tuple rests beyond TIME-WAIT.
const GUARD_S: u64 = 5;
/// Connections at a time of each client.
const CONNECTIONS: u32 = 32;
/// Bytes of the file.
const FILE_BYTES: usize = 6 << 10;
const URL: &str = "http://10.9.0.1/file";

/// The server's timers and TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// 4.4BSD's scans; the whole control block in TIME-WAIT.
    Bsd,
    /// The paper's ordered list; the whole control block in TIME-WAIT.
    OrderedList,
    /// An eager wheel; the whole control block in TIME-WAIT.
    Wheel,
    /// Our default.
    Default,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Bsd => "4.4BSD",
            Mode::OrderedList => "ordered list",
            Mode::Wheel => "wheel",
            Mode::Default => "ours",
        }
    }

    fn settings(self) -> &'static [&'static str] {
        match self {
            Mode::Bsd => &["timers=scan", "time_wait.state=full"],
            Mode::OrderedList => &["timers=ordered_list", "time_wait.state=full"],
            Mode::Wheel => &["timers=wheel", "time_wait.state=full"],
            Mode::Default => &[],
        }
    }
}

/// The benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// One address each, 4-tuples reused at once.
    Conventional,
    /// A prefix of that many bits each, 4-tuples that rest.
    Modified { prefix: u8 },
}

impl Clients {
    /// The modified benchmark for that many connections a second of all clients together.
    pub(crate) fn modified(rate: f64) -> Clients {
        let addresses = addresses(rate);
        // An IPv4 prefix excludes two addresses.
        let bits = u64::BITS - (addresses + 1).leading_zeros();
        Clients::Modified { prefix: 32 - bits as u8 }
    }
}

/// N, by the paper's formula, for each of the clients.
pub(crate) fn addresses(rate: f64) -> u64 {
    let rested = rate / MACHINES as f64 * (TIME_WAIT_S + GUARD_S) as f64;
    (rested / PORTS as f64).ceil() as u64
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Connections opened in each second.
    pub(crate) connections: Vec<u64>,
    /// Samples: the time of each, connections in TIME-WAIT at the server, and the server's
    /// processor time so far.
    pub(crate) samples: Vec<(f64, u64, Duration)>,
    /// Source addresses of all clients together.
    pub(crate) addresses: u64,
    pub(crate) failed: u64,
    /// Times that a client waited for a rested 4-tuple: it should have had more addresses.
    pub(crate) waits: u64,
    /// The server's largest resident memory, in bytes.
    pub(crate) peak_memory: u64,
}

impl Run {
    /// The most in TIME-WAIT, start-up included.
    pub(crate) fn peak_time_wait(&self) -> u64 {
        self.samples.iter().map(|sample| sample.1).max().unwrap_or_default()
    }

    /// Connections a second from one second to another.
    pub(crate) fn rate(&self, from: u64, to: u64) -> f64 {
        let seconds = self.connections.iter().skip(from as usize).take((to - from) as usize);
        seconds.sum::<u64>() as f64 / (to - from) as f64
    }

    /// The server's processor time for a connection in that part of the run, in µs.
    pub(crate) fn micros(&self, from: u64, to: u64) -> f64 {
        let taken = |at: u64| {
            let at = at as f64;
            let after = self.samples.iter().position(|sample| sample.0 >= at);
            let after = after.unwrap_or(self.samples.len() - 1).max(1);
            let [before, after] = [after - 1, after].map(|place| &self.samples[place]);
            let part = ((at - before.0) / (after.0 - before.0)).clamp(0.0, 1.0);
            let more = after.2.saturating_sub(before.2).as_secs_f64();
            before.2.as_secs_f64() + part * more
        };
        let connections = self.rate(from, to) * (to - from) as f64;
        (taken(to) - taken(from)) * 1e6 / connections
    }
}

/// Seconds of a run: TIME-WAIT twice, and the additional rest of a tuple.
pub(crate) const RUN_S: u64 = 2 * TIME_WAIT_S + GUARD_S;
/// The steady part of a run.
pub(crate) const STEADY: [u64; 2] = [TIME_WAIT_S + GUARD_S, RUN_S];

/// Checks that the load of these runs was as planned.
pub(crate) fn check_load<'a>(report: &mut Report, runs: impl Iterator<Item = &'a Run> + Clone) {
    let failed: u64 = runs.clone().map(|run| run.failed).sum();
    report.check("no request fails", failed == 0, failed);
    let waits: u64 = runs.map(|run| run.waits).sum();
    report.check("the clients have addresses enough: none waits for a 4-tuple", waits == 0, waits);
}

/// Runs the benchmark once.
pub(crate) fn run(report: &Report, mode: Mode, clients: Clients) -> Result<Run, Failure> {
    let program = live::lightwait()?;
    let site = report.path("site");
    fs::create_dir_all(&site)?;
    fs::write(site.join("file"), [b'x'; FILE_BYTES])?;
    let namespace = Namespace::new()?;
    namespace.ip("link add bridge type bridge")?;
    namespace.ip("link set bridge up")?;
    for tap in std::iter::once("serve".to_owned()).chain((1..=MACHINES).map(client)) {
        namespace.ip(&format!("tuntap add {tap} mode tap vnet_hdr"))?;
        namespace.ip(&format!("link set {tap} master bridge up"))?;
    }
    let mut serve = namespace.command_on(0, &program);
    serve.args(["serve", "--tap", "serve", "--ip", "10.9.0.1/16", "--host-ip", "10.9.255.1/16"]);
    serve.args(["--max-client-connections", "2000000"]);
    let length = format!("time_wait.length={TIME_WAIT_S}s");
    let limits = ["limits.time_wait=2000000", "limits.connections=2000000", &*length];
    for setting in limits.iter().chain(mode.settings()) {
        serve.args(["--set", setting]);
    }
    let mut server = Server::start(serve.arg(&site))?;
    let outputs: Vec<_> = (1..=MACHINES).map(|n| report.path(&format!("part-{n}.json"))).collect();
    let mut loads = Vec::new();
    for (number, output) in (1..).zip(&outputs) {
        loads.push(start_client(&namespace, &program, clients, number, output)?);
    }
    let begin = Instant::now();
    let mut samples = vec![(0.0, 0, live::processor_time(server.id())?)];
    while loads[0].runs()? {
        thread::sleep(Duration::from_millis(500));
        let time_wait = server.held("time_wait")?;
        let taken = live::processor_time(server.id())?;
        samples.push((begin.elapsed().as_secs_f64(), time_wait, taken));
    }
    for load in loads {
        load.end()?;
    }
    let peak_memory = live::memory(server.id(), "VmHWM")?;
    server.stop()?;
    let merged =
        live::run(namespace.command(&program).args(["load", "merge", "--json"]).args(&outputs))?;
    of_report(&serde_json::from_str(&merged)?, samples, peak_memory)
}

fn client(number: usize) -> String {
    format!("client{number}")
}

fn start_client(
    namespace: &Namespace,
    program: &Path,
    clients: Clients,
    number: usize,
    output: &Path,
) -> Result<Process, Failure> {
    let mut load = namespace.command_on(1, program);
    load.args(["load", URL, "--tap", &client(number), "--json"]);
    load.args(["--ip", &format!("10.9.{number}.1/16")]);
    load.args(["--host-ip", &format!("10.9.255.{}/16", number + 1)]);
    load.args(["--connections", &CONNECTIONS.to_string()]);
    load.args(["--ports", &format!("1024-{}", 1023 + PORTS)]);
    let [warm_up, end] = STEADY;
    load.args(["--warm-up", &format!("{warm_up}s"), "--duration", &format!("{}s", end - warm_up)]);
    match clients {
        Clients::Conventional => load.args(["--time-wait", "0"]),
        Clients::Modified { prefix } => {
            let source = format!("10.9.{}.0/{prefix}", 16 * number);
            load.args(["--time-wait", &format!("{TIME_WAIT_S}s"), "--source", &source])
        }
    };
    Process::start(load.stdout(File::create(output)?).stderr(Stdio::null()))
}

fn of_report(
    merged: &Value,
    samples: Vec<(f64, u64, Duration)>,
    peak_memory: u64,
) -> Result<Run, Failure> {
    let seconds = merged["seconds"].as_array().ok_or("no seconds")?;
    let connections = |second: &Value| second["connections"].as_u64().ok_or("no connections");
    Ok(Run {
        connections: seconds.iter().map(connections).collect::<Result<_, _>>()?,
        samples,
        addresses: merged["sources"]["addresses"].as_u64().ok_or("no addresses")?,
        failed: merged["requests_failed"].as_u64().ok_or("no failures")?,
        waits: merged["tuple_waits"].as_u64().ok_or("no waits")?,
        peak_memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_as_many_addresses_as_the_formula_says() {
        // 24 000 a second on three machines: 8000/s · 25 s / 3976 ports.
        assert_eq!(addresses(24_000.0), 51);
        assert_eq!(Clients::modified(24_000.0), Clients::Modified { prefix: 26 });
        // 62 fit into 26 bits, 63 do not.
        let rate = |addresses: f64| addresses * PORTS as f64 / 25.0 * 3.0;
        assert_eq!(Clients::modified(rate(61.9)), Clients::Modified { prefix: 26 });
        assert_eq!(Clients::modified(rate(62.9)), Clients::Modified { prefix: 25 });
    }

    #[test]
    fn processor_time_is_of_the_part_that_was_asked_for() {
        let sample = |at: f64| (at, 7, Duration::from_secs_f64(at * 0.5));
        let run = Run {
            connections: vec![100; 10],
            samples: [0.0, 0.7, 1.4, 2.8, 5.5, 9.9, 10.2].map(sample).into(),
            addresses: 3,
            failed: 0,
            waits: 0,
            peak_memory: 0,
        };
        // Half a second of each, and a hundred connections.
        for (from, to) in [(0, 10), (1, 3), (4, 9)] {
            assert!((run.micros(from, to) - 5000.0).abs() < 1.0, "{from} {to}");
        }
        assert_eq!((run.rate(2, 4), run.peak_time_wait()), (100.0, 7));
    }
}
