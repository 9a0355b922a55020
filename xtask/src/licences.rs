//! Licences: the licence of every package in the lock file must be on the list in `deny.toml`.
//!
//! `cargo deny check licenses` reads that list as well. This check needs no further tool.

use std::path::Path;

use serde_json::Value;
use toml::Table;

use crate::sources::run;
use crate::{Finding, Outcome};

/// Checks every package's licence against the list.
pub(crate) fn check(root: &Path) -> Outcome {
    let text = std::fs::read_to_string(root.join("deny.toml")).map_err(|e| e.to_string())?;
    let allowed = allow_list(&text)?;
    let metadata = run(root, "cargo", &["metadata", "--format-version", "1", "--quiet"])?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| e.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().filter_map(|package| check_package(package, &allowed)).collect())
}

/// Reads `licenses.allow` of `deny.toml`.
fn allow_list(text: &str) -> Result<Vec<String>, String> {
    let table: Table = text.parse().map_err(|e| format!("deny.toml: {e}"))?;
    let allow = table.get("licenses").and_then(|licences| licences.get("allow")?.as_array());
    let allow = allow.ok_or("deny.toml: no list `licenses.allow`")?;
    Ok(allow.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

/// Checks one package of `cargo metadata`.
fn check_package(package: &Value, allowed: &[String]) -> Option<Finding> {
    let name = package["name"].as_str().unwrap_or("?");
    let Some(licence) = package["license"].as_str() else {
        return Some(Finding::new(name, 0, "states no licence"));
    };
    match is_allowed(licence, allowed) {
        Ok(true) => None,
        Ok(false) => Some(Finding::new(name, 0, format!("{licence}: not on deny.toml's list"))),
        Err(why) => Some(Finding::new(name, 0, format!("{licence}: {why}"))),
    }
}

/// Evaluates an SPDX expression: a licence counts as true if it is on the list. The old form
/// `A/B` means `A OR B`.
fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let value = words.any()?;
    if words.at < words.words.len() { Err("not an SPDX expression".to_owned()) } else { Ok(value) }
}

/// A cursor over the words of an SPDX expression.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a [String],
}

impl Words<'_> {
    fn take(&mut self, word: &str) -> bool {
        let here = self.words.get(self.at) == Some(&word);
        self.at += usize::from(here);
        here
    }

    /// `all (OR all)*`
    fn any(&mut self) -> Result<bool, String> {
        let mut value = self.all()?;
        while self.take("OR") {
            value |= self.all()?;
        }
        Ok(value)
    }

    /// `one (AND one)*`: AND binds closer than OR.
    fn all(&mut self) -> Result<bool, String> {
        let mut value = self.one()?;
        while self.take("AND") {
            value &= self.one()?;
        }
        Ok(value)
    }

    /// `( any )` or `licence [WITH exception]`
    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let value = self.any()?;
            return if self.take(")") { Ok(value) } else { Err("a bracket is open".to_owned()) };
        }
        let word = *self.words.get(self.at).ok_or("the expression ends early")?;
        if ["OR", "AND", "WITH", ")"].contains(&word) {
            return Err(format!("{word} where a licence should be"));
        }
        self.at += 1;
        let mut name = word.to_owned();
        if self.take("WITH") {
            let exception = self.words.get(self.at).ok_or("WITH what?")?;
            name = format!("{name} WITH {exception}");
            self.at += 1;
        }
        Ok(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expression: &str) -> Result<bool, String> {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        is_allowed(expression, &allowed)
    }

    #[test]
    fn one_of_either_licence_is_enough_and_all_of_both_are_needed() {
        assert_eq!(verdict("MIT"), Ok(true));
        assert_eq!(verdict("GPL-3.0"), Ok(false));
        assert_eq!(verdict("GPL-3.0 OR MIT"), Ok(true));
        assert_eq!(verdict("GPL-3.0/MIT"), Ok(true));
        assert_eq!(verdict("GPL-3.0 AND MIT"), Ok(false));
        assert_eq!(verdict("(MIT OR Apache-2.0) AND MIT"), Ok(true));
        assert_eq!(verdict("(MIT OR Apache-2.0) AND ISC"), Ok(false));
        assert_eq!(verdict("ISC OR MIT AND Apache-2.0"), Ok(true));
    }

    #[test]
    fn an_exception_is_part_of_the_name() {
        assert_eq!(verdict("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(verdict("MIT WITH LLVM-exception"), Ok(false));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for bad in ["", "MIT OR", "(MIT", "MIT MIT", "OR MIT", "MIT WITH"] {
            assert!(verdict(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn packages_without_or_with_a_strange_licence_are_named() {
        let allowed = allow_list("[licenses]\nallow = ['MIT']").unwrap();
        let package = |licence| serde_json::json!({ "name": "x", "license": licence });
        assert_eq!(check_package(&package(Some("MIT")), &allowed), None);
        assert!(check_package(&package(Some("ISC")), &allowed).is_some());
        assert!(check_package(&package(None), &allowed).is_some());
        assert!(allow_list("[licenses]").is_err());
    }
}
