//! Several cores: what a request costs the machine, both ends of it, with a shard of ours on each
//! core over a TAP, and with as many workers of nginx, each with a listening socket, over a veth.
//!
//! Server and clients share the cores, so that the processor time of all of them counts whatever
//! work there is on the way, on either side. The kernel's congestion control is CUBIC.

use std::path::Path;
use std::time::Duration;

use super::servers::{File, Kind, Serving};
use super::{busy, requests};
use crate::live::{self, Failure};
use crate::sample::median;

/// A measurement.
#[derive(Clone, Debug)]
pub struct Row {
    /// The server's name.
    pub server: &'static str,
    /// The load's name.
    pub load: &'static str,
    /// Requests a second.
    pub rate: f64,
    /// Processor time of all cores for a request, in µs.
    pub us: f64,
}

/// Our processor time as a part of nginx's, over the repetitions of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The load's name.
    pub load: &'static str,
    /// The median over the repetitions.
    pub median: f64,
    /// The least of them.
    pub least: f64,
    /// The most of them.
    pub most: f64,
    /// What it should be at most.
    pub goal: f64,
}

/// A kind of requests.
struct Load {
    name: &'static str,
    file: &'static str,
    /// Each on a connection of its own, which the server closes.
    is_new: bool,
    goal: f64,
}

const FILES: [File; 3] = [("500B", 500), ("6KB", 6 << 10), ("1MB", 1 << 20)];

const LOADS: [Load; 4] = [
    Load { name: "new connections, 500 B", file: "500B", is_new: true, goal: 0.7 },
    Load { name: "kept, 500 B", file: "500B", is_new: false, goal: 0.7 },
    Load { name: "kept, 6 KB", file: "6KB", is_new: false, goal: 0.7 },
    Load { name: "kept, 1 MB", file: "1MB", is_new: false, goal: 1.3 },
];

/// Connections of each load, on each core.
const CLIENTS: u16 = 32;

/// Measures each load on so many cores, by turns on both servers, `runs` times for `seconds` each.
/// Calls `each` with every row.
///
/// # Errors
/// If a namespace cannot be made, or a program is missing or fails.
pub fn run(
    directory: &Path,
    cores: u16,
    seconds: u32,
    runs: u32,
    mut each: impl FnMut(&Row),
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for load in &LOADS {
        for _ in 0..runs {
            for kind in [Kind::Nginx, Kind::Tap] {
                let serving = Serving::start_on(cores, directory, &FILES, kind, &[])?;
                let row = measure(&serving, kind, load, (cores, seconds))?;
                serving.stop()?;
                each(&row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn measure(
    serving: &Serving,
    kind: Kind,
    load: &Load,
    (cores, seconds): (u16, u32),
) -> Result<Row, Failure> {
    let mut wrk = serving.client("wrk");
    wrk.args(["--threads", &cores.to_string(), "--timeout", "20s"]);
    wrk.args(["--connections", &(cores * CLIENTS).to_string()]);
    wrk.args(["--duration", &format!("{seconds}s")]);
    if load.is_new {
        wrk.args(["--header", "Connection: close"]);
    }
    let before = all_busy(cores)?;
    let text = live::run(wrk.arg(serving.url(load.file)))?;
    let taken = all_busy(cores)?.saturating_sub(before);
    let (requests, elapsed) = requests(&text)?;
    let (rate, us) = (requests as f64 / elapsed, taken.as_secs_f64() * 1e6 / requests as f64);
    Ok(Row { server: kind.name(), load: load.name, rate, us })
}

/// The time that the first so many processors were busy since the system began.
fn all_busy(cores: u16) -> Result<Duration, Failure> {
    (0..usize::from(cores)).map(busy).sum()
}

/// Our time beside nginx's, load by load. Rows come by turns, nginx's first.
pub fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let of = |load: &Load| {
        let times: Vec<f64> =
            rows.iter().filter(|row| row.load == load.name).map(|r| r.us).collect();
        let mut parts: Vec<f64> =
            times.as_chunks().0.iter().map(|[nginx, ours]| ours / nginx).collect();
        parts.sort_by(f64::total_cmp);
        let (least, most) = (*parts.first()?, *parts.last()?);
        let median = median(&mut parts);
        Some(Ratio { load: load.name, median, least, most, goal: load.goal })
    };
    LOADS.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_those_of_each_turn() {
        let row =
            |server: Kind, us| Row { server: server.name(), load: LOADS[0].name, rate: 1.0, us };
        let rows: Vec<Row> = [(10.0, 5.0), (20.0, 6.0), (10.0, 9.0)]
            .into_iter()
            .flat_map(|(nginx, ours)| [row(Kind::Nginx, nginx), row(Kind::Tap, ours)])
            .collect();
        let ratios = ratios(&rows);
        assert_eq!(ratios.len(), 1);
        let Ratio { median, least, most, goal, .. } = ratios[0];
        assert_eq!((median, least, most, goal), (0.5, 0.3, 0.9, 0.7));
    }
}
