//! Runs the shell commands of scripts, or leaves them out.
//!
//! The commands of our own scripts are run. Those of other projects set up a kernel and its
//! network, which the test must not touch: they are left out, except those that only look at the
//! state of sockets.

use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) struct Shell {
    /// Where commands are run: beside the script.
    pub(crate) directory: PathBuf,
    /// Whether commands are run.
    pub(crate) is_trusted: bool,
}

impl Shell {
    pub(crate) fn run(&self, command: &str) -> Result<(), String> {
        if !self.is_trusted && !command.trim_start().starts_with("sockstat ") {
            return Ok(());
        }
        let status = Command::new("sh")
            .args(["-c", command])
            .current_dir(&self.directory)
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("cannot run a shell: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("`{command}` ended with {status}")) }
    }
}
