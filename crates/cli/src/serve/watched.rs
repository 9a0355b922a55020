//! What watches the devices of all shards, as `--pcap`, `--trace` and `--fault` say.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use lightwait::device::Device;
use lightwait::wrap::pcap::Captures;
use lightwait::wrap::{Link, Pcap, Recording, Trace};
use lightwait_core::Medium;
use lightwait_core::config::Member;
use lightwait_netem::LinkConfig;

use crate::failure::Failure;
use crate::log::{Log, Record};
use crate::plan::{Capture, CaptureTarget, Plan, Stack, Watch};
use crate::serve::drop_privileges;

/// The name of the interface in the capture. With several shards its number follows.
const INTERFACE: &str = "lightwait";

/// The wrappers of every shard's device, and the one file that they capture into.
pub(super) struct Watched<'a> {
    watch: &'a Watch,
    recording: Option<Recording>,
    /// Where the admin door may ask for captures, if there is one.
    captures: Option<Captures>,
    log: &'a Log,
}

impl<'a> Watched<'a> {
    /// Opens the capture of a plan that has one, with an interface for each shard.
    pub(super) fn open(plan: &'a Plan, log: &'a Log) -> Result<Watched<'a>, Failure> {
        let medium = match &plan.stack {
            Stack::Bridge { .. } => Medium::Ip,
            Stack::Device { device, .. } => device.medium(),
        };
        let watch = &plan.watch;
        let capture = watch.capture.as_ref();
        let recording = capture.map(|capture| recording(capture, medium, plan, log));
        let captures = plan.admin.as_ref().map(|_| {
            let names = interfaces(plan.shards);
            Captures::new(medium, &names.iter().map(String::as_str).collect::<Vec<_>>())
        });
        Ok(Watched { watch, recording: recording.transpose()?, captures, log })
    }

    /// Where captures may be asked for.
    pub(super) fn captures(&self) -> Option<&Captures> {
        self.captures.as_ref()
    }

    /// The device of a shard with the wrappers. The emulated bad link is next to the device. The
    /// capture and the trace are outside it, so that they show the frames that the stack sends and
    /// receives.
    pub(super) fn device(&self, device: Box<dyn Device>, member: Member) -> Box<dyn Device> {
        let mut device = device;
        if let Some(link) = &self.watch.fault {
            device = Box::new(Link::both_ways(device, &of_shard(link, member.index)));
        }
        if let Some(recording) = &self.recording {
            device = Box::new(Pcap::new(device, recording, member.index.into()));
        }
        if let Some(captures) = &self.captures {
            device = Box::new(Pcap::on_demand(device, captures, member.index.into()));
        }
        if self.watch.trace {
            let log = self.log.clone();
            let shard = (member.of > 1).then_some(member.index);
            device = Box::new(Trace::new(device, move |line| {
                log.write(Record::Frame { shard, line: line.to_owned() });
            }));
        }
        device
    }
}

/// The link of a shard's device: the first has the seed as given, and each other one its own.
fn of_shard(link: &LinkConfig, shard: u16) -> LinkConfig {
    let apart = u64::from(shard).wrapping_mul(0xd1b5_4a32_d192_ed03);
    LinkConfig { seed: link.seed.wrapping_add(apart), ..link.clone() }
}

/// The names of the interfaces in a capture of so many shards.
fn interfaces(shards: u16) -> Vec<String> {
    match shards {
        1 => vec![INTERFACE.to_owned()],
        _ => (0..shards).map(|shard| format!("{INTERFACE} shard {shard}")).collect(),
    }
}

/// Opens the file of the capture. Its failures go to the log.
fn recording(
    capture: &Capture,
    medium: Medium,
    plan: &Plan,
    log: &Log,
) -> Result<Recording, Failure> {
    let names = interfaces(plan.shards);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let open = || match &capture.target {
        CaptureTarget::Stdout => stdout().and_then(|pipe| Recording::stream(pipe, medium, &names)),
        CaptureTarget::File(path) => Recording::create(path, medium, &names),
        CaptureTarget::Within(path, limit) => {
            Recording::create_within(path, medium, &names, *limit)
        }
    };
    let opened = if plan.sandbox { unprivileged(open) } else { open() };
    let mut recording = opened.map_err(|error| Failure::Output(capture.path(), error))?;
    if let Some(bytes) = capture.snaplen {
        recording = recording.snaplen(bytes);
    }
    let path = capture.path().display().to_string();
    let (on_error, on_loss) = ((path.clone(), log.clone()), (path, log.clone()));
    Ok(recording
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

/// Opens a recording on a thread that has dropped its privileges: the one that writes it, which
/// begins before the device is open and all others drop theirs, has what that one has.
fn unprivileged(open: impl FnOnce() -> io::Result<Recording> + Send) -> io::Result<Recording> {
    let open = || {
        // Where it fails, the log will say so of the others.
        let _ = drop_privileges();
        open()
    };
    thread::scope(|scope| {
        let opening =
            thread::Builder::new().name("opening".to_owned()).spawn_scoped(scope, open)?;
        opening.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Standard output without the library's buffer, which flushes at the byte of a newline.
fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_a_seed_of_its_own_and_the_first_the_given() {
        let given: LinkConfig = "loss=1%,seed=7".parse().unwrap();
        let mut seeds: Vec<u64> = (0..64).map(|shard| of_shard(&given, shard).seed).collect();
        assert_eq!(seeds[0], 7);
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 64);
        assert_eq!(of_shard(&given, 5), of_shard(&given, 5), "the same each time");
        assert_eq!(of_shard(&given, 5).loss, given.loss);
    }
}
