//! The Rust code of the pages. The compiler sees README's, and a crate's front page's, by a
//! documentation test. A block of another page is an excerpt: it stands in a Rust file, line by
//! line, indented as it may be.

use crate::Finding;
use crate::sources::Source;

/// The page whose code is compiled where it stands.
const COMPILED: &str = "README.md";

/// Checks the blocks of Rust in `pages`, which have excerpts of `rust`.
pub(super) fn check(rust: &[Source], pages: &[Source]) -> Vec<Finding> {
    let pages = pages.iter().filter(|page| page.path.ends_with(".md") && page.path != COMPILED);
    let pages = pages.filter(|page| !is_front_page(rust, &page.path));
    pages.flat_map(|page| check_page(rust, page)).collect()
}

/// True if the library beside that page has it in a documentation test.
fn is_front_page(rust: &[Source], page: &str) -> bool {
    let Some(folder) = page.strip_suffix(COMPILED) else { return false };
    let library = format!("{folder}src/lib.rs");
    let includes = |source: &Source| source.text.contains("include_str!(\"../README.md\")");
    rust.iter().any(|source| source.path == library && includes(source))
}

fn check_page(rust: &[Source], page: &Source) -> Vec<Finding> {
    let lines: Vec<&str> = page.text.lines().map(str::trim).collect();
    let begins = (0..lines.len()).filter(|at| lines[*at].starts_with("```rust"));
    let finding = |at: usize| {
        let code = &lines[at + 1..];
        let code = &code[..code.iter().position(|line| *line == "```").unwrap_or(code.len())];
        let has_code = |source: &Source| {
            let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
            lines.windows(code.len().max(1)).any(|window| window == code)
        };
        let text = "no Rust file has this code: a test must compile it";
        (!rust.iter().any(has_code)).then(|| Finding::new(&page.path, at + 1, text))
    };
    begins.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pages_code_stands_in_a_rust_file() {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
        let rust = [source("a.rs", "fn main() {\n    one();\n    two();\n    three();\n}\n")];
        let count = |path: &str, code: &str| {
            let page = format!("Text.\n\n   ```rust,ignore\n{code}   ```\n\nText.\n");
            check(&rust, &[source(path, &page)]).len()
        };
        assert_eq!(count("docs/a.md", "   one();\n   two();\n"), 0);
        assert_eq!(count("docs/a.md", "   one();\n   three();\n"), 1);
        assert_eq!(count("docs/a.md", "   one()\n"), 1, "a line is whole");
        assert_eq!(count("docs/a.md", ""), 1);
        assert_eq!(count("README.md", "   four();\n"), 0);
        assert_eq!(count("xtask/README.md", "   four();\n"), 1);
        let library =
            "#[cfg(doctest)]\n#[doc = include_str!(\"../README.md\")]\nstruct FrontPage;\n";
        let rust = [source("crates/a/src/lib.rs", library)];
        let page = |path: &str| source(path, "```rust\nfour();\n```\n");
        assert_eq!(check(&rust, &[page("crates/a/README.md")]).len(), 0);
        assert_eq!(check(&rust, &[page("crates/b/README.md")]).len(), 1);
    }
}
