//! The command `memory`: its arguments, and the output of its result.

use lightwait_bench::memory::{Plan, State};
use lightwait_bench::say_line;
use lightwait_bench::stacks::{Ip, Variant, Which};
use serde_json::Value;

/// The arguments of `memory`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Memory {
    /// The stack to measure
    #[arg(long, value_enum, default_value = "lightwait")]
    stack: Which,
    /// The state of its connections
    #[arg(long, value_enum, default_value = "time-wait")]
    state: State,
    /// Their number, 1000 to 20000000; lwIP has 10000 at most, the kernel 9900
    #[arg(long, default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1000..=20_000_000))]
    count: u32,
    /// The version of IP; only our own engine has 6
    #[arg(long, value_enum, default_value = "4")]
    ip: Ip,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Memory {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let (state, count) = (self.state, self.count as usize);
        let plan = Plan { state, count, ip: self.ip, variant: self.stack.variant() };
        let Some(outcome) = self.stack.memory(&plan) else {
            let why = if self.ip == Ip::V6 {
                "it is measured over IPv4 alone"
            } else if self.stack.variant() == Variant::Skip {
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
        say_line!("{name:<16} {connections} {}: {}", state.name(), outcome.in_words());
        true
    }
}
