//! Runs a test inside a network namespace of its own, by starting the test program again in one.
//! The namespace, with all that was made in it, vanishes with the process. An ordinary user gets a
//! user namespace as well.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::tools;

const MARK: &str = "LIGHTWAIT_INTEROP_NAMESPACE";

/// Runs `body` in a fresh network namespace whose loopback is up, if every one of `commands` is
/// there. `test` is the test's own full name.
pub(crate) fn inside(test: &str, commands: &[&str], body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        ip("link set lo up");
        body();
        no_checksum_was_bad();
        return;
    }
    if !tools::are_there(commands) || !tools::are_there(&["ip", "unshare"]) {
        return;
    }
    let mut unshare = Command::new("unshare");
    if !is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let program = std::env::current_exe().unwrap();
    let output = unshare
        .arg("--net")
        .arg(program)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, if is_root() { "root" } else { "user" })
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout);
    eprint!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "`{test}` did not run or failed in its namespace");
}

/// True for root itself, and not for the root of a user namespace: its rights end at the files.
pub(crate) fn has_root() -> bool {
    std::env::var(MARK).is_ok_and(|who| who == "root")
}

/// True if a TAP can be made here.
pub(crate) fn can_make_tap() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    assert!(device.is_ok() || !has_root(), "root, and no TAP to be made: {device:?}");
    device.is_ok()
}

/// Runs `ip` with these arguments, which must succeed.
pub(crate) fn ip(arguments: &str) {
    let status = tools::command("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// A namespace beside the test's, as another machine has one. It lasts as long as this.
pub(crate) struct Namespace(Child);

impl Namespace {
    /// One whose loopback is up.
    pub(crate) fn new() -> Namespace {
        let mut process = tools::command("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let namespace = Namespace(process);
        namespace.ip("link set lo up");
        namespace
    }

    /// A process of it.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Moves an interface of the test's there.
    pub(crate) fn take(&self, interface: &str) {
        ip(&format!("link set {interface} netns {}", self.0.id()));
    }

    /// A command that runs there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut nsenter = tools::command("nsenter");
        nsenter.args(["--target", &self.0.id().to_string(), "--net", "--", program]);
        nsenter
    }

    /// Runs `ip` there with these arguments, which must succeed.
    pub(crate) fn ip(&self, arguments: &str) {
        let status = self.command("ip").args(arguments.split(' ')).status().unwrap();
        assert!(status.success(), "ip {arguments}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel's own verdict on every segment it got in this namespace.
fn no_checksum_was_bad() {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    for (protocol, counter) in [("Ip:", "InHdrErrors"), ("Tcp:", "InCsumErrors")] {
        assert_eq!(counted(&text, protocol, counter), 0, "{protocol} {counter}");
    }
    assert!(counted(&text, "Tcp:", "InSegs") > 0, "nothing has arrived at all");
}

/// A counter of `/proc/net/snmp`: for each protocol a line of names and one of values.
fn counted(text: &str, protocol: &str, counter: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == counter).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

fn is_root() -> bool {
    std::fs::metadata(Path::new("/proc/self")).unwrap().uid() == 0
}
