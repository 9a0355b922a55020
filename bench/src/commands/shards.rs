//! The command `shards`: its arguments, and the output of its results.

use std::time::Duration;

use clap::ValueEnum;
use lightwait_bench::live::Failure;
use lightwait_bench::sample::median;
use lightwait_bench::say_line;
use lightwait_bench::shards::tap::Network;
use lightwait_bench::shards::{Outcome, Plan, Row, Series, memory, storm};
use serde_json::json;

/// The arguments of `shards`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Shards {
    /// Numbers of shards, each 1 to 64, separated by commas; ratios are to the first [default: 1,
    /// 2, 4, 8 and 16, as far as there are cores]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: Vec<u16>,
    /// Where the clients are
    #[arg(long, value_enum, default_value = "both")]
    over: Over,
    /// Seconds for each number and workload, all runs together, 1 to 3600
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Runs, in turns, each on new hosts, 1 to 1000
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Threads for the clients of each shard, 1 to 4, on the kernel's TCP
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=4))]
    threads: u16,
    /// Flood the first of two shards instead, in memory, and print the rate that the second keeps
    #[arg(long, conflicts_with_all = ["shards", "over", "threads"])]
    storms: bool,
    /// Print one JSON object a number and workload, or a flood
    #[arg(long)]
    json: bool,
}

/// Where the clients are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    /// Stacks of ours in memory, on the server's cores
    Memory,
    /// The kernel's TCP over a TAP; takes root
    Tap,
    /// One after the other; the TAP is left out without the rights for it
    Both,
}

/// The default numbers of shards.
const SHARDS: [u16; 5] = [1, 2, 4, 8, 16];

const IN_MEMORY: &str = "in memory, both ends on each core; packets of 1500 bytes, with checksums";
const OVER_TAP: &str = "over a TAP, clients on the kernel's TCP in threads of their own; a \
                        core-second is of the shards' threads";

const FLOODED: &str = "in memory, two shards and their clients on a core each; the first is \
                       flooded, these are kept requests of the second";

impl Shards {
    /// Measures and prints. False if something could not be measured, or was wrong.
    pub(crate) fn run(&self) -> bool {
        self.measure().unwrap_or_else(|why| {
            eprintln!("shards: {why}");
            false
        })
    }

    fn measure(&self) -> Result<bool, Failure> {
        if self.storms {
            return self.storms();
        }
        let mut is_right = true;
        if self.over != Over::Tap {
            is_right &= self.table("memory", IN_MEMORY, |plan| Ok(memory::run(plan)?))?;
        }
        if self.over != Over::Memory {
            match Network::new() {
                Ok(network) => is_right &= self.table("tap", OVER_TAP, |plan| network.run(plan))?,
                Err(why) if self.over == Over::Both => eprintln!("The TAP is left out: {why}"),
                Err(why) => return Err(why),
            }
        }
        Ok(is_right)
    }

    fn storms(&self) -> Result<bool, Failure> {
        let window = Duration::from_secs(self.seconds.into()) / self.runs;
        let rows = storm::run(self.runs, window)?;
        if !self.json {
            say_line!("{FLOODED}; {} runs", self.runs);
            say_line!(
                "{:<14} {:>12} {:>12} {:>8} {:>6} {:>14}",
                "flood",
                "frames/s",
                "requests/s",
                "without",
                "kept",
                "of core-second"
            );
        }
        for row in &rows {
            let [mut calm, mut flooded] = [row.calm.clone(), row.flooded.clone()];
            let (calm, flooded) = (median(&mut calm), median(&mut flooded));
            let of_core = median(&mut row.kept_of_core.clone());
            let (name, kept) = (row.storm.name(), row.kept());
            if self.json {
                say_line!(
                    "{}",
                    json!({
                        "flood": name, "frames_per_second": row.frames, "requests": flooded,
                        "requests_without": calm, "kept": kept, "kept_of_core_second": of_core,
                    })
                );
            } else {
                say_line!(
                    "{name:<14} {:>12.0} {flooded:>12.0} {calm:>8.0} {kept:>6.2} {of_core:>14.2}",
                    row.frames
                );
            }
        }
        Ok(true)
    }

    fn table(
        &self,
        over: &str,
        heading: &str,
        measure: impl Fn(&Plan) -> Result<Outcome, Failure>,
    ) -> Result<bool, Failure> {
        let cores = lightwait::shards::available_cores()?;
        let mut shards = self.shards.clone();
        if shards.is_empty() {
            shards.extend(SHARDS.into_iter().filter(|count| *count <= cores.max(1)));
        }
        let measured = Duration::from_secs(self.seconds.into());
        let first = shards[0];
        let series = Series { shards, threads: self.threads, runs: self.runs, measured };
        if !self.json {
            say_line!("{heading}; {cores} cores, {} runs", self.runs);
        }
        let rows = series.run(measure)?;
        if self.json {
            rows.iter().for_each(|row| print_json(over, row));
        } else {
            print_table(&rows, first);
        }
        Ok(rows.iter().all(Row::is_right))
    }
}

fn print_table(rows: &[Row], first: u16) {
    say_line!(
        "{:<21} {:>6} {:>10} {:>21} {:>6} {:>10} {:>13} {:>11} {:>5}",
        "",
        "shards",
        "median",
        "lowest to highest",
        format!("of {first}"),
        "busy cores",
        "a core-second",
        "handed over",
        "lost"
    );
    for row in rows {
        let Row { workload, shards, handed_over, lost, .. } = row;
        let [middle, lowest, highest] = row.spread().map(|rate| workload.text(rate));
        let of_core = workload.text(median(&mut row.rates_of_core.clone()));
        let busy = row.busy_cores();
        let ratio = median(&mut row.ratios.clone());
        let spread = format!("{lowest} to {highest}");
        say_line!(
            "{:<21} {shards:>6} {middle:>10} {spread:>21} {ratio:>6.2} {busy:>10.2} \
             {of_core:>13} {handed_over:>11} {lost:>5}",
            workload.name()
        );
    }
}

fn print_json(over: &str, row: &Row) {
    let [median_rate, lowest, highest] = row.spread();
    say_line!(
        "{}",
        json!({
            "over": over, "workload": row.workload.name(), "shards": row.shards,
            "median": median_rate, "lowest": lowest, "highest": highest,
            "ratio": median(&mut row.ratios.clone()),
            "busy_cores": row.busy_cores(),
            "per_core_second": median(&mut row.rates_of_core.clone()),
            "handed_over": row.handed_over, "lost": row.lost,
        })
    );
}
