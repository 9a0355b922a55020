//! `pool` on the command line.

use lightwait_bench::say_line;
use lightwait_bench::{instructions, pool};

/// The arguments of `pool`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Pool {
    /// Connections that wait for a page, 100 to 30000.
    #[arg(long, default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(100..=30_000))]
    waiting: u32,
    /// Let this section be counted.
    #[arg(long, hide = true)]
    section: Option<String>,
}

impl Pool {
    /// Counts instructions and prints them.
    pub(crate) fn run(&self) -> bool {
        let waiting = self.waiting as usize;
        if let Some(section) = &self.section {
            instructions::choose(section);
            pool::sections(waiting);
            return true;
        }
        match pool::in_instructions(waiting) {
            Ok(counts) => {
                say_line!("{:<60} {:>12}", format!("{waiting} wait"), "instructions");
                for (what, count) in counts {
                    say_line!("{what:<60} {count:>12.1}");
                }
                true
            }
            Err(why) => {
                eprintln!("{why}");
                false
            }
        }
    }
}
