//! Drives the fuzz targets: `cargo run -p lightwait-fuzz --release -- host --seconds 60`.
//!
//! `wire` and `host` build the target with libFuzzer's counters (on the stable toolchain: the
//! counters are an LLVM pass that `-C passes` names), mutate the stored corpus for a while, and
//! print a failing input, made as small as may be, with the command that replays it. `replay` runs
//! inputs without libFuzzer, and `coverage` says which lines of `lightwait-core` the stored corpora
//! reach.
#![forbid(unsafe_code)]

mod coverage;
mod feedback_run;
mod shrink;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lightwait_fuzz::Target;

#[derive(Debug, Parser)]
#[command(name = "lightwait-fuzz", about = "Drives the fuzz targets")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fuzz every parser
    Wire(Fuzz),
    /// Fuzz two hosts with sequences of frames and calls
    Host(Fuzz),
    /// Run inputs, without mutating them; by default the stored corpus
    Replay {
        /// The target to run
        #[arg(value_enum)]
        target: Name,
        /// Files that each hold an input
        inputs: Vec<PathBuf>,
        /// Print every step and frame
        #[arg(long)]
        trace: bool,
    },
    /// Make a failing input as small as may be
    Shrink {
        /// The target to run
        #[arg(value_enum)]
        target: Name,
        /// The failing input; the smaller one is written beside it
        input: PathBuf,
    },
    /// Print the lines of lightwait-core that the stored corpora reach
    Coverage {
        /// Fail below this percentage
        #[arg(long, default_value_t = 0.0)]
        least: f64,
        /// Print the lines that are not reached as well
        #[arg(long)]
        missing: bool,
    },
}

#[derive(Debug, Args)]
struct Fuzz {
    /// How many seconds to fuzz
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The seed of the mutations: an equal seed makes equal inputs
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Add inputs that reach new code to the stored corpus, and remove those that are no longer
    /// needed
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Wire,
    Host,
}

impl From<Name> for Target {
    fn from(name: Name) -> Target {
        match name {
            Name::Wire => Target::Wire,
            Name::Host => Target::Host,
        }
    }
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Wire(fuzz) => feedback_run::run(Target::Wire, &fuzz),
        Command::Host(fuzz) => feedback_run::run(Target::Host, &fuzz),
        Command::Replay { target, inputs, trace } => replay(target.into(), inputs, trace),
        Command::Shrink { target, input } => shrink(target.into(), &input),
        Command::Coverage { least, missing } => coverage::print(least, missing),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("lightwait-fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The directory of a target's stored inputs.
fn corpus(target: Target) -> PathBuf {
    root().join("fuzz/corpus").join(target.name())
}

fn replay(target: Target, mut inputs: Vec<PathBuf>, trace: bool) -> Result<(), String> {
    if inputs.is_empty() {
        let entries = std::fs::read_dir(corpus(target)).map_err(|e| e.to_string())?;
        inputs = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inputs.sort();
    }
    for path in &inputs {
        let input = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        // A panic ends the process, so print the input's name before.
        if trace {
            eprintln!("-- {}", path.display());
        }
        target.run(&input, trace);
    }
    println!("{}: {} inputs replayed", target.name(), inputs.len());
    Ok(())
}

fn shrink(target: Target, path: &Path) -> Result<(), String> {
    let input = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let small = shrink::shrink(&|input| target.run(input, false), &input);
    let small = small.ok_or_else(|| format!("{} does not fail", path.display()))?;
    let beside = path.with_extension("small");
    std::fs::write(&beside, &small).map_err(|e| format!("{}: {e}", beside.display()))?;
    println!("{} bytes became {}: {}", input.len(), small.len(), beside.display());
    Ok(())
}
