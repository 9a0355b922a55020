//! The command `pingpong`: its arguments, and the output of its result.

use lightwait_bench::instructions;
use lightwait_bench::pingpong::{self, Plan};
use lightwait_bench::stacks::Which;

use super::{Output, packets_in_words};

/// The arguments of `pingpong`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PingPong {
    /// The stack to measure
    #[arg(long, value_enum, default_value = "lightwait")]
    stack: Which,
    /// Connections, each with a pending request, 1 to 1000000; the kernel has 9900 at most
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Requests measured, on all connections together, 1 to 1000000000
    #[arg(long, default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    requests: u32,
    #[command(flatten)]
    output: Output,
    /// Run the section once for callgrind, which --instructions uses
    #[arg(long, hide = true)]
    section: Option<String>,
}

impl PingPong {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let asked = Plan {
            connections: self.connections as usize,
            requests: self.requests as usize,
            variant: self.stack.variant(),
        };
        let plan = asked.as_done_by(self.stack);
        if let Some(section) = &self.section {
            instructions::choose(section);
            self.stack.count_pingpong(&plan);
            return true;
        }
        let outcome = self.stack.pingpong(&plan);
        let words = format!(
            "{:<16} {} connections: {:>9.0} requests/s{}",
            self.stack.name(),
            plan.connections,
            outcome.rates.median,
            packets_in_words(outcome.packets),
        );
        let object = outcome.json(self.stack, &plan);
        self.output.report(object, &words, "instructions_per_request", || {
            pingpong::count(self.stack, &plan)
        })
    }
}
