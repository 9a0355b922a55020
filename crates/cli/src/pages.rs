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

/// Prints the page of a command or, without a name, that of the program; or writes all pages into a
/// directory, and says so.
pub(crate) fn man(what: Option<&Path>) -> Result<ExitCode, Failure> {
    let program = built();
    let printed = what.map_or(Some(&program), |what| named(&program, what));
    if let Some(command) = printed {
        failure::print(&String::from_utf8_lossy(&page(command)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let dir = what.expect("without it the program's page is printed");
    // A word may be a mistyped command: no directory comes of it.
    if !has_slash(dir) && !dir.exists() {
        let dir = dir.display();
        return Err(Failure::Usage(format!(
            "{dir}: neither a command nor a directory; a new directory is given as ./{dir}"
        )));
    }
    let written = |path: &Path, result: io::Result<()>| {
        result.map_err(|error| Failure::Output(path.to_owned(), error))
    };
    written(dir, fs::create_dir_all(dir))?;
    let commands = all(&program);
    for command in &commands {
        let path = dir.join(format!("{}.1", name(command)));
        written(&path, fs::write(&path, page(command)))?;
    }
    eprintln!("{} pages are in {}", commands.len(), dir.display());
    Ok(ExitCode::SUCCESS)
}

/// True if a path is written with a slash, as `./man` and `man/` are.
fn has_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// The command of that name: `serve`, `load-merge`, or as `man` has them, `lightwait-serve`.
fn named<'a>(program: &'a Command, what: &Path) -> Option<&'a Command> {
    let what = what.to_str()?;
    all(program).into_iter().find(|command| {
        let name = name(command);
        name == what || name.strip_prefix("lightwait-") == Some(what)
    })
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
    // clap_mangen names every flag there, without its value; OPTIONS has them all.
    let text = String::from_utf8(text).expect("what clap says is text");
    let (head, rest) = text.split_once(".SH SYNOPSIS\n").expect("a page has a synopsis");
    let (_, rest) = rest.split_once(".SH DESCRIPTION\n").expect("a command is described");
    let synopsis = usages(command).join("\n.br\n");
    format!("{head}.SH SYNOPSIS\n{synopsis}\n.SH DESCRIPTION\n{rest}").into_bytes()
}

/// The forms of a command and of those within it, such as `lightwait knobs [NAME]`, in roff.
fn usages(command: &Command) -> Vec<String> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let usage = command.clone().render_usage().to_string();
    let forms = usage.trim_start_matches("Usage:").lines().map(str::trim);
    // The commands within have forms of their own.
    let own = forms.filter(|form| !form.ends_with("<COMMAND>")).map(|form| {
        let arguments = form.strip_prefix(name).unwrap_or(form).replace('-', r"\-");
        let arguments = arguments.replace('[', r"[\fI").replace(']', r"\fR]");
        let arguments = arguments.replace('<', r"\fI").replace('>', r"\fR");
        format!(r"\fB{name}\fR{arguments}")
    });
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    own.chain(inner.flat_map(usages)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_the_name_of_its_command() {
        let program = built();
        let of = |what: &str| named(&program, Path::new(what)).map(name);
        for (what, page) in [
            ("serve", "lightwait-serve"),
            ("load-merge", "lightwait-load-merge"),
            ("lightwait-man", "lightwait-man"),
            ("lightwait", "lightwait"),
        ] {
            assert_eq!(of(what), Some(page));
        }
        for what in ["./serve", "serve/", "sreve", "merge", "help", ""] {
            assert_eq!(of(what), None, "{what}");
        }
    }

    /// The synopsis of the page of that name.
    fn synopsis(of: &str) -> String {
        let program = built();
        let command = all(&program).into_iter().find(|command| name(command) == of).unwrap();
        let text = String::from_utf8(page(command)).unwrap();
        let (_, rest) = text.split_once(".SH SYNOPSIS\n").unwrap();
        rest.split_once("\n.SH ").unwrap().0.to_owned()
    }

    #[test]
    fn a_synopsis_has_the_forms_of_a_command_and_no_list_of_flags() {
        let load = r"\fBlightwait load\fR [\fIOPTIONS\fR] \fIURL\fR";
        let merge = r"\fBlightwait load merge\fR [\fIOPTIONS\fR] \fIREPORT\fR...";
        assert_eq!(synopsis("lightwait-load"), format!("{load}\n.br\n{merge}"));
        assert_eq!(synopsis("lightwait-load-merge"), merge);
        assert_eq!(synopsis("lightwait-knobs"), r"\fBlightwait knobs\fR [\fINAME\fR]");
        let all = synopsis("lightwait");
        assert!(all.starts_with(r"\fBlightwait serve\fR [\fIOPTIONS\fR]"), "{all}");
        assert!(all.contains(merge) && !all.contains("COMMAND"), "{all}");
    }

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
