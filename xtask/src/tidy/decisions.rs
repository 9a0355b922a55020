//! The form of a decision: context, decision, cost, and what was measured, or why nothing was.

use crate::Finding;
use crate::sources::Source;

/// Where decisions are.
const FOLDER: &str = "docs/decisions/";
/// The headings of a decision, in their order.
const HEADINGS: [&str; 4] = ["## Context", "## Decision", "## Cost", "## Measured"];

/// Checks each page of [`FOLDER`] that begins with a number.
pub(super) fn check(pages: &[Source]) -> Vec<Finding> {
    let is_decision = |page: &&Source| {
        let name = page.path.strip_prefix(FOLDER);
        name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()))
    };
    pages.iter().filter(is_decision).filter_map(check_page).collect()
}

/// The mistake in a page's headings: they are others, in another order, or one has no text.
fn check_page(page: &Source) -> Option<Finding> {
    let found: Vec<&str> = page.text.lines().filter(|line| line.starts_with("## ")).collect();
    if found != HEADINGS {
        let text = format!("a decision has the headings {HEADINGS:?}, not {found:?}");
        return Some(Finding::new(&page.path, 0, text));
    }
    let sections = page.text.split("\n## ").skip(1);
    let empty = sections.zip(HEADINGS).find(|(section, _)| section.trim().lines().count() < 2)?.1;
    Some(Finding::new(&page.path, 0, format!("nothing stands under {empty:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: String) -> usize {
        check(&[Source { path: path.to_owned(), text }]).len()
    }

    #[test]
    fn a_decision_has_four_sections_in_their_order() {
        let whole = HEADINGS.map(|heading| format!("{heading}\n\nText.\n")).join("\n");
        let page = |text: &str| format!("# Title\n\n{text}");
        let path = "docs/decisions/0001-a.md";
        assert_eq!(found(path, page(&whole)), 0);
        assert_eq!(found(path, page(&whole.replace("## Cost", "**Cost**"))), 1);
        assert_eq!(found(path, page(&whole.replace("## Cost", "## Costs"))), 1);
        let turned = whole.replace("Cost", "x").replace("Context", "Cost").replace('x', "Context");
        assert_eq!(found(path, page(&turned)), 1);
        assert_eq!(found(path, page(whole.trim_end().trim_end_matches("Text."))), 1);
        assert_eq!(found("docs/decisions/README.md", page("- 0001")), 0);
    }
}
