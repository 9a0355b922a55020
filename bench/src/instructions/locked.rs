//! Counts locked instructions: atomic operations that write, which wait until this core owns the
//! cache line.
//!
//! Callgrind counts the executions of each address, and objdump shows the instruction there. Those
//! of libc are left out: its `free` merges chunks by atomic exchanges, and the layout of the heap
//! decides how often. The length of the program's path is enough to change that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::{Uncounted, operations, run};

/// Executions of the addresses of one file.
type Executions = BTreeMap<u64, u64>;

/// Locked instructions of an operation of a section; see [`count`](super::count).
///
/// # Errors
/// Those of [`count`](super::count); or objdump is missing, or fails.
pub fn count(arguments: &[String]) -> Result<Option<f64>, Uncounted> {
    let failed = |error: io::Error| Uncounted::Failed(error.to_string());
    let name = format!("lightwait-callgrind-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let out = format!("--callgrind-out-file={}", path.display());
    let how = ["--dump-instr=yes", "--compress-pos=no", "--compress-strings=no", &out];
    let ran = run(&how, arguments);
    let profile = fs::read_to_string(&path);
    // The file may never have been written.
    let _gone = fs::remove_file(&path);
    let ((printed, _), profile) = (ran?, profile.map_err(failed)?);
    let Some(operations) = operations(&printed) else { return Ok(None) };
    let program = std::env::current_exe().map_err(failed)?;
    let executions = executions_in(&profile).remove(&program);
    let unseen = || Uncounted::Failed(format!("callgrind saw nothing of {}", program.display()));
    let (executions, locked) = (executions.ok_or_else(unseen)?, locked_in(&disassembly(&program)?));
    let sum: u64 = executions.iter().filter(|it| locked.contains(it.0)).map(|it| it.1).sum();
    Ok(Some(sum as f64 / operations.max(1) as f64))
}

/// The executions in a profile of callgrind's, by file.
fn executions_in(profile: &str) -> BTreeMap<PathBuf, Executions> {
    let mut files: BTreeMap<PathBuf, Executions> = BTreeMap::new();
    let (mut file, mut is_inclusive) = (PathBuf::new(), false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            file = PathBuf::from(name);
        } else if line.starts_with("calls=") {
            // The next line has the cost of the called function.
            is_inclusive = true;
        } else if let Some(cost) = line.strip_prefix("0x") {
            let mut words = cost.split_whitespace();
            let address = words.next().and_then(|word| u64::from_str_radix(word, 16).ok());
            let times = words.nth(1).and_then(|word| word.parse::<u64>().ok());
            if let (Some(address), Some(times), false) = (address, times, is_inclusive) {
                *files.entry(file.clone()).or_default().entry(address).or_default() += times;
            }
            is_inclusive = false;
        }
    }
    files
}

/// objdump's output for `file`.
fn disassembly(file: &Path) -> Result<String, Uncounted> {
    let dump = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(file).output();
    let dump = dump.map_err(|error| Uncounted::Failed(format!("objdump: {error}")))?;
    if !dump.status.success() {
        let why = String::from_utf8_lossy(&dump.stderr).into_owned();
        return Err(Uncounted::Failed(format!("objdump: {why}")));
    }
    Ok(String::from_utf8_lossy(&dump.stdout).into_owned())
}

/// Addresses of locked instructions: those with a lock prefix, and exchanges with memory, which
/// need none.
fn locked_in(disassembly: &str) -> BTreeSet<u64> {
    let lines = disassembly.lines().filter_map(|line| line.trim_start().split_once(":\t"));
    lines
        .filter(|(_, text)| {
            text.starts_with("lock ") || (text.starts_with("xchg ") && text.contains('('))
        })
        .filter_map(|(address, _)| u64::from_str_radix(address, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_what_itself_cost_and_not_what_it_called() {
        let profile = "ob=/bin/a\nfn=f\n0x10 0 5\ncob=/bin/b\ncfn=g\ncalls=5 0x20 0\n0x14 0 900\n\
                       0x18 0 7\n0x10 0 2\n\nob=/bin/b\nfn=g\n0x10 0 3\n";
        let executions = executions_in(profile);
        assert_eq!(executions[Path::new("/bin/a")], BTreeMap::from([(0x10, 7), (0x18, 7)]));
        assert_eq!(executions[Path::new("/bin/b")], BTreeMap::from([(0x10, 3)]));
    }

    #[test]
    fn what_is_locked_is_told_from_what_is_not() {
        let text = "  10:\tlock decq (%rax)\n  14:\txchg   %eax,(%rdi)\n  16:\txchg   %ax,%ax\n\
                    1a9:\tlock cmpxchg %rcx,(%rdx)\n 1b0:\tmov    %rax,(%rdx)\n0000 <block>:\n";
        assert_eq!(locked_in(text), BTreeSet::from([0x10, 0x14, 0x1a9]));
    }
}
