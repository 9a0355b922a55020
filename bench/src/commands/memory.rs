//! `memory` on the command line.

use clap::ValueEnum;
use lightwait_bench::memory::Plan;
use lightwait_bench::stacks::Which;
use serde_json::Value;

/// In which state connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Ended, and in TIME-WAIT.
    TimeWait,
}

/// What `memory` is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Memory {
    /// Which stack.
    #[arg(long, value_enum, default_value = "lightwait")]
    stack: Which,
    /// In which state its connections are.
    #[arg(long, value_enum, default_value = "time-wait")]
    state: State,
    /// How many.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..))]
    count: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Memory {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let State::TimeWait = self.state;
        let plan = Plan { count: self.count as usize, variant: self.stack.variant() };
        let Some(outcome) = self.stack.memory(&plan) else {
            eprintln!("{}: what it keeps cannot be told apart", self.stack.name());
            return false;
        };
        if self.json {
            println!("{}", Value::Object(outcome.json(self.stack)));
            return true;
        }
        println!(
            "{:<16} {} in TIME-WAIT: {:.1} bytes each, {:.1} at most while filling, {:.1} resident",
            self.stack.name(),
            outcome.records,
            outcome.bytes,
            outcome.most,
            outcome.rss,
        );
        true
    }
}
