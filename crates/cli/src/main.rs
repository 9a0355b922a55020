//! The program `lightwait`. It parses the command line ([`args`]), checks it and makes a plan
//! ([`plan`]), and carries the plan out ([`serve`]). The commands for load ([`load`]), for the
//! delay router ([`wan`]) and for the tunnel ([`tunnel`]) work likewise. [`pages`] prints what the
//! command line itself says.
#![forbid(unsafe_code)]

mod args;
mod config_file;
mod counts;
mod doors;
mod failure;
mod filter;
mod knobs;
mod load;
mod log;
mod pages;
mod plan;
mod rates;
mod serve;
mod ss;
mod top;
mod trace;
mod tunnel;
mod wan;
mod zone;

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

use args::{Command, CommandLine};
use config_file::{ConfigFile, Source};
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
    let mut words: Vec<_> = env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "help")
        && words.get(2).is_some_and(|word| word == "--help" || word == "-h")
    {
        // clap has no help of `help`.
        words.remove(1);
    }
    let matches = match CommandLine::command().try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            let written = error.print().and_then(|()| io::stdout().flush());
            failure::is_written(written)?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(Failure::Usage(failure::usage_line(&error))),
    };
    let line = CommandLine::from_arg_matches(&matches);
    let line = line.map_err(|error| Failure::Usage(failure::usage_line(&error)))?;
    match line.command {
        Command::Serve(args) => {
            let file = args.config.as_ref().zip(matches.subcommand());
            let file = file.map(|(path, (_, given))| Source::new(path, given, &words));
            let (args, entries) = match &file {
                Some(source) => source.read().map(|(args, entries)| (args, Some(entries)))?,
                None => (*args, None),
            };
            serve::serve(&plan::Plan::new(&args)?, file.zip(entries))
        }
        Command::Check(args) => check(&args.file),
        Command::Load(args) => load::load(&args),
        Command::Wan(args) => wan::wan(&args),
        Command::Tunnel(args) => tunnel::tunnel(&args),
        Command::Ss(args) => ss::ss(&args),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Knobs(args) => knobs::print(args.name.as_deref()),
        Command::Completions(args) => pages::completions(args.shell),
        Command::Man(args) => pages::man(args.what.as_deref()),
    }
}

/// Checks a configuration file.
fn check(file: &Path) -> Result<ExitCode, Failure> {
    let config = ConfigFile::read(file)?;
    plan::Plan::new(&config.alone()?)?.check_pages()?;
    let written = writeln!(io::stdout(), "{}: {} keys, no fault", file.display(), config.keys());
    failure::is_written(written)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::path::PathBuf;

    /// The README and the pages under docs.
    fn pages() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = std::fs::read_dir(root.join("docs")).unwrap();
        let docs = docs.map(|entry| entry.unwrap().path());
        let is_page = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "md");
        std::iter::once(root.join("README.md")).chain(docs.filter(is_page)).collect()
    }

    #[test]
    fn the_book_has_every_page() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
        for page in pages().into_iter().filter(|page| page.starts_with(&docs)) {
            let name = page.file_name().unwrap().to_str().unwrap();
            let is_listed = summary.contains(&format!("]({name})"));
            assert!(is_listed || name == "SUMMARY.md", "{name}");
        }
        for link in summary.split("](").skip(1) {
            let file = link.split(')').next().unwrap_or_default();
            assert!(docs.join(file).is_file(), "{file}");
        }
    }

    /// The words of a line, if it is a command of ours that no shell has to complete.
    fn command(line: &str) -> Option<Vec<String>> {
        let line = line.split(" #").next().unwrap_or(line).trim();
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let line = ["cargo run --release -- ", "target/release/lightwait ", "lightwait "]
            .iter()
            .find_map(|program| line.strip_prefix(program))?;
        if line.contains('$') {
            return None;
        }
        let line = line.split(['|', '>', '&']).next().unwrap_or(line);
        let mut words = vec!["lightwait".to_owned()];
        for (place, part) in line.split('\'').enumerate() {
            // What is quoted is one word.
            match place % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        Some(words)
    }

    #[test]
    fn every_command_of_the_pages_is_one_of_ours() {
        let mut count = 0;
        for page in pages() {
            let text = std::fs::read_to_string(&page).unwrap().replace("\\\n", " ");
            for block in text.split("\n```").skip(1).step_by(2) {
                for words in block.lines().skip(1).filter_map(command) {
                    let parsed = CommandLine::try_parse_from(&words);
                    assert!(parsed.is_ok(), "{}: {words:?}: {:?}", page.display(), parsed.err());
                    count += 1;
                }
            }
        }
        assert!(count >= 15, "{count} were found");
    }
}
