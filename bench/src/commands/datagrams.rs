//! The command `datagrams`: its arguments, and the output of its result.

use lightwait_bench::datagrams::{self, BURST, Plan};
use lightwait_bench::instructions;
use lightwait_bench::stacks::Which;

use super::Output;

/// The arguments of `datagrams`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Datagrams {
    /// The stack to measure: lightwait or smoltcp
    #[arg(long, value_enum, default_value = "lightwait")]
    stack: Which,
    /// Bytes of a datagram, 1 to 1472
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1472))]
    size: u16,
    /// Datagrams measured, 64 to 1000000000
    #[arg(long, default_value_t = 5_000_000,
          value_parser = clap::value_parser!(u32).range(64..=1_000_000_000))]
    datagrams: u32,
    /// A burst of 64 is one call at either end, where the stack has such calls
    #[arg(long)]
    batched: bool,
    #[command(flatten)]
    output: Output,
    /// Run the section once for callgrind, which --instructions uses
    #[arg(long, hide = true)]
    section: Option<String>,
}

impl Datagrams {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let plan = Plan {
            size: self.size.into(),
            datagrams: (self.datagrams as usize).next_multiple_of(BURST),
            batched: self.batched,
            variant: self.stack.variant(),
        };
        if let Some(section) = &self.section {
            instructions::choose(section);
            return self.stack.count_datagrams(&plan);
        }
        let Some(rates) = self.stack.datagrams(&plan) else {
            eprintln!("{} is not measured with datagrams", self.stack.name());
            return false;
        };
        let words = format!(
            "{:<16} {} bytes{}: {:>9.0} datagrams/s",
            self.stack.name(),
            plan.size,
            if plan.batched { ", batched" } else { "" },
            rates.median,
        );
        let object = datagrams::json(&rates, self.stack, &plan);
        self.output.report(object, &words, "instructions_per_datagram", || {
            datagrams::count(self.stack, &plan)
        })
    }
}
