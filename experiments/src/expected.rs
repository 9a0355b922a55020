//! The known results of experiments, in `expected/<id>.json`: a result that differs fails.
//!
//! Experiments in virtual time find the same on every machine, and are compared exactly. For
//! experiments that count a build's instructions, numbers may differ by a tolerance. `--bless WHY`
//! writes changed results, and keeps the reason and the old values beside them (`blessed`).
//! BENCHMARKS.md and `bench/notes` then need the same change, which `xtask figures` checks.

use std::fs;
use std::path::{Path, PathBuf};

use lightwait_bench::blessing::Blessings;
use serde_json::Value;

use crate::plan::Failure;

/// The allowed difference between a result and the known one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Known {
    /// None.
    Exactly,
    /// A number may differ by this part of itself.
    Within(f64),
    /// The result depends on times: nothing is known.
    Nothing,
}

/// The most differences that are reported.
const TOLD: usize = 12;

/// The most characters of a value in a reported difference.
const TOLD_CHARACTERS: usize = 60;

fn path(id: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(format!("{id}.json"))
}

impl Known {
    /// Compares the results `found`, or writes them if they are to be blessed, for that reason.
    /// Returns the differences, a line each.
    pub(crate) fn compare(
        self,
        id: &str,
        found: &Value,
        bless: Option<&str>,
    ) -> Result<Vec<String>, Failure> {
        let mut found = found.clone();
        let tolerance = match self {
            Known::Nothing => return Ok(Vec::new()),
            Known::Exactly => 0.0,
            Known::Within(part) => {
                // The text of claims contains numbers that are not compared.
                found.as_object_mut().and_then(|object| object.remove("claims"));
                part
            }
        };
        let path = path(id);
        // Both go through text, so that their numbers have the same type.
        let found: Value = serde_json::from_str(&found.to_string())?;
        let known = match fs::read_to_string(&path) {
            Ok(known) => serde_json::from_str(&known)?,
            Err(_) if bless.is_some() => Value::Null,
            Err(error) => {
                return Err(format!("{}: {error}; `--bless WHY` writes it", path.display()).into());
            }
        };
        let (reasons, lines) = compared(known, &found, tolerance)?;
        let Some(why) = bless else { return Ok(lines) };
        // By another tolerance than none, what has hardly changed would change with each blessing.
        if !lines.is_empty() {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            let mut file = found;
            reasons.put_into(&mut file, why, &lines);
            fs::write(&path, serde_json::to_string_pretty(&file)? + "\n")?;
        }
        Ok(Vec::new())
    }
}

/// The reasons of the known results, and a line for each difference.
fn compared(
    mut known: Value,
    found: &Value,
    tolerance: f64,
) -> Result<(Blessings, Vec<String>), Failure> {
    let reasons = Blessings::take_from(&mut known)?;
    let mut lines = Vec::new();
    differences("", &known, found, tolerance, &mut lines);
    let more = lines.len().saturating_sub(TOLD);
    lines.truncate(TOLD);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    Ok((reasons, lines))
}

/// A value, cut short if it is long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(TOLD_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Adds a line for each place where two values differ.
fn differences(at: &str, known: &Value, found: &Value, tolerance: f64, lines: &mut Vec<String>) {
    match (known, found) {
        (Value::Object(known), Value::Object(found)) => {
            for key in known.keys().chain(found.keys().filter(|key| !known.contains_key(*key))) {
                let of = |object: &serde_json::Map<String, Value>| {
                    object.get(key).cloned().unwrap_or_default()
                };
                differences(&format!("{at}/{key}"), &of(known), &of(found), tolerance, lines);
            }
        }
        (Value::Array(known), Value::Array(found)) if known.len() == found.len() => {
            for (place, (known, found)) in known.iter().zip(found).enumerate() {
                differences(&format!("{at}/{place}"), known, found, tolerance, lines);
            }
        }
        _ if is_close(known, found, tolerance) => {}
        _ => lines.push(format!("{at}: {} instead of {}", short(found), short(known))),
    }
}

/// True if equal, or if two numbers differ by at most that part of the first.
fn is_close(known: &Value, found: &Value, tolerance: f64) -> bool {
    match (known.as_f64(), found.as_f64()) {
        (Some(known), Some(found)) => (found - known).abs() <= tolerance * known.abs(),
        _ => known == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(known: &Value, found: &Value, tolerance: f64) -> Vec<String> {
        let mut lines = Vec::new();
        differences("", known, found, tolerance, &mut lines);
        lines
    }

    #[test]
    fn what_differs_is_told_with_its_place() {
        let known = json!({ "rows": [{ "ms": 406.0, "name": "fine" }], "gone": 1 });
        assert_eq!(lines(&known, &known, 0.0), [""; 0]);
        let found = json!({ "rows": [{ "ms": 399.5, "name": "fine" }], "new": true });
        let told = ["/gone: null instead of 1", "/rows/0/ms: 399.5 instead of 406.0"];
        assert_eq!(
            lines(&known, &found, 0.0),
            [&told[..], &["/new: true instead of null"]].concat()
        );
        let found = json!({ "rows": [], "gone": 1 });
        assert_eq!(lines(&known, &found, 0.5).len(), 1, "a row that is missing");
    }

    #[test]
    fn a_blessing_keeps_its_reason_and_the_old_values() {
        let (old, new) = (json!({ "ms": 1.0, "long": "x".repeat(99) }), json!({ "ms": 2.0 }));
        let bless = |known: Value, found: &Value, why: &str| {
            let (reasons, lines) = compared(known, found, 0.0).unwrap();
            let mut file = found.clone();
            reasons.put_into(&mut file, why, &lines);
            file
        };
        let first = bless(Value::Null, &old, "new");
        let second = bless(first, &new, "the clock was wrong");
        assert_eq!(
            compared(second.clone(), &new, 0.0).unwrap().1,
            [""; 0],
            "reasons are no results"
        );
        let reasons = second["blessed"].as_array().unwrap();
        assert_eq!((&reasons[0]["why"], reasons.len()), (&json!("new"), 2));
        assert_eq!(reasons[1]["why"], "the clock was wrong");
        let changes = reasons[1]["changes"].as_array().unwrap();
        assert_eq!(changes[1], "/ms: 2.0 instead of 1.0");
        assert!(changes[0].as_str().unwrap().ends_with("xx…"), "{changes:?}");
        let many = |from: u32| (0..20).map(|place| from + place).collect::<Value>();
        let lines = compared(many(0), &many(1), 0.0).unwrap().1;
        assert_eq!((lines.len(), &*lines[TOLD]), (TOLD + 1, "and 8 more"));
    }

    #[test]
    fn numbers_alone_may_differ_by_the_tolerance() {
        let known = json!({ "bytes": 100.0, "name": "a" });
        assert_eq!(lines(&known, &json!({ "bytes": 101.0, "name": "a" }), 0.01), [""; 0]);
        assert_eq!(lines(&known, &json!({ "bytes": 98.0, "name": "b" }), 0.01).len(), 2);
    }
}
