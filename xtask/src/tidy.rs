//! The house rules that a machine can check: lengths, widths, names, hints, decisions' headings,
//! the pages' code, the map's arrows, layers and circles, the list of mutants.

mod arrows;
mod decisions;
mod excerpts;
mod functions;
mod hints;
mod layers;
mod lines;
mod map;

use std::path::Path;

use crate::mutants::List;
use crate::sources::{Source, tracked};
use crate::{Finding, Outcome};

/// Checks every rule on every tracked file.
pub(crate) fn check(root: &Path) -> Outcome {
    let mut findings = Vec::new();
    let rust = tracked(root, &[".rs"])?;
    for source in &rust {
        findings.extend(check_rust(source));
    }
    findings.extend(hints::check(&rust));
    let pages = tracked(root, &[".md", ".toml", ".ci/run", ".sh"])?;
    findings.extend(pages.iter().flat_map(lines::check_words));
    let markdown = pages.iter().filter(|page| page.path.ends_with(".md"));
    findings.extend(markdown.flat_map(lines::check_page));
    findings.extend(decisions::check(&pages));
    findings.extend(excerpts::check(&rust, &pages));
    findings.extend(layers::check(&rust, &pages)?);
    findings.extend(arrows::check(&tracked(root, &["Cargo.toml"])?, &pages)?);
    let code = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    findings.extend(List::read(root)?.check_names(code));
    Ok(findings)
}

/// Checks every rule on one Rust file.
fn check_rust(source: &Source) -> Vec<Finding> {
    let mut findings = lines::check(source);
    findings.extend(lines::check_words(source));
    findings.extend(functions::check(source));
    findings
}
