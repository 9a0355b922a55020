//! The command `time-wait`: its arguments, and the output of its result.

use lightwait_bench::{instructions, time_wait};
use lightwait_bench::{say, say_line};
use serde_json::Value;

/// The arguments of `time-wait`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TimeWait {
    /// Records in the table, 10000 to 100000000.
    #[arg(long, default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    count: u32,
    /// Count instructions as well, by running once more under callgrind.
    #[arg(long)]
    instructions: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Run the section once for callgrind, which --instructions uses
    #[arg(long, hide = true)]
    section: Option<String>,
}

impl TimeWait {
    /// Measures and prints.
    pub(crate) fn run(&self) -> bool {
        let count = self.count as usize;
        if let Some(section) = &self.section {
            instructions::choose(section);
            time_wait::sections(count);
            return true;
        }
        let mut costs = vec![time_wait::in_ns(count)];
        if self.instructions {
            match time_wait::in_instructions(count) {
                Ok(counted) => costs.push(counted),
                Err(why) => eprintln!("{why}"),
            }
        }
        if self.json {
            let object = costs.iter().rev().flat_map(time_wait::Costs::json).collect();
            say_line!("{}", Value::Object(object));
        } else {
            self.print(&costs);
        }
        costs.len() > 1 || !self.instructions
    }

    fn print(&self, costs: &[time_wait::Costs]) {
        say!("{:<48}", format!("{} records", self.count));
        costs.iter().for_each(|costs| say!(" {:>12}", costs.unit()));
        say_line!();
        for (name, what) in time_wait::OPERATIONS {
            say!("{what:<48}");
            for costs in costs {
                say!(" {:>12.1}", costs.value(name).unwrap_or(f64::NAN));
            }
            say_line!();
        }
        say_line!("{:<48} {:>12.0}", "the longest that one takes to enter", costs[0].worst_ns);
    }
}
