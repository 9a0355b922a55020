//! Mutants: cargo-mutants changes the engine in one place at a time, and a test must fail for each
//! change. A mutant that no test kills needs a test, or an entry with its reason in
//! `crates/core/mutants.toml`.
//!
//! ```text
//!   files, or a diff ─▶ cargo mutants ─▶ outcomes ─┐
//!                       crates/core/mutants.toml ──┴─▶ compare ─▶ findings
//! ```
//!
//! `mutants FILE…` takes whole files. `mutants` alone takes what a change touches: the lines of
//! `crates/core/src` that differ from `--since REV`, from where the upstream branch was left, or
//! else from the commit before this one. New files that git does not track are not seen. What
//! cargo-mutants leaves lies under `target/mutants`.
//!
//! Not part of `.ci/run`: each mutant is a build of the engine's tests, and a run of them. The
//! tests beside the code run first, those that take seconds last; the first of three groups that
//! fails ends it. `--quick` leaves out the last group, for a first look: then more mutants survive.

mod compare;
mod groups;
mod list;
mod outcomes;

use std::fs;
use std::io::ErrorKind;
use std::iter::Peekable;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::sources::run;
pub(crate) use list::List;

/// The list of survivors.
const LIST: &str = "crates/core/mutants.toml";
/// The code that is changed.
const CODE: &str = "crates/core/src";
/// Its package.
const PACKAGE: &str = "lightwait-core";
/// The folder of what a run leaves, in the repository.
const OUTPUT: &str = "target/mutants";
/// The command that installs the tool.
const INSTALL: &str = "cargo install cargo-mutants --locked";

/// What is to be mutated.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// The revision that a change begins from.
    since: Option<String>,
    /// Whole files instead of a change.
    files: Vec<String>,
    /// The slow tests are left out.
    is_quick: bool,
}

impl Wishes {
    /// The arguments after `mutants`: `--since REV`, `--quick`, and names that end in `.rs`.
    pub(crate) fn parse(
        arguments: &mut Peekable<impl Iterator<Item = String>>,
    ) -> Result<Wishes, String> {
        let mut wishes = Wishes::default();
        while let Some(argument) =
            arguments.next_if(|argument| argument.starts_with("--") || argument.ends_with(".rs"))
        {
            match argument.as_str() {
                "--since" => {
                    wishes.since = Some(arguments.next().ok_or("--since what revision?")?);
                }
                "--quick" => wishes.is_quick = true,
                other if other.starts_with("--") => {
                    let known = "--since REV, --quick, FILE.rs";
                    return Err(format!("{other:?} is not known; there are {known}"));
                }
                file => wishes.files.push(file.to_owned()),
            }
        }
        if wishes.since.is_some() && !wishes.files.is_empty() {
            return Err("a file is taken whole: leave out --since, or the files".to_owned());
        }
        Ok(wishes)
    }
}

/// Mutates what is wished for, and compares the survivors with the list.
pub(crate) fn check(root: &Path, wishes: &Wishes) -> Outcome {
    let list = List::read(root)?;
    let config = groups::as_config(&wishes.files, wishes.is_quick);
    let mut arguments = vec!["--cargo-arg=--config".to_owned(), format!("--cargo-arg={config}")];
    if wishes.files.is_empty() {
        let Some(diff) = write_diff(root, wishes.since.as_deref())? else {
            println!("no line of {CODE} differs");
            return Ok(Vec::new());
        };
        arguments.extend(["--in-diff".to_owned(), diff]);
    }
    for file in &wishes.files {
        if !root.join(file).is_file() {
            return Err(format!("{file}: no such file in the repository"));
        }
        arguments.extend(["--file".to_owned(), file.clone()]);
    }
    mutate(root, &arguments)?;
    let path = root.join(OUTPUT).join("mutants.out/outcomes.json");
    let tested = match fs::read_to_string(path) {
        Ok(text) => outcomes::parse(&text, |file| fs::read_to_string(root.join(file)).ok())?,
        // Nothing there is can be changed.
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    for file in &wishes.files {
        println!("{}", compare::run_of(file, &tested));
    }
    Ok(compare::check(&list, &tested, &wishes.files))
}

/// Writes what differs from `since` where cargo-mutants reads it. Returns its path, or `None` if
/// nothing differs.
fn write_diff(root: &Path, since: Option<&str>) -> Result<Option<String>, String> {
    let base = match since {
        Some(revision) => revision.to_owned(),
        None => run(root, "git", &["merge-base", "HEAD", "@{upstream}"])
            .map_or("HEAD~1".to_owned(), |commit| commit.trim().to_owned()),
    };
    let diff = run(root, "git", &["diff", "--no-ext-diff", "--no-color", &base, "--", CODE])?;
    if diff.trim().is_empty() {
        return Ok(None);
    }
    let folder = root.join(OUTPUT);
    let path = folder.join("change.diff");
    fs::create_dir_all(folder).and_then(|()| fs::write(&path, diff)).map_err(|e| e.to_string())?;
    path.into_os_string().into_string().map(Some).map_err(|path| format!("{path:?}: no UTF-8"))
}

/// Runs cargo-mutants, which prints how far it is.
fn mutate(root: &Path, arguments: &[String]) -> Result<(), String> {
    let output = root.join(OUTPUT);
    let version = Command::new("cargo").args(["mutants", "--version"]).output();
    if !version.is_ok_and(|version| version.status.success()) {
        return Err(format!("cargo-mutants is not installed: {INSTALL}"));
    }
    // An older run's outcomes must not be taken for this one's.
    let _ = fs::remove_dir_all(output.join("mutants.out"));
    fs::create_dir_all(&output).map_err(|e| e.to_string())?;
    let status = Command::new("cargo")
        .args(["mutants", "--colors=never", "--package", PACKAGE, "--output"])
        .arg(&output)
        .args(arguments)
        // What the engine depends on is built once, not for each copy of the tree.
        .env("CARGO_TARGET_DIR", output.join("build"))
        // A mutant is killed by the first case that fails, however large that is.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    match status.code() {
        // All killed; some missed; some ran out of time.
        Some(0 | 2 | 3) => Ok(()),
        Some(4) => Err("the tests fail without any mutant".to_owned()),
        _ => Err(format!("cargo mutants: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(line: &str) -> Result<Wishes, String> {
        Wishes::parse(&mut line.split_whitespace().map(str::to_owned).peekable())
    }

    #[test]
    fn a_change_or_whole_files_are_wished_for() {
        assert_eq!(wishes(""), Ok(Wishes::default()));
        let since = Wishes { since: Some("v1".to_owned()), ..Wishes::default() };
        assert_eq!(wishes("--since v1"), Ok(since));
        let files = vec!["a.rs".to_owned(), "b/c.rs".to_owned()];
        let files = Wishes { files, ..Wishes::default() };
        assert_eq!(wishes("a.rs b/c.rs tidy"), Ok(files), "tidy is the next check");
        assert!(wishes("--since").is_err());
        assert!(wishes("--until v1").is_err());
        assert!(wishes("--since v1 a.rs").is_err());
    }

    #[test]
    fn a_first_look_may_leave_out_the_slow_tests() {
        assert_eq!(wishes("--quick"), Ok(Wishes { is_quick: true, ..Wishes::default() }));
    }
}
