//! Every hop of the two walks in ARCHITECTURE.md is a function, a type or a file that there is.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What lies in `folder` and below it, tests aside: the path of each source, and its text.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().replace('\\', "/");
        if path.is_dir() && !name.ends_with("/tests") {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("/tests.rs") {
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// What stands between backticks in the walks.
fn hops(page: &str) -> Vec<&str> {
    let walks = page.split_once("## 3. One segment in").unwrap().1.split_once("## 5.").unwrap().0;
    walks.split('`').skip(1).step_by(2).collect()
}

/// True if a word of the kinds stands before `name` somewhere in `text`, and the name ends there.
fn declares(text: &str, kinds: &[&str], name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    kinds.iter().any(|kind| {
        let declaration = format!("{kind} {name}");
        text.match_indices(&declaration).any(|(at, found)| ends(&text[at + found.len()..]))
    })
}

/// True if there is what `hop` names: of a method, in a file that names its type.
fn exists(hop: &str, sources: &[(String, String)]) -> bool {
    const TYPES: [&str; 3] = ["struct", "enum", "trait"];
    if hop.ends_with(".rs") {
        return sources.iter().any(|(path, _)| path.ends_with(&format!("/{hop}")));
    }
    let (owner, name) = hop.rsplit_once("::").unwrap_or(("", hop));
    let owner = owner.rsplit("::").next().unwrap_or_default();
    let file = format!("/{}.rs", hop.replace("::", "/"));
    sources.iter().any(|(path, text)| {
        let is_type = name.starts_with(char::is_uppercase);
        let kinds: &[&str] = if is_type { &TYPES } else { &["fn"] };
        let is_of_owner = text.contains(owner) || path.ends_with(&format!("/{owner}.rs"));
        is_of_owner && declares(text, kinds, name)
            || text.contains(&format!("use bytes::{name}"))
            || path.ends_with(&file)
    })
}

#[test]
fn every_hop_of_the_walks_is_there() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut all = Vec::new();
    for folder in ["crates/core/src", "crates/lightwait/src"] {
        sources(&root().join(folder), &mut all);
    }
    let hops = hops(&page);
    assert!(hops.len() > 60, "{} hops", hops.len());
    let missing: Vec<_> = hops.into_iter().filter(|hop| !exists(hop, &all)).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
    for gone in ["take_fast", "Host::on_tcp", "wire::unusual", "Sight", "host/tcp_output.rs"] {
        assert!(!exists(gone, &all), "{gone}");
    }
}
