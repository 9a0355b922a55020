//! The known results of experiments, in `expected/<id>.json`: a result that differs fails.
//!
//! Experiments in virtual time find the same on every machine, and are compared exactly. For
//! experiments that count a build's instructions, numbers may differ by a tolerance. `--bless`
//! writes changed results. BENCHMARKS.md and `bench/notes` then need the same change, which a test
//! checks.

use std::fs;
use std::path::{Path, PathBuf};

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

fn path(id: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(format!("{id}.json"))
}

impl Known {
    /// Compares the results `found`, or writes them if they are to be blessed. Returns the
    /// differences, a line each.
    pub(crate) fn compare(
        self,
        id: &str,
        found: &Value,
        bless: bool,
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
        let (path, text) = (path(id), serde_json::to_string_pretty(&found)? + "\n");
        if bless {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            fs::write(&path, text)?;
            return Ok(Vec::new());
        }
        let known = fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}; `--bless` writes it", path.display()))?;
        let mut lines = Vec::new();
        // Both go through text, so that their numbers have the same type.
        let (known, found) = (serde_json::from_str(&known)?, serde_json::from_str(&text)?);
        differences("", &known, &found, tolerance, &mut lines);
        lines.truncate(TOLD);
        Ok(lines)
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
        _ => lines.push(format!("{at}: {found} instead of {known}")),
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
    fn numbers_alone_may_differ_by_the_tolerance() {
        let known = json!({ "bytes": 100.0, "name": "a" });
        assert_eq!(lines(&known, &json!({ "bytes": 101.0, "name": "a" }), 0.01), [""; 0]);
        assert_eq!(lines(&known, &json!({ "bytes": 98.0, "name": "b" }), 0.01).len(), 2);
    }
}
