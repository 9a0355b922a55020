//! What another process takes over, and what must be there at each start and reload.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{DevicePlan, Plan, Stack, usage};
use crate::args::ServeArgs;
use crate::failure::Failure;

impl Plan {
    /// The files that stand for others must be there.
    ///
    /// # Errors
    /// If one is not, which says its path.
    pub(crate) fn check_pages(&self) -> Result<(), Failure> {
        let fallback = self.files.fallback.iter().map(|path| ("--fallback", path));
        let pages = self.files.error_pages.iter().map(|(_, path)| ("--error-page", path));
        for (flag, path) in fallback.chain(pages) {
            let name = OsStr::from_bytes(path.as_bytes());
            let path = self.directory.join(name);
            if !path.is_file() {
                return Err(Failure::Page(flag, path));
            }
        }
        Ok(())
    }
}

/// The path of `--takeover`. Refuses devices whose frames another process cannot get.
pub(super) fn takeover(args: &ServeArgs, stack: &Stack) -> Result<Option<PathBuf>, Failure> {
    let Stack::Device { device, .. } = stack else { return Ok(args.takeover.clone()) };
    let flag = match device {
        DevicePlan::AfXdp { .. } => "--afxdp",
        DevicePlan::Macvtap { .. } => "--macvtap",
        DevicePlan::Tap { .. } | DevicePlan::AfPacket { .. } => return Ok(args.takeover.clone()),
    };
    match args.takeover {
        Some(_) => Err(usage(format!(
            "--takeover: a device of {flag} cannot be handed over; it can with --tap, --tun or \
             --af-packet, and through the bridge"
        ))),
        None => Ok(None),
    }
}
