//! The list of survivors, each with its reason; and which files were run wholly.

use std::path::Path;

use toml::{Table, Value};

use super::LIST;
use super::outcomes::Mutant;
use crate::Finding;

/// A survivor that needs no test.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Survivor {
    /// The mutant.
    pub(super) mutant: Mutant,
    /// The line of the list where the entry begins, from 1.
    pub(super) line: usize,
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// The entries, in the list's order.
    pub(super) survivors: Vec<Survivor>,
    /// The files that were run wholly.
    runs: Vec<String>,
}

impl List {
    /// Reads the list.
    pub(crate) fn read(root: &Path) -> Result<List, String> {
        let text = std::fs::read_to_string(root.join(LIST)).map_err(|e| format!("{LIST}: {e}"))?;
        List::parse(&text)
    }

    /// Reads the list from its text.
    pub(super) fn parse(text: &str) -> Result<List, String> {
        let table: Table = text.parse().map_err(|e| format!("{LIST}: {e}"))?;
        if let Some(key) = table.keys().find(|key| !["run", "survivor"].contains(&key.as_str())) {
            return Err(format!("{LIST}: `{key}` is not known"));
        }
        let mut runs = Vec::new();
        for run in entries(&table, "run")? {
            let (file, counts) = (string(run, "file"), ["mutants", "killed", "missed"]);
            let are_counts = counts.iter().all(|key| run.get(*key).is_some_and(Value::is_integer));
            if !are_counts {
                return Err(format!("{LIST}: a run needs {}", counts.join(", ")));
            }
            runs.push(file?);
        }
        let mut survivors: Vec<Survivor> = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| line.trim() == "[[survivor]]");
        for (entry, (index, _)) in entries(&table, "survivor")?.into_iter().zip(lines) {
            let here = |why| format!("{LIST}:{}: {why}", index + 1);
            let mutant = survivor(entry).map_err(here)?;
            if survivors.iter().any(|other| other.mutant == mutant) {
                return Err(here("stands twice".to_owned()));
            }
            survivors.push(Survivor { mutant, line: index + 1 });
        }
        Ok(List { survivors, runs })
    }

    /// Checks without a run that what the entries name is still there. `code` returns a file.
    pub(crate) fn check_names(&self, code: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
        let gone = |file: &String| code(file).is_none();
        let runs = self.runs.iter().filter(|file| gone(file));
        let runs = runs.map(|file| Finding::new(LIST, 0, format!("no file {file}, which was run")));
        let survivors = self.survivors.iter().filter_map(|Survivor { mutant, line }| {
            let text = match code(&mutant.file) {
                None => format!("no file {}", mutant.file),
                Some(text) if !text.contains(&mutant.at) => {
                    format!("{} has no code `{}`", mutant.file, mutant.at)
                }
                Some(_) => return None,
            };
            Some(Finding::new(LIST, *line, text))
        });
        runs.chain(survivors).collect()
    }
}

/// The tables of that name.
fn entries<'a>(table: &'a Table, name: &str) -> Result<Vec<&'a Table>, String> {
    let Some(value) = table.get(name) else { return Ok(Vec::new()) };
    let tables = value.as_array().and_then(|all| all.iter().map(Value::as_table).collect());
    tables.ok_or(format!("{LIST}: write [[{name}]]"))
}

/// The mutant that an entry names. An entry needs a reason.
fn survivor(entry: &Table) -> Result<Mutant, String> {
    let known = ["file", "function", "mutation", "at", "why"];
    if let Some(key) = entry.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("`{key}` is not known"));
    }
    string(entry, "why")?;
    let at = if entry.contains_key("at") { string(entry, "at")? } else { String::new() };
    Ok(Mutant {
        file: string(entry, "file")?,
        function: string(entry, "function")?,
        mutation: string(entry, "mutation")?,
        at,
    })
}

/// A text that is not empty.
fn string(table: &Table, key: &str) -> Result<String, String> {
    let text = table.get(key).and_then(Value::as_str).map(str::trim).unwrap_or_default();
    if text.is_empty() { Err(format!("`{key}` is missing")) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "[[survivor]]\nfile = 'a.rs'\nfunction = 'f'\n\
                         mutation = 'replace < with <='\nat = '< b {'\nwhy = 'the same'\n";

    #[test]
    fn an_entry_names_one_mutant_and_its_reason() {
        let list = List::parse(ENTRY).unwrap();
        let mutant = Mutant::new("a.rs", "f", "replace < with <=", "< b {");
        assert_eq!(list.survivors, [Survivor { mutant, line: 1 }]);
        for key in ["file", "function", "mutation", "why"] {
            let without: Vec<&str> = ENTRY.lines().filter(|line| !line.starts_with(key)).collect();
            let why = List::parse(&without.join("\n")).unwrap_err();
            assert_eq!(why, format!("{LIST}:1: `{key}` is missing"));
        }
        assert!(List::parse(&ENTRY.replace("the same", " ")).is_err());
        assert!(List::parse(&ENTRY.replace("why", "line = 3\nwhy")).is_err());
        assert!(List::parse(&format!("{ENTRY}{ENTRY}")).unwrap_err().contains("twice"));
        assert!(List::parse("[survivor]\nfile = 'a.rs'").is_err());
        assert!(List::parse("[[other]]\nfile = 'a.rs'").is_err());
        assert!(List::parse("").unwrap().survivors.is_empty());
    }

    #[test]
    fn a_run_has_its_counts() {
        let run = "[[run]]\nfile = 'a.rs'\nmutants = 2\nkilled = 1\nmissed = 1\n";
        assert_eq!(List::parse(run).unwrap().runs, ["a.rs"]);
        assert!(List::parse(&run.replace("killed = 1\n", "")).is_err());
        assert!(List::parse(&run.replace("file = 'a.rs'\n", "")).is_err());
    }

    #[test]
    fn what_entries_name_is_there() {
        let list = List::parse(&format!(
            "[[run]]\nfile = 'a.rs'\nmutants = 2\nkilled = 1\nmissed = 1\n{ENTRY}"
        ));
        let found = |text: Option<&str>| -> Vec<String> {
            let code = |file: &str| text.filter(|_| file == "a.rs").map(str::to_owned);
            list.as_ref().unwrap().check_names(code).iter().map(ToString::to_string).collect()
        };
        assert!(found(Some("if a < b {}")).is_empty());
        let at = "crates/core/mutants.toml:6: a.rs has no code `< b {`";
        assert_eq!(found(Some("if a <= b {}")), [at]);
        let run = "crates/core/mutants.toml: no file a.rs, which was run";
        assert_eq!(found(None), [run, "crates/core/mutants.toml:6: no file a.rs"]);
    }
}
