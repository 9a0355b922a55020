//! The program `lightwait`. It parses the command line ([`args`]), checks it and makes a plan
//! ([`plan`]), and carries the plan out ([`serve`]). The commands for load ([`load`]) and for the
//! delay router ([`wan`]) work likewise.
#![forbid(unsafe_code)]

mod args;
mod counts;
mod failure;
mod knobs;
mod load;
mod log;
mod plan;
mod serve;
mod wan;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Command, CommandLine};
use failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("lightwait: {failure}");
            failure.exit_code()
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            // A closed output is the reader's choice.
            let _ = error.print();
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => {
            let text = failure::usage_line(&error);
            let command = std::env::args_os().nth(1).unwrap_or_default();
            return Err(match command.to_str() {
                Some("load") => Failure::LoadUsage(text),
                Some("wan") => Failure::WanUsage(text),
                _ => Failure::Usage(text),
            });
        }
    };
    match line.command {
        Command::Serve(args) => serve::serve(&plan::Plan::new(&args)?),
        Command::Load(args) => load::load(&args),
        Command::Wan(args) => wan::wan(&args),
        Command::Knobs(args) => knobs::print(args.name.as_deref()),
    }
}
