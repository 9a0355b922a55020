//! Plays packet scripts against the packetdrill door, each as one test.
//!
//! The language and every rule of comparison are packetdrill's, so that what passes here passes
//! there; datagrams have words and rules of ours beside them, which the README lists. Each script
//! has a process of its own: a stack that aborts, or a call that never returns, ends that script
//! and no other.
//!
//! - `LIGHTWAIT_SCRIPTS=PATH` plays a script or a tree of them in place of `conformance/scripts`.
//!   Of the shell commands of such scripts, kernel settings become flags of the stack, `sockstat`
//!   asks the stack, and the others are left out.
//! - `LIGHTWAIT_SCRIPT_FLAGS=linux,…` are the flags of the stack, in place of the script's own
//!   `--so_flags`.
//! - `LIGHTWAIT_SCRIPT_IP=ipv4|ipv4-mapped-ipv6|ipv6` is the IP version, in place of the script's.
//!   Without it, a script of ours that has no `--ip_version` is played over IPv4 and over IPv6.
//! - `LIGHTWAIT_SCRIPT_DEFINES=NAME,…` are the names that `#ifdef` finds, in place of `STANDARD`.

#![allow(unreachable_pub, reason = "a program, whose modules are all its own")]

mod ast;
mod calls;
mod child;
mod config;
mod door;
mod lexer;
mod packet;
mod parse;
mod play;
mod preprocess;
mod python;
mod selftest;
mod shell;
mod sockstat;
mod symbols;
mod sysctl;
mod system;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if sockstat::is_called() {
        return sockstat::main(std::env::var_os(child::STATE).map(PathBuf::from));
    }
    if let Some(path) = std::env::var_os(child::SCRIPT) {
        return child::main(Path::new(&path));
    }
    let arguments = Arguments::from_args();
    let (root, is_own) = match std::env::var_os("LIGHTWAIT_SCRIPTS") {
        Some(root) => (PathBuf::from(root), false),
        None => (Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts"), true),
    };
    let mut paths = Vec::new();
    if let Err(error) = collect(&root, &mut paths) {
        eprintln!("{}: {error}", root.display());
        return ExitCode::FAILURE;
    }
    paths.sort();
    let mut trials: Vec<Trial> =
        paths.into_iter().flat_map(|path| script_trials(&root, path, is_own)).collect();
    if is_own {
        match selftest::trials() {
            Ok(more) => trials.extend(more),
            Err(error) => {
                eprintln!("the runner's own tests: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The script at `path`; one of ours that does not choose an IP version is played over both.
fn script_trials(root: &Path, path: PathBuf, is_own: bool) -> Vec<Trial> {
    let name = path.strip_prefix(root).unwrap_or(&path).with_extension("");
    let name = if name.as_os_str().is_empty() { path.clone() } else { name };
    let name = name.display().to_string();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let is_both = is_own
        && !text.lines().any(|line| line.starts_with("--ip_version"))
        && std::env::var_os(child::IP_VERSION).is_none();
    let mut trials = Vec::new();
    if is_both {
        let path = path.clone();
        let over_v6 = move || child::run(&path, is_own, Some("ipv6"));
        trials.push(Trial::test(format!("{name}@ipv6"), over_v6));
    }
    trials.push(Trial::test(name, move || child::run(&path, is_own, None)));
    trials
}

/// Every script at or below `path`.
fn collect(path: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_file() {
        paths.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let entry = entry?.path();
        if entry.is_dir() || entry.extension().is_some_and(|extension| extension == "pkt") {
            collect(&entry, paths)?;
        }
    }
    Ok(())
}
