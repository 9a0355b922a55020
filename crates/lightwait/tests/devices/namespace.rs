//! Runs a test inside a network namespace of its own, by starting the test program again in one.
//! The namespace vanishes with the process. An ordinary user gets a user namespace as well.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

const MARK: &str = "LIGHTWAIT_TEST_NAMESPACE";

/// Runs `body` in a fresh network namespace; `test` is the test's own full name.
pub(crate) fn inside(test: &str, body: impl FnOnce()) {
    inside_as(test, is_root(), body);
}

/// The same as an ordinary user's namespace, in which some capabilities do not count.
pub(crate) fn inside_as_user(test: &str, body: impl FnOnce()) {
    inside_as(test, false, body);
}

fn inside_as(test: &str, root: bool, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let mut unshare = Command::new("unshare");
    if !root {
        unshare.args(["--user", "--map-root-user"]);
    }
    let program = std::env::current_exe().unwrap();
    let output = unshare
        .arg("--net")
        .arg(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, if root { "root" } else { "user" })
        .output()
        .expect("unshare (util-linux) runs");
    let text = String::from_utf8_lossy(&output.stdout);
    eprint!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "`{test}` did not run or failed in its namespace");
}

/// True if a TAP can be made here: an ordinary user's namespace cannot.
pub(crate) fn can_make_tap() -> bool {
    let can = std::env::var(MARK).is_ok_and(|who| who == "root");
    if !can {
        eprintln!("skipped: a TAP needs root");
    }
    can
}

/// Runs `ip` with these arguments.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &str, arguments: &str) {
    let status = Command::new(command).args(arguments.split(' ')).status();
    let status = status.unwrap_or_else(|error| panic!("`{command}` cannot be run: {error}"));
    assert!(status.success(), "{command} {arguments}");
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
