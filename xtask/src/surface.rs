//! The sockets' surface beside tokio's: every method of tokio's TCP and UDP types is one of ours,
//! of both kinds, or stands below with the reason why not. And what `core` shows: see [`shown`].

mod shown;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::sources::{run, tracked};
use crate::{Finding, Outcome};

/// Methods of tokio's that we lack, each with the reason. A method that we have must not be here.
const MISSING: &[(&str, &str)] = &[
    ("TcpStream::from_std", "there is no socket of the kernel's"),
    ("TcpStream::into_std", "there is no socket of the kernel's"),
    ("TcpListener::from_std", "there is no socket of the kernel's"),
    ("TcpListener::into_std", "there is no socket of the kernel's"),
    ("TcpSocket::from_std_stream", "there is no socket of the kernel's"),
    ("TcpSocket::take_error", "nothing fails before it connects or listens"),
    ("TcpSocket::reuseaddr", "TIME-WAIT never keeps a listener from its port"),
    ("TcpSocket::set_reuseaddr", "TIME-WAIT never keeps a listener from its port"),
    ("TcpSocket::reuseport", "one listener has a port; a stack runs on one thread"),
    ("TcpSocket::set_reuseport", "one listener has a port; a stack runs on one thread"),
    ("TcpSocket::device", "a stack has one device"),
    ("TcpSocket::bind_device", "a stack has one device"),
    ("UdpSocket::from_std", "there is no socket of the kernel's"),
    ("UdpSocket::into_std", "there is no socket of the kernel's"),
    ("UdpSocket::device", "a stack has one device"),
    ("UdpSocket::bind_device", "a stack has one device"),
    ("UdpSocket::tos", "deprecated: tos_v4"),
    ("UdpSocket::set_tos", "deprecated: set_tos_v4"),
    ("TcpSocket::tos", "deprecated: tos_v4"),
    ("TcpSocket::set_tos", "deprecated: set_tos_v4"),
];

/// The files with tokio's TCP and UDP types, in the folder of its sockets.
const THEIRS: [&str; 6] =
    ["tcp/stream", "tcp/listener", "tcp/socket", "tcp/split", "tcp/split_owned", "udp"];

/// The folders with ours: sockets of one thread, and those for any.
const OURS: [&str; 2] = ["crates/lightwait/src/local", "crates/lightwait/src/net"];

/// The files with what both have.
const SHARED: [&str; 3] = [
    "crates/lightwait/src/datagrams.rs",
    "crates/lightwait/src/halves.rs",
    "crates/lightwait/src/options.rs",
];

/// Compares every method of tokio's with ours and the list.
pub(crate) fn check(root: &Path) -> Outcome {
    let theirs = package_of_tokio(root)?.join("src/net");
    let mut expected = BTreeSet::new();
    for name in THEIRS {
        let file = theirs.join(name).with_extension("rs");
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{name}.rs: {e}"))?;
        expected.extend(methods(&text));
    }
    let sources = tracked(root, &[".rs"])?;
    let mut findings = Vec::new();
    for folder in OURS {
        let is_ours = |path: &str| path.starts_with(folder) || SHARED.contains(&path);
        let ours = sources.iter().filter(|source| is_ours(&source.path));
        let ours: BTreeSet<String> = ours.flat_map(|source| methods(&source.text)).collect();
        findings.extend(compare(folder, &expected, &ours, MISSING));
    }
    findings.extend(shown::check(&sources));
    Ok(findings)
}

/// The folder of the version of tokio that is used.
fn package_of_tokio(root: &Path) -> Result<PathBuf, String> {
    let metadata = run(root, "cargo", &["metadata", "--format-version", "1", "--quiet"])?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| e.to_string())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let tokio = packages.iter().find(|package| package["name"] == "tokio");
    let manifest = tokio.and_then(|tokio| tokio["manifest_path"].as_str());
    let manifest = Path::new(manifest.ok_or("tokio is not among the packages")?);
    Ok(manifest.parent().unwrap_or(manifest).to_owned())
}

fn compare(
    folder: &str,
    theirs: &BTreeSet<String>,
    ours: &BTreeSet<String>,
    missing: &[(&str, &str)],
) -> Vec<Finding> {
    let is_excused = |method: &str| missing.iter().any(|(name, _)| *name == method);
    let lacking = theirs.iter().filter(|method| !ours.contains(*method) && !is_excused(method));
    let mut findings: Vec<Finding> = lacking
        .map(|method| {
            Finding::new(folder, 0, format!("tokio has {method}: add it, or say why not"))
        })
        .collect();
    for (method, why) in missing {
        if ours.contains(*method) {
            findings.push(Finding::new(folder, 0, format!("{method} exists; excused: {why}")));
        }
        if !theirs.contains(*method) {
            findings.push(Finding::new(folder, 0, format!("{method} is excused; tokio has none")));
        }
    }
    findings
}

/// The public methods of the types in a file, as `Type::method`. It reads lines, not syntax, since
/// tokio's methods are within macros, and some of ours in one for a list of types.
fn methods(text: &str) -> Vec<String> {
    let (mut types, mut methods) = (Vec::new(), Vec::new());
    // A macro called with types implements methods for each of them.
    let called = |name: &str| {
        let begin = format!("{name}!(");
        let call = text.lines().find_map(|line| line.trim_start().strip_prefix(&begin));
        types_in(call.unwrap_or(""))
    };
    let mut of_macro = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(name) = line.strip_prefix("macro_rules! ") {
            of_macro = called(name.trim_end_matches(" {"));
        } else if let Some(of) = line.trim_start_matches("$(").strip_prefix("impl") {
            types = match of.trim_end_matches('{').trim() {
                "$half" => of_macro.clone(),
                of if of.contains(" for ") => Vec::new(),
                of => types_in(of),
            };
        }
        let function = ["pub fn ", "pub async fn "].iter().find_map(|it| line.strip_prefix(it));
        if let Some(function) = function {
            let end = function.find(|c: char| !c.is_alphanumeric() && c != '_');
            let name = &function[..end.unwrap_or(function.len())];
            methods.extend(types.iter().map(|it| format!("{it}::{name}")));
        }
    }
    methods
}

/// The names of types in a list such as `ReadHalf<'_>, OwnedReadHalf`.
fn types_in(list: &str) -> Vec<String> {
    let words = list.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| word.starts_with(char::is_uppercase)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKIO: &str = "
impl TcpStream {
    cfg_not_wasi! {
        pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        }
    }
    pub(crate) fn new(connected: mio::net::TcpStream) -> io::Result<TcpStream> {
    pub fn try_read_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
}
impl AsRawFd for TcpStream {
    pub fn not_of_the_type(&self) {
";

    const OURS_BY_MACRO: &str = "
macro_rules! half {
    ($($half:ty),*) => {
        $(impl $half {
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
            }
        })*
    };
}
half!(ReadHalf<'_>, OwnedReadHalf);
";

    #[test]
    fn methods_are_found_within_macros() {
        assert_eq!(methods(TOKIO), ["TcpStream::connect", "TcpStream::try_read_buf"]);
        let ours = methods(OURS_BY_MACRO);
        assert_eq!(ours, ["ReadHalf::peer_addr", "OwnedReadHalf::peer_addr"]);
    }

    #[test]
    fn a_method_is_there_or_excused_and_not_both() {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let findings = |theirs: &[&str], ours: &[&str], missing: &[(&str, &str)]| {
            compare("ours", &set(theirs), &set(ours), missing).len()
        };
        assert_eq!(findings(&["A::a", "A::b"], &["A::a", "A::c"], &[("A::b", "why")]), 0);
        assert_eq!(findings(&["A::a"], &[], &[]), 1);
        assert_eq!(findings(&["A::a"], &["A::a"], &[("A::a", "why")]), 1);
        assert_eq!(findings(&["A::a"], &["A::a"], &[("A::b", "why")]), 1);
    }
}
