//! Every number that README.md, BENCHMARKS.md and `bench/notes` tell has its source: a stored
//! result, the paper, or the setting that it names. `bench/figures` has a list for each document.
//!
//! ```text
//!   *.md ──────────────▶ document   its text, and where its figures stand
//!   bench/figures/*.toml ▶ list     passages of the text, with a source in place of each figure
//!                          passage  finds a passage in its document
//!                          formula  a source: references, and what is computed of them
//!                          stored   a reference, looked up in a stored result
//! ```
//!
//! `bench/figures/README.md` describes the lists' format.

mod document;
mod formula;
mod list;
mod passage;
mod stored;

use std::collections::BTreeMap;
use std::path::Path;

use crate::sources::tracked;
use crate::{Finding, Outcome};
use document::{Document, Figure};
use list::List;
use passage::Hole;
use stored::Files;

/// The folder of the lists.
const LISTS: &str = "bench/figures/";
/// The list of the documents that have none.
const NOT_COVERED: &str = "bench/figures/not-covered.toml";

/// Checks every document against its list; prints how many figures have which kind of source.
pub(crate) fn check(root: &Path) -> Outcome {
    let tomls = tracked(root, &[".toml"])?;
    let lists = tomls.iter().filter(|file| file.path.starts_with(LISTS));
    let (mut findings, mut kinds) = (Vec::new(), BTreeMap::new());
    let (mut covered, mut left_out) = (Vec::new(), Vec::new());
    for file in lists {
        if file.path == NOT_COVERED {
            left_out = list::not_covered(&file.text).map_err(|e| format!("{NOT_COVERED}: {e}"))?;
            continue;
        }
        let list = List::parse(&file.path, &file.text)?;
        let text = std::fs::read_to_string(root.join(&list.document));
        let text = text.map_err(|e| format!("{}: {e}", list.document))?;
        let document = Document::read(&list.document, &text);
        findings.extend(compare(&document, &list, &Files::new(root, &list.files), &mut kinds));
        covered.push(list.document);
    }
    let documents = tracked(root, &[".md"])?;
    let documents = documents.iter().map(|file| file.path.as_str());
    let documents: Vec<&str> = documents.filter(|path| has_figures(path)).collect();
    findings.extend(uncovered(&documents, &covered, &left_out));
    let told: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("figures of {} documents: {}", covered.len(), told.join(", "));
    if !left_out.is_empty() {
        println!("warning: {} not covered yet: {}", left_out.len(), left_out.join(", "));
    }
    if let Some(count) = kinds.get(UNSOURCED) {
        println!("warning: {count} figures have no stored source, each with its reason");
    }
    Ok(findings)
}

/// The kind of a figure that has no source yet.
const UNSOURCED: &str = "without a source";

/// True for a document whose every figure needs a source.
fn has_figures(path: &str) -> bool {
    path == "README.md" || path == "BENCHMARKS.md" || path.starts_with("bench/notes/")
}

/// The documents that are neither covered nor said not to be, and those that are both or gone.
fn uncovered(documents: &[&str], covered: &[String], left_out: &[String]) -> Vec<Finding> {
    let listed = |list: &[String], path: &str| list.iter().any(|other| other == path);
    let missing = documents.iter().filter(|path| !listed(covered, path) && !listed(left_out, path));
    let missing = missing.map(|path| {
        Finding::new(path, 0, format!("has no list under {LISTS}, and is not in {NOT_COVERED}"))
    });
    let wrong = left_out.iter().filter_map(|path| {
        let why = match (listed(covered, path), documents.contains(&path.as_str())) {
            (true, _) => "is covered",
            (false, true) => return None,
            (false, false) => "is no such document",
        };
        Some(Finding::new(NOT_COVERED, 0, format!("{path} {why}: take it off this list")))
    });
    missing.chain(wrong).collect()
}

/// Compares a document with its list, and counts its figures by the kind of their source.
fn compare(
    document: &Document,
    list: &List,
    files: &Files,
    kinds: &mut BTreeMap<&'static str, usize>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut owners = vec![0_usize; document.figures.len()];
    let mut unsourced = BTreeMap::<&str, usize>::new();
    for passage in &list.passages {
        let found = match passage.find(document) {
            Ok(found) => found,
            Err(why) => {
                findings.push(Finding::new(&list.path, passage.line, why));
                continue;
            }
        };
        let mut last = None;
        for (index, hole) in found {
            owners[index] += 1;
            let figure = &document.figures[index];
            let (kind, same) = match hole {
                Hole::Setting => ("settings", Ok(())),
                Hole::Paper(text) => ("of the papers", is_written(figure, text)),
                Hole::Unsourced(key, text) => {
                    *unsourced.entry(key).or_default() += 1;
                    (UNSOURCED, is_written(figure, text))
                }
                Hole::Stored(formula) => {
                    ("of stored results", formula.is(figure, files, &mut last))
                }
            };
            if let Err(why) = same {
                let place = format!("{}:{}", list.path, passage.line);
                let text = format!("{}: {why} (source: {place})", figure.text);
                findings.push(Finding::new(&document.path, figure.line, text));
            }
            *kinds.entry(kind).or_default() += 1;
        }
    }
    for (figure, owners) in document.figures.iter().zip(owners) {
        let text = match owners {
            0 => format!("{}: has no source: give it one in {}", figure.text, list.path),
            1 => continue,
            more => format!("{}: has {more} sources in {}", figure.text, list.path),
        };
        findings.push(Finding::new(&document.path, figure.line, text));
    }
    findings.extend(list.check_unsourced(&unsourced));
    findings
}

/// Says why a figure is not the one that its list writes out.
fn is_written(figure: &Figure, text: &str) -> Result<(), String> {
    match figure.text == text {
        true => Ok(()),
        false => Err(format!("is {text} in the list: correct one of them")),
    }
}

#[cfg(test)]
mod tests;
