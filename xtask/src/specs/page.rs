//! Renders the page under `docs/`: a summary, and a list for each RFC.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::entries::{Map, Requirement, Status};
use super::{PAGE, Standing, by_id, standing};
use crate::Finding;

/// The numbers of a map's entries in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    met: usize,
    excused: usize,
    open: usize,
}

impl Tally {
    fn of(map: &Map, all: &BTreeMap<&str, &Requirement>) -> Tally {
        let mut tally = Tally::default();
        for entry in &map.requirements {
            match standing(entry, all) {
                Standing::Met => tally.met += 1,
                Standing::Excused => tally.excused += 1,
                Standing::Open => tally.open += 1,
            }
        }
        tally
    }

    fn add(&mut self, other: Tally) {
        self.met += other.met;
        self.excused += other.excused;
        self.open += other.open;
    }
}

/// One line an RFC, and one for all together.
pub(super) fn summary(maps: &[Map]) -> Vec<String> {
    let all = by_id(maps);
    let mut lines = vec![format!("{:<10}{:>6}{:>9}{:>6}", "", "met", "excused", "open")];
    let mut total = Tally::default();
    let line = |name: &str, tally: Tally| {
        format!("{name:<10}{:>6}{:>9}{:>6}", tally.met, tally.excused, tally.open)
    };
    for map in maps {
        let tally = Tally::of(map, &all);
        total.add(tally);
        lines.push(line(&format!("RFC {}", map.rfc), tally));
    }
    lines.push(line("together", total));
    lines
}

/// The whole page.
pub(super) fn render(maps: &[Map]) -> String {
    let all = by_id(maps);
    let mut page = String::from(
        "# What the RFCs require, and where it is met\n\n\
         Made from `specs/rfc*.toml` by `cargo run -q -p lightwait-xtask -- specs --write`;\n\
         [specs/README.md](../specs/README.md) says how, and lists the exceptions by name.\n\n\
         *Met*: code does it, and a test fails if it does not. *Excused*: not done as the RFC\n\
         says, or not ours to do, for the reason given. *Open*: missing.\n\n\
         | RFC | met | excused | open |\n|---|---:|---:|---:|\n",
    );
    for map in maps {
        let tally = Tally::of(map, &all);
        let Tally { met, excused, open } = tally;
        let rfc = map.rfc;
        push(&mut page, format_args!("| [{rfc}](#rfc-{rfc}) | {met} | {excused} | {open} |\n"));
    }
    for map in maps {
        let (rfc, title, scope) = (map.rfc, &map.title, scope(map));
        push(&mut page, format_args!("\n## RFC {rfc}\n\n{title}{scope}.\n\n"));
        for entry in &map.requirements {
            item(&mut page, entry);
        }
    }
    page
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String does not fail.
    let _ok = page.write_fmt(text);
}

fn scope(map: &Map) -> String {
    if map.scope.is_empty() { String::new() } else { format!(", §{}", map.scope) }
}

/// An item of the list: what the RFC says, our reason if we have one, and links, a line each.
fn item(page: &mut String, entry: &Requirement) {
    let (id, anchor) = (&entry.id, entry.id.to_lowercase());
    let (section, level) = (&entry.section, entry.level);
    let text =
        format!("<a id=\"{anchor}\"></a>**{id}** (§{section}, {level}): {}", escaped(&entry.quote));
    wrap(page, "- ", &text);
    match &entry.status {
        Status::Met => {}
        Status::Excused(why) => wrap(page, "  ", &format!("*Excused*: {}", escaped(why))),
        Status::Open(what) => wrap(page, "  ", &format!("**Open**: {}", escaped(what))),
        Status::SameAs(id) => wrap(page, "  ", &format!("As [{id}](#{})", id.to_lowercase())),
    }
    let exception = entry.exception.as_ref().map(|name| {
        format!("[`{name}`](../specs/README.md#where-we-do-otherwise-than-an-rfc-says)")
    });
    links(page, "Where:", exception.into_iter().chain(entry.code.iter().map(|it| link(it))));
    links(page, "Tested by:", entry.test.iter().map(|it| link(it)));
}

/// A heading and links, a line each. A link is one word, and may be longer than a line.
fn links(page: &mut String, heading: &str, links: impl Iterator<Item = String>) {
    let links: Vec<String> = links.collect();
    if !links.is_empty() {
        push(page, format_args!("  {heading}\n  {}\n", links.join(",\n  ")));
    }
}

/// Columns of a line, at most.
const COLUMNS: usize = 100;

/// Appends a text in lines, the first of which begins with `start`, and the others with as many
/// spaces.
fn wrap(page: &mut String, start: &str, text: &str) {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            push(page, format_args!("{line}\n"));
            line = " ".repeat(start.len());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    push(page, format_args!("{line}\n"));
}

/// A citation by its last part, with a link to the file.
fn link(cited: &str) -> String {
    let (path, item) = cited.split_once("::").unwrap_or((cited, ""));
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = if item.is_empty() { file } else { item };
    format!("[`{name}`](../{path})")
}

/// Text of an RFC, in which `<` begins no element.
fn escaped(text: &str) -> String {
    text.replace('<', "&lt;")
}

/// The difference between the kept page and the generated one, if there is one.
pub(super) fn difference(kept: &str, made: &str) -> Option<Finding> {
    let same = kept.lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
    (kept != made).then(|| {
        Finding::new(PAGE, same + 1, "out of step with specs/: run `lightwait-xtask specs --write`")
    })
}

#[cfg(test)]
mod tests {
    use super::super::entries::tests::map;
    use super::*;

    fn maps() -> Vec<Map> {
        let entry = |id: &str, more: &str| {
            format!(
                "[[requirement]]\nid = \"{id}\"\nsection = '2'\nlevel = 'MUST'\n\
                 quote = \"\"\"a | b\n  c\"\"\"\n{more}\n"
            )
        };
        let numbered = [
            "rfc = 9293\ntitle = 'TCP'\n[ids]\nMUST = 3\n".to_owned(),
            entry("MUST-1", "code = 'a/b.rs::T::f'\ntest = ['a/c.rs::t', 'd.pkt']"),
            entry("MUST-2", "excused = 'no router'\nexception = 'msl'"),
            entry("MUST-3", "open = 'no test'\ncode = 'a/b.rs::g'"),
        ];
        let other = [
            "rfc = 1122\ntitle = 'Hosts'\nscope = '4.2'\n[keywords]\n\"2\" = 1\n".to_owned(),
            entry("1122-2-1", "same_as = 'MUST-1'"),
        ];
        vec![map(&numbered.concat()), map(&other.concat())]
    }

    #[test]
    fn the_summary_counts_each_entry_once_and_follows_references() {
        let expected = [
            "             met  excused  open",
            "RFC 9293       1        1     1",
            "RFC 1122       1        0     0",
            "together       2        1     1",
        ];
        assert_eq!(summary(&maps()), expected);
    }

    #[test]
    fn the_page_has_an_item_for_each_entry() {
        let page = render(&maps());
        let items: Vec<&str> = page.split("\n- ").skip(1).collect();
        assert_eq!(items.len(), 4);
        let met = "<a id=\"must-1\"></a>**MUST-1** (§2, MUST): a | b c\n  Where:\n  \
                   [`T::f`](../a/b.rs)\n  Tested by:\n  [`t`](../a/c.rs),\n  [`d.pkt`](../d.pkt)";
        assert_eq!(items[0], met);
        let excused = "\n  *Excused*: no router\n  Where:\n  [`msl`](../specs/README.md#";
        assert!(items[1].contains(excused), "{}", items[1]);
        assert!(items[2].contains("\n  **Open**: no test\n  Where:\n  [`g`](../a/b.rs)"));
        assert!(items[3].starts_with("<a id=\"1122-2-1\"></a>**1122-2-1** (§2, MUST): a | b c\n"));
        assert!(items[3].contains("\n  As [MUST-1](#must-1)\n"));
        assert!(page.contains("| [1122](#rfc-1122) | 1 | 0 | 0 |"));
        assert!(page.contains("## RFC 1122\n\nHosts, §4.2.\n"));
    }

    #[test]
    fn a_line_holds_100_columns_and_a_word_beyond_begins_the_next() {
        let mut page = String::new();
        let words = ["é".repeat(48), "b".repeat(49), "c".to_owned()].join(" ");
        wrap(&mut page, "- ", &words);
        let lines: Vec<usize> = page.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lines, [100, 3]);
    }

    #[test]
    fn a_page_out_of_step_is_found_where_it_differs() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nx\n", "a\nb\n").unwrap().line, 2);
        assert_eq!(difference("a\n", "a\nb\n").unwrap().line, 2);
        assert_eq!(difference("", "a\n").unwrap().line, 1);
    }
}
