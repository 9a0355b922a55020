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

use std::env;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Command, CommandLine};
use failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        Err(failure) => {
            let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
            eprintln!("lightwait: {failure}{}", failure.advice(words));
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
        Err(error) => return Err(Failure::Usage(failure::usage_line(&error))),
    };
    match line.command {
        Command::Serve(args) => serve::serve(&plan::Plan::new(&args)?),
        Command::Load(args) => load::load(&args),
        Command::Wan(args) => wan::wan(&args),
        Command::Knobs(args) => knobs::print(args.name.as_deref()),
    }
}
