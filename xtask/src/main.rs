//! The project's own checks: `cargo run -q -p lightwait-xtask -- CHECK…`, where a check is `tidy`,
//! `purity`, `licences`, `surface`, `specs`, `figures` or `mutants`.
//!
//! `specs --write` writes the page of requirements anew. `specs --against DIR` compares the map
//! with the RFCs' texts in that folder. `mutants [--since REV] [FILE.rs…]` needs cargo-mutants.
//!
//! Each check is a list of rules. A rule takes a text and returns findings, so that every rule is
//! tested by a text that passes and a variant that fails. Exit status: 0 clean, 1 findings, 2 a bad
//! command line.
#![forbid(unsafe_code)]

mod figures;
mod licences;
mod mutants;
mod purity;
mod sources;
mod specs;
mod surface;
mod tidy;

use std::fmt;
use std::iter::Peekable;
use std::path::Path;
use std::process::ExitCode;

/// A broken rule, at one place.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// The file, relative to the repository's root; or the package.
    place: String,
    /// The line, counted from 1; 0 stands for the whole file.
    line: usize,
    /// The mistake, and the correction.
    text: String,
}

impl Finding {
    fn new(place: &str, line: usize, text: impl Into<String>) -> Self {
        Finding { place: place.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.place, self.text),
            line => write!(f, "{}:{line}: {}", self.place, self.text),
        }
    }
}

/// The names of the checks on the command line; `specs` and `mutants` take options.
const CHECKS: [&str; 7] = ["tidy", "purity", "licences", "surface", "specs", "figures", "mutants"];

/// The result of a check: its findings, or the reason why it could not run.
type Outcome = Result<Vec<Finding>, String>;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let mut names = std::env::args().skip(1).peekable();
    if names.peek().is_none() {
        eprintln!("usage: lightwait-xtask {} [OPTION…] …", CHECKS.join("|"));
        return ExitCode::from(2);
    }
    let mut clean = true;
    while let Some(name) = names.next() {
        let outcome = match name.as_str() {
            "tidy" => tidy::check(root),
            "purity" => purity::check(root),
            "licences" => licences::check(root),
            "surface" => surface::check(root),
            "figures" => figures::check(root),
            "specs" => wishes(&mut names).and_then(|wishes| specs::check(root, &wishes)),
            "mutants" => {
                mutants::Wishes::parse(&mut names).and_then(|wishes| mutants::check(root, &wishes))
            }
            other => {
                eprintln!("no check is called {other:?}; there are: {}", CHECKS.join(", "));
                return ExitCode::from(2);
            }
        };
        clean &= report(&name, outcome);
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The options after `specs`, which begin with `--`.
fn wishes(arguments: &mut Peekable<impl Iterator<Item = String>>) -> Result<specs::Wishes, String> {
    let mut wishes = specs::Wishes::default();
    while let Some(argument) = arguments.next_if(|argument| argument.starts_with("--")) {
        match argument.as_str() {
            "--write" => wishes.write = true,
            "--against" => {
                let folder = arguments.next().ok_or("--against what folder?")?;
                wishes.against = Some(folder.into());
            }
            other => {
                return Err(format!("{other:?} is not known; there are --write, --against DIR"));
            }
        }
    }
    Ok(wishes)
}

/// Prints the findings of a check. Returns true if there are none.
fn report(name: &str, outcome: Outcome) -> bool {
    match outcome {
        Ok(findings) if findings.is_empty() => {
            println!("{name}: clean");
            true
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("{name}: {} found", findings.len());
            false
        }
        Err(why) => {
            println!("{name}: cannot check: {why}");
            false
        }
    }
}
