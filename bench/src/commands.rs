//! The benches on the command line: their arguments, and the output of their results. Each `run`
//! returns false if a requested measurement was impossible.

pub(crate) mod bulk;
pub(crate) mod compare;
pub(crate) mod connections;
pub(crate) mod datagrams;
pub(crate) mod golden;
pub(crate) mod look;
pub(crate) mod memory;
pub(crate) mod pingpong;
pub(crate) mod pool;
pub(crate) mod sack;
#[cfg(target_os = "linux")]
pub(crate) mod shards;
pub(crate) mod time_wait;
pub(crate) mod timers;
#[cfg(target_os = "linux")]
pub(crate) mod today;
#[cfg(target_os = "linux")]
pub(crate) mod watched;

use lightwait_bench::instructions::Uncounted;
use lightwait_bench::say_line;
use serde_json::{Map, Value, json};

/// The form of the output.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// Count instructions as well, by running once more under callgrind.
    #[arg(long)]
    instructions: bool,
    /// Print one JSON object a run.
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Prints a result, as an object or in words, with its instructions under `key` if requested.
    /// Returns false if they could not be counted.
    pub(crate) fn report(
        self,
        mut object: Map<String, Value>,
        words: &str,
        key: &str,
        count: impl FnOnce() -> Result<Option<f64>, Uncounted>,
    ) -> bool {
        let count = self.instructions.then(count).transpose().unwrap_or_else(|why| {
            eprintln!("{why}");
            None
        });
        let count = count.flatten();
        if let Some(count) = count {
            object.insert(key.to_owned(), json!(count.round()));
        }
        match (self.json, count) {
            (true, _) => say_line!("{}", Value::Object(object)),
            (false, Some(count)) => say_line!("{words}, {count:.0} instructions"),
            (false, None) => say_line!("{words}"),
        }
        count.is_some() || !self.instructions
    }
}

/// Packets of an operation, if they were counted.
fn packets_in_words(packets: Option<f64>) -> String {
    packets.map_or_else(String::new, |packets| format!(", {packets:.1} packets"))
}
