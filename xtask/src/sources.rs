//! The tracked files of the repository, and commands run in it.

use std::path::Path;
use std::process::Command;

/// A tracked text file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path from the repository's root, with forward slashes.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

/// All tracked files, and new ones that are not ignored, whose name ends in one of `endings`.
pub(crate) fn tracked(root: &Path, endings: &[&str]) -> Result<Vec<Source>, String> {
    let list = run(root, "git", &["ls-files", "-co", "--exclude-standard"])?;
    let mut sources = Vec::new();
    for path in list.lines().filter(|path| endings.iter().any(|end| path.ends_with(end))) {
        let file = root.join(path);
        // A file deleted but not yet staged is still listed.
        if file.is_file() {
            let text = std::fs::read_to_string(&file).map_err(|e| format!("{path}: {e}"))?;
            sources.push(Source { path: path.to_owned(), text });
        }
    }
    if sources.is_empty() {
        return Err("no source files found: is this a git checkout?".to_owned());
    }
    Ok(sources)
}

/// Runs a command. Returns its output, or the reason why it failed.
pub(crate) fn run(root: &Path, program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {}: {}\n{stderr}", args.join(" "), output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{program}: {e}"))
}

/// True if a path holds only tests: a `tests` folder, or a `tests.rs` beside what it tests.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_known_by_their_path() {
        assert!(is_test_path("crates/core/src/wire/tests.rs"));
        assert!(is_test_path("crates/core/tests/interop.rs"));
        assert!(!is_test_path("crates/core/src/contests.rs"));
        assert!(!is_test_path("crates/core/src/wire.rs"));
    }

    #[test]
    fn a_failing_command_says_why() {
        let why = run(Path::new("."), "git", &["no-such-command"]).unwrap_err();
        assert!(why.contains("no-such-command"), "{why}");
    }
}
