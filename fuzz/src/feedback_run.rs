//! Runs libFuzzer over a target: builds it with counters, and shrinks a failing input. With
//! `--keep` it also stores inputs that reach new code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lightwait_fuzz::Target;

use crate::{Fuzz, corpus, root, tools};

/// The options that `cargo fuzz` passes as well: LLVM's pass that counts edges and watches
/// comparisons.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// Bytes of an input at most.
const INPUT_BYTES: usize = 2048;
/// Seconds that one input may take.
const INPUT_SECONDS: u32 = 20;

/// Fuzzes `target`, and prints how to replay a failure.
pub(crate) fn run(target: Target, fuzz: &Fuzz) -> Result<(), String> {
    let program = tools::build("feedback", "feedback", "fuzz", &FLAGS)?;
    let found = root().join("target/fuzz/found").join(target.name());
    let failing = root().join("target/fuzz/failing").join(target.name());
    for folder in [&found, &failing, &corpus(target)] {
        let _ = fs::create_dir_all(folder);
    }
    let _ = fs::remove_dir_all(&failing);
    fs::create_dir_all(&failing).map_err(|e| format!("{}: {e}", failing.display()))?;
    let status = libfuzzer(&program, target)
        .arg(format!("-max_len={INPUT_BYTES}"))
        .arg(format!("-max_total_time={}", fuzz.seconds))
        .arg(format!("-seed={}", fuzz.seed))
        .arg(format!("-artifact_prefix={}/", failing.display()))
        .args(["-print_final_stats=1", "-use_value_profile=1", "-reload=0", "-len_control=10"])
        .args([&found, &corpus(target)])
        .status()
        .map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(report(target, &failing));
    }
    if fuzz.keep {
        keep(&program, target, &found)?;
    }
    println!("{}: nothing found in {} s with seed {}", target.name(), fuzz.seconds, fuzz.seed);
    Ok(())
}

fn libfuzzer(program: &Path, target: Target) -> Command {
    let mut command = Command::new(program);
    command.env("LIGHTWAIT_FUZZ_TARGET", target.name()).arg(format!("-timeout={INPUT_SECONDS}"));
    command
}

/// Shrinks the failing input, and prints how to replay it.
fn report(target: Target, failing: &Path) -> String {
    let Some(input) = only_file(failing) else {
        return format!("{}: libFuzzer failed, and left no input", target.name());
    };
    // Another build, without libFuzzer, and with the checks that a release lacks.
    let shrunk = tools::build("lightwait-fuzz", "", "shrink", &[]).and_then(|program| {
        tools::run(Command::new(program).args(["shrink", target.name()]).arg(&input))
    });
    let shown = if shrunk.is_ok() { input.with_extension("small") } else { input };
    let bytes = fs::read(&shown).unwrap_or_default();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (name, path) = (target.name(), shown.strip_prefix(root()).unwrap_or(&shown).display());
    format!(
        "{name} fails on an input of {} bytes: {hex}\n\
         replay it: cargo run -p lightwait-fuzz -- replay --trace {name} {path}",
        bytes.len(),
    )
}

fn only_file(folder: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|path| path.is_file())
}

/// Replaces the stored corpus by the smallest inputs that reach as much as it and `found` together.
fn keep(program: &Path, target: Target, found: &Path) -> Result<(), String> {
    let stored = corpus(target);
    let merged = root().join("target/fuzz/merged").join(target.name());
    let _ = fs::remove_dir_all(&merged);
    fs::create_dir_all(&merged).map_err(|e| format!("{}: {e}", merged.display()))?;
    // By edges alone, not by how often each was taken: hundreds of inputs instead of thousands.
    let merge = ["-set_cover_merge=1", "-use_counters=0"];
    tools::run(libfuzzer(program, target).args(merge).args([&merged, &stored, &found.into()]))?;
    fs::remove_dir_all(&stored).map_err(|e| format!("{}: {e}", stored.display()))?;
    fs::create_dir_all(&stored).map_err(|e| format!("{}: {e}", stored.display()))?;
    let mut count = 0;
    for entry in fs::read_dir(&merged).map_err(|e| e.to_string())?.flatten() {
        fs::copy(entry.path(), stored.join(entry.file_name())).map_err(|e| e.to_string())?;
        count += 1;
    }
    let _ = fs::remove_dir_all(found);
    println!("{}: {count} inputs in the stored corpus", target.name());
    Ok(())
}
