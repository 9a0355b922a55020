//! Linux and nginx beside `lightwait serve`, on this machine. One client on the kernel's stack
//! loads them: `lightwait load`, with wrk as a check of our generator.
//!
//! ```text
//!   processor 0                               processor 1
//!   nginx, the kernel's TCP ──────── veth ─── load or wrk, the kernel's TCP
//!   lightwait, a packet socket ───── veth ───
//!   lightwait, AF_XDP ────────────── veth ───
//!   lightwait ───────────────── TAP, or TUN ───
//! ```
//!
//! The report has the processor time of the server's process. For nginx that is not all: the kernel
//! handles arrived packets on the sender's processor, in the client's time. The report therefore
//! has both processes' time as well. The kernel's congestion control is CUBIC, by route.
//! `lightwait-bench today` has long files and many clients.

mod idle;
mod memory;

use std::time::Duration;

use serde_json::Value;

use lightwait_bench::live::{self, Process};
use lightwait_bench::today::servers::{self, Kind, Serving};

use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
pub(crate) use idle::idle;

/// Files, with the numbers of connections that request them at a time.
const FILES: [(&str, usize, u32); 3] =
    [("500B", 500, 64), ("6KB", 6 << 10, 64), ("1MB", 1 << 20, 8)];
/// The length of each run.
const RUN_S: u64 = 4;

/// The load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generator {
    Load,
    Wrk,
}

/// The results of a run.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Requests a second.
    rate: f64,
    failed: u64,
    /// Processor time of a request, in µs: of the server's process, and of both processes.
    server_us: f64,
    both_us: f64,
}

pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut table = Table::new(&[
        "file",
        "connections",
        "server",
        "load: requests/s",
        "load: server us",
        "load: both us",
        "wrk: requests/s",
        "wrk: server us",
        "wrk: both us",
    ]);
    let mut all = Vec::new();
    for kind in Kind::SERVERS {
        let serving = start(report, kind, &[])?;
        for (file, _, connections) in FILES {
            for keeps in [false, true] {
                let how = if keeps { "kept" } else { "new" };
                let sample = |generator| {
                    sample(&serving, generator, file, connections, keeps).map_err(|why| {
                        format!("{generator:?}, {file}, {how}, {}: {why}", kind.name())
                    })
                };
                let [load, wrk] = [sample(Generator::Load)?, sample(Generator::Wrk)?];
                let whole = |value: f64| format!("{value:.0}");
                let tenth = |value: f64| format!("{value:.1}");
                table.row(&[
                    &file,
                    &how,
                    &kind.name(),
                    &whole(load.rate),
                    &tenth(load.server_us),
                    &tenth(load.both_us),
                    &whole(wrk.rate),
                    &tenth(wrk.server_us),
                    &tenth(wrk.both_us),
                ]);
                all.push((kind, file, keeps, [load, wrk]));
            }
        }
        serving.stop()?;
    }
    report.table("today", &table)?;
    claims(report, &all);
    memory::run(report)
}

/// Starts a server, with the files.
fn start(report: &Report, kind: Kind, settings: &[&str]) -> Result<Serving, Failure> {
    Serving::start(&report.path(""), &FILES.map(|(name, bytes, _)| (name, bytes)), kind, settings)
}

/// Loads a server for some seconds.
fn sample(
    serving: &Serving,
    generator: Generator,
    file: &str,
    connections: u32,
    keeps: bool,
) -> Result<Sample, Failure> {
    let url = serving.url(file);
    let seconds = format!("{RUN_S}s");
    let connections = connections.to_string();
    let mut command = match generator {
        Generator::Load => serving.client(&serving.program),
        Generator::Wrk => serving.client("wrk"),
    };
    match generator {
        Generator::Load => {
            command.args(["load", &url, "--json", "--stack", "kernel", "--warm-up", "0"]);
            command.args(["--duration", &seconds, "--connections", &connections]);
            command.args(["--source", servers::SOURCES]);
            command.args(keeps.then_some("--keep-alive"));
        }
        Generator::Wrk => {
            command.args(["--threads", "1", "--connections", &connections]);
            command.args(["--duration", &seconds, "--timeout", "10s"]);
            if !keeps {
                command.args(["--header", "Connection: close"]);
            }
            command.arg(&url);
        }
    }
    let before = live::processor_time(serving.id())?;
    let (text, own) = output_and_time(&mut command)?;
    let server = live::processor_time(serving.id())?.saturating_sub(before);
    let (requests, elapsed, failed) = match generator {
        Generator::Load => of_load(&text)?,
        Generator::Wrk => of_wrk(&text)?,
    };
    let per_request = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
    Ok(Sample {
        rate: requests as f64 / elapsed,
        failed,
        server_us: per_request(server),
        both_us: per_request(server + own),
    })
}

/// Runs a command. Returns its output, and its processor time.
fn output_and_time(command: &mut std::process::Command) -> Result<(String, Duration), Failure> {
    use std::io::{Read, Seek};
    use std::process::Stdio;
    // It says little there, and nobody need read it meanwhile.
    let mut errors = tempfile::tempfile()?;
    command.stdout(Stdio::piped()).stderr(errors.try_clone()?);
    let mut process = Process::start(command)?;
    let id = process.0.id();
    let mut output = process.0.stdout.take().ok_or("no output")?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    // Until the process is waited for, the system keeps its times.
    let own = live::processor_time(id)?;
    if let Err(why) = process.end() {
        let mut said = String::new();
        errors.rewind()?;
        errors.read_to_string(&mut said)?;
        return Err(format!("{why}: {}", said.trim()).into());
    }
    Ok((text, own))
}

/// Requests answered, seconds and failures in a report of ours.
fn of_load(text: &str) -> Result<(u64, f64, u64), Failure> {
    let report: Value = serde_json::from_str(text)?;
    let count = |key: &str| report[key].as_u64().ok_or_else(|| format!("no {key}"));
    let seconds = report["recorded_s"].as_f64().ok_or("no time")?;
    Ok((count("requests_answered")?, seconds, count("requests_failed")?))
}

/// Requests answered, seconds and failures in wrk's `240113 requests in 4.10s, 1.53GB read`.
fn of_wrk(text: &str) -> Result<(u64, f64, u64), Failure> {
    let line = text.lines().find(|line| line.contains(" requests in ")).ok_or("no requests")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let requests = words.first().and_then(|word| word.parse().ok()).ok_or("no number")?;
    let time = words.get(3).map(|word| word.trim_end_matches(',')).unwrap_or_default();
    let seconds = match time.strip_suffix('s') {
        Some(seconds) => seconds.parse::<f64>()?,
        None => return Err(format!("no seconds: {line}").into()),
    };
    let has_trouble = |line: &str| line.contains("Socket errors") || line.contains("Non-2xx");
    Ok((requests, seconds, text.lines().filter(|line| has_trouble(line)).count() as u64))
}

fn claims(report: &mut Report, all: &[(Kind, &str, bool, [Sample; 2])]) {
    let failed: u64 = all.iter().flat_map(|(.., samples)| samples).map(|one| one.failed).sum();
    report.check("no request fails, of either generator", failed == 0, failed);
    let of = |kind, file, keeps| {
        let is_it = |one: &&(Kind, &str, bool, _)| (one.0, one.1, one.2) == (kind, file, keeps);
        all.iter().find(is_it).map(|(.., samples)| *samples).expect("all were run")
    };
    for (keeps, what) in [(false, "connections"), (true, "requests")] {
        let [load, wrk] = of(Kind::Nginx, "500B", keeps);
        // It is the instrument's, and no paper's.
        report.check(
            &format!("nginx, 500 B: our generator makes 0.9 times wrk's {what}/s or more"),
            load.rate >= 0.9 * wrk.rate,
            format!("{:.2} times", load.rate / wrk.rate),
        );
    }
    for (file, ..) in FILES {
        let [nginx, ours] = [Kind::Nginx, Kind::Tap].map(|kind| of(kind, file, false)[0].both_us);
        report.observe(
            &format!("{file}, new connections: both ends take less with ours over TAP"),
            ours < nginx,
            format!("{ours:.1} against {nginx:.1} us"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_read() {
        let text = "Running 4s test\n  240113 requests in 4.10s, 1.53GB read\nRequests/sec: 5\n";
        assert_eq!(of_wrk(text).unwrap(), (240_113, 4.1, 0));
        let trouble = format!("{text}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        assert_eq!(of_wrk(&trouble).unwrap().2, 1);
        assert!(of_wrk("unable to connect").is_err());
        assert!(of_wrk("  2 requests in 1.01m, 1B read").is_err());
    }
}
