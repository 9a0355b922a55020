//! The command `golden`: compares the counts of instructions with the kept ones, or keeps them.

use lightwait_bench::golden;
use lightwait_bench::say_line;

/// The arguments of `golden`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Golden {
    /// Keep the present counts, and beside them what has changed and this reason
    #[arg(long, value_name = "WHY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    bless: Option<String>,
}

impl Golden {
    /// Counts and compares, or keeps the counts.
    pub(crate) fn run(&self) -> bool {
        let counted = match golden::count() {
            Ok(counted) => counted,
            Err(why) => {
                eprintln!("{why}");
                return false;
            }
        };
        counted.iter().for_each(|(name, count)| say_line!("{name}: {count:.0}"));
        if let Some(why) = &self.bless {
            return golden::keep(&counted, why).inspect_err(|why| eprintln!("{why}")).is_ok();
        }
        let kept = golden::kept().unwrap_or_else(|why| {
            eprintln!("{}: {why}", golden::path().display());
            golden::Counts::new()
        });
        let differences = golden::differences(&kept, &counted);
        if differences.is_empty() {
            return true;
        }
        eprintln!("instructions are not as they were:");
        differences.iter().for_each(|line| eprintln!("  {line}"));
        eprintln!(
            "If meant: cargo run --profile dist -p lightwait-bench -- golden --bless WHY, and \
             commit"
        );
        false
    }
}
