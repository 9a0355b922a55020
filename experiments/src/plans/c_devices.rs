//! Which end holds TIME-WAIT, over devices, by each mechanism. A run has 20,000 connections of one
//! request each, between our stack and the kernel's, or between two of ours. The paper has no such
//! run: its servers had only modified clients.
//!
//! ```text
//!   a network namespace for each run
//!   nginx, the kernel's TCP ───── TAP ─── load, our TCP
//!   lightwait serve ───────────── TAP ─── load, the kernel's TCP
//!   lightwait serve ─── TAP ─── the kernel forwards ─── TAP ─── load, our TCP
//! ```
//!
//! nginx logs the 4-tuple of each connection and its time. The log shows that no 4-tuple comes
//! again before its TIME-WAIT is over, in a load that is long enough to need the 4-tuples again.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::ablation::Ablation;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use lightwait_bench::live::{self, Namespace, Process, Server};

/// Connections of a run, and their rate a second.
const CONNECTIONS: u64 = 20_000;
const RATE: u64 = 2000;
const FILE_BYTES: usize = 500;
/// The long load: as many 4-tuples as it needs during a time of rest, and half as many again.
const REUSING_RATE: u64 = 200;
const REUSING_S: u64 = 100;
/// The time before a 4-tuple is used again: a minute, and the lateness of the kernel's timers.
const REST_S: f64 = 65.0;
/// The least time between two uses of a 4-tuple, by nginx's clock.
const TIME_WAIT_S: f64 = 60.0;
/// The address of nginx, and of our server.
const NGINX: &str = "10.77.0.1:8080";
const OURS: &str = "10.77.0.2";

/// The server of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Nginx,
    /// Our server, with this value of `--time-wait`.
    Ours(&'static str),
}

/// The stack of a run's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Ours,
    Kernels,
}

/// The end that holds TIME-WAIT at the end of a run: all of it, or next to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Server,
    Client,
    Both,
}

/// A run.
struct Run {
    serving: Serving,
    stack: Stack,
    close: &'static str,
    holder: Holder,
    /// The counter in the load's report that must count all connections.
    counts: Option<&'static str>,
    /// The kernel ignores every RST in TIME-WAIT (`tcp_rfc1337`).
    ignores_resets: bool,
}

const fn run_of(serving: Serving, stack: Stack, close: &'static str) -> Run {
    Run { serving, stack, close, holder: Holder::Client, counts: None, ignores_resets: false }
}

const RUNS: [Run; 9] = [
    Run { holder: Holder::Server, ..run_of(Serving::Nginx, Stack::Ours, "server") },
    run_of(Serving::Nginx, Stack::Ours, "swap"),
    Run {
        ignores_resets: true,
        holder: Holder::Both,
        ..run_of(Serving::Nginx, Stack::Ours, "swap")
    },
    Run { counts: Some("client_closes"), ..run_of(Serving::Nginx, Stack::Ours, "client-close") },
    Run { holder: Holder::Server, ..run_of(Serving::Ours("keep"), Stack::Kernels, "server") },
    Run {
        counts: Some("client_closes"),
        ..run_of(Serving::Ours("keep"), Stack::Kernels, "client-close")
    },
    Run { counts: Some("obeyed"), ..run_of(Serving::Ours("ask-client"), Stack::Kernels, "server") },
    Run { counts: Some("agreed"), ..run_of(Serving::Ours("negotiate"), Stack::Ours, "negotiate") },
    run_of(Serving::Ours("keep"), Stack::Ours, "swap"),
];

impl Run {
    fn server(&self) -> String {
        match self.serving {
            Serving::Nginx if self.ignores_resets => "nginx, tcp_rfc1337=1".to_owned(),
            Serving::Nginx => "nginx".to_owned(),
            Serving::Ours(who) => format!("lightwait serve --time-wait {who}"),
        }
    }

    fn client(&self) -> String {
        let stack = if self.stack == Stack::Ours { "our stack" } else { "kernel" };
        format!("{stack}, --close {}", self.close)
    }
}

const NOT_MOVED: Ablation =
    Ablation { name: "not-moved", instead: "the server closes, and keeps TIME-WAIT" };
const MOVED: Ablation =
    Ablation { name: "moved", instead: "the client closes, and keeps TIME-WAIT" };
const OBEYED: Ablation = Ablation { name: "obeyed", instead: "nginx's kernel obeys RSTs" };
const SHORT: Ablation = Ablation { name: "short", instead: "the load's TIME-WAIT is 30 s" };

/// The run without what an ablation takes away.
fn bent(report: &Report, run: &Run) -> Run {
    let mut run = Run { ..*run };
    if report.is_ablated(&NOT_MOVED) {
        run.close = "server";
        if let Serving::Ours(who) = &mut run.serving {
            *who = "keep";
        }
    }
    if report.is_ablated(&MOVED) {
        run.close = "client-close";
    }
    run.ignores_resets &= !report.is_ablated(&OBEYED);
    run
}

/// The figures of one run.
struct Seen {
    report: Value,
    /// TIME-WAITs at the server, and at the client.
    held: u64,
    held_by_client: u64,
    /// 4-tuples that nginx logged, in order, with the time in seconds of each.
    visits: Vec<(f64, String)>,
    /// Requests that nginx refused.
    refused: usize,
}

impl Seen {
    fn count(&self, key: &str) -> u64 {
        self.report[key].as_u64().unwrap_or_default()
    }

    /// Connections whose 4-tuple had come before, and the shortest time between two uses of one.
    fn reuse(&self) -> (usize, f64) {
        let (mut last, mut again, mut shortest) = (HashMap::new(), 0, f64::INFINITY);
        for (at, tuple) in &self.visits {
            if let Some(before) = last.insert(tuple, *at) {
                again += 1;
                shortest = f64::min(shortest, at - before);
            }
        }
        (again, shortest)
    }
}

/// A namespace with a server, and the directory of its files.
struct World {
    program: PathBuf,
    directory: PathBuf,
    namespace: Namespace,
}

impl World {
    fn new(report: &Report) -> Result<World, Failure> {
        let directory = report.path("site");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("small"), vec![b'x'; FILE_BYTES])?;
        let namespace = Namespace::new()?;
        // The addresses from which a load on the kernel's stack opens its connections.
        namespace.ip("route add local 10.79.0.0/16 dev lo")?;
        Ok(World { program: live::lightwait()?, directory, namespace })
    }

    /// Runs a load of that rate and length.
    fn see(&self, run: &Run, rate: u64, more: &[&str]) -> Result<Seen, Failure> {
        match run.serving {
            Serving::Nginx => self.see_nginx(run, rate, more),
            Serving::Ours(who) => self.see_ours(run, who, rate, more),
        }
    }

    fn see_nginx(&self, run: &Run, rate: u64, more: &[&str]) -> Result<Seen, Failure> {
        // A TAP is there only while the load is.
        self.namespace.ip("addr add 10.77.0.1/32 dev lo")?;
        self.set("tcp_rfc1337", run.ignores_resets)?;
        let log = self.directory.join("access");
        let _ = fs::remove_file(&log);
        let nginx = self.nginx(&log)?;
        self.wait_for(NGINX)?;
        let before = self.in_time_wait()?;
        let device = ["--tap", "lw0", "--ip", "10.77.0.2/24", "--source", "10.77.0.128/25"];
        let report = self.load(NGINX, run, rate, &[&device[..], more].concat())?;
        let held = self.in_time_wait()?.saturating_sub(before);
        let held_by_client = held_by_our_stack(&report)?;
        nginx.stop()?;
        let text = fs::read_to_string(&log)?;
        let lines = || text.lines().filter_map(Visit::of);
        let ours = |visit: &Visit<'_>| !visit.tuple.starts_with("10.77.0.1:");
        let asked = lines().filter(|visit| ours(visit) && visit.status == "200");
        let visits = asked.map(|visit| (visit.at, visit.tuple.to_owned())).collect();
        let refused = lines().filter(|visit| ours(visit) && visit.status == "400").count();
        Ok(Seen { report, held, held_by_client, visits, refused })
    }

    fn nginx(&self, log: &Path) -> Result<Process, Failure> {
        let at = self.directory.display();
        let configuration = format!(
            "daemon off;\nmaster_process off;\nuser root;\npid {at}/pid;\nerror_log {at}/error;\n\
             worker_rlimit_nofile 20000;\nevents {{ worker_connections 16000; }}\nhttp {{\n\
             log_format visits '$msec $remote_addr:$remote_port $status';\n\
             access_log {log} visits;\nclient_body_temp_path {at}/body;\n\
             proxy_temp_path {at}/proxy;\nfastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi;\nscgi_temp_path {at}/scgi;\n\
             server {{\nlisten {NGINX} backlog=4096;\nroot {at};\n}}\n}}\n",
            log = log.display(),
        );
        let path = self.directory.join("nginx.conf");
        fs::write(&path, configuration)?;
        let mut nginx = self.namespace.command("nginx");
        nginx.arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        Process::start(&mut nginx)
    }

    fn see_ours(
        &self,
        run: &Run,
        who: &'static str,
        rate: u64,
        more: &[&str],
    ) -> Result<Seen, Failure> {
        let mut serve = self.namespace.command(&self.program);
        serve.args(["serve", "--tap", "lw0", "--ip", "10.77.0.2/24", "--gateway", "10.77.0.1"]);
        serve.args(["--time-wait", who]);
        let mut server = Server::start(serve.arg(&self.directory))?;
        // A TAP takes a while to come up.
        self.wait_for(OURS)?;
        self.set("ip_forward", true)?;
        let device: &[&str] = match run.stack {
            Stack::Kernels => &["--stack", "kernel", "--source", "10.79.0.0/16"],
            Stack::Ours => &[
                "--tap",
                "lw1",
                "--ip",
                "10.78.0.2/24",
                "--gateway",
                "10.78.0.1",
                "--source",
                "10.78.0.128/25",
            ],
        };
        let report = self.load(OURS, run, rate, &[device, more].concat())?;
        let held = server.held("time_wait")?;
        let held_by_client = match run.stack {
            Stack::Kernels => self.in_time_wait()?,
            Stack::Ours => held_by_our_stack(&report)?,
        };
        server.stop()?;
        Ok(Seen { report, held, held_by_client, visits: Vec::new(), refused: 0 })
    }

    /// Sets a parameter of the kernel's IPv4 in the namespace.
    fn set(&self, name: &str, value: bool) -> Result<(), Failure> {
        let text = format!("echo {} > /proc/sys/net/ipv4/{name}", u8::from(value));
        live::run(self.namespace.command("sh").args(["-c", &text])).map(drop)
    }

    fn load(&self, to: &str, run: &Run, rate: u64, more: &[&str]) -> Result<Value, Failure> {
        let mut load = self.namespace.command(&self.program);
        load.args(["load", &format!("http://{to}/small"), "--json", "--warm-up", "0"]);
        load.args(["--rate", &rate.to_string(), "--close", run.close]).args(more);
        Ok(serde_json::from_str(&live::run(&mut load)?)?)
    }

    fn wait_for(&self, server: &str) -> Result<(), Failure> {
        live::wait_until("the server answers", || {
            let mut curl = self.namespace.command("curl");
            curl.args(["--silent", "--fail", "--max-time", "1", "--output", "/dev/null"]);
            Ok(curl.arg(format!("http://{server}/small")).status()?.success())
        })
    }

    /// The kernel's connections that are in TIME-WAIT.
    fn in_time_wait(&self) -> Result<u64, Failure> {
        let text = live::run(self.namespace.command("cat").arg("/proc/net/sockstat"))?;
        let mut words = text.split_whitespace().skip_while(|word| *word != "tw").skip(1);
        let count = words.next().and_then(|word| word.parse().ok());
        count.ok_or_else(|| "no tw in sockstat".into())
    }
}

/// TIME-WAITs that a load on our stack has left behind, by its report.
fn held_by_our_stack(report: &Value) -> Result<u64, Failure> {
    report["held"].as_u64().ok_or_else(|| "no TIME-WAITs in the report".into())
}

/// A line of nginx's log.
struct Visit<'a> {
    at: f64,
    tuple: &'a str,
    status: &'a str,
}

impl Visit<'_> {
    fn of(line: &str) -> Option<Visit<'_>> {
        let mut words = line.split(' ');
        let (at, tuple, status) = (words.next()?, words.next()?, words.next()?);
        Some(Visit { at: at.parse().ok()?, tuple, status })
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    report.say(kernel()?);
    let head = [
        "server",
        "client",
        "TIME-WAIT at the server",
        "at the client",
        "answered",
        "failed",
        "CLIENT_CLOSE",
        "asked",
        "obeyed",
        "swapped",
        "agreed",
        "400s",
    ];
    let mut table = Table::new(&head);
    for run in &RUNS {
        let seconds = format!("{}s", CONNECTIONS / RATE);
        let seen = World::new(report)?.see(&bent(report, run), RATE, &["--duration", &seconds])?;
        let count = |key| seen.count(key);
        table.row(&[
            &run.server(),
            &run.client(),
            &seen.held,
            &seen.held_by_client,
            &count("requests_answered"),
            &count("requests_failed"),
            &count("client_closes"),
            &count("asked"),
            &count("obeyed"),
            &count("swapped"),
            &count("agreed"),
            &seen.refused,
        ]);
        claims(report, run, &seen);
    }
    report.table("devices", &table)?;
    reuse(report)
}

fn claims(report: &mut Report, run: &Run, seen: &Seen) {
    let name = format!("{}; {}", run.server(), run.client());
    let answered = seen.count("requests_answered");
    report.check(
        &format!("{name}: every request is answered"),
        answered == CONNECTIONS && seen.count("requests_failed") == 0,
        format!("{answered} of {CONNECTIONS}; errors: {}", seen.report["errors"]),
    );
    let holds_all = run.holder != Holder::Client;
    let what = if holds_all { "all" } else { "less than one in a hundred" };
    let ablation = match run.holder {
        Holder::Server => &MOVED,
        Holder::Client => &NOT_MOVED,
        Holder::Both => &OBEYED,
    };
    report.claim(
        &format!("{name}: the server holds {what}"),
        ablation,
        if holds_all { seen.held >= CONNECTIONS } else { seen.held < CONNECTIONS / 100 },
        seen.held,
    );
    // The load does not wait until it has taken over the TIME-WAIT of its last connections.
    let holds_most = run.holder != Holder::Server;
    let what = if holds_most { "99 in a hundred" } else { "less than one in a hundred" };
    let held = seen.held_by_client;
    report.claim(
        &format!("{name}: the client holds {what}"),
        if holds_most { &NOT_MOVED } else { &MOVED },
        if holds_most { held >= CONNECTIONS / 100 * 99 } else { held < CONNECTIONS / 100 },
        held,
    );
    if let Some(key) = run.counts {
        let count = seen.count(key);
        let claim = format!("{name}: {key} counts all");
        report.claim(&claim, &NOT_MOVED, count == CONNECTIONS, count);
    }
    if run.serving == Serving::Nginx {
        let (again, _) = seen.reuse();
        report.check(
            &format!("{name}: no 4-tuple comes twice"),
            again == 0 && seen.visits.len() as u64 == CONNECTIONS,
            format!("{again} of {} connections", seen.visits.len()),
        );
    }
}

/// A load that needs its 4-tuples again: it uses none before that has rested.
fn reuse(report: &mut Report) -> Outcome {
    let head = [
        "client",
        "connections",
        "4-tuples again",
        "soonest s",
        "TIME-WAIT at nginx",
        "at the client",
    ];
    let mut table = Table::new(&head);
    for close in ["swap", "client-close"] {
        let run = bent(report, &run_of(Serving::Nginx, Stack::Ours, close));
        let seconds = format!("{REUSING_S}s");
        // As many ports of one address as a time of rest takes.
        let ports = format!("20000-{}", 20_000 + (REUSING_RATE as f64 * REST_S) as u64);
        let time_wait = if report.is_ablated(&SHORT) { "30s" } else { "60s" };
        let more = ["--duration", &seconds, "--ports", &ports, "--time-wait", time_wait];
        let seen = World::new(report)?.see(&run, REUSING_RATE, &more)?;
        let (again, soonest) = seen.reuse();
        table.row(&[
            &run.client(),
            &seen.visits.len(),
            &again,
            &format!("{soonest:.2}"),
            &seen.held,
            &seen.held_by_client,
        ]);
        let total = REUSING_RATE * REUSING_S;
        report.claim(
            &format!("--close {close}: 4-tuples come again, none within {TIME_WAIT_S} s"),
            &SHORT,
            again > 0 && soonest >= TIME_WAIT_S && seen.visits.len() as u64 == total,
            format!(
                "{again} of {total} again, the soonest after {soonest:.2} s; the load's rule is \
                 {REST_S} s"
            ),
        );
        report.claim(
            &format!("--close {close}: nothing is lost, and nginx holds next to none"),
            &NOT_MOVED,
            seen.count("requests_failed") == 0 && seen.held < total / 100,
            format!("{} failed, {} held", seen.count("requests_failed"), seen.held),
        );
        let (held, due) = (seen.held_by_client as f64, REUSING_RATE as f64 * TIME_WAIT_S);
        report.claim(
            &format!("--close {close}: our stack holds those of the last {TIME_WAIT_S} s"),
            &SHORT,
            (held / due - 1.0).abs() < 0.01,
            format!("{held} of {due}"),
        );
    }
    report.table("reuse", &table)
}

/// The kernel and nginx.
fn kernel() -> Result<String, Failure> {
    let linux = live::run(Command::new("uname").arg("-r"))?;
    let nginx = Command::new("nginx").arg("-v").output()?;
    let nginx = String::from_utf8_lossy(&nginx.stderr).into_owned();
    Ok(format!("Linux {}; {}", linux.trim(), nginx.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &[&str]) -> Seen {
        let visits = lines.iter().filter_map(|line| Visit::of(line));
        let visits = visits.map(|visit| (visit.at, visit.tuple.to_owned())).collect();
        Seen { report: Value::Null, held: 0, held_by_client: 0, visits, refused: 0 }
    }

    #[test]
    fn a_tuple_that_comes_again_is_seen_with_its_shortest_rest() {
        let lines = ["1.5 a:1 200", "2.0 a:2 200", "3.0 b:1 200", "70.0 a:1 200", "72.5 a:1 200"];
        assert_eq!(seen(&lines).reuse(), (2, 2.5));
        assert_eq!(seen(&lines[..3]).reuse(), (0, f64::INFINITY));
    }
}
