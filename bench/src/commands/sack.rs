//! The command `sack`: instructions of an ACK with a SACK block.

use lightwait_bench::{instructions, sack, say_line};

/// The arguments of `sack`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Sack {
    /// Run the section once for callgrind
    #[arg(long, hide = true)]
    section: Option<String>,
}

impl Sack {
    /// Counts and prints.
    pub(crate) fn run(&self) -> bool {
        if let Some(section) = &self.section {
            instructions::choose(section);
            sack::sections();
            return true;
        }
        let count = sack::count().unwrap_or_else(|why| {
            eprintln!("{why}");
            None
        });
        count.iter().for_each(|count| say_line!("{}: {count:.0} instructions", sack::WHAT));
        count.is_some()
    }
}
