//! Plays one script in a process of its own.

use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

use crate::config::{Config, IpMode};
use crate::door::Door;
use crate::parse::parse;
use crate::play::play;
use crate::preprocess::preprocess;
use crate::shell::Shell;

/// Names the script that this process is to play.
pub(crate) const SCRIPT: &str = "LIGHTWAIT_SCRIPT";
/// Set when the script is one of ours, whose shell commands are run.
const TRUSTED: &str = "LIGHTWAIT_SCRIPT_TRUSTED";
const DEFINES: &str = "LIGHTWAIT_SCRIPT_DEFINES";
const FLAGS: &str = "LIGHTWAIT_SCRIPT_FLAGS";
pub(crate) const IP_VERSION: &str = "LIGHTWAIT_SCRIPT_IP";
/// Where the stack answers what state its sockets are in.
pub(crate) const STATE: &str = "LIGHTWAIT_STATE";

/// How long a script may take, of the machine's time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Play the script at `path` in a new process, over `ip` if given; its last words are the failure.
pub(crate) fn run(path: &Path, is_own: bool, ip: Option<&str>) -> Result<(), Failed> {
    let scratch = tempfile::tempdir()?;
    let mut words = tempfile::tempfile()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env(SCRIPT, path)
        .env(STATE, scratch.path().join("state"))
        .stdin(Stdio::null())
        .stdout(words.try_clone()?)
        .stderr(words.try_clone()?);
    if let Some(ip) = ip {
        command.env(IP_VERSION, ip);
    }
    if is_own {
        command.env(TRUSTED, "1");
    } else {
        crate::sockstat::install(scratch.path())?;
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", scratch.path().display()));
    }
    let mut child = command.spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let mut text = String::new();
    words.rewind()?;
    words.read_to_string(&mut text)?;
    match status {
        Some(status) if text.trim().is_empty() => Err(format!("ended with {status}").into()),
        Some(status) if status.code() == Some(1) => Err(text.into()),
        Some(status) => Err(format!("{text}\nended with {status}").into()),
        None => {
            let seconds = PATIENCE.as_secs();
            Err(format!("{text}\n{}: still running after {seconds} s", path.display()).into())
        }
    }
}

/// The work of the new process.
pub(crate) fn main(path: &Path) -> ExitCode {
    match play_file(path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(1)
        }
    }
}

fn play_file(path: &Path) -> Result<(), String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let defined = std::env::var(DEFINES).unwrap_or_else(|_| "STANDARD".to_owned());
    let text = preprocess(&text, &defined.split(',').collect::<Vec<_>>());
    let parsed = |defines: &[(String, String)]| {
        parse(&text, defines)
            .map_err(|fault| format!("{name}:{}: parse error: {}", fault.line, fault.what))
    };
    // A script's options decide the meaning of its words.
    let mut options = parsed(&[])?.options;
    for (variable, option) in [(FLAGS, "so_flags"), (IP_VERSION, "ip_version")] {
        if let Ok(value) = std::env::var(variable) {
            options.push((option.to_owned(), Some(value)));
        }
    }
    let mut config =
        Config::new(&options, std::process::id()).map_err(|error| format!("{name}: {error}"))?;
    let script = parsed(&config.defines())?;
    let is_trusted = std::env::var_os(TRUSTED).is_some();
    (config.exact_echoes, config.is_own) = (is_trusted, is_trusted);
    let directory: std::path::PathBuf = path.parent().map_or_else(Default::default, Path::to_owned);
    let shell = Shell { directory, is_trusted };
    if config.mode == IpMode::V6 && std::env::var_os(IP_VERSION).is_some() {
        // The MSS is then the one that scripts for IPv4 expect.
        config.add_flags(&["mtu=1520".to_owned()]);
    }
    if !is_trusted {
        config.add_flags(&crate::sysctl::flags(&script));
    }
    let init = lightwait_conformance::abi::packetdrill_interface_init;
    let door = Door::open(init, config.flags.as_deref())?;
    play(&script, &name, config, door, &shell)
}
