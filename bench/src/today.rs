//! Long files for many clients: what each costs processor 0, beside nginx on the kernel and beside
//! the limit of a TAP ([`limit`]).
//!
//! ```text
//!   processor 0                              processor 1
//!   nginx, the kernel's TCP (CUBIC) ─ veth ─ wrk, the kernel's TCP
//!   lightwait ────────────────────── TAP ───
//!   ready-made segments ──────────── TAP ───
//! ```
//!
//! Processor 0's time is all that it was busy, in whatever process or interrupt. A TAP's write ends
//! in the receiver's TCP, so that work counts for both TAPs. A veth leaves it to the processor that
//! the receiver runs on, which is why the time of both processors stands beside it.

pub mod cores;
pub mod limit;
pub mod servers;

use std::path::Path;
use std::time::Duration;

use crate::live::{self, Failure};
use servers::{File, Kind, Serving};

/// A measurement: one server, one file, so many clients that keep their connections.
#[derive(Clone, Debug)]
pub struct Row {
    /// The server's name.
    pub server: &'static str,
    /// The file's name.
    pub file: &'static str,
    /// Connections.
    pub clients: u32,
    /// Requests a second.
    pub rate: f64,
    /// Processor time for a request, in µs: of processor 0, and of both.
    pub first_us: f64,
    /// Of both processors.
    pub both_us: f64,
    /// The server's resident memory after the load, in bytes.
    pub resident_bytes: u64,
}

/// The files, and the numbers of clients.
pub const FILES: [File; 3] = [("64KiB", 64 << 10), ("1MB", 1 << 20), ("16MB", 16 << 20)];
/// See [`FILES`].
pub const CLIENTS: [u32; 3] = [8, 64, 256];

/// Measures all, each for `seconds`, and calls `each` with every row. `directory` has room for the
/// files.
///
/// # Errors
/// If a namespace cannot be made, or a program is missing or fails.
pub fn run(
    directory: &Path,
    seconds: u32,
    mut each: impl FnMut(&Row),
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for file in FILES {
        for kind in [Kind::Limit(file.1), Kind::Tap, Kind::Nginx] {
            let serving = Serving::start(directory, &[file], kind, &[])?;
            for clients in CLIENTS {
                let row = measure(&serving, kind, file.0, clients, seconds)?;
                each(&row);
                rows.push(row);
            }
            serving.stop()?;
        }
    }
    Ok(rows)
}

/// Files of a megabyte that are requested in turn, so that none is in a server's own memory when it
/// is asked for again. Returns a row for nginx and one for ours.
///
/// # Errors
/// As [`run`].
pub fn run_in_turn(
    directory: &Path,
    seconds: u32,
    mut each: impl FnMut(&Row),
) -> Result<Vec<Row>, Failure> {
    let names: Vec<String> = (0..TURNS).map(|number| format!("turn{number}")).collect();
    let names: &'static [String] = Vec::leak(names);
    let files: Vec<File> = names.iter().map(|name| (name.as_str(), 1 << 20)).collect();
    let script = directory.join("turns.lua");
    std::fs::create_dir_all(directory)?;
    let text = format!(
        "local n = 0\nrequest = function()\n n = (n + 1) % {TURNS}\n \
         return wrk.format(\"GET\", \"/turn\" .. n)\nend\n"
    );
    std::fs::write(&script, text)?;
    let mut rows = Vec::new();
    for kind in [Kind::Tap, Kind::Nginx] {
        let serving = Serving::start(directory, &files, kind, &[])?;
        let row = load(&serving, kind, ("turn0", 64), seconds, &["--script", path(&script)?])?;
        let row = Row { file: "in turn", ..row };
        each(&row);
        rows.push(row);
        serving.stop()?;
    }
    Ok(rows)
}

/// The files that are requested in turn.
const TURNS: usize = 1000;

fn path(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| "a strange path".into())
}

fn measure(
    serving: &Serving,
    kind: Kind,
    file: &'static str,
    clients: u32,
    seconds: u32,
) -> Result<Row, Failure> {
    load(serving, kind, (file, clients), seconds, &[])
}

/// Loads a server by wrk.
fn load(
    serving: &Serving,
    kind: Kind,
    (file, clients): (&'static str, u32),
    seconds: u32,
    more: &[&str],
) -> Result<Row, Failure> {
    let mut wrk = serving.client("wrk");
    wrk.args(["--threads", "1", "--timeout", "20s", "--connections", &clients.to_string()]);
    wrk.args(["--duration", &format!("{seconds}s")]).args(more).arg(serving.url(file));
    let before = [busy(0)?, busy(1)?];
    let text = live::run(&mut wrk)?;
    let [first, second] = [busy(0)?.saturating_sub(before[0]), busy(1)?.saturating_sub(before[1])];
    let (requests, elapsed) = requests(&text)?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
    Ok(Row {
        server: kind.name(),
        file,
        clients,
        rate: requests as f64 / elapsed,
        first_us: each(first),
        both_us: each(first + second),
        resident_bytes: live::memory(serving.id(), "VmRSS")?,
    })
}

/// The time that a processor was busy since the system began, in any process or interrupt.
fn busy(processor: usize) -> Result<Duration, Failure> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{processor} ");
    let line = text.lines().find(|line| line.starts_with(&name)).ok_or("no such processor")?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    // user, nice, system, idle, iowait, irq, softirq; what is stolen is nobody's here.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|place| fields.get(*place)).sum();
    let hz = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(busy as f64 / hz as f64))
}

/// Requests and seconds in wrk's `240113 requests in 4.10s, 1.53GB read`. Fails if some went wrong.
pub fn requests(text: &str) -> Result<(u64, f64), Failure> {
    let has_trouble = |line: &&str| line.contains("Socket errors") || line.contains("Non-2xx");
    if let Some(line) = text.lines().find(has_trouble) {
        return Err(format!("wrk: {}", line.trim()).into());
    }
    let line = text.lines().find(|line| line.contains(" requests in ")).ok_or("no requests")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let requests = words.first().and_then(|word| word.parse().ok()).ok_or("no number")?;
    let time = words.get(3).map(|word| word.trim_end_matches(',')).unwrap_or_default();
    match time.strip_suffix('s') {
        Some(seconds) => Ok((requests, seconds.parse()?)),
        None => Err(format!("no seconds: {line}").into()),
    }
}
