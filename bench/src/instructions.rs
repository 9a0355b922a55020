//! Counts the instructions of chosen sections by callgrind.
//!
//! The program runs itself once more for each section, under valgrind. Callgrind collects from the
//! entry of the function behind [`section`] to its exit.

pub mod locked;

use crate::say_line;
use std::fmt;
use std::io;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Callgrind's name of the function that is counted.
const COLLECTED: &str = "*instructions::collected*";
/// The beginning of the line that reports the operations of a section.
const MARK: &str = "section ";

/// The C library copies long pieces by one instruction, which callgrind counts once for each byte.
const NO_STRING_INSTRUCTIONS: &str = "glibc.cpu.x86_rep_movsb_threshold=1073741824:\
    glibc.cpu.x86_rep_stosb_threshold=1073741824";

/// The section that is counted in this process, if any.
static CHOSEN: OnceLock<String> = OnceLock::new();

/// Chooses the section that is counted in this process; only the first call counts.
pub fn choose(name: &str) {
    CHOSEN.get_or_init(|| name.to_owned());
}

/// Runs `code`, which makes `operations` operations. Counts its instructions if `name` is chosen.
pub fn section<R>(name: &str, operations: usize, code: impl FnOnce() -> R) -> R {
    if CHOSEN.get().is_none_or(|chosen| chosen != name) {
        return code();
    }
    say_line!("{MARK}{operations}");
    collected(code)
}

/// Never inlined: callgrind looks for its entry and exit.
#[inline(never)]
fn collected<R>(code: impl FnOnce() -> R) -> R {
    code()
}

/// True if this program is built by the profile `dist`, of which limits on instructions speak: it
/// lies in that profile's directory.
pub fn are_those_of_dist() -> bool {
    let program = std::env::current_exe();
    program.is_ok_and(|program| program.components().any(|part| part.as_os_str() == "dist"))
}

/// The reason why nothing was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// valgrind is not installed.
    NoValgrind,
    /// valgrind failed.
    Failed(String),
}

impl fmt::Display for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uncounted::NoValgrind => f.write_str("no valgrind here: instructions are not counted"),
            Uncounted::Failed(why) => write!(f, "callgrind: {why}"),
        }
    }
}

impl std::error::Error for Uncounted {}

/// Runs this program with `arguments`, which must make it [`choose`] a section. Returns the
/// instructions of an operation of that section; `None` if the run has no such section.
///
/// # Errors
/// If valgrind is missing, or the run fails.
pub fn count(arguments: &[String]) -> Result<Option<f64>, Uncounted> {
    let (printed, report) = run(&["--callgrind-out-file=/dev/null"], arguments)?;
    let Some(operations) = operations(&printed) else { return Ok(None) };
    let collected = collected_in(&report);
    let collected = collected.ok_or_else(|| Uncounted::Failed("no count".to_owned()))?;
    Ok(Some(collected as f64 / operations.max(1) as f64))
}

/// Runs this program with `arguments` under callgrind with the options `how`. Returns the output of
/// both.
fn run(how: &[&str], arguments: &[String]) -> Result<(String, String), Uncounted> {
    let failed = |error: io::Error| Uncounted::Failed(error.to_string());
    let program = std::env::current_exe().map_err(failed)?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .args(how)
        .arg(format!("--toggle-collect={COLLECTED}"))
        .arg(program)
        .args(arguments)
        .env("GLIBC_TUNABLES", NO_STRING_INSTRUCTIONS)
        .stdin(Stdio::null())
        .output();
    let run = match run {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Uncounted::NoValgrind),
        run => run.map_err(failed)?,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, report) = (text(&run.stdout), text(&run.stderr));
    if run.status.success() { Ok((printed, report)) } else { Err(Uncounted::Failed(report)) }
}

/// The operations of the counted sections.
fn operations(printed: &str) -> Option<u64> {
    let counts = printed.lines().filter_map(|line| line.strip_prefix(MARK)?.parse::<u64>().ok());
    counts.reduce(|sum, count| sum + count)
}

/// The sum of callgrind's counts.
fn collected_in(report: &str) -> Option<u64> {
    let text = report.lines().find_map(|line| line.split_once("Collected :"))?.1;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_reports_is_read() {
        let report = "==1== \n==1== Events    : Ir\n==1== Collected : 13531443\n==1== \n";
        assert_eq!(collected_in(report), Some(13_531_443));
        assert_eq!(collected_in("==1== Collected nothing"), None);
        assert_eq!(operations("else\nsection 10\nsection 20\n"), Some(30));
        assert_eq!(operations("else\n"), None);
    }

    #[test]
    fn only_the_chosen_section_is_counted_but_all_are_run() {
        choose("one");
        assert_eq!(section("one", 1, || 7), 7);
        assert_eq!(section("other", 1, || 8), 8);
        choose("other");
        assert_eq!(CHOSEN.get().map(String::as_str), Some("one"));
    }
}
