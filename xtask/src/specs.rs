//! The map of the RFCs' requirements: each requirement has its code and its test, or the reason why
//! not. `specs/README.md` describes the map's format.
//!
//! ```text
//!   specs/rfc*.toml ─▶ entries ─┬─▶ completeness   no requirement is missing
//!                               ├─▶ citations      cited code exists, and cited tests run
//!                               ├─▶ exceptions     specs/README.md and the map agree
//!                               ├─▶ page           docs/requirements.md is generated from the maps
//!                               └─▶ against        with the RFCs at hand: our quotes are there
//! ```

mod against;
mod citations;
mod completeness;
mod entries;
mod exceptions;
mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::sources::tracked;
use crate::{Finding, Outcome};
use entries::{Map, Requirement, Status};

/// The generated page.
const PAGE: &str = "docs/requirements.md";
/// The page that names the exceptions.
const EXCEPTIONS: &str = "specs/README.md";

/// The options of the check.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// Write the page anew.
    pub(crate) write: bool,
    /// Compare with the texts `rfcN.txt` in this folder.
    pub(crate) against: Option<PathBuf>,
}

/// Checks every rule on every map; prints the summary.
pub(crate) fn check(root: &Path, wishes: &Wishes) -> Outcome {
    let sources = tracked(root, &[".toml"])?;
    let files = sources.iter().filter(|source| source.path.starts_with("specs/rfc"));
    let (mut maps, mut findings) = (Vec::new(), Vec::new());
    for source in files {
        let (map, wrong) = Map::parse(source);
        maps.extend(map);
        findings.extend(wrong);
    }
    if maps.is_empty() {
        return Err("no map found under specs/".to_owned());
    }
    maps.sort_by_key(|map| (map.rfc != 9293, map.rfc));
    findings.extend(completeness::check(&maps));
    findings.extend(citations::check(root, &maps));
    let readme = std::fs::read_to_string(root.join(EXCEPTIONS)).map_err(|e| e.to_string())?;
    findings.extend(exceptions::check(&readme, &maps));
    if let Some(folder) = &wishes.against {
        for map in &maps {
            let path = folder.join(format!("rfc{}.txt", map.rfc));
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
            findings.extend(against::check(map, &text));
        }
    }
    let made = page::render(&maps);
    if wishes.write {
        std::fs::write(root.join(PAGE), &made).map_err(|e| format!("{PAGE}: {e}"))?;
    }
    let kept = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    findings.extend(page::difference(&kept, &made));
    for line in page::summary(&maps) {
        println!("{line}");
    }
    Ok(findings)
}

/// The state of a requirement, once `same_as` is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Met,
    Excused,
    Open,
}

/// Every requirement by its id.
fn by_id(maps: &[Map]) -> BTreeMap<&str, &Requirement> {
    maps.iter().flat_map(|map| &map.requirements).map(|entry| (entry.id.as_str(), entry)).collect()
}

fn standing(entry: &Requirement, all: &BTreeMap<&str, &Requirement>) -> Standing {
    match &entry.status {
        Status::Met => Standing::Met,
        Status::Excused(_) => Standing::Excused,
        Status::Open(_) => Standing::Open,
        // One step only: `completeness` refuses a chain.
        Status::SameAs(id) => match all.get(id.as_str()).map(|other| &other.status) {
            Some(Status::Met) => Standing::Met,
            Some(Status::Excused(_)) => Standing::Excused,
            _ => Standing::Open,
        },
    }
}

/// A finding about one entry, at the line where its id stands.
fn about(map: &Map, entry: &Requirement, text: impl Into<String>) -> Finding {
    Finding::new(&map.path, entry.line, format!("{}: {}", entry.id, text.into()))
}
