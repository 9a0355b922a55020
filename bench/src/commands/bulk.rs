//! The command `bulk`: its arguments, and the output of its result.

use lightwait_bench::bulk::{self, Plan};
use lightwait_bench::instructions;
use lightwait_bench::stacks::Which;

use super::Output;

/// The arguments of `bulk`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Bulk {
    /// The stack to measure
    #[arg(long, value_enum, default_value = "lightwait")]
    stack: Which,
    /// The largest packet, in bytes, 576 to 65535; lwIP and the kernel's loopback device have their
    /// own
    #[arg(long, default_value_t = 1500,
          value_parser = clap::value_parser!(u16).range(576..=65_535))]
    mtu: u16,
    /// Bytes to send, in whole megabytes, 1000000 to 1000000000000.
    #[arg(long, default_value_t = 2_000_000_000,
          value_parser = clap::value_parser!(u64).range(1_000_000..=1_000_000_000_000))]
    bytes: u64,
    /// Leave checksums to the device, as with a card that computes and verifies them; lwIP cannot
    #[arg(long)]
    no_checksum: bool,
    /// Leave the cutting of large segments to the device, too; only our stack can
    #[arg(long, requires = "no_checksum")]
    no_cut: bool,
    #[command(flatten)]
    output: Output,
    /// Run the section once for callgrind, which --instructions uses
    #[arg(long, hide = true)]
    section: Option<String>,
}

impl Bulk {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let (checksum, cut) = (!self.no_checksum, !self.no_cut);
        let asked = Plan { mtu: self.mtu, bytes: self.bytes, checksum, cut };
        let plan = asked.as_done_by(self.stack);
        if let Some(section) = &self.section {
            instructions::choose(section);
            self.stack.count_bulk(&plan);
            return true;
        }
        let outcome = self.stack.bulk(&plan);
        let path = match self.stack {
            Which::Linux => "MTU and checksums of the loopback device".to_owned(),
            _ if plan.checksum => format!("MTU {}, with checksums", plan.mtu),
            _ if plan.cut => format!("MTU {}, without checksums", plan.mtu),
            _ => format!("MTU {}, without checksums, cut by the device", plan.mtu),
        };
        let (name, rate) = (self.stack.name(), outcome.gbit_per_s());
        let words = format!("{name:<16} {path}: {rate:>6.2} Gbit/s");
        let object = outcome.json(self.stack, &plan);
        self.output
            .report(object, &words, "instructions_per_megabyte", || bulk::count(self.stack, &plan))
    }
}
