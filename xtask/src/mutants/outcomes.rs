//! What cargo-mutants found: its `outcomes.json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// A change of the code. It is named so that it keeps its name when lines move.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mutant {
    /// The file, from the repository's root.
    pub(super) file: String,
    /// The function with its type, as cargo-mutants writes it; `-` outside of any.
    pub(super) function: String,
    /// The change, as cargo-mutants writes it.
    pub(super) mutation: String,
    /// The code from the change to the end of its line; empty if the whole function is replaced.
    pub(super) at: String,
}

impl Mutant {
    #[cfg(test)]
    pub(super) fn new(file: &str, function: &str, mutation: &str, at: &str) -> Mutant {
        let [file, function, mutation, at] = [file, function, mutation, at].map(str::to_owned);
        Mutant { file, function, mutation, at }
    }
}

/// The fate of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A test failed.
    Killed,
    /// The tests did not end in time, which is as good.
    TimedOut,
    /// All tests passed.
    Missed,
    /// It does not compile, so that it says nothing.
    Unviable,
}

/// A mutant that was tried.
#[derive(Debug)]
pub(super) struct Tested {
    /// The mutant.
    pub(super) mutant: Mutant,
    /// The line of its file, from 1.
    pub(super) line: usize,
    /// Its fate.
    pub(super) fate: Fate,
}

/// Reads `outcomes.json`. `code` returns a file.
pub(super) fn parse(
    text: &str,
    code: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Tested>, String> {
    let all: Value = serde_json::from_str(text).map_err(|e| format!("outcomes.json: {e}"))?;
    let outcomes = all["outcomes"].as_array().ok_or("outcomes.json: no list of outcomes")?;
    let mut files = BTreeMap::new();
    let mut tested = Vec::new();
    // The first is the code without a change.
    for outcome in outcomes.iter().filter(|outcome| outcome["scenario"]["Mutant"].is_object()) {
        let mutant = &outcome["scenario"]["Mutant"];
        let name = mutant["name"].as_str().ok_or("outcomes.json: a mutant without a name")?;
        let wrong = || format!("outcomes.json: cannot read {name}");
        let fate = match outcome["summary"].as_str().ok_or_else(wrong)? {
            "CaughtMutant" => Fate::Killed,
            "Timeout" => Fate::TimedOut,
            "MissedMutant" => Fate::Missed,
            "Unviable" => Fate::Unviable,
            other => return Err(format!("{name}: {other}")),
        };
        let file = mutant["file"].as_str().ok_or_else(wrong)?;
        let text = files.entry(file.to_owned()).or_insert_with(|| code(file).unwrap_or_default());
        let place = |key: &str| {
            mutant["span"]["start"][key].as_u64().and_then(|n| (n as usize).checked_sub(1))
        };
        let (line, column) = (place("line").ok_or_else(wrong)?, place("column").ok_or_else(wrong)?);
        let at = match mutant["genre"].as_str().ok_or_else(wrong)? {
            "FnValue" => String::new(),
            _ => rest_of_line(text, line, column),
        };
        let function = mutant["function"]["function_name"].as_str().unwrap_or("-");
        let mutation = mutation(name, function).to_owned();
        let mutant = Mutant { file: file.to_owned(), function: function.to_owned(), mutation, at };
        tested.push(Tested { mutant, line: line + 1, fate });
    }
    Ok(tested)
}

/// The change in a name: `file:line:column: CHANGE in function`.
fn mutation<'a>(name: &'a str, function: &str) -> &'a str {
    let change = name.split_once(": ").map_or(name, |(_, change)| change);
    change.strip_suffix(&format!(" in {function}")).unwrap_or(change)
}

/// What stands in a line from a column on; both count from 0.
fn rest_of_line(text: &str, line: usize, column: usize) -> String {
    let line = text.lines().nth(line).unwrap_or_default();
    line.chars().skip(column).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outcome as version 27 writes it, without what is not read.
    fn outcome(genre: &str, change: &str, summary: &str) -> String {
        let function = match genre {
            "Const" => "null".to_owned(),
            _ => r#"{"function_name": "Los::hiwat", "return_type": "-> u32"}"#.to_owned(),
        };
        format!(
            r#"{{"scenario": {{"Mutant": {{"name": "src/los.rs:2:10: {change}", "file":
            "src/los.rs", "function": {function}, "span": {{"start": {{"line": 2, "column": 10}},
            "end": {{"line": 2, "column": 11}}}}, "genre": "{genre}"}}}}, "summary": "{summary}"}}"#
        )
    }

    fn parsed(outcomes: &[String]) -> Result<Vec<Tested>, String> {
        let baseline = r#"{"scenario": "Baseline", "summary": "Success"}"#.to_owned();
        let all = [&[baseline], outcomes].concat().join(", ");
        let code = |file: &str| {
            (file == "src/los.rs").then(|| "fn hiwat() {\n    if a < b && c < d {\n".to_owned())
        };
        parse(&format!(r#"{{"outcomes": [{all}], "missed": 1}}"#), code)
    }

    #[test]
    fn a_mutant_is_named_without_its_line() {
        let operator = outcome("BinaryOperator", "replace < with <= in Los::hiwat", "MissedMutant");
        let value = outcome("FnValue", "replace Los::hiwat -> u32 with 0", "CaughtMutant");
        let outside = outcome("Const", "replace < with >", "Unviable");
        let tested = parsed(&[operator, value, outside]).unwrap();
        let mutants: Vec<_> = tested.iter().map(|tested| tested.mutant.clone()).collect();
        let file = "src/los.rs";
        let operator = Mutant::new(file, "Los::hiwat", "replace < with <=", "< b && c < d {");
        let value = Mutant::new(file, "Los::hiwat", "replace Los::hiwat -> u32 with 0", "");
        let outside = Mutant::new(file, "-", "replace < with >", "< b && c < d {");
        assert_eq!(mutants, [operator, value, outside]);
        assert_eq!(tested[0].line, 2);
    }

    #[test]
    fn each_fate_is_known() {
        let fate = |summary| parsed(&[outcome("FnValue", "x", summary)]).map(|all| all[0].fate);
        assert_eq!(fate("CaughtMutant"), Ok(Fate::Killed));
        assert_eq!(fate("Timeout"), Ok(Fate::TimedOut));
        assert_eq!(fate("MissedMutant"), Ok(Fate::Missed));
        assert_eq!(fate("Unviable"), Ok(Fate::Unviable));
        assert_eq!(fate("Failure"), Err("src/los.rs:2:10: x: Failure".to_owned()));
    }

    #[test]
    fn what_is_no_list_of_outcomes_is_refused() {
        assert!(parsed(&[]).unwrap().is_empty());
        assert!(parse("{}", |_| None).is_err());
        assert!(parse("no JSON", |_| None).is_err());
        let nameless = outcome("FnValue", "x", "Timeout").replace("\"name\"", "\"nom\"");
        assert!(parsed(&[nameless]).is_err());
    }
}
