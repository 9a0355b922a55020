//! The policies in the running server: `lightwait serve` with LOS and a small pool. Its Linux
//! clients are behind two delay routers, one for fast connections and one for slow ones.
//!
//! ```text
//!   serve ── TAP ── bridge ──┬─ veth ─ wan, 10 Mbit/s, 75 ms ─ veth ── 10 at a time
//!                            └─ veth ─ wan,  1 Mbit/s, 75 ms ─ veth ── 10 at a time
//! ```
//!
//! As in Figs. 8 and 9 of Cohen and Cohen a fast connection could carry 1 Mbit/s; a slow one has a
//! tenth of that (the paper: a thirtieth, with which a run takes minutes). The paper's connections
//! have a link each; here the connections of a kind share one. Each file has a connection of its
//! own, and no file is kept in memory: a read takes 20 ms longer than it does. The routers look at
//! their devices once a millisecond: two that poll would use both processors.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::chart::{Chart, Mark};
use crate::live::{self, Namespace, Process, Server};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const READ_TIME: &str = "20ms";
/// By LOS the fast connections want twice the 190 KB that a round trip carries, and the slow ones
/// little. The tight pool has 105 KB for them: twenty connections use 420 KB of it for HTTP, and an
/// eighth is for received data.
const POOLS: [(&str, &str); 2] = [("tight", "600KiB"), ("ample", "2MiB")];
const POLICIES: [&str; 4] = ["naive", "round-robin", "priority", "psc"];
const NAIVE: usize = 0;
const PRIORITY: usize = 2;
const PAGE_BYTES: f64 = 512.0;
/// Runs of each.
const REPEATS: u64 = 2;
const QUICK_REPEATS: u64 = 1;
const CONNECTIONS: &str = "10";
const WARM_UP_S: u64 = 4;
const MEASURED_S: u64 = 12;
/// Half of the buffers that a link of a kind has for a round trip.
const QUEUE: &str = "96KiB";

/// Clients of a kind.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    rate: &'static str,
    file_bytes: usize,
    /// The third byte of their addresses.
    number: u8,
}

const KINDS: [Kind; 2] = [
    Kind { name: "fast", rate: "10Mbit", file_bytes: 250_000, number: 1 },
    Kind { name: "slow", rate: "1Mbit", file_bytes: 50_000, number: 2 },
];

/// The results of one run.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Goodput of the fast connections and of the slow ones, Mbit/s.
    mbit: [f64; 2],
    /// Bytes of the pool in use, in the middle of the run.
    held_bytes: f64,
    failed: u64,
}

/// The bridge, the server's TAP, and for each kind a router and a namespace of clients.
struct Site {
    servers: Namespace,
    clients: Vec<Namespace>,
    _routers: Vec<Process>,
}

impl Site {
    fn lay(program: &Path) -> Result<Site, Failure> {
        let servers = Namespace::new()?;
        servers.ip("link add bridge type bridge")?;
        servers.ip("link set bridge up")?;
        servers.ip("tuntap add serve mode tap vnet_hdr")?;
        servers.ip("link set serve master bridge up")?;
        let (mut clients, mut routers) = (Vec::new(), Vec::new());
        for Kind { name, rate, number, .. } in &KINDS {
            let there = Namespace::new()?;
            let ends = ["s", "a", "b", "c"].map(|end| format!("{name}-{end}"));
            for pair in ends.chunks(2) {
                servers.ip(&format!("link add {} type veth peer name {}", pair[0], pair[1]))?;
            }
            let [server, a, b, client] = ends;
            for end in [&server, &a, &b] {
                silence(&servers, end)?;
                servers.ip(&format!("link set {end} up"))?;
            }
            servers.ip(&format!("link set {server} master bridge"))?;
            servers.give(&client, &there)?;
            there.ip(&format!("addr add 10.9.{number}.1/16 dev {client}"))?;
            there.ip(&format!("link set {client} up"))?;
            let mut wan = servers.command(program);
            wan.args(["wan", &a, &b, "--delay", "75ms", "--json", "--interrupt", "1ms"]);
            wan.args(["--a-to-b", &format!("rate={rate},queue={QUEUE}")]);
            routers.push(Process::start(wan.stdout(Stdio::null()).stderr(Stdio::null()))?);
            clients.push(there);
        }
        Ok(Site { servers, clients, _routers: routers })
    }

    fn load(&self, program: &Path, kind: usize) -> Command {
        let mut load = self.clients[kind].command(program);
        let url = format!("http://10.9.0.1/{}", KINDS[kind].name);
        load.args(["load", &url, "--json", "--connections", CONNECTIONS]);
        load.args(["--warm-up", &format!("{WARM_UP_S}s"), "--timeout", "60s"]);
        load.args(["--duration", &format!("{MEASURED_S}s")]);
        load
    }
}

/// Keeps the kernel's IPv6 off an interface.
fn silence(namespace: &Namespace, interface: &str) -> Outcome {
    let setting = format!("net.ipv6.conf.{interface}.disable_ipv6=1");
    live::run(namespace.command("sysctl").args(["-q", "-w", &setting])).map(drop)
}

fn run_once(report: &Report, program: &Path, pool: &str, policy: &str) -> Result<Found, Failure> {
    let directory = report.path("site");
    fs::create_dir_all(&directory)?;
    for Kind { name, file_bytes, .. } in KINDS {
        fs::write(directory.join(name), vec![b'x'; file_bytes])?;
    }
    let site = Site::lay(program)?;
    let mut serve = site.servers.command(program);
    serve.args(["serve", "--tap", "serve", "--ip", "10.9.0.1/16", "--host-ip", "10.9.255.1/16"]);
    serve.args(["--send-buffer", "los", "--pool", pool, "--pool-policy", policy]);
    serve.args(["--set", "limits.page=512", "--file-cache", "0", "--min-rate", "0"]);
    serve.args(["--file-delay", READ_TIME, "--set", "pool.most_connections=20"]);
    let mut server = Server::start(serve.arg(&directory))?;
    let loads = [0, 1].map(|kind| -> Result<_, Failure> {
        let output = report.path(&format!("{}.json", KINDS[kind].name));
        let mut load = site.load(program, kind);
        load.stdout(fs::File::create(&output)?).stderr(Stdio::null());
        Ok((Process::start(&mut load)?, output))
    });
    std::thread::sleep(std::time::Duration::from_secs(WARM_UP_S));
    let mut held = Vec::new();
    let mut loads = loads.into_iter().collect::<Result<Vec<_>, _>>()?;
    while loads[0].0.runs()? {
        held.push(server.held("pages")? as f64 * PAGE_BYTES);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let (mut mbit, mut failed) = ([0.0; 2], 0);
    for (kind, (load, output)) in loads.into_iter().enumerate() {
        load.end()?;
        let told: Value = serde_json::from_str(&fs::read_to_string(output)?)?;
        mbit[kind] = told["bytes_per_second"].as_f64().ok_or("no bytes")? * 8.0 / 1e6;
        failed += told["requests_failed"].as_u64().ok_or("no failures")?;
    }
    server.stop()?;
    Ok(Found { mbit, held_bytes: held[held.len() / 2], failed })
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let usual = if report.is_quick() { QUICK_REPEATS } else { REPEATS };
    let repeats = report.repeats(usual) as usize;
    let program = live::lightwait()?;
    let mut found = Vec::new();
    // The policies take turns, since the machine's speed varies.
    for _ in 0..repeats {
        for (_, pool) in POOLS {
            for policy in POLICIES {
                found.push(run_once(report, &program, pool, policy)?);
            }
        }
    }
    let of = |pool: usize, policy: usize| {
        found.iter().copied().skip(pool * POLICIES.len() + policy).step_by(8).collect::<Vec<_>>()
    };
    let mut table =
        Table::new(&["pool", "policy", "fast, Mbit/s", "slow, Mbit/s", "KiB of pages held"]);
    let mut chart =
        Chart::of_categories("Goodput of the fast ones, tight pool", &POLICIES, "Mbit/s");
    let mut bars = Vec::new();
    for (pool, (name, size)) in POOLS.iter().enumerate() {
        for (policy, called) in POLICIES.iter().enumerate() {
            let runs = of(pool, policy);
            let mean = |value: fn(&Found) -> f64| Mean::of(runs.iter().map(value));
            table.row(&[
                &format!("{name}, {size}"),
                called,
                &mean(|found| found.mbit[0]),
                &mean(|found| found.mbit[1]),
                &format!("{:.0}", mean(|found| found.held_bytes).mean / 1024.0),
            ]);
            if pool == 0 {
                bars.push((policy as f64, mean(|found| found.mbit[0]).mean));
            }
        }
    }
    report.table("policies", &table)?;
    chart.draw("goodput", Mark::Bars, bars);
    report.picture("fast", &chart)?;
    let fast = |pool, policy| Mean::of(of(pool, policy).iter().map(|found| found.mbit[0])).mean;
    let slow = |pool, policy| Mean::of(of(pool, policy).iter().map(|found| found.mbit[1])).mean;
    let failed: u64 = found.iter().map(|found| found.failed).sum();
    report.claim("no request fails", failed == 0, failed);
    report.claim(
        "in a tight pool fast connections have more by priority than by equal shares",
        fast(0, PRIORITY) > fast(0, NAIVE),
        format!("{:.2} against {:.2} Mbit/s", fast(0, PRIORITY), fast(0, NAIVE)),
    );
    let least = (0..POLICIES.len()).map(|policy| slow(0, policy)).fold(f64::INFINITY, f64::min);
    report.claim(
        "slow connections keep nine tenths of their rate under every policy (paper: all of it)",
        least > 0.9 * slow(1, NAIVE),
        format!("{least:.2} Mbit/s at the least, {:.2} in an ample pool", slow(1, NAIVE)),
    );
    let ample: Vec<f64> = (0..POLICIES.len()).map(|policy| fast(1, policy)).collect();
    let most = ample.iter().copied().fold(0.0, f64::max);
    report.observe(
        "in an ample pool the policies differ by less than a tenth",
        ample.iter().all(|mbit| *mbit > 0.9 * most),
        format!("{ample:.2?} Mbit/s"),
    );
    Ok(())
}
