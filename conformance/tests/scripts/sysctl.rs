//! Translates the kernel settings of other projects' scripts into flags of the stack.
//!
//! A script sets them by shell commands before its first call. The stack behind the interface has
//! no kernel, and gets its configuration when it is opened. So the runner reads the commands first
//! and translates them.

use crate::ast::{Action, Script};

/// A setting, and the meaning of each value that is not the default.
const SETTINGS: &[(&str, &[(&str, &str)])] = &[
    ("tcp_timestamps", &[("0", "timestamps=off")]),
    ("tcp_sack", &[("0", "sack=off")]),
    ("tcp_window_scaling", &[("0", "window_scaling=off")]),
    (
        "rfc1323",
        &[
            ("0", "timestamps=off,window_scaling=off"),
            ("2", "timestamps=off"),
            ("3", "window_scaling=off"),
        ],
    ),
    ("sack.enable", &[("0", "sack=off")]),
    ("tcp_ecn", &[("0", "ecn=off"), ("1", "ecn=active"), ("2", "ecn=passive")]),
    ("ecn.enable", &[("0", "ecn=off"), ("1", "ecn=active"), ("2", "ecn=passive")]),
    ("insecure_rst", &[("1", "quirks.insecure_rst=on")]),
    ("insecure_syn", &[("1", "quirks.insecure_syn=on")]),
];

/// Settings whose value is a time in milliseconds.
const TIMES: &[(&str, &str)] =
    &[("rexmit_initial", "rto.initial"), ("delacktime", "ack.timer"), ("rexmit_min", "rto.floor")];

/// Settings that `readme` has no row for, as it should have: name, value, flags.
pub(crate) fn missing_from(readme: &str) -> Vec<String> {
    let named = SETTINGS.iter().flat_map(|(name, values)| {
        values.iter().map(move |(value, flags)| (*name, *value, (*flags).to_owned()))
    });
    let timed = TIMES.iter().map(|(name, knob)| (*name, "ms", format!("{knob}=…ms")));
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with('|')).collect();
    named
        .chain(timed)
        .map(|(name, value, flags)| {
            [format!("`{name}`"), format!("| {value} |"), format!("`{flags}`")]
        })
        .filter(|row| !rows.iter().any(|line| row.iter().all(|cell| line.contains(cell.as_str()))))
        .map(|row| row.join(" "))
        .collect()
}

/// The meanings of the commands before the first call, in order.
pub(crate) fn flags(script: &Script) -> Vec<String> {
    let before = script.events.iter().map_while(|event| match &event.action {
        Action::Command(command) => Some(command),
        _ => None,
    });
    script.init.iter().chain(before).flat_map(|command| command_flags(command)).collect()
}

fn command_flags(command: &str) -> Vec<String> {
    let words = command.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter_map(|(name, value)| flag(name, value.trim_matches('"'))).collect()
}

/// The flag of one assignment to a name like `net.inet.tcp.sack.enable` or `/proc/…/tcp_sack`.
fn flag(name: &str, value: &str) -> Option<String> {
    let is =
        |setting: &str| name.strip_suffix(setting).is_some_and(|rest| rest.ends_with(['.', '/']));
    if let Some((_, values)) = SETTINGS.iter().find(|(setting, _)| is(setting)) {
        let (_, flag) = values.iter().find(|(number, _)| *number == value)?;
        return Some((*flag).to_owned());
    }
    let (_, knob) = TIMES.iter().find(|(setting, _)| is(setting))?;
    let milliseconds: u32 = value.parse().ok()?;
    Some(format!("{knob}={milliseconds}ms"))
}
