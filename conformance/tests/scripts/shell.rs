//! Shell commands of scripts.
//!
//! Those of our own scripts are run. Those of others set up a kernel and its network, which are not
//! what is being tested, and must not be touched: they are left out, but for those that only look
//! at the state of sockets.

use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) struct Shell {
    /// Where commands are run: beside the script.
    pub(crate) directory: PathBuf,
    /// Whether they are.
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
