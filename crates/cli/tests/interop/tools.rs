//! Commands that the tests use, and files that they move.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where commands of the system's administrator are, beside the user's.
const ADMINISTRATORS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// True if every command is there. In CI they must be.
pub(crate) fn are_there(commands: &[&str]) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:{ADMINISTRATORS}");
    let is_there = |command: &&&str| path.split(':').any(|at| Path::new(at).join(command).exists());
    let missing: Vec<_> = commands.iter().filter(|command| !is_there(command)).collect();
    if missing.is_empty() {
        return true;
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!in_ci, "missing: {missing:?}");
    eprintln!("left out: {missing:?} not installed");
    false
}

/// The command, found where administrators' commands are, too.
pub(crate) fn command(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:{ADMINISTRATORS}"));
    command
}

/// Runs a command to its end, which must be a success, and returns what it printed.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{complaint}", output.status);
    text
}

/// `curl`, silent but for errors, with a limit on its time, of this URL.
pub(crate) fn curl(url: &str) -> Command {
    let mut curl = command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--globoff", "--max-time", "100", url]);
    curl
}

/// The SHA-256 of what the command prints.
pub(crate) fn sha256_of_output(command: &mut Command) -> String {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut sum = Command::new("sha256sum");
    let sum = output(sum.stdin(child.stdout.take().unwrap()));
    let status = child.wait().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    sum.split(' ').next().unwrap().to_owned()
}

/// The SHA-256 of a file.
pub(crate) fn sha256_of_file(path: &Path) -> String {
    output(Command::new("sha256sum").arg("--binary").arg(path))
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
}

/// A directory that everyone may read, in memory if possible, and goes with its owner.
pub(crate) fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let directory = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in(parent);
    directory.unwrap()
}

const BLOCK_BYTES: usize = 1 << 20;

/// Bytes that show where they belong.
pub(crate) fn pattern(block: u64) -> Vec<u8> {
    let words = 0..(BLOCK_BYTES / 8) as u64;
    let word = |n: u64| (block << 20 | n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    words.flat_map(|n| word(n).to_le_bytes()).collect()
}

/// Writes a file of that many MiB of the pattern.
pub(crate) fn write_file(path: &Path, mebibytes: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    (0..mebibytes).for_each(|block| file.write_all(&pattern(block)).unwrap());
    file.flush().unwrap();
}

/// Shows a page in a browser: its document, as text, and its picture.
pub(crate) fn browse(url: &str) -> (String, Vec<u8>) {
    browse_with(url, &[])
}

/// Shows a page in a browser with more flags.
pub(crate) fn browse_with(url: &str, flags: &[&str]) -> (String, Vec<u8>) {
    let profile = tempfile::tempdir().unwrap();
    let picture = profile.path().join("picture.png");
    let mut browser = command("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
    browser.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
    browser.args(["--disable-component-update", "--disable-dev-shm-usage"]);
    browser.env("HOME", profile.path()).env("XDG_RUNTIME_DIR", profile.path());
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.arg("--window-size=1000,2400").arg(format!("--screenshot={}", picture.display()));
    browser.args(flags).args(["--dump-dom", url]);
    let page = output(&mut browser);
    (page, std::fs::read(picture).unwrap())
}
