//! The blocks of ARCHITECTURE.md that checks read: lines of names with `←` between them.
//!
//! ```text
//! one ← {two, three} ← four
//! ```

use crate::sources::Source;

/// The page with the blocks.
pub(super) const PAGE: &str = "ARCHITECTURE.md";

/// The first block behind `mark` on the page.
pub(super) fn block<'a>(pages: &'a [Source], mark: &str) -> Result<&'a str, String> {
    let page = pages.iter().find(|page| page.path == PAGE).ok_or(format!("no {PAGE}"))?;
    let after = page.text.split_once(mark).ok_or(format!("{PAGE}: no line says {mark:?}"))?.1;
    after.split("```").nth(1).ok_or(format!("{PAGE}: no block after {mark:?}"))
}

/// The names between the arrows of `text`, from the left.
pub(super) fn groups(text: &str) -> Result<Vec<Vec<&str>>, String> {
    let groups: Vec<Vec<&str>> = text.split('←').map(names_in).collect();
    let is_empty = groups.iter().flatten().any(|name| name.is_empty());
    if is_empty { Err(format!("{PAGE}: no name beside an arrow of {text:?}")) } else { Ok(groups) }
}

fn names_in(group: &str) -> Vec<&str> {
    group.trim().trim_matches(['{', '}']).split(',').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_and_blocks_have_marks() {
        assert_eq!(groups(" {a, b}\n ← c "), Ok(vec![vec!["a", "b"], vec!["c"]]));
        assert_eq!(groups("a"), Ok(vec![vec!["a"]]));
        assert!(groups("a ← ").is_err());
        assert!(groups("{a, } ← b").is_err());
        let page = |text: &str| [Source { path: PAGE.to_owned(), text: text.to_owned() }];
        assert_eq!(block(&page("```\n1\n```\nmark:\n```\n2\n```"), "mark"), Ok("\n2\n"));
        assert!(block(&page("```\n1\n```\nmark:"), "mark").is_err());
        assert!(block(&page("```\n1\n```"), "mark").is_err());
        assert!(block(&[], "mark").is_err());
    }
}
