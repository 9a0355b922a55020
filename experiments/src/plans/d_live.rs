//! The policies in the running server: `lightwait serve` with a small pool. Its Linux clients are
//! behind two delay routers, one for fast connections and one for slow ones.
//!
//! ```text
//!   serve ── TAP ── bridge ──┬─ veth ─ wan, 10 Mbit/s, 75 ms ─ veth ── 10 at a time
//!                            └─ veth ─ wan,  2 Mbit/s, 75 ms ─ veth ── 10 at a time
//! ```
//!
//! As in Figs. 8 and 9 of Cohen and Cohen a fast connection could carry 1 Mbit/s; a slow one has a
//! fifth of that (the paper: a tenth and less, with which a run takes minutes). Naive is a fixed
//! buffer for each connection, as in `d-fig8`; the others are LOS. The paper's connections have a
//! link each and carry one file; here those of a kind share a link, and stay. No file is kept in
//! memory: a read takes 20 ms longer than it does. The routers look at their devices once a
//! millisecond: two that poll would use both processors.
//!
//! The result of each run is printed, and written to `runs.csv`, as soon as it is known: a run that
//! is cut leaves all that was measured.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::statistics::Mean;
use lightwait_bench::live::{self, Counts, Namespace, Process, Server};

const READ_TIME: &str = "20ms";

/// A size of the pool.
struct Pool {
    name: &'static str,
    size: &'static str,
    /// A twentieth of what senders may have of it: an eighth is for received data, and twenty
    /// connections use 420 KB for HTTP, a quarter of the pool at least.
    share_bytes: usize,
}

/// By LOS the fast connections want twice the 190 KB that a round trip carries, and the slow ones
/// little. Of these pools they have 215, 358, 487 and 1311 KB, with chunks on their way to them.
const POOLS: [Pool; 4] = [
    Pool { name: "tiny", size: "720KiB", share_bytes: 21 * 512 },
    Pool { name: "tight", size: "880KiB", share_bytes: 35 * 512 },
    Pool { name: "middle", size: "1MiB", share_bytes: 47 * 512 },
    Pool { name: "ample", size: "2MiB", share_bytes: 128 * 512 },
];
const TINY: usize = 0;
const TIGHT: usize = 1;
const MIDDLE: usize = 2;
const AMPLE: usize = 3;
const POLICIES: [&str; 4] = ["naive", "round-robin", "priority", "psc"];
const NAIVE: usize = 0;
const ROUND_ROBIN: usize = 1;
const PRIORITY: usize = 2;
const PAGE_BYTES: f64 = 512.0;
/// Runs of each: 48 in all, of 20 s.
const REPEATS: u64 = 3;
const CONNECTIONS: &str = "10";
/// A segment holds 512 bytes, as much as a page: as in the paper.
const MTU: &str = "564";
/// The columns of `runs.csv`.
const RECORDED: &str =
    "pool,policy,fast Mbit/s,slow Mbit/s,KiB held,wake-ups a MB,failed,unfinished,s";
/// How many runs an experiment makes, and how long each lasts.
struct Extent {
    /// Numbers in [`POOLS`].
    pools: &'static [usize],
    repeats: u64,
    warm_up_s: u64,
    measured_s: u64,
}

const WHOLE: Extent =
    Extent { pools: &[TINY, TIGHT, MIDDLE, AMPLE], repeats: REPEATS, warm_up_s: 4, measured_s: 12 };
/// Too short to judge the policies by.
const QUICK: Extent = Extent { pools: &[TIGHT, AMPLE], repeats: 1, warm_up_s: 2, measured_s: 4 };

const EQUAL: Ablation = Ablation { name: "equal", instead: "priority is equal shares, too" };

/// Clients of a kind.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    rate: &'static str,
    /// Half of what the link carries in a round trip.
    queue: &'static str,
    file_bytes: usize,
    /// The third byte of their addresses.
    number: u8,
}

const KINDS: [Kind; 2] = [
    Kind { name: "fast", rate: "10Mbit", queue: "96KiB", file_bytes: 250_000, number: 1 },
    Kind { name: "slow", rate: "2Mbit", queue: "19KiB", file_bytes: 80_000, number: 2 },
];

/// The results of one run.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Goodput of the fast connections and of the slow ones, Mbit/s.
    mbit: [f64; 2],
    /// Memory of the pool in use, mean over the run.
    held_bytes: f64,
    /// Notices to blocked writers, for room and for pages, by megabyte of answers.
    woken_per_mb: f64,
    /// Requests that failed, and those that were under way 5 s after the end.
    failed: u64,
    unfinished: u64,
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
        for Kind { name, rate, queue, number, .. } in &KINDS {
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
            there.ip(&format!("link set {client} mtu {MTU} up"))?;
            let mut wan = servers.command(program);
            wan.args(["wan", &a, &b, "--delay", "75ms", "--json", "--interrupt", "1ms"]);
            wan.args(["--a-to-b", &format!("rate={rate},queue={queue}")]);
            routers.push(Process::start(wan.stdout(Stdio::null()).stderr(Stdio::null()))?);
            clients.push(there);
        }
        Ok(Site { servers, clients, _routers: routers })
    }

    fn load(&self, program: &Path, kind: usize, extent: &Extent) -> Command {
        let mut load = self.clients[kind].command(program);
        let url = format!("http://10.9.0.1/{}", KINDS[kind].name);
        load.args(["load", &url, "--json", "--keep-alive", "--connections", CONNECTIONS]);
        load.args(["--warm-up", &format!("{}s", extent.warm_up_s), "--timeout", "30s"]);
        load.args(["--duration", &format!("{}s", extent.measured_s)]);
        load
    }
}

/// Keeps the kernel's IPv6 off an interface.
fn silence(namespace: &Namespace, interface: &str) -> Outcome {
    let setting = format!("net.ipv6.conf.{interface}.disable_ipv6=1");
    live::run(namespace.command("sysctl").args(["-q", "-w", &setting])).map(drop)
}

/// The buffers of a policy: naive has the same for all, the others follow the window.
fn rule(pool: &Pool, policy: usize) -> String {
    if policy == NAIVE { format!("fixed:{}", pool.share_bytes) } else { "los".to_owned() }
}

fn run_once(
    report: &Report,
    program: &Path,
    extent: &Extent,
    (pool, policy): (&Pool, usize),
) -> Result<Found, Failure> {
    let directory = report.path("site");
    fs::create_dir_all(&directory)?;
    for Kind { name, file_bytes, .. } in KINDS {
        fs::write(directory.join(name), vec![b'x'; file_bytes])?;
    }
    let site = Site::lay(program)?;
    let mut serve = site.servers.command(program);
    serve.args(["serve", "--tap", "serve", "--ip", "10.9.0.1/16", "--host-ip", "10.9.255.1/16"]);
    serve.args(["--send-buffer", &rule(pool, policy), "--pool", pool.size]);
    serve.args(["--pool-policy", POLICIES[policy], "--set", "pool.most_connections=20"]);
    serve.args(["--set", "limits.page=512", "--file-cache", "0", "--min-rate", "0"]);
    let mut server = Server::start(serve.args(["--file-delay", READ_TIME]).arg(&directory))?;
    let loads = [0, 1].map(|kind| -> Result<_, Failure> {
        let output = report.path(&format!("{}.json", KINDS[kind].name));
        let mut load = site.load(program, kind, extent);
        load.stdout(fs::File::create(&output)?).stderr(Stdio::null());
        Ok((Process::start(&mut load)?, output))
    });
    let mut loads = loads.into_iter().collect::<Result<Vec<_>, _>>()?;
    let begin = Instant::now();
    thread::sleep(Duration::from_secs(extent.warm_up_s));
    let (first, from) = (notices(&server.counts()?)?, Instant::now());
    let (mut held, mut last) = (Vec::new(), (first, Duration::ZERO));
    while begin.elapsed().as_secs() < extent.warm_up_s + extent.measured_s && loads[0].0.runs()? {
        let counts = server.counts()?;
        held.push(counts.held("pages")? as f64 * PAGE_BYTES);
        last = (notices(&counts)?, from.elapsed());
        thread::sleep(Duration::from_millis(250));
    }
    let held_bytes = Mean::of(held).mean;
    let mut found =
        Found { mbit: [0.0; 2], held_bytes, woken_per_mb: 0.0, failed: 0, unfinished: 0 };
    for (kind, (load, output)) in loads.into_iter().enumerate() {
        load.end()?;
        let told: Value = serde_json::from_str(&fs::read_to_string(output)?)?;
        found.mbit[kind] = told["bytes_per_second"].as_f64().ok_or("no bytes")? * 8.0 / 1e6;
        let unfinished = told["errors"]["unfinished"].as_u64().unwrap_or(0);
        found.unfinished += unfinished;
        found.failed += told["requests_failed"].as_u64().ok_or("no failures")? - unfinished;
    }
    let (count, time) = last;
    let sent_mb = found.mbit.iter().sum::<f64>() / 8.0 * time.as_secs_f64();
    found.woken_per_mb = (count - first) as f64 / sent_mb;
    // What its clients have left is nobody's: the server is not asked to finish it.
    drop(server);
    Ok(found)
}

/// Notices to blocked writers so far: that there is room, and that there are pages.
fn notices(counts: &Counts) -> Result<u64, Failure> {
    Ok(counts.counter("writers_woken")? + counts.counter("page_turns")?)
}

/// The results of all runs: by pool, policy and repeat.
struct Results(Vec<Vec<Vec<Found>>>);

impl Results {
    fn all(&self) -> impl Iterator<Item = &Found> {
        self.0.iter().flatten().flatten()
    }

    fn mean(&self, pool: usize, policy: usize, value: fn(&Found) -> f64) -> Mean {
        Mean::of(self.0[pool][policy].iter().map(value))
    }

    /// Goodput of the fast connections, Mbit/s.
    fn fast(&self, pool: usize, policy: usize) -> Mean {
        self.mean(pool, policy, |found| found.mbit[0])
    }

    fn slow(&self, pool: usize, policy: usize) -> Mean {
        self.mean(pool, policy, |found| found.mbit[1])
    }

    fn held_kib(&self, pool: usize, policy: usize) -> Mean {
        self.mean(pool, policy, |found| found.held_bytes / 1024.0)
    }

    /// What fast connections have more by priority. Each repeat has runs of all policies one after
    /// another: what differs is between them.
    fn gain(&self, pool: usize, other: usize) -> Mean {
        let runs = self.0[pool][PRIORITY].iter().zip(&self.0[pool][other]);
        Mean::of(runs.map(|(ours, other)| ours.mbit[0] - other.mbit[0]))
    }
}

fn run_all(report: &mut Report, program: &Path) -> Result<Results, Failure> {
    let extent = if report.is_quick() { QUICK } else { WHOLE };
    let repeats = report.repeats(extent.repeats);
    let mut found = vec![vec![Vec::new(); POLICIES.len()]; POOLS.len()];
    let mut record = fs::File::create(report.path("runs.csv"))?;
    writeln!(record, "{RECORDED}")?;
    // The policies take turns, since the machine's speed varies.
    for _ in 0..repeats {
        for number in extent.pools {
            let pool = &POOLS[*number];
            for (policy, of_policy) in found[*number].iter_mut().enumerate() {
                let begin = Instant::now();
                let is_equal = policy == PRIORITY && report.is_ablated(&EQUAL);
                let applied = if is_equal { NAIVE } else { policy };
                let one = run_once(report, program, &extent, (pool, applied))?;
                let Found { mbit: [fast, slow], held_bytes, woken_per_mb, failed, unfinished } =
                    one;
                let (held, taken) = (held_bytes / 1024.0, begin.elapsed().as_secs());
                let line = format!(
                    "{},{},{fast:.2},{slow:.3},{held:.0},{woken_per_mb:.0},{failed},{unfinished},\
                     {taken}",
                    pool.name, POLICIES[policy],
                );
                report.say(&line);
                writeln!(record, "{line}")?;
                of_policy.push(one);
            }
        }
    }
    Ok(Results(found))
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let program = live::lightwait()?;
    let results = run_all(report, &program)?;
    judge_requests(report, &results);
    if report.is_quick() {
        report.say("The runs of the quick form are too short to judge the policies by.");
        return Ok(());
    }
    show(report, &results)?;
    judge_fast(report, &results);
    judge_others(report, &results);
    Ok(())
}

fn show(report: &mut Report, results: &Results) -> Outcome {
    let mut table =
        Table::new(&["pool", "policy", "fast Mbit/s", "slow Mbit/s", "KiB held", "wake-ups a MB"]);
    for (number, pool) in POOLS.iter().enumerate() {
        for (policy, name) in POLICIES.iter().enumerate() {
            table.row(&[
                &format!("{}, {}", pool.name, pool.size),
                name,
                &results.fast(number, policy),
                &format!("{:.3}", results.slow(number, policy)),
                &format!("{:.0}", results.held_kib(number, policy)),
                &format!("{:.0}", results.mean(number, policy, |found| found.woken_per_mb)),
            ]);
        }
    }
    report.table("policies", &table)?;
    let pools = POOLS.map(|pool| pool.size);
    let mut chart = Chart::of_categories("Goodput of the fast ones, by the pool", &pools, "Mbit/s");
    for (policy, name) in POLICIES.iter().enumerate() {
        let points = (0..POOLS.len()).map(|pool| (pool as f64, results.fast(pool, policy)));
        chart.draw_means(name, Mark::Points, points);
    }
    report.picture("fast", &chart)
}

/// What the policy makes of the fast connections' goodput.
fn judge_fast(report: &mut Report, results: &Results) {
    let by_shares = results.gain(TIGHT, NAIVE);
    report.claim(
        "in a tight pool fast connections have more by priority than by equal shares",
        &EQUAL,
        by_shares.mean > by_shares.half,
        format!("{by_shares} Mbit/s more than {}", results.fast(TIGHT, NAIVE)),
    );
    let by_turns = results.gain(TIGHT, ROUND_ROBIN);
    report.observe(
        "… and than by round robin",
        by_turns.mean > by_turns.half,
        format!("{by_turns} Mbit/s more than {}", results.fast(TIGHT, ROUND_ROBIN)),
    );
    // In the tiniest pool of Fig. 8 naive leads: what others take in turns is less than a buffer.
    let in_tiny = results.gain(TINY, NAIVE);
    report.observe(
        "in a tiny pool they have more, too (d-fig8: naive leads there)",
        in_tiny.mean > in_tiny.half,
        format!("{in_tiny} Mbit/s more than {}", results.fast(TINY, NAIVE)),
    );
    let ample: Vec<f64> = (0..POLICIES.len()).map(|p| results.fast(AMPLE, p).mean).collect();
    let most = ample.iter().copied().fold(0.0, f64::max);
    report.observe(
        "in an ample pool the policies differ by less than a tenth",
        ample.iter().all(|mbit| *mbit > 0.9 * most),
        format!("{ample:.2?} Mbit/s"),
    );
}

fn judge_requests(report: &mut Report, results: &Results) {
    let failed: u64 = results.all().map(|found| found.failed).sum();
    report.check("no request fails", failed == 0, failed);
    let unfinished: u64 = results.all().map(|found| found.unfinished).sum();
    report.observe("none is left 5 s after the end", unfinished == 0, unfinished);
}

/// What it makes of the slow connections, and of the memory.
fn judge_others(report: &mut Report, results: &Results) {
    let [by_naive, by_priority] = [NAIVE, PRIORITY].map(|policy| results.held_kib(AMPLE, policy));
    report.observe(
        "in an ample pool naive holds more than priority (paper: 2 times)",
        by_naive.mean > 1.1 * by_priority.mean,
        format!("{by_naive:.0} against {by_priority:.0} KiB"),
    );
    let slow = |policy| results.slow(TIGHT, policy).mean;
    let least = (0..POLICIES.len()).map(slow).fold(f64::INFINITY, f64::min);
    let most = results.slow(AMPLE, NAIVE);
    report.observe(
        "in a tight pool slow ones keep nine tenths of their rate by every policy (paper: all)",
        least > 0.9 * most.mean,
        format!("{least:.2} Mbit/s at the least, {most:.2} in an ample pool"),
    );
}
