//! The command `watched`: its arguments, and the output of its results.

use std::path::PathBuf;

use lightwait_bench::live::Failure;
use lightwait_bench::say_line;
use lightwait_bench::watched::{self, Load, Measured, Watch};
use serde_json::json;

/// The arguments of `watched`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Watched {
    /// How often each is measured, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each load
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Connections of a load, which stay
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Measure scrapes of /metrics instead, with so many connections at rest
    #[arg(long, value_name = "N")]
    idle: Option<u32>,
    /// Where the file and the log are written; they are removed
    #[arg(long, default_value = "/dev/shm")]
    directory: PathBuf,
    /// Print one JSON object a measurement
    #[arg(long)]
    json: bool,
}

impl Watched {
    /// Measures and prints. False if something could not be measured.
    pub(crate) fn run(&self) -> bool {
        self.measure().inspect_err(|why| eprintln!("watched: {why}")).is_ok()
    }

    fn measure(&self) -> Result<(), Failure> {
        let directory = tempfile::tempdir_in(&self.directory)?;
        if let Some(connections) = self.idle {
            return self.scrape(directory.path(), connections);
        }
        let load = Load { connections: self.connections, seconds: self.seconds };
        let all = watched::cost(directory.path(), self.rounds, load, |it| self.tell(it))?;
        let median = |watch: Watch| {
            let chosen = all.iter().filter(|it| it.watch == watch);
            let mut times: Vec<f64> = chosen.map(|it| it.processor_us).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let base = median(Watch::Nothing);
        for watch in Watch::ALL {
            let (name, us) = (watch.name(), median(watch));
            let percent = (us / base - 1.0) * 100.0;
            if self.json {
                say_line!(
                    "{}",
                    json!({ "watch": name, "median_processor_us": us, "more_percent": percent })
                );
            } else {
                say_line!("{name:<8} {us:.3} us a request in the median: {percent:+.1} %");
            }
        }
        Ok(())
    }

    fn tell(&self, it: &Measured) {
        let (name, rate, us) = (it.watch.name(), it.rate, it.processor_us);
        if self.json {
            say_line!(
                "{}",
                json!({ "watch": name, "requests_per_second": rate, "processor_us": us })
            );
        } else {
            say_line!("{name:<8} {rate:>9.0} requests/s, {us:.3} us of the processor for each");
        }
    }

    fn scrape(&self, directory: &std::path::Path, connections: u32) -> Result<(), Failure> {
        let found = watched::scrapes(directory, connections, 20)?;
        let mut ms: Vec<f64> = found.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let (usual, longest) = (ms[ms.len() / 2], ms[ms.len() - 1]);
        let (connections, bytes) = (found.connections, found.bytes);
        if self.json {
            say_line!(
                "{}",
                json!({
                    "connections": connections, "scrapes": ms.len(), "bytes": bytes,
                    "usual_ms": usual, "longest_ms": longest,
                })
            );
        } else {
            say_line!(
                "{connections} connections: a scrape of {bytes} bytes takes {usual:.2} ms, \
                 {longest:.2} ms at most"
            );
        }
        Ok(())
    }
}
