//! The named exceptions of `specs/README.md`: each item lists the entries that it excuses, and each
//! entry names its item.

use std::collections::BTreeMap;

use super::entries::Map;
use super::{EXCEPTIONS, about, by_id};
use crate::Finding;

/// Beginning of the line of an item that lists entries.
const ENTRIES: &str = "  Entries: ";

/// Checks both directions of the links between the list and the maps.
pub(super) fn check(readme: &str, maps: &[Map]) -> Vec<Finding> {
    let items = match items(readme) {
        Ok(items) => items,
        Err(why) => return vec![Finding::new(EXCEPTIONS, 0, why)],
    };
    let all = by_id(maps);
    let mut findings = Vec::new();
    for (name, item) in &items {
        for id in &item.entries {
            let named = all.get(id.as_str()).map(|entry| entry.exception.as_deref());
            let text = match named {
                None => format!("`{name}` lists {id}, which does not exist"),
                Some(exception) if exception != Some(name) => {
                    format!("`{name}` lists {id}, which does not name it")
                }
                Some(_) => continue,
            };
            findings.push(Finding::new(EXCEPTIONS, item.line, text));
        }
    }
    for map in maps {
        for entry in &map.requirements {
            let Some(name) = &entry.exception else { continue };
            match items.get(name.as_str()) {
                None => {
                    let text = format!("{EXCEPTIONS} knows no exception `{name}`");
                    findings.push(about(map, entry, text));
                }
                Some(item) if !item.entries.contains(&entry.id) => {
                    let text = format!("`{name}` in {EXCEPTIONS} does not list it");
                    findings.push(about(map, entry, text));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// An item of the list.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    line: usize,
    entries: Vec<String>,
}

/// The items that begin with a name in backquotes and have a line of entries.
fn items(readme: &str) -> Result<BTreeMap<&str, Item>, String> {
    let mut name = None;
    let mut items = BTreeMap::new();
    for (index, line) in readme.lines().enumerate() {
        if let Some(item) = line.strip_prefix("- `") {
            name = item.split('`').next();
        }
        let Some(listed) = line.strip_prefix(ENTRIES) else { continue };
        let Some(name) = name.take() else {
            return Err(format!("line {} lists entries for no name", index + 1));
        };
        let ids = listed.split([',', ' ']).filter(|id| !id.is_empty() && *id != "—");
        // An id may be a link: [MUST-1](…).
        let plain = |id: &str| id.trim_start_matches('[').split(']').next().map(str::to_owned);
        let item = Item { line: index + 1, entries: ids.filter_map(plain).collect() };
        if items.insert(name, item).is_some() {
            return Err(format!("`{name}` stands twice"));
        }
    }
    if items.is_empty() {
        return Err(format!("no item has a line `{}`", ENTRIES.trim()));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::super::entries::tests::map;
    use super::*;

    fn found(listed: &str, exception: &str) -> Vec<String> {
        let readme = format!("# Text\n\n- `msl`: 60 s.\n  Why: so.\n  Entries: {listed}\n");
        let map = map(&format!(
            "rfc = 1\ntitle = 'One'\n[ids]\nMUST = 1\n[[requirement]]\nid = \"MUST-1\"\n\
             section = '1'\nlevel = 'MUST'\nquote = 'q'\nexcused = 'x'\n{exception}"
        ));
        check(&readme, &[map]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_list_and_the_map_name_each_other() {
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
    fn a_list_there_is_and_each_name_once() {
        assert!(items("- `msl`: 60 s.\n").is_err());
        assert!(items("  Entries: MUST-1\n").is_err());
        let item = "- `msl`: 60 s.\n  Entries: —\n";
        assert!(items(item).is_ok());
        assert!(items(&format!("{item}{item}")).is_err());
    }
}
