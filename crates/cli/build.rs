//! Gives `lightwait --version` the commit that it is built from, and its date, where git tells.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-changed=build.rs");
    let version = match commit(&root) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=LIGHTWAIT_VERSION={version}");
    for path in watched(&root) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The commit and its date, such as `1ea5af03c2 2026-11-27`, if `root` is the top of a repository.
/// A tarball has none, also where it lies within a repository of others.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    git(root, &["log", "-1", "--abbrev=10", "--format=%h %cs"])
}

/// The files that change when another commit is checked out or made: HEAD, the branch that it
/// names, and where packed branches are. Cargo takes a file that is missing for changed each time:
/// for a branch without a file of its own the directory counts in which it will be.
pub(crate) fn watched(root: &Path) -> Vec<PathBuf> {
    if commit(root).is_none() {
        return Vec::new();
    }
    let path_of = |name: &str| {
        let path = git(root, &["rev-parse", "--git-path", name])?;
        Some(root.join(path))
    };
    let mut paths: Vec<PathBuf> = ["HEAD", "packed-refs"].into_iter().filter_map(path_of).collect();
    paths.retain(|path| path.exists());
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let branch = branch.and_then(|branch| path_of(&branch));
    let exists = |path: &&Path| path.exists();
    paths.extend(branch.iter().flat_map(|it| it.ancestors().find(exists).map(Path::to_owned)));
    paths
}

/// The output of git on the repository at `root`, without the last line's end.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim_end();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
