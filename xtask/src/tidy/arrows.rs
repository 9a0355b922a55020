//! The map of dependencies between crates. No arrow points right.
//!
//! ```text
//! processor ← core ← netem ← lightwait ← http ← load ← cli
//! {core, netem, lightwait} ← wan ← cli, experiments
//! {core, netem, lightwait, http, load} ← sim ← bench ← experiments
//! heap ← bench, experiments
//! core ← conformance, fuzz
//! ```

use toml::{Table, Value};

use crate::Finding;
use crate::sources::Source;

/// Each of our crates, with those that it may depend on.
const MAP: [(&str, &[&str]); 17] = [
    ("lightwait-processor", &[]),
    ("lightwait-core", &["lightwait-processor"]),
    ("lightwait-netem", &["lightwait-core"]),
    ("lightwait", &["lightwait-core", "lightwait-netem"]),
    ("lightwait-http", &["lightwait-core", "lightwait-netem", "lightwait"]),
    ("lightwait-load", &["lightwait-core", "lightwait-netem", "lightwait", "lightwait-http"]),
    ("lightwait-wan", &["lightwait-core", "lightwait-netem", "lightwait"]),
    ("lightwait-cli", &TO_WAN),
    ("lightwait-sim", &TO_LOAD),
    // The experiments measure the papers' costs as the benches do.
    ("lightwait-experiments", &TO_BENCH),
    ("lightwait-bench", &TO_PEERS),
    ("lightwait-heap", &[]),
    ("lightwait-lwip", &[]),
    ("lightwait-conformance", &["lightwait-core"]),
    ("lightwait-fuzz", &["lightwait-core", "lightwait-netem"]),
    ("lightwait-examples", &TO_LOAD),
    ("lightwait-xtask", &[]),
];
const TO_LOAD: [&str; 5] =
    ["lightwait-core", "lightwait-netem", "lightwait", "lightwait-http", "lightwait-load"];
const TO_WAN: [&str; 6] = [
    "lightwait-core",
    "lightwait-netem",
    "lightwait",
    "lightwait-http",
    "lightwait-load",
    "lightwait-wan",
];
const TO_PEERS: [&str; 8] = [
    "lightwait-core",
    "lightwait-netem",
    "lightwait",
    "lightwait-http",
    "lightwait-load",
    "lightwait-sim",
    "lightwait-heap",
    "lightwait-lwip",
];
const TO_BENCH: [&str; 9] = [
    "lightwait-core",
    "lightwait-netem",
    "lightwait",
    "lightwait-http",
    "lightwait-load",
    "lightwait-wan",
    "lightwait-sim",
    "lightwait-heap",
    "lightwait-bench",
];

/// The tables of dependencies in a manifest. Arrows hold for tests as well: a crate must be
/// testable without the crates above it.
const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Checks all manifests.
pub(super) fn check(manifests: &[Source]) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for manifest in manifests {
        let table: Table = manifest.text.parse().map_err(|e| format!("{}: {e}", manifest.path))?;
        findings.extend(check_manifest(&manifest.path, &table));
    }
    Ok(findings)
}

/// Checks one manifest. The workspace's own has no package and passes.
fn check_manifest(path: &str, table: &Table) -> Vec<Finding> {
    let name = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let Some(name) = name else { return Vec::new() };
    let Some((_, allowed)) = MAP.iter().find(|(package, _)| *package == name) else {
        return vec![Finding::new(path, 0, format!("{name} is not on the map"))];
    };
    let mut findings = Vec::new();
    for (key, value) in dependencies(table) {
        let dependency = value.get("package").and_then(Value::as_str).unwrap_or(key);
        let ours = dependency == "lightwait" || dependency.starts_with("lightwait-");
        // A crate may name itself among its own development dependencies.
        if ours && dependency != name && !allowed.contains(&dependency) {
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

    fn findings(text: &str) -> Vec<String> {
        let manifest = Source { path: "Cargo.toml".to_owned(), text: text.to_owned() };
        check(&[manifest]).unwrap().into_iter().map(|finding| finding.text).collect()
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
        assert_eq!(findings(&manifest("lightwait-http", "lightwait-sim")).len(), 1);
        assert_eq!(findings(&manifest("lightwait-http", "lightwait-cli")).len(), 1);
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
