//! A stand-in for FreeBSD's `sockstat`, with which its scripts look at the state of a connection:
//! this very program under that name, which asks the stack.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const NAME: &str = "sockstat";

/// Whether this process was started by that name.
pub(crate) fn is_called() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|name| name.file_name().is_some_and(|name| name == NAME))
}

/// Put the stand-in into `directory`.
pub(crate) fn install(directory: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(std::env::current_exe()?, directory.join(NAME))
}

/// One line a socket, with its state behind it: the columns that scripts look at.
pub(crate) fn main(socket: Option<PathBuf>) -> ExitCode {
    let Some(path) = socket else { return ExitCode::FAILURE };
    let mut text = String::new();
    let asked = UnixStream::connect(path).and_then(|mut stack| stack.read_to_string(&mut text));
    if let Err(error) = asked {
        eprintln!("{NAME}: {error}");
        return ExitCode::FAILURE;
    }
    for line in text.lines() {
        println!("root packetdril 1 3 {line}");
    }
    ExitCode::SUCCESS
}
