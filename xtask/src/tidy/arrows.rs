//! Checks the dependencies between crates: no arrow points right.
//!
//! ARCHITECTURE.md lists the crates, and what a crate may depend on stands to its left, at any
//! distance.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::map;
use crate::Finding;
use crate::sources::Source;

/// The line before the crates.
const MARK: &str = "Dependencies point left";

/// Each of our crates, with those that it may depend on.
type Arrows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The tables of dependencies in a manifest. Arrows hold for tests as well: a crate must be
/// testable without the crates above it.
const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks all manifests against the page with the map.
pub(super) fn check(manifests: &[Source], pages: &[Source]) -> Result<Vec<Finding>, String> {
    let arrows = arrows(map::block(pages, MARK)?)?;
    let mut findings = Vec::new();
    for manifest in manifests {
        let table: Table = manifest.text.parse().map_err(|e| format!("{}: {e}", manifest.path))?;
        findings.extend(check_manifest(&manifest.path, &table, &arrows));
    }
    Ok(findings)
}

/// What each crate of the map may depend on. Each line is a part of the map, and arrows go on from
/// one line to the next.
fn arrows(block: &str) -> Result<Arrows<'_>, String> {
    let mut arrows = Arrows::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let mut left = BTreeSet::new();
        for group in map::groups(line)? {
            for name in &group {
                arrows.entry(*name).or_default().extend(&left);
            }
            left.extend(group);
        }
    }
    // As many rounds as a path has arrows at most.
    for _ in 0..arrows.len() {
        let before = arrows.clone();
        for allowed in arrows.values_mut() {
            allowed.extend(allowed.clone().iter().flat_map(|name| &before[name]));
        }
    }
    match arrows.iter().find(|(name, allowed)| allowed.contains(*name)) {
        Some((name, _)) => Err(format!("{}: {name} stands to its own left", map::PAGE)),
        None => Ok(arrows),
    }
}

/// The name on the map of the package `package`, if that is ours.
fn on_map(package: &str) -> Option<&str> {
    if package == "lightwait" { Some(package) } else { package.strip_prefix("lightwait-") }
}

/// Checks one manifest. The workspace's own has no package and passes.
fn check_manifest(path: &str, table: &Table, arrows: &Arrows<'_>) -> Vec<Finding> {
    let name = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let Some(name) = name else { return Vec::new() };
    let Some(allowed) = on_map(name).and_then(|name| arrows.get(name)) else {
        return vec![Finding::new(path, 0, format!("{name} is not on the map"))];
    };
    let mut findings = Vec::new();
    for (key, value) in dependencies(table) {
        let dependency = value.get("package").and_then(Value::as_str).unwrap_or(key);
        let is_refused = on_map(dependency).is_some_and(|ours| !allowed.contains(ours));
        if dependency == name {
            // Its tests have features of its own. With a version its package would need itself.
            continue;
        }
        if is_refused {
            findings.push(Finding::new(path, 0, format!("{name} must not depend on {dependency}")));
        }
        if value.get("workspace").and_then(Value::as_bool) != Some(true) {
            let text = format!("{key}: say version and reason in the workspace's Cargo.toml");
            findings.push(Finding::new(path, 0, text));
        }
    }
    findings
}

/// Every dependency of a manifest, of every kind and target.
fn dependencies(table: &Table) -> Vec<(&String, &Value)> {
    let targets = table.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(|all| all.values().filter_map(Value::as_table));
    std::iter::once(table)
        .chain(targets)
        .flat_map(|owner| KINDS.iter().filter_map(|kind| owner.get(*kind)?.as_table()))
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Dependencies point left:\n```\ncore ← lightwait ← {http, wan} ← cli\n\
        {core, http} ← sim\n```\n";

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn findings(text: &str) -> Vec<String> {
        let found = check(&[source("Cargo.toml", text)], &[source(map::PAGE, PAGE)]).unwrap();
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn arrows_go_on_from_line_to_line_and_never_round() {
        let of = |block| arrows(block).map(|all| all["c"].iter().copied().collect::<Vec<_>>());
        assert_eq!(of("a ← {b, d}\n\nb ← c"), Ok(vec!["a", "b"]));
        assert_eq!(of("b ← c\nx ← y ← b"), Ok(vec!["b", "x", "y"]));
        assert!(of("a ← b ← c\nc ← a").is_err());
        assert!(of("c ← c").is_err());
    }

    #[test]
    fn an_arrow_to_the_left_passes_and_one_to_the_right_does_not() {
        let manifest = |name: &str, dependency: &str| {
            format!("package.name = {name:?}\n[dependencies]\n{dependency}.workspace = true")
        };
        assert!(findings(&manifest("lightwait", "lightwait-core")).is_empty());
        assert_eq!(
            findings(&manifest("lightwait-core", "lightwait")),
            ["lightwait-core must not depend on lightwait"]
        );
        assert!(findings(&manifest("lightwait-sim", "lightwait-http")).is_empty());
        assert!(findings(&manifest("lightwait-sim", "lightwait")).is_empty(), "by way of http");
        assert_eq!(findings(&manifest("lightwait-sim", "lightwait-wan")).len(), 1);
        assert_eq!(findings(&manifest("lightwait-wan", "lightwait-http")).len(), 1, "beside it");
        assert_eq!(findings(&manifest("lightwait-http", "lightwait-sim")).len(), 1);
        assert_eq!(findings(&manifest("lightwait-http", "lightwait-cli")).len(), 1);
    }

    /// The page says that `http` works on any stream: one file knows ours, behind a feature.
    #[test]
    fn the_page_itself_keeps_http_and_our_sockets_apart() {
        let page = source(map::PAGE, include_str!("../../../ARCHITECTURE.md"));
        let pages = [page];
        let arrows = arrows(map::block(&pages, MARK).unwrap()).unwrap();
        assert!(!arrows["lightwait"].contains("http"));
        assert!(arrows["load"].contains("http") && arrows["load"].contains("lightwait"));
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut sources = crate::sources::tracked(root, &[".rs"]).unwrap();
        let ours = ["lightwait::", "lightwait_core::"];
        sources.retain(|source| source.path.starts_with("crates/http/src"));
        sources.retain(|source| ours.iter().any(|name| source.text.contains(name)));
        let knowing: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(knowing, ["crates/http/src/stack.rs"]);
    }

    #[test]
    fn tests_targets_and_new_names_do_not_escape() {
        let head = "package.name = 'lightwait-core'\n";
        for (table, key) in [
            ("dev-dependencies", "lightwait"),
            ("build-dependencies", "lightwait"),
            ("target.'cfg(unix)'.dependencies", "lightwait"),
        ] {
            let text = format!("{head}[{table}]\n{key}.workspace = true");
            assert_eq!(findings(&text), ["lightwait-core must not depend on lightwait"], "{table}");
        }
        let renamed = "[dependencies]\nsockets = { workspace = true, package = 'lightwait' }";
        assert_eq!(findings(&format!("{head}{renamed}")).len(), 1);
    }

    #[test]
    fn a_stranger_to_the_map_and_a_version_of_ones_own_are_found() {
        assert_eq!(
            findings("package.name = 'lightwait-common'"),
            ["lightwait-common is not on the map"]
        );
        let own = "package.name = 'lightwait-core'\n[dependencies]\nbytes = '1'";
        assert_eq!(findings(own).len(), 1);
        assert!(findings("[workspace.dependencies]\nbytes = '1'").is_empty());
    }
}
