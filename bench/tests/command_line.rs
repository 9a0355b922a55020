//! The help and the limits of the program's numbers.

use std::process::Command;

fn bench(arguments: &[&str]) -> [String; 2] {
    let mut program = Command::new(env!("CARGO_BIN_EXE_lightwait-bench"));
    let output = program.args(arguments).output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
}

/// The flags on a page of help that take a value, each with its description.
fn flags(help: &str) -> Vec<(&str, String)> {
    let mut flags: Vec<(&str, String)> = Vec::new();
    for line in help.lines() {
        let line = line.trim_start();
        let name = line.strip_prefix("--").and_then(|flag| flag.split_once(" <"));
        match (name, flags.last_mut()) {
            (Some((name, text)), _) => flags.push((name, text.to_owned())),
            (None, Some((_, text))) => *text += line,
            (None, None) => {}
        }
    }
    flags
}

#[test]
fn help_tells_the_range_that_each_number_is_held_to() {
    let mut held = 0;
    let mut names = vec!["connections", "pingpong", "bulk", "memory", "time-wait", "timers"];
    if cfg!(target_os = "linux") {
        names.push("shards");
    }
    for name in names {
        let [help, _] = bench(&[name, "--help"]);
        for (flag, text) in flags(&help) {
            // A number above every limit.
            let [_, refusal] = bench(&[name, &format!("--{flag}={}", i64::MAX)]);
            let Some((_, range)) = refusal.split_once(" is not in ") else { continue };
            let (least, most) = range.lines().next().unwrap().split_once("..=").unwrap();
            assert!(text.contains(&format!("{least} to {most}")), "{name} --{flag}: {text}");
            held += 1;
        }
    }
    assert_eq!(held, if cfg!(target_os = "linux") { 16 } else { 12 });
}
