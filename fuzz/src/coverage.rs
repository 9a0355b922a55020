//! Counts which lines of `lightwait-core` the stored corpora reach. rustc's own instrumentation
//! (`-C instrument-coverage`) counts, and the LLVM tools of the same version read the counts.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use lightwait_fuzz::Target;

use crate::{root, tools};

/// The crate whose lines are counted.
const COUNTED: &str = "crates/core/src/";

/// For each file, how often each of its lines with code was reached.
type Files = BTreeMap<String, BTreeMap<u32, u64>>;

/// Replays both corpora, prints a table, and fails below `least` percent.
pub(crate) fn print(least: f64, missing: bool) -> Result<(), String> {
    let program = tools::build("lightwait-fuzz", "", "coverage", &["-Cinstrument-coverage"])?;
    let folder = root().join("target/coverage");
    let mut profiles = Vec::new();
    for target in Target::ALL {
        let profile = folder.join(format!("{}.profraw", target.name()));
        let _ = fs::remove_file(&profile);
        tools::run(
            Command::new(&program)
                .args(["replay", target.name()])
                .env("LLVM_PROFILE_FILE", &profile),
        )?;
        profiles.push(profile);
    }
    let merged = folder.join("both.profdata");
    tools::run(
        Command::new(tools::llvm("llvm-profdata")?)
            .args(["merge", "--sparse", "-o"])
            .arg(&merged)
            .args(&profiles),
    )?;
    let lcov = tools::run(
        Command::new(tools::llvm("llvm-cov")?)
            .args(["export", "--format=lcov", "--instr-profile"])
            .arg(&merged)
            .arg(&program),
    )?;
    let files = lines(&String::from_utf8_lossy(&lcov));
    let percent = table(&files, missing)?;
    if percent < least {
        return Err(format!("{percent:.1} % is below the {least} % that are asked for"));
    }
    Ok(())
}

/// Reads lcov's format: `SF:` begins a file, `DA:` is a line's number and count.
fn lines(lcov: &str) -> Files {
    let mut files = Files::new();
    let mut name = None;
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            name = path.split_once(COUNTED).map(|(_, rest)| rest.to_owned());
        }
        let count = line.strip_prefix("DA:").and_then(|data| data.split_once(','));
        if let (Some((line, count)), Some(name)) = (count, &name)
            && let (Ok(line), Ok(count)) = (line.parse(), count.parse::<u64>())
        {
            *files.entry(name.clone()).or_default().entry(line).or_default() += count;
        }
    }
    files
}

fn table(files: &Files, missing: bool) -> Result<f64, String> {
    let (mut all_reached, mut all) = (0, 0);
    println!("reached  of  lines of {COUNTED}");
    for (name, lines) in files {
        let reached = lines.values().filter(|count| **count > 0).count();
        println!("{reached:>7} {:>4}  {name}", lines.len());
        if missing {
            let missed = lines.iter().filter(|(_, count)| **count == 0).map(|(line, _)| *line);
            println!("              not reached: {:?}", missed.collect::<Vec<_>>());
        }
        all_reached += reached;
        all += lines.len();
    }
    if all == 0 {
        return Err("nothing was counted".to_owned());
    }
    let percent = 100.0 * all_reached as f64 / all as f64;
    println!("line coverage by the stored corpora: {percent:.1} % ({all_reached} of {all})");
    Ok(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_the_core_are_counted_and_instances_add_up() {
        let files = lines(
            "SF:/x/crates/core/src/a.rs\nFN:1,f\nDA:1,2\nDA:2,0\nend_of_record\n\
             SF:/x/crates/http/src/b.rs\nDA:1,1\nend_of_record\n\
             SF:/x/crates/core/src/a.rs\nDA:2,3\nDA:4,0\n",
        );
        let expected = BTreeMap::from([(1, 2), (2, 3), (4, 0)]);
        assert_eq!(files, Files::from([("a.rs".to_owned(), expected)]));
        let percent = table(&files, true).unwrap();
        assert!((66.6..66.7).contains(&percent));
        assert!(table(&Files::new(), false).is_err());
    }
}
