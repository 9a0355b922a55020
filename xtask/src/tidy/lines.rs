//! Rules about a file's name, its length, the width of its lines and the names of its functions.

use crate::Finding;
use crate::sources::{Source, is_test_path};

/// Columns in a line, at most. A line of code with a URL, and one of Markdown that is a single word
/// (a link), may be longer: it cannot be broken.
const LINE_COLUMNS: usize = 100;
/// Characters in a function's name, at most. The name of a test is a sentence.
const NAME_CHARACTERS: usize = 60;
/// Lines in a file, at most, including tests within it; files with only tests are exempt.
const FILE_LINES: usize = 600;

/// Words that the repository must not contain. Joined here, or this file would break the rule.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// Checks the name, length and width of a Rust file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let path = source.path.as_str();
    let mut findings = Vec::new();
    if path.ends_with("/mod.rs") {
        findings.push(Finding::new(path, 0, "no mod.rs: put `foo.rs` beside the folder `foo/`"));
    }
    let count = source.text.lines().count();
    if count > FILE_LINES && !is_test_path(path) {
        let text = format!("{count} lines; a file is one idea, in at most {FILE_LINES}");
        findings.push(Finding::new(path, 0, text));
    }
    for (index, line) in source.text.split('\n').enumerate() {
        let texts = check_line(line).into_iter().chain(check_name(line));
        findings.extend(texts.map(|text| Finding::new(path, index + 1, text)));
    }
    findings
}

/// The mistake in the name of the function that begins on a line, if there is one. A walk of the
/// syntax would miss the tests inside of `proptest!`.
fn check_name(line: &str) -> Option<String> {
    let (before, after) = line.split_once("fn ")?;
    let is_word = before.is_empty() || before.ends_with(' ');
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let count = name.chars().count();
    (is_word && count > NAME_CHARACTERS)
        .then(|| format!("`{name}` has {count} characters; at most {NAME_CHARACTERS}"))
}

/// The mistake in a line's form, if there is one.
fn check_line(line: &str) -> Option<String> {
    let columns = line.chars().count();
    if columns > LINE_COLUMNS && !line.contains("://") {
        return Some(format!("{columns} columns; at most {LINE_COLUMNS}"));
    }
    if line.contains('\t') {
        return Some("a tab; indent with spaces".to_owned());
    }
    if line.ends_with([' ', '\r']) {
        return Some("white space at the end of the line".to_owned());
    }
    None
}

/// Checks the width of the lines of a page of Markdown, its tables and code included.
pub(super) fn check_page(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate();
    let wide = lines.filter_map(|(index, line)| {
        let columns = line.chars().count();
        let is_broken = line.trim_start().trim_start_matches("- ").contains(' ');
        (columns > LINE_COLUMNS && is_broken).then(|| {
            let text = format!("{columns} columns; at most {LINE_COLUMNS}");
            Finding::new(&source.path, index + 1, text)
        })
    });
    wide.collect()
}

/// Finds words that no tracked text may contain.
pub(super) fn check_words(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(word) = words.into_iter().find(|word| UNFINISHED.contains(word)) {
            let text = format!("{word}: finish it, or write down the limit and its reason");
            findings.push(Finding::new(&source.path, index + 1, text));
        }
        if let Some(start) = MACHINE_PATHS.iter().find(|start| line.contains(**start)) {
            let text = format!("{start}… exists on one machine only");
            findings.push(Finding::new(&source.path, index + 1, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: impl Into<String>) -> Source {
        Source { path: path.to_owned(), text: text.into() }
    }

    #[test]
    fn a_file_of_600_lines_passes_and_one_of_601_does_not() {
        assert_eq!(check(&source("a.rs", "x\n".repeat(600))), []);
        let findings = check(&source("a.rs", "x\n".repeat(601)));
        assert!(findings[0].text.starts_with("601 lines"), "{findings:?}");
        assert_eq!(check(&source("a/tests.rs", "x\n".repeat(601))), []);
    }

    #[test]
    fn a_line_of_100_columns_passes_and_one_of_101_does_not() {
        assert_eq!(check_line(&"é".repeat(100)), None);
        assert!(check_line(&"é".repeat(101)).unwrap().starts_with("101 columns"));
        assert_eq!(check_line(&format!("// https://{}", "x".repeat(100))), None);
    }

    #[test]
    fn a_name_of_60_characters_passes_and_one_of_61_does_not() {
        let function = |count| format!("    pub async fn {}() {{", "x".repeat(count));
        assert_eq!(check(&source("a.rs", function(60))), []);
        let findings = check(&source("a.rs", function(61)));
        assert!(findings[0].text.ends_with("has 61 characters; at most 60"), "{findings:?}");
        assert_eq!(check(&source("a.rs", format!("// soft_fn {}", "x".repeat(61)))), []);
    }

    #[test]
    fn a_page_keeps_100_columns_but_for_a_link_alone() {
        let cells = |count| format!("| {} |", "é".repeat(count));
        assert_eq!(check_page(&source("a.md", cells(96))), []);
        let findings = check_page(&source("a.md", format!("x\n{}", cells(97))));
        assert_eq!(findings[0].to_string(), "a.md:2: 101 columns; at most 100");
        let link = format!("  - [`f`](https://{}),", "x".repeat(100));
        assert_eq!(check_page(&source("a.md", link.clone())), []);
        assert_eq!(check_page(&source("a.md", format!("{link} more"))).len(), 1);
    }

    #[test]
    fn tabs_and_trailing_space_are_found() {
        assert_eq!(check_line("    let x = 1;"), None);
        assert!(check_line("\tlet x = 1;").is_some());
        assert!(check_line("let x = 1; ").is_some());
        assert!(check_line("let x = 1;\r").is_some());
    }

    #[test]
    fn mod_rs_is_refused_and_a_file_beside_its_folder_is_not() {
        assert_eq!(check(&source("src/wire.rs", "")), []);
        assert_eq!(check(&source("src/wire/mod.rs", "")).len(), 1);
    }

    #[test]
    fn unfinished_business_is_found_as_a_word_only() {
        let word = concat!("TO", "DO");
        assert_eq!(check_words(&source("a.rs", format!("// {word}S_LEFT are fine"))), []);
        let findings = check_words(&source("a.rs", format!("fine\n// {word}: this")));
        assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn machine_paths_are_found_and_devices_are_not() {
        assert_eq!(check_words(&source("a.rs", "open(\"/dev/net/tun\")")), []);
        let path = concat!("/ho", "me/someone/file");
        assert_eq!(check_words(&source("a.rs", path)).len(), 1);
    }
}
