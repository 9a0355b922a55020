//! `memory` on the command line.

use lightwait_bench::memory::{Plan, State};
use lightwait_bench::stacks::{Variant, Which};
use lightwait_bench::{say, say_line};
use serde_json::Value;

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
    #[arg(long, default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1000..=20_000_000))]
    count: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Memory {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let (state, count) = (self.state, self.count as usize);
        let plan = Plan { state, count, variant: self.stack.variant() };
        let Some(outcome) = self.stack.memory(&plan) else {
            let why = if self.stack.variant() == Variant::Skip {
                "it keeps nothing of connections in TIME-WAIT"
            } else {
                "what it keeps cannot be told"
            };
            eprintln!("{}: {why}", self.stack.name());
            return false;
        };
        if self.json {
            say_line!("{}", Value::Object(outcome.json(self.stack, &plan)));
            return true;
        }
        let (name, connections) = (self.stack.name(), outcome.connections);
        say!("{name:<16} {connections} {}: {:.1} bytes each, ", state.name(), outcome.bytes);
        match outcome.client_bytes {
            Some(bytes) => say!("{bytes:.1} at the client, "),
            None => say!("{:.1} at most while filling, ", outcome.most),
        }
        say_line!("{:.1} resident", outcome.rss);
        true
    }
}
