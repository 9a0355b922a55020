//! `lightwait man` and `lightwait completions`: what shells and `man` want to know of the command
//! line, from its one definition.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::CommandLine;
use crate::failure::{self, Failure};

/// Prints the completions for that shell.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "lightwait", &mut script);
    failure::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of each command into a directory, or prints that of the program.
pub(crate) fn man(dir: Option<&Path>) -> Result<ExitCode, Failure> {
    let program = built();
    let Some(dir) = dir else {
        failure::print(&String::from_utf8_lossy(&page(&program)))?;
        return Ok(ExitCode::SUCCESS);
    };
    let written = |path: &Path, result: io::Result<()>| {
        result.map_err(|error| Failure::Output(path.to_owned(), error))
    };
    written(dir, fs::create_dir_all(dir))?;
    for command in all(&program) {
        let path = dir.join(format!("{}.1", name(command)));
        written(&path, fs::write(&path, page(command)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line with the names that its commands have in full. `help` has no page: `man` says
/// more.
fn built() -> Command {
    let mut program = CommandLine::command().disable_help_subcommand(true);
    program.build();
    program
}

/// A command and all that are within it.
fn all(command: &Command) -> Vec<&Command> {
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    std::iter::once(command).chain(inner.flat_map(all)).collect()
}

/// The name of a command's page, such as `lightwait-load-merge`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> Vec<u8> {
    let mut text = Vec::new();
    let source = concat!("lightwait ", env!("LIGHTWAIT_VERSION"));
    let man = Man::new(command.clone()).manual("Lightwait").source(source);
    man.render(&mut text).expect("writing to memory does not fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_name_and_flags() {
        let program = built();
        let names: Vec<&str> = all(&program).into_iter().map(name).collect();
        let some = ["lightwait", "lightwait-serve", "lightwait-load", "lightwait-load-merge"];
        assert!(some.iter().all(|name| names.contains(name)), "{names:?}");
        for command in all(&program) {
            let text = String::from_utf8(page(command)).unwrap();
            // In roff a hyphen that is no word's is written with a backslash.
            let text = text.replace('\\', "");
            assert!(text.contains(name(command)), "{text}");
            for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(text.contains(&format!("--{flag}")), "{}: --{flag}", name(command));
            }
        }
    }
}
