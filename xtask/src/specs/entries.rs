//! Reads the entries of a map from `specs/rfc*.toml`.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

use crate::Finding;
use crate::sources::Source;

/// The requirements of one RFC.
#[derive(Debug)]
pub(super) struct Map {
    /// The file, from the repository's root.
    pub(super) path: String,
    /// The RFC's number.
    pub(super) rfc: u32,
    /// The RFC's title.
    pub(super) title: String,
    /// The part of the RFC that the map covers; empty means the whole RFC.
    pub(super) scope: String,
    /// The number of requirements in each family, for an RFC that numbers them.
    pub(super) ids: BTreeMap<String, u32>,
    /// The number of normative words in each section, for any other RFC.
    pub(super) keywords: BTreeMap<String, u32>,
    /// The requirements, in the file's order.
    pub(super) requirements: Vec<Requirement>,
}

/// One requirement.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    /// `MUST-1`, or `5681-3.1-2`: the second of RFC 5681 §3.1.
    pub(super) id: String,
    /// The line of the file where the id stands, from 1.
    pub(super) line: usize,
    /// The section, without the sign.
    pub(super) section: String,
    /// Its level of obligation.
    pub(super) level: Level,
    /// Words of the RFC that identify it.
    pub(super) quote: String,
    /// The number of normative words that it accounts for.
    pub(super) covers: u32,
    /// The code that implements it: `path::item`.
    pub(super) code: Vec<String>,
    /// The test that checks it: `path::function`, or a packet script.
    pub(super) test: Vec<String>,
    /// Its state.
    pub(super) status: Status,
    /// The name of its exception in `specs/README.md`.
    pub(super) exception: Option<String>,
}

/// The state of a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It has code and a test.
    Met,
    /// It is implemented differently, or does not apply, for this reason.
    Excused(String),
    /// This part is missing.
    Open(String),
    /// Another entry has the requirement as well.
    SameAs(String),
}

/// The level of a requirement (RFC 2119; REQUIRED and SHALL are MUST, and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are RFC 2119's own")]
pub(super) enum Level {
    Must,
    MustNot,
    Should,
    ShouldNot,
    May,
    Recommended,
}

impl Level {
    const ALL: [Level; 6] = [
        Level::Must,
        Level::MustNot,
        Level::Should,
        Level::ShouldNot,
        Level::May,
        Level::Recommended,
    ];

    /// The family of ids in RFC 9293 that has this level.
    pub(super) fn family(self) -> &'static str {
        match self {
            Level::Must | Level::MustNot => "MUST",
            Level::Should | Level::ShouldNot => "SHLD",
            Level::May => "MAY",
            Level::Recommended => "REC",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Must => "MUST",
            Level::MustNot => "MUST NOT",
            Level::Should => "SHOULD",
            Level::ShouldNot => "SHOULD NOT",
            Level::May => "MAY",
            Level::Recommended => "RECOMMENDED",
        })
    }
}

const MAP_KEYS: [&str; 6] = ["rfc", "title", "scope", "ids", "keywords", "requirement"];
const ENTRY_KEYS: [&str; 11] = [
    "id",
    "section",
    "level",
    "quote",
    "covers",
    "code",
    "test",
    "excused",
    "open",
    "same_as",
    "exception",
];

impl Map {
    /// Parses a file. Returns its map, and the mistakes. An entry that cannot be read is left out.
    pub(super) fn parse(source: &Source) -> (Option<Map>, Vec<Finding>) {
        let wrong = |text: String| Finding::new(&source.path, 0, text);
        let table: Table = match source.text.parse() {
            Ok(table) => table,
            Err(e) => return (None, vec![wrong(format!("not TOML: {e}"))]),
        };
        let mut findings: Vec<Finding> = unknown(&table, &MAP_KEYS)
            .map(|key| wrong(format!("no key is called `{key}`")))
            .collect();
        let number =
            table.get("rfc").and_then(Value::as_integer).and_then(|n| u32::try_from(n).ok());
        let (Some(rfc), Ok(title)) = (number, text(&table, "title")) else {
            findings.push(wrong("`rfc` and `title` say whose requirements these are".to_owned()));
            return (None, findings);
        };
        let mut counts = |key| {
            counts(&table, key).unwrap_or_else(|why| {
                findings.push(wrong(why));
                BTreeMap::new()
            })
        };
        let (ids, keywords) = (counts("ids"), counts("keywords"));
        if ids.is_empty() == keywords.is_empty() {
            findings.push(wrong("one of [ids] and [keywords] says when it is complete".to_owned()));
        }
        let mut requirements = Vec::new();
        let entries = table.get("requirement").and_then(Value::as_array).into_iter().flatten();
        for entry in entries.filter_map(Value::as_table) {
            match Requirement::parse(entry, &source.text) {
                Ok(requirement) => requirements.push(requirement),
                Err((line, why)) => findings.push(Finding::new(&source.path, line, why)),
            }
        }
        let scope = text(&table, "scope").unwrap_or_default();
        let path = source.path.clone();
        (Some(Map { path, rfc, title, scope, ids, keywords, requirements }), findings)
    }
}

impl Requirement {
    fn parse(table: &Table, file: &str) -> Result<Requirement, (usize, String)> {
        let id = text(table, "id").map_err(|why| (0, why))?;
        let needle = format!("id = \"{id}\"");
        let line = file.lines().position(|line| line.trim() == needle).map_or(0, |at| at + 1);
        Requirement::parse_named(table, &id, line).map_err(|why| (line, format!("{id}: {why}")))
    }

    fn parse_named(table: &Table, id: &str, line: usize) -> Result<Requirement, String> {
        if let Some(key) = unknown(table, &ENTRY_KEYS).next() {
            return Err(format!("no key is called `{key}`"));
        }
        let name = text(table, "level")?;
        let level = Level::ALL.into_iter().find(|level| level.to_string() == name);
        let level = level.ok_or_else(|| format!("{name:?} is no level"))?;
        let (code, test) = (list(table, "code")?, list(table, "test")?);
        let covers = match table.get("covers") {
            None => u32::from(level != Level::May),
            Some(value) => count(value).ok_or("`covers` is a number")?,
        };
        Ok(Requirement {
            id: id.to_owned(),
            line,
            section: text(table, "section")?,
            level,
            quote: text(table, "quote")?,
            covers,
            status: status(table, !code.is_empty() && !test.is_empty())?,
            exception: table
                .contains_key("exception")
                .then(|| text(table, "exception"))
                .transpose()?,
            code,
            test,
        })
    }
}

/// Reads the state; exactly one way to give it must be used.
fn status(table: &Table, is_cited: bool) -> Result<Status, String> {
    let ways = ["excused", "open", "same_as"];
    let mut given = ways.into_iter().filter(|key| table.contains_key(*key));
    let Some(key) = given.next() else {
        return match is_cited {
            true => Ok(Status::Met),
            false => Err("needs `code` and `test`, or `excused`, `open` or `same_as`".to_owned()),
        };
    };
    if let Some(second) = given.next() {
        return Err(format!("`{key}` and `{second}` contradict each other"));
    }
    let reason = text(table, key)?;
    Ok(match key {
        "excused" => Status::Excused(reason),
        "open" => Status::Open(reason),
        _ => Status::SameAs(reason),
    })
}

fn unknown<'a>(table: &'a Table, known: &'a [&str]) -> impl Iterator<Item = &'a String> {
    table.keys().filter(|key| !known.contains(&key.as_str()))
}

/// Reads a text that must not be empty.
fn text(table: &Table, key: &str) -> Result<String, String> {
    let value = table.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    value.map(str::to_owned).ok_or_else(|| format!("`{key}` is missing, empty or no text"))
}

/// Reads one text or several; none if the key is missing.
fn list(table: &Table, key: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("`{key}` is a text or a list of texts");
    match table.get(key) {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(several)) => {
            several.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

fn count(value: &Value) -> Option<u32> {
    value.as_integer().and_then(|n| u32::try_from(n).ok())
}

/// Reads a table of numbers; empty if the key is missing.
fn counts(table: &Table, key: &str) -> Result<BTreeMap<String, u32>, String> {
    let wrong = || format!("`{key}` is a table of numbers");
    let Some(value) = table.get(key) else { return Ok(BTreeMap::new()) };
    let inner = value.as_table().ok_or_else(wrong)?;
    inner.iter().map(|(name, n)| Ok((name.clone(), count(n).ok_or_else(wrong)?))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Parses a map that must be correct.
    pub(in crate::specs) fn map(text: &str) -> Map {
        let (map, findings) = parse(text);
        assert_eq!(findings, []);
        map.unwrap()
    }

    fn parse(text: &str) -> (Option<Map>, Vec<Finding>) {
        Map::parse(&Source { path: "specs/rfc1.toml".to_owned(), text: text.to_owned() })
    }

    const HEAD: &str = "rfc = 1\ntitle = 'One'\n[ids]\nMUST = 1\n[[requirement]]\n";
    const ENTRY: &str = "id = \"MUST-1\"\nsection = '3.1'\nlevel = 'MUST'\nquote = 'it MUST'\n";

    #[test]
    fn an_entry_is_met_by_code_and_test_together() {
        let cited = format!("{HEAD}{ENTRY}code = 'a.rs::f'\ntest = ['b.rs::g', 'c.pkt']");
        let entry = map(&cited).requirements.remove(0);
        assert_eq!((entry.line, entry.covers, entry.level), (6, 1, Level::Must));
        assert_eq!((entry.status, entry.test.len()), (Status::Met, 2));
        for half in ["", "code = 'a.rs::f'", "test = 'b.rs::g'", "code = 'a.rs::f'\ntest = []"] {
            let (_, findings) = parse(&format!("{HEAD}{ENTRY}{half}"));
            let expected = "specs/rfc1.toml:6: MUST-1: needs `code` and `test`, \
                            or `excused`, `open` or `same_as`";
            assert_eq!(findings[0].to_string(), expected, "{half}");
        }
    }

    #[test]
    fn there_is_one_reason_and_it_says_something() {
        let with = |more: &str| parse(&format!("{HEAD}{ENTRY}{more}"));
        let (map, findings) = with("excused = 'we are no router'");
        assert_eq!(findings, []);
        let status = &map.unwrap().requirements[0].status;
        assert_eq!(*status, Status::Excused("we are no router".to_owned()));
        assert_eq!(with("open = 'x'\nsame_as = 'y'").1.len(), 1);
        assert_eq!(with("open = ' '").1.len(), 1);
        assert_eq!(with("open = 1").1.len(), 1);
    }

    #[test]
    fn what_is_misspelt_is_found() {
        let open = "open = 'x'\n";
        for (wrong, right) in [
            ("excsed = 'x'", "excused = 'x'"),
            (&format!("{open}tests = 'b.rs::g'"), &format!("{open}test = 'b.rs::g'")),
            (&format!("{open}covers = -1"), &format!("{open}covers = 2")),
            (&format!("{open}code = 5"), &format!("{open}code = '5'")),
        ] {
            assert_eq!(parse(&format!("{HEAD}{ENTRY}{right}")).1, [], "{right}");
            assert_eq!(parse(&format!("{HEAD}{ENTRY}{wrong}")).1.len(), 1, "{wrong}");
        }
        let entry = ENTRY.replace("'MUST'", "'MIGHT'");
        assert_eq!(parse(&format!("{HEAD}{entry}{open}")).1.len(), 1);
        assert_eq!(parse("rfc = 1\ntitle = 'x'\nname = 2\n[ids]\nMUST = 1").1.len(), 1);
    }

    #[test]
    fn a_map_says_whose_it_is_and_when_it_is_complete() {
        assert!(parse("title = 'x'\n[ids]\nMUST = 1").0.is_none());
        assert!(parse("rfc = 1").0.is_none());
        assert!(parse("rfc =").0.is_none());
        assert_eq!(parse("rfc = 1\ntitle = 'x'").1.len(), 1);
        assert_eq!(parse("rfc = 1\ntitle = 'x'\n[ids]\nMUST = 1\n[keywords]\n1 = 2").1.len(), 1);
        assert_eq!(parse("rfc = 1\ntitle = 'x'\n[keywords]\n1 = 'two'").1.len(), 2);
        assert_eq!(parse("rfc = 1\ntitle = 'x'\n[keywords]\n1 = 2").1, []);
    }
}
