//! A device that captures its frames, as `--pcap` and its limits say.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use lightwait::device::Device;
use lightwait::wrap::Pcap;

use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{Capture, CaptureTarget};

/// The name of the interface in the capture.
const INTERFACE: &str = "lightwait";

/// Wraps `device` in a capture; a failure of the capture goes to the log.
pub(super) fn captured(
    device: Box<dyn Device>,
    capture: &Capture,
    log: &Log,
) -> Result<Pcap<Box<dyn Device>>, Failure> {
    let opened = match &capture.target {
        CaptureTarget::Stdout => stdout().and_then(|pipe| Pcap::stream(device, pipe, INTERFACE)),
        CaptureTarget::File(path) => Pcap::create(device, path, INTERFACE),
        CaptureTarget::Within(path, limit) => Pcap::create_within(device, path, INTERFACE, *limit),
    };
    let mut pcap = opened.map_err(|error| Failure::Output(capture.path(), error))?;
    if let Some(bytes) = capture.snaplen {
        pcap = pcap.snaplen(bytes);
    }
    let path = capture.path().display().to_string();
    let (on_error, on_loss) = ((path.clone(), log.clone()), (path, log.clone()));
    Ok(pcap
        .on_error(move |error| {
            let (path, log) = &on_error;
            log.write(Record::Trouble { text: format!("{path}: capture ended: {error}") });
        })
        .on_loss(move |frames| {
            let (path, log) = &on_loss;
            let text = format!("{path}: {frames} frames lost: it is written too slowly");
            log.write(Record::Trouble { text });
        }))
}

/// Standard output without the library's buffer, which flushes at the byte of a newline.
fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}
