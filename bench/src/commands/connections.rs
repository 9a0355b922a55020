//! The command `connections`: its arguments, and the output of its results.

use std::time::Duration;

use lightwait_bench::connections::{self, Outcome, Plan};
use lightwait_bench::instructions;
use lightwait_bench::stacks::Which;

use super::{Output, packets_in_words};

/// The arguments of `connections`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connections {
    /// The stack to measure
    #[arg(long, value_enum, default_value = "lightwait")]
    stack: Which,
    /// Other records in TIME-WAIT, 0 to 20000000
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=20_000_000))]
    time_wait: u32,
    /// Other idle connections, 0 to 4000000; the kernel has 9900 at most
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4_000_000))]
    idle: u32,
    /// Conversations measured, 1 to 1000000000 [default: 200000, or three periods of TIME-WAIT]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    count: Option<u32>,
    /// Conversations at a time, 1 to 4096; 1 and 16, one after the other, if none is given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    at_once: Option<u32>,
    /// The least number of source addresses, used in turn, 1 to 1000000; other stacks than ours
    /// have only one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    addresses: u32,
    /// Measure for about so many seconds at most, with fewer conversations if necessary
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    output: Output,
    /// Run the section once for callgrind, which --instructions uses
    #[arg(long, hide = true, requires = "at_once")]
    section: Option<String>,
}

/// The default number of conversations that are measured: at least this many,
const USUAL_COUNT: u32 = 200_000;
/// and those of this many periods of TIME-WAIT.
const PERIODS: u32 = 3;

/// A time that is not zero.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "a number of seconds above 0 is wanted".to_owned())
}

impl Connections {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let usual = || USUAL_COUNT.max(self.time_wait.saturating_mul(PERIODS));
        let asked = |at_once| Plan {
            time_wait: self.time_wait as usize,
            idle: self.idle as usize,
            count: self.count.unwrap_or_else(usual) as usize,
            at_once: at_once as usize,
            addresses: self.addresses as usize,
            variant: self.stack.variant(),
            limit: self.seconds,
            ..Plan::default()
        };
        let plan = |at_once| asked(at_once).as_done_by(self.stack);
        if let (Some(section), Some(at_once)) = (&self.section, self.at_once) {
            instructions::choose(section);
            self.stack.count_connections(&plan(at_once));
            return true;
        }
        let at_once = self.at_once.map_or_else(|| vec![1, 16], |one| vec![one]);
        let measured = at_once.into_iter().map(|at_once| self.measure(&plan(at_once)));
        measured.fold(true, |all, one| all & one)
    }

    fn measure(&self, plan: &Plan) -> bool {
        let outcome = self.stack.connections(plan);
        let (object, words) = (outcome.json(self.stack, plan), words(self.stack, plan, &outcome));
        self.output.report(object, &words, "instructions_per_connection", || {
            connections::count(self.stack, plan)
        })
    }
}

fn words(stack: Which, plan: &Plan, outcome: &Outcome) -> String {
    let apart = outcome.ns.map_or_else(String::new, |[client, server]| {
        format!(", {client:.0} ns at the client and {server:.0} at the server")
    });
    let periods = outcome
        .time_wait_periods(stack, plan)
        .map_or_else(String::new, |periods| format!(", {periods:.1} periods of TIME-WAIT"));
    format!(
        "{:<16} {:>2} at a time, {} in TIME-WAIT, {} idle: {:>9.0}/s{}{apart}{periods}",
        stack.name(),
        plan.at_once,
        outcome.time_waits,
        plan.idle,
        outcome.rates.median,
        packets_in_words(outcome.packets),
    )
}
