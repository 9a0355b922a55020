//! What `core` shows: each public item is named by another crate, or its file stands below with the
//! reason why it need not be. And how many there are: those that its documentation hides are for
//! our own measures, and promised to nobody; the others are [`SHOWN_MAX`] at most.

use std::collections::HashSet;

use crate::Finding;
use crate::sources::{Source, is_test_path};

/// The crate that is looked at.
const CORE: &str = "crates/core/src/";

/// Files whose items are for users, whether or not one of ours names them, and why: by how their
/// path behind [`CORE`] begins.
const UNNAMED: &[(&str, &str)] = &[
    ("address.rs", "an error of parsing is matched by who parses"),
    ("buffer", "a pool is one piece, and stands beside the host's knobs"),
    ("config/", "knobs and their bounds"),
    ("frame.rs", "what devices do with frames"),
    ("host/shortage", "what is told of the pool"),
    ("host/sockets.rs", "calls"),
    ("tcp.rs", "options of a socket"),
    ("tcp/congestion.rs", "what an algorithm hears"),
    ("tcp/send/buffer.rs", "a part of the pool's use"),
    ("wire/ipv6.rs", "numbers of the protocol, and what is wrong with a packet"),
];

/// Names that only stand in the signature of what others use.
const IN_SIGNATURES: [&str; 7] =
    ["Reason", "Standing", "Bucket", "RecordRef", "Fragment", "Prefixes", "QuotedTcp"];

/// Public items of `core` that its documentation shows, at most. One more wants its reason in the
/// commit's message. Of these, 16 are what another process takes over and what an observer of
/// connections reads, which a program on the engine alone needs as ours does.
const SHOWN_MAX: usize = 459;

/// How a public item begins, behind `pub`.
const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];

/// The rule over all Rust sources.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let outside = sources.iter().filter(|source| !source.path.starts_with(CORE));
    let named: HashSet<&str> = outside.flat_map(|source| words(&source.text)).collect();
    let inside =
        sources.iter().filter_map(|source| Some((source.path.strip_prefix(CORE)?, source)));
    let of_users = |path: &str| UNNAMED.iter().any(|(start, _)| path.starts_with(start));
    let inside = inside.filter(|(path, _)| !is_test_path(path) && !of_users(path));
    let mut findings = Vec::new();
    for (_, source) in inside {
        for (line, name) in shown(&source.text) {
            if !named.contains(name) && !IN_SIGNATURES.contains(&name) {
                let text = format!("{name} is public, and no other crate names it: pub(crate)");
                findings.push(Finding::new(&source.path, line, text));
            }
        }
    }
    let count = count(sources);
    if count > SHOWN_MAX {
        let text = format!("{count} public items are shown, and {SHOWN_MAX} may be: hide or use");
        findings.push(Finding::new(&format!("{CORE}lib.rs"), 0, text));
    }
    findings
}

/// How many public items the documentation shows: those of files and types that it does not hide.
fn count(sources: &[Source]) -> usize {
    let inside = |source: &Source| Some(source.path.strip_prefix(CORE)?.to_owned());
    let inside: Vec<(String, &Source)> =
        sources.iter().filter_map(|source| Some((inside(source)?, source))).collect();
    let (mut files, mut types) = (HashSet::new(), HashSet::new());
    for (path, source) in &inside {
        let module = path.trim_end_matches(".rs");
        let folder = if module == "lib" { String::new() } else { format!("{module}/") };
        for (kind, name) in hidden(&source.text) {
            match kind {
                "mod" | "use" => files.insert(format!("{folder}{name}")),
                _ => types.insert(name.to_owned()),
            };
        }
    }
    let is_hidden = |path: &str| {
        files.iter().any(|file| {
            let rest = path.strip_prefix(file.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    let of_shown = inside.iter().filter(|(path, _)| !is_test_path(path) && !is_hidden(path));
    of_shown.map(|(_, source)| shown(&without(&source.text, &types)).count()).sum()
}

/// What a file hides, by kind and name: a module, what is used of one, or a type.
fn hidden(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("#[doc(hidden)]\n").skip(1).filter_map(|behind| {
        let item = behind.lines().find(|line| !line.starts_with("#["))?;
        let mut words = words(item.strip_prefix("pub ")?);
        Some((words.next()?, words.next()?))
    })
}

/// A file without these types and their methods.
fn without(text: &str, types: &HashSet<String>) -> String {
    let (mut kept, mut skips) = (String::new(), false);
    for line in text.lines() {
        let begins = ["impl ", "impl<", "pub struct ", "pub enum "];
        if begins.iter().any(|begin| line.starts_with(begin)) {
            skips = words(line).any(|word| types.contains(word));
        }
        if !skips {
            kept.push_str(line);
            kept.push('\n');
        }
        if line == "}" || line.ends_with(';') && line.starts_with("pub ") {
            skips = false;
        }
    }
    kept
}

/// The public items of a file, with their lines, before its tests.
fn shown(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    before_tests.lines().enumerate().filter_map(|(index, line)| {
        let item = line.trim_start().strip_prefix("pub ")?;
        let mut words = words(item);
        let first = words.next().filter(|word| KINDS.contains(word))?;
        let name = words.next()?;
        // A constant function.
        let name = if (first, name) == ("const", "fn") { words.next()? } else { name };
        Some((index + 1, name))
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn what_nobody_names_is_found_and_what_somebody_names_is_not() {
        let core =
            "pub struct A;\nimpl A {\n    pub const fn b() {}\n    pub(crate) fn c() {}\n}\n";
        let core = source("crates/core/src/a.rs", core);
        let findings = check(&[core, source("crates/sim/src/a.rs", "A::other()")]);
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3], "{findings:?}");
    }

    #[test]
    fn what_the_documentation_hides_is_not_counted() {
        let lib = "#[doc(hidden)]\npub mod a;\npub mod b;\n";
        let b =
            "/// Text.\n#[doc(hidden)]\n#[derive(Debug)]\npub struct Hidden {\n    pub x: u8,\n}\n";
        let methods =
            "impl Hidden {\n    pub fn one() {}\n}\nimpl Shown {\n    pub fn two() {}\n}\n";
        let b = &format!("{b}{methods}pub struct Shown;\n");
        let file = |path: &str, text: &str| source(&format!("{CORE}{path}"), text);
        let all = [
            file("lib.rs", lib),
            file("a.rs", "pub fn three() {}\n"),
            file("a/c.rs", "pub fn four() {}\n"),
            file("b.rs", b),
            file("ab.rs", "pub const FIVE: u8 = 5;\n"),
        ];
        assert_eq!(count(&all), 3, "two, Shown and FIVE");
    }

    #[test]
    fn tests_and_files_for_users_show_what_they_like() {
        let text = "pub fn unnamed() {}\n";
        for path in ["crates/core/src/config/a.rs", "crates/core/src/a/tests.rs", "xtask/src/a.rs"]
        {
            assert_eq!(check(&[source(path, text)]), [], "{path}");
        }
        let in_tests = "#[cfg(test)]\nmod tests {\n    pub fn unnamed() {}\n}\n";
        assert_eq!(check(&[source("crates/core/src/a.rs", in_tests)]), []);
        assert_eq!(check(&[source("crates/core/src/a.rs", text)]).len(), 1);
    }
}
