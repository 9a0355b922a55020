//! Golden counts of instructions: a file beside the code has those of a connection, a request, a
//! megabyte, an ACK in a recovery and a TIME-WAIT record. A change that costs more than the slack
//! fails. A change that saves instructions updates the file, so that a later loss is noticed.
//!
//! Counts depend on the compiler, and a little on the processor's features that the C library
//! finds. The file is for the toolchain and the kind of machine that CI uses.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::blessing::Blessings;
use crate::instructions::Uncounted;
use crate::stacks::{Variant, Which};
use crate::{bulk, connections, pingpong, sack, time_wait};

/// The largest deviation from a kept count, as a part of it.
const SLACK: f64 = 0.02;

/// Other connections in TIME-WAIT, or idle: enough to include all work that depends on their
/// number.
const OTHERS: usize = 100_000;

/// Records of the table whose operations are counted.
const RECORDS: usize = 20_000;
const OF_THE_TABLE: [&str; 5] = ["enter", "find", "find_alone", "miss", "expire"];

/// Counts by name.
pub type Counts = BTreeMap<String, f64>;

/// The file of the kept counts.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden.json")
}

/// Counts all of them.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn count() -> Result<Counts, Uncounted> {
    let mut counts = Counts::new();
    for (stack, at_once) in
        [(Which::Lightwait, 1), (Which::Lightwait, 16), (Which::LightwaitSockets, 16)]
    {
        let plan = connections::Plan { count: 2000, at_once, ..connections::Plan::default() };
        let name = format!("{}: connection, {at_once} at a time", stack.name());
        put(&mut counts, name, connections::count(stack, &plan)?);
    }
    let plan = connections::Plan { count: 2000, at_once: 16, ..connections::Plan::default() };
    for (plan, others) in [
        (connections::Plan { time_wait: OTHERS, ..plan }, "in TIME-WAIT"),
        (connections::Plan { idle: OTHERS, ..plan }, "idle"),
    ] {
        let stack = Which::Lightwait;
        let name = format!("{}: connection, among {OTHERS} {others}", stack.name());
        put(&mut counts, name, connections::count(stack, &plan)?);
    }
    for connections in [1, 100] {
        let (stack, variant) = (Which::Lightwait, Variant::Default);
        let plan = pingpong::Plan { connections, requests: 2000, variant };
        let name = format!("{}: request, of {connections} connections", stack.name());
        put(&mut counts, name, pingpong::count(stack, &plan)?);
    }
    for stack in [Which::LightwaitSockets, Which::LightwaitSend] {
        let plan = pingpong::Plan { connections: 16, requests: 2000, variant: Variant::Default };
        let name = format!("{}: request, of 16 connections", stack.name());
        put(&mut counts, name, pingpong::count(stack, &plan)?);
    }
    for mtu in [1500, 9000] {
        let stack = Which::Lightwait;
        let plan = bulk::Plan { mtu, bytes: 10_000_000, checksum: true, cut: true };
        let name = format!("{}: megabyte, MTU {mtu}", stack.name());
        put(&mut counts, name, bulk::count(stack, &plan)?);
    }
    let name = format!("{}: {}", Which::Lightwait.name(), sack::WHAT);
    put(&mut counts, name, sack::count()?);
    count_locked(&mut counts)?;
    let table = time_wait::in_instructions(RECORDS)?;
    for (name, what) in time_wait::OPERATIONS {
        if OF_THE_TABLE.contains(&name) {
            put(&mut counts, format!("TIME-WAIT: {what}"), table.value(name));
        }
    }
    Ok(counts)
}

/// Counts atomic operations on the data path: with our checksums, with the device's checksums, and
/// with segments that the device cuts as well. (The last case has some, which shows that the count
/// finds them.)
fn count_locked(counts: &mut Counts) -> Result<(), Uncounted> {
    for (checksum, cut, whose) in [
        (true, true, "checksums ours"),
        (false, true, "checksums the device's"),
        (false, false, "cut by the device"),
    ] {
        let stack = Which::Lightwait;
        let plan = bulk::Plan { mtu: 1500, bytes: 10_000_000, checksum, cut };
        let name = format!("{}: locked instructions of a megabyte, {whose}", stack.name());
        put(counts, name, bulk::count_locked(stack, &plan)?);
    }
    for stack in [Which::Lightwait, Which::LightwaitSockets] {
        let plan = pingpong::Plan { connections: 1, requests: 2000, variant: Variant::Default };
        let name = format!("{}: locked instructions of a request", stack.name());
        put(counts, name, pingpong::count_locked(stack, &plan)?);
    }
    Ok(())
}

fn put(counts: &mut Counts, name: String, count: Option<f64>) {
    if let Some(count) = count {
        counts.insert(name, count.round());
    }
}

/// The deviations beyond the slack, a line each.
pub fn differences(kept: &Counts, counted: &Counts) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, count) in counted {
        match kept.get(name) {
            None => lines.push(format!("{name}: {count:.0}, not kept")),
            Some(kept) if (count - kept).abs() > kept * SLACK => {
                let percent = (count / kept - 1.0) * 100.0;
                lines.push(format!("{name}: {count:.0}, kept {kept:.0} ({percent:+.1} %)"));
            }
            Some(_) => {}
        }
    }
    let gone = kept.keys().filter(|name| !counted.contains_key(*name));
    lines.extend(gone.map(|name| format!("{name}: kept, but not counted")));
    lines
}

/// Reads the kept counts.
///
/// # Errors
/// If the file cannot be read or parsed.
pub fn kept() -> io::Result<Counts> {
    let (counts, _) = parse(&std::fs::read_to_string(path())?)?;
    Ok(counts)
}

/// Writes the counts to the file, and beside them what has changed and why.
///
/// # Errors
/// If the file cannot be read or written.
pub fn keep(counts: &Counts, why: &str) -> io::Result<()> {
    let kept = match std::fs::read_to_string(path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "{}".to_owned(),
        kept => kept?,
    };
    std::fs::write(path(), blessed(&kept, counts, why)?)
}

/// The counts of the file's text, and the reasons for them.
fn parse(text: &str) -> io::Result<(Counts, Blessings)> {
    let mut file: Value = serde_json::from_str(text)?;
    let reasons = Blessings::take_from(&mut file)?;
    Ok((serde_json::from_value(file)?, reasons))
}

/// The file's text with these counts, and this reason after those of before.
fn blessed(kept: &str, counts: &Counts, why: &str) -> io::Result<String> {
    let (before, reasons) = parse(kept)?;
    let change = |(name, count): (&String, &f64)| match before.get(name) {
        Some(kept) if kept == count => None,
        Some(kept) => Some(format!("{name}: {count} instead of {kept}")),
        None => Some(format!("{name}: {count}, not kept before")),
    };
    let changes: Vec<String> = counts.iter().filter_map(change).collect();
    let mut file = json!(counts);
    reasons.put_into(&mut file, why, &changes);
    Ok(format!("{file:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blessing_keeps_its_reason_and_the_old_counts() {
        let old = json!(counts(&[("a", 1.0), ("b", 2.0)])).to_string();
        let new = counts(&[("a", 1.0), ("b", 3.0), ("c", 4.0)]);
        let file = blessed(&old, &new, "more is done").unwrap();
        let file = blessed(&file, &new, "nothing new").unwrap();
        let (read, _) = parse(&file).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let reasons = file["blessed"].as_array().unwrap();
        assert_eq!((read, reasons.len()), (new, 2));
        assert_eq!(reasons[0]["why"], "more is done");
        let changes = ["b: 3 instead of 2", "c: 4, not kept before"];
        assert_eq!(reasons[0]["changes"], json!(changes));
    }

    fn counts(values: &[(&str, f64)]) -> Counts {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn two_percent_pass_and_more_does_not_either_way() {
        let kept = counts(&[("one", 1000.0)]);
        for fine in [980.0, 1000.0, 1020.0] {
            assert_eq!(differences(&kept, &counts(&[("one", fine)])), Vec::<String>::new());
        }
        for beyond in [979.0, 1021.0] {
            assert_eq!(differences(&kept, &counts(&[("one", beyond)])).len(), 1, "{beyond}");
        }
    }

    #[test]
    fn what_is_new_or_gone_is_told() {
        let (kept, counted) = (counts(&[("old", 1.0)]), counts(&[("new", 1.0)]));
        let lines = differences(&kept, &counted);
        assert_eq!(lines, ["new: 1, not kept", "old: kept, but not counted"]);
    }
}
