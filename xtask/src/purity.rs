//! Purity: `core` and `netem` use neither clock, randomness, thread, file nor socket.
//!
//! There are three proofs, from the strongest on. The crates build for `wasm32-unknown-unknown`,
//! which has none of these (if that target is installed). They are `no_std` and forbid `unsafe`, so
//! that the compiler refuses the standard library and foreign functions. Their dependencies are the
//! short list below, and each is `no_std` without its default features.

use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, File, ItemExternCrate, ItemMod};

use crate::sources::{Source, is_test_path, run, tracked};
use crate::{Finding, Outcome};

/// The pure crates: package, folder, and the whole tree of allowed dependencies.
const PURE: [(&str, &str, &[&str]); 2] = [
    (
        "lightwait-core",
        "crates/core/src/",
        &["bytes", "hashbrown", "siphasher", "lightwait-processor", "cpufeatures"],
    ),
    (
        "lightwait-netem",
        "crates/netem/src/",
        &[
            "bytes",
            "hashbrown",
            "siphasher",
            "lightwait-processor",
            "cpufeatures",
            "lightwait-core",
        ],
    ),
];
/// A target without an operating system.
const TARGET: &str = "wasm32-unknown-unknown";

/// Checks all proofs of both crates.
pub(crate) fn check(root: &Path) -> Outcome {
    let mut findings = Vec::new();
    let sources = tracked(root, &[".rs"])?;
    for (package, folder, allowed) in PURE {
        for source in sources.iter().filter(|source| source.path.starts_with(folder)) {
            findings.extend(check_source(source, source.path == format!("{folder}lib.rs")));
        }
        let tree =
            run(root, "cargo", &["tree", "-p", package, "-e", "normal", "--prefix", "none"])?;
        findings.extend(check_tree(package, allowed, &tree));
    }
    match run(root, "rustup", &["target", "list", "--installed"]) {
        Ok(targets) if targets.lines().any(|line| line == TARGET) => {
            let mut args = vec!["build", "--quiet", "--target", TARGET];
            args.extend(PURE.iter().flat_map(|(package, ..)| ["-p", *package]));
            if let Err(why) = run(root, "cargo", &args) {
                findings.push(Finding::new("core, netem", 0, format!("no build: {why}")));
            }
        }
        _ => println!("purity: {TARGET} is not installed; the sources alone were checked"),
    }
    Ok(findings)
}

/// Checks the rules for a source file of a pure crate.
fn check_source(source: &Source, is_root: bool) -> Vec<Finding> {
    if is_test_path(&source.path) {
        return Vec::new();
    }
    let file = match syn::parse_file(&source.text) {
        Ok(file) => file,
        Err(e) => return vec![Finding::new(&source.path, e.span().start().line, e.to_string())],
    };
    let mut findings = Vec::new();
    if is_root {
        for (wanted, present) in root_attributes(&file) {
            if !present {
                findings.push(Finding::new(&source.path, 0, format!("lacks `#![{wanted}]`")));
            }
        }
    }
    let mut walk = Walk { path: &source.path, findings };
    walk.visit_file(&file);
    walk.findings
}

/// The attributes that the crate's root must have, and whether it has them.
fn root_attributes(file: &File) -> [(&'static str, bool); 2] {
    let no_std = file.attrs.iter().any(|a| a.path().is_ident("no_std"));
    let forbid = file.attrs.iter().any(|a| {
        a.path().is_ident("forbid")
            && a.parse_args::<syn::Path>().is_ok_and(|inner| inner.is_ident("unsafe_code"))
    });
    [("no_std", no_std), ("forbid(unsafe_code)", forbid)]
}

/// A walk that finds every mention of `std` outside the tests.
struct Walk<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_cfg_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast ItemExternCrate) {
        if !is_cfg_test(&item.attrs) {
            visit::visit_item_extern_crate(self, item);
        }
    }

    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        if ident == "std" {
            let text = "`std` outside the tests of a pure crate";
            self.findings.push(Finding::new(self.path, ident.span().start().line, text));
        }
    }
}

/// True for an item that only a test build contains.
fn is_cfg_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("cfg")
            && a.parse_args::<syn::Path>().is_ok_and(|inner| inner.is_ident("test"))
    })
}

/// Compares the lines of `cargo tree --prefix none` with the list.
fn check_tree(package: &str, allowed: &[&str], tree: &str) -> Vec<Finding> {
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != package && !allowed.contains(name))
        .map(|name| {
            Finding::new(package, 0, format!("depends on {name}, which is not on its list"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(is_root: bool, text: &str) -> Vec<String> {
        let source = Source { path: "crates/core/src/lib.rs".to_owned(), text: text.to_owned() };
        check_source(&source, is_root).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_pure_root_says_so() {
        assert!(texts(true, "#![no_std]\n#![forbid(unsafe_code)]").is_empty());
        assert_eq!(texts(true, "#![no_std]"), ["lacks `#![forbid(unsafe_code)]`"]);
        assert_eq!(texts(true, "#![forbid(unsafe_code)]"), ["lacks `#![no_std]`"]);
        assert!(texts(false, "fn f() {}").is_empty());
    }

    #[test]
    fn the_standard_library_is_for_tests() {
        assert!(texts(false, "#[cfg(test)]\nextern crate std;").is_empty());
        assert!(texts(false, "#[cfg(test)]\nmod tests { use std::vec; }").is_empty());
        assert!(texts(false, "use core::time::Duration; // not std::time").is_empty());
        assert_eq!(texts(false, "extern crate std;").len(), 1);
        assert_eq!(texts(false, "fn f() { std::process::exit(1) }").len(), 1);
        assert_eq!(texts(false, "mod tests { use std::vec; }").len(), 1);
    }

    #[test]
    fn a_dependency_that_is_not_listed_is_found() {
        let tree = "lightwait-core v0.1.0 (dir)\nbytes v1.0.0\n";
        assert_eq!(check_tree("lightwait-core", &["bytes"], tree), []);
        assert_eq!(check_tree("lightwait-core", &["hashbrown"], tree).len(), 1);
    }
}
