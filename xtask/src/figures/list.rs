//! Reads the list of a document's sources from `bench/figures/*.toml`.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::passage::Passage;
use crate::Finding;

/// The sources of a document's figures.
#[derive(Debug)]
pub(super) struct List {
    /// The list's file, from the repository's root.
    pub(super) path: String,
    /// The document.
    pub(super) document: String,
    /// Short names of the files with stored results.
    pub(super) files: BTreeMap<String, String>,
    /// The passages with figures.
    pub(super) passages: Vec<Passage>,
    /// How many figures have no source for which reason, by the reason's key.
    unsourced: BTreeMap<String, usize>,
}

impl List {
    /// Parses a list.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("{path}: {why}");
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| wrong(e.to_string()))?;
        let document = table.remove("document");
        let Some(Value::String(document)) = document else {
            return Err(wrong("`document` is missing".to_owned()));
        };
        let files = table.remove("files").unwrap_or_else(|| Table::new().into());
        let files = files.try_into().map_err(|e| wrong(format!("`files`: {e}")))?;
        let unsourced = unsourced(table.remove("unsourced")).map_err(wrong)?;
        // In a file the passages stand in the order in which the parser has them.
        let mut places = text.lines().enumerate().filter(|(_, line)| *line == "[[passage]]");
        let Some(Value::Array(entries)) = table.remove("passage") else {
            return Err(wrong("no `[[passage]]`".to_owned()));
        };
        let mut passages = Vec::new();
        for entry in &entries {
            let line = places.next().map_or(0, |(index, _)| index + 1);
            let passage = passage(entry, line);
            passages.push(passage.map_err(|why| format!("{path}:{line}: {why}"))?);
        }
        if let Some(key) = table.keys().next() {
            return Err(wrong(format!("`{key}` is not known")));
        }
        Ok(Self { path: path.to_owned(), document, files, passages, unsourced })
    }

    /// The differences between the figures without a source and those that are said to be.
    pub(super) fn check_unsourced(&self, found: &BTreeMap<&str, usize>) -> Vec<Finding> {
        let said = self.unsourced.keys().map(String::as_str);
        let mut keys: Vec<&str> = said.chain(found.keys().copied()).collect();
        keys.sort_unstable();
        keys.dedup();
        let differ = keys.into_iter().filter_map(|key| {
            let said = self.unsourced.get(key).copied().unwrap_or_default();
            let found = found.get(key).copied().unwrap_or_default();
            let text = format!("unsourced `{key}`: {found} figures; `[unsourced]` says {said}");
            (said != found).then(|| Finding::new(&self.path, 0, text))
        });
        differ.collect()
    }
}

fn passage(entry: &Value, line: usize) -> Result<Passage, String> {
    let entry = entry.as_table().ok_or("is no table")?;
    let known = ["text", "setting", "paper"];
    if let Some(key) = entry.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("`{key}` is not known"));
    }
    let [text, setting, paper] = known.map(|key| entry.get(key).and_then(Value::as_str));
    Passage::parse(line, text.ok_or("`text` is missing")?, setting, paper)
}

/// `key = { figures = n, why = "…" }`: the number must be the document's, so that none is added
/// unseen.
fn unsourced(value: Option<Value>) -> Result<BTreeMap<String, usize>, String> {
    let Some(value) = value else { return Ok(BTreeMap::new()) };
    let table = value.as_table().ok_or("`unsourced` is no table")?;
    let entries = table.iter().map(|(key, entry)| {
        let figures = entry.get("figures").and_then(Value::as_integer);
        let figures = figures.and_then(|figures| usize::try_from(figures).ok());
        let why = entry.get("why").and_then(Value::as_str).is_some_and(|why| !why.is_empty());
        match figures {
            Some(figures) if why => Ok((key.clone(), figures)),
            _ => Err(format!("unsourced `{key}` wants `figures` and `why`")),
        }
    });
    entries.collect()
}

/// The documents that have no list yet.
pub(super) fn not_covered(text: &str) -> Result<Vec<String>, String> {
    let mut table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let documents = table.remove("documents").ok_or("`documents` is missing")?;
    documents.try_into().map_err(|e| e.to_string())
}
