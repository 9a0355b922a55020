//! The named exceptions of `specs/README.md`: each row lists the entries that it excuses, and each
//! entry names its row.

use std::collections::BTreeMap;

use super::entries::Map;
use super::{EXCEPTIONS, about, by_id};
use crate::Finding;

/// Heading of the column that lists entries.
const COLUMN: &str = "entries";

/// Checks both directions of the links between the table and the maps.
pub(super) fn check(readme: &str, maps: &[Map]) -> Vec<Finding> {
    let rows = match rows(readme) {
        Ok(rows) => rows,
        Err(why) => return vec![Finding::new(EXCEPTIONS, 0, why)],
    };
    let all = by_id(maps);
    let mut findings = Vec::new();
    for (name, row) in &rows {
        for id in &row.entries {
            let named = all.get(id.as_str()).map(|entry| entry.exception.as_deref());
            let text = match named {
                None => format!("`{name}` lists {id}, which does not exist"),
                Some(exception) if exception != Some(name) => {
                    format!("`{name}` lists {id}, which does not name it")
                }
                Some(_) => continue,
            };
            findings.push(Finding::new(EXCEPTIONS, row.line, text));
        }
    }
    for map in maps {
        for entry in &map.requirements {
            let Some(name) = &entry.exception else { continue };
            match rows.get(name.as_str()) {
                None => {
                    let text = format!("{EXCEPTIONS} knows no exception `{name}`");
                    findings.push(about(map, entry, text));
                }
                Some(row) if !row.entries.contains(&entry.id) => {
                    let text = format!("`{name}` in {EXCEPTIONS} does not list it");
                    findings.push(about(map, entry, text));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    entries: Vec<String>,
}

/// The rows of the table whose first column holds names in backquotes.
fn rows(readme: &str) -> Result<BTreeMap<&str, Row>, String> {
    let mut column = None;
    let mut rows = BTreeMap::new();
    for (index, line) in readme.lines().enumerate() {
        let Some(inner) = line.strip_prefix('|') else { continue };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        if column.is_none() {
            column = cells.iter().position(|cell| *cell == COLUMN);
            continue;
        }
        let name = cells[0].strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        let (Some(at), Some(name)) = (column, name) else { continue };
        let listed = cells.get(at).copied().unwrap_or_default();
        let ids = listed.split([',', ' ']).filter(|id| !id.is_empty() && *id != "—");
        // An id may be a link: [MUST-1](…).
        let plain = |id: &str| id.trim_start_matches('[').split(']').next().map(str::to_owned);
        let row = Row { line: index + 1, entries: ids.filter_map(plain).collect() };
        if rows.insert(name, row).is_some() {
            return Err(format!("`{name}` stands twice"));
        }
    }
    if rows.is_empty() {
        return Err(format!("no table with a column `{COLUMN}`"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::entries::tests::map;
    use super::*;

    fn found(listed: &str, exception: &str) -> Vec<String> {
        let readme = format!("# Text\n\n| name | entries |\n|---|---|\n| `msl` | {listed} |\n");
        let map = map(&format!(
            "rfc = 1\ntitle = 'One'\n[ids]\nMUST = 1\n[[requirement]]\nid = \"MUST-1\"\n\
             section = '1'\nlevel = 'MUST'\nquote = 'q'\nexcused = 'x'\n{exception}"
        ));
        check(&readme, &[map]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_table_and_the_map_name_each_other() {
        let named = "exception = 'msl'";
        assert!(found("MUST-1", named).is_empty());
        assert!(found("[MUST-1](../docs/requirements.md#must-1)", named).is_empty());
        assert!(found("—", "").is_empty());
        let forgotten = "specs/rfc1.toml:6: MUST-1: `msl` in specs/README.md does not list it";
        assert_eq!(found("—", named), [forgotten]);
        let unnamed = "specs/README.md:5: `msl` lists MUST-1, which does not name it";
        assert_eq!(found("MUST-1", ""), [unnamed]);
        let dangling = "specs/README.md:5: `msl` lists MUST-2, which does not exist";
        assert_eq!(found("MUST-1, MUST-2", named), [dangling]);
        let unknown = "specs/rfc1.toml:6: MUST-1: specs/README.md knows no exception `rto`";
        assert_eq!(found("—", "exception = 'rto'"), [unknown]);
    }

    #[test]
    fn a_table_there_is_and_each_name_once() {
        assert!(rows("| name |\n|---|\n| `msl` |").is_err());
        let row = "| `msl` | — |\n";
        assert!(rows(&format!("| name | entries |\n|---|---|\n{row}")).is_ok());
        assert!(rows(&format!("| name | entries |\n|---|---|\n{row}{row}")).is_err());
    }
}
