//! Limits hints to the compiler, since a profile gives it better information. Code has no marks for
//! coldness. The engine has inlining attributes only where instruction counts show that the plain
//! build needs them.

use crate::Finding;
use crate::sources::{Source, is_test_path};

/// Folders in which no function or branch is marked cold or kept from being inlined.
const WITHOUT_COLDNESS: [&str; 2] = ["crates/core/src/", "crates/lightwait/src/"];
/// The marks of coldness.
const COLDNESS: [&str; 4] = ["#[cold]", "#[inline(never)]", "cold_path(", "unlikely("];
/// The crate whose inlining attributes are counted, and their maximum.
const COUNTED: &str = "crates/core/src/";
const INLINED: usize = 105;

/// Finds marks of coldness, line by line, and reports too many inlining attributes.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let code = || sources.iter().filter(|source| !is_test_path(&source.path));
    let mut findings: Vec<_> = code().flat_map(coldness).collect();
    let inlined: usize = code().filter(|s| s.path.starts_with(COUNTED)).map(inlined).sum();
    if inlined > INLINED {
        let text = format!("{inlined} functions are inlined by hand; at most {INLINED}");
        findings.push(Finding::new(COUNTED, 0, text));
    }
    findings
}

fn coldness(source: &Source) -> Vec<Finding> {
    if !WITHOUT_COLDNESS.iter().any(|start| source.path.starts_with(start)) {
        return Vec::new();
    }
    let lines = source.text.lines().enumerate();
    let told = lines.filter_map(|(index, line)| {
        let code = line.split("//").next()?;
        let hint = COLDNESS.iter().find(|hint| code.contains(**hint))?;
        let text = format!("`{hint}`: a profile says what is cold");
        Some(Finding::new(&source.path, index + 1, text))
    });
    told.collect()
}

fn inlined(source: &Source) -> usize {
    source.text.lines().filter(|line| line.trim_start().starts_with("#[inline")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: impl Into<String>) -> Source {
        Source { path: path.to_owned(), text: text.into() }
    }

    #[test]
    fn coldness_is_found_in_engine_and_shard_and_nowhere_else() {
        for hint in ["#[cold]", "#[inline(never)]", "if unlikely(a) {", "cold_path();"] {
            let text = format!("// {hint}\n    {hint}\n");
            for path in ["crates/core/src/a.rs", "crates/lightwait/src/a.rs"] {
                let findings = check(&[source(path, &*text)]);
                assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [2], "{hint}");
            }
            assert_eq!(check(&[source("crates/processor/src/a.rs", &*text)]), []);
        }
    }

    #[test]
    fn so_many_functions_of_the_engine_may_be_inlined_and_no_more() {
        let some = |count| "#[inline(always)]\nfn f() {}\n".repeat(count);
        let engine = |name: &str, count| source(&format!("crates/core/src/{name}.rs"), some(count));
        let elsewhere = source("crates/processor/src/a.rs", some(INLINED));
        assert_eq!(check(&[engine("a", INLINED - 1), engine("b", 1), elsewhere]), []);
        let findings = check(&[engine("a", INLINED), engine("b", 1)]);
        assert!(findings[0].text.starts_with(&format!("{} functions", INLINED + 1)));
    }
}
