//! A device that captures its frames, both ways, in a pcapng file.
//!
//! Frames are written whole, as the host and the device exchange them. Large segments are not cut,
//! but a checksum that one side left to the other is filled in, so that a reader finds it right. A
//! frame is in the file [`INTERVAL`] after it passed, also without further traffic.
//!
//! A capture must not stop the traffic, so a thread writes it. Frames that it cannot keep up with
//! are lost and counted ([`Recording::on_loss`]). If the file can no longer be written, capturing
//! ends, and [`Recording::on_error`] is called.
//!
//! Several devices may write to one file, each on its own thread: see [`Recording`].

mod files;
mod on_demand;
mod output;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lightwait_core::capture::pcapng::{self, Direction};
use lightwait_core::frame::RxChecksum;
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};

use super::outgoing::Offered;
use super::packets;
use crate::device::{self, Device, Sink};
use files::Rotating;
use on_demand::Source;
pub use on_demand::{Begun, Captures, Ends, Keep};
use output::{Background, Output, Taken};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// The longest time that a frame waits to be written.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The least bound of a capture, in bytes: each of its two files can hold the largest frame.
pub const LEAST_LIMIT: u64 = 256 << 10;

/// Bytes of a block around a frame, at most.
const BLOCK_BYTES: usize = 64;

/// The time between two reports of losses.
const LOSS_INTERVAL: Duration = Duration::from_secs(10);

/// A device whose frames are captured.
pub struct Pcap<D> {
    device: D,
    /// The one that runs.
    capture: Option<Capture>,
    /// Where others come from.
    source: Option<Source>,
    offered: Offered,
}

/// A device's place in a recording.
struct Capture {
    recording: Recording,
    /// The number of its interface there.
    interface: u32,
    medium: Medium,
    /// The time at which the first frame passed that may not be written yet.
    since: Option<Instant>,
    epoch: Epoch,
    scratch: Vec<u8>,
    /// Which frames are captured; `None`: all.
    keep: Option<Keep>,
}

/// The file of a capture. It may be that of several devices, each on a thread of its own: the
/// queues of an interface, one for each shard. Clones are the same file.
///
/// Frames are in it in the order in which they passed. Each device has the time of its own clock,
/// so that the times of two devices may be a turn apart.
#[derive(Clone)]
pub struct Recording {
    blocks: Arc<Mutex<Blocks>>,
    /// The number of interfaces in it.
    interfaces: usize,
    /// What a device's time zero is.
    epoch: Epoch,
}

/// The output, and the frames not yet written to it.
struct Blocks {
    /// `None` after an error.
    output: Option<Output>,
    on_error: Box<dyn FnMut(io::Error) + Send>,
    /// An error from before [`Recording::on_error`] was called.
    untold: Option<io::Error>,
    buffer: Vec<u8>,
    /// Frames in the buffer.
    gathered: u64,
    /// Bytes of the buffer, at most; a larger frame is alone in it.
    most_gathered: usize,
    /// Bytes of a frame, at most.
    snaplen: u32,
    losses: Losses,
}

/// Frames for which there was no room.
struct Losses {
    frames: u64,
    told_at: Instant,
    tell: Box<dyn FnMut(u64) + Send>,
}

/// The time in the file of a device's time zero.
#[derive(Clone, Copy)]
enum Epoch {
    /// This long after 1970.
    At(Duration),
    /// The wall clock decides at the first frame.
    Wall,
}

impl<D: Device> Pcap<D> {
    /// Captures into `recording`, as the interface of that number.
    ///
    /// # Panics
    /// If the recording has no such interface.
    pub fn new(device: D, recording: &Recording, interface: usize) -> Pcap<D> {
        assert!(interface < recording.interfaces, "no interface {interface} in the recording");
        let medium = device.capabilities().medium;
        let capture = Some(Capture::new(recording, interface as u32, medium));
        Pcap { device, capture, source: None, offered: Offered::default() }
    }

    /// Captures while one of `captures` runs, as the interface of that number.
    ///
    /// # Panics
    /// If they have no such interface.
    pub fn on_demand(device: D, captures: &Captures, interface: usize) -> Pcap<D> {
        let source = Some(Source::new(captures, interface));
        Pcap { device, capture: None, source, offered: Offered::default() }
    }

    /// A capture may have begun, or ended.
    fn follow(&mut self) {
        if let Some(news) = self.source.as_mut().and_then(Source::news) {
            self.capture = news;
        }
    }
}

impl Recording {
    /// A new file at `path`, with wall time, for devices of that medium: an interface of each of
    /// these names. A FIFO is opened when a reader opens it; the traffic does not wait for that.
    pub fn create(path: &Path, medium: Medium, interfaces: &[&str]) -> io::Result<Recording> {
        let background = if fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
            let path = path.to_owned();
            Background::start(move || File::create(path))?
        } else {
            let file = File::create(path)?;
            Background::start(move || Ok(file))?
        };
        Ok(Recording::with(Output::Thread(background), medium, interfaces, Epoch::Wall))
    }

    /// A new file at `path`, of `limit` bytes at most. At half of that the file is renamed to end
    /// in `.1`, which replaces the previous one, and a new file begins.
    ///
    /// # Panics
    /// If `limit` is less than [`LEAST_LIMIT`].
    pub fn create_within(
        path: &Path,
        medium: Medium,
        interfaces: &[&str],
        limit: u64,
    ) -> io::Result<Recording> {
        assert!(limit >= LEAST_LIMIT, "{limit} bytes do not hold the largest frame twice");
        let files = Rotating::create(path, header(medium, interfaces), limit)?;
        let output = Output::Thread(Background::start(move || Ok(files))?);
        let recording = Recording::with(output, medium, interfaces, Epoch::Wall);
        let most = usize::try_from(limit / 4).unwrap_or(usize::MAX);
        recording.blocks().most_gathered = BUFFER_BYTES.min(most);
        Ok(recording)
    }

    /// Captures into `pipe`, with wall time.
    pub fn stream(
        pipe: impl Write + Send + 'static,
        medium: Medium,
        interfaces: &[&str],
    ) -> io::Result<Recording> {
        let output = Output::Thread(Background::start(move || Ok(pipe))?);
        Ok(Recording::with(output, medium, interfaces, Epoch::Wall))
    }

    /// Captures into `file`, on the threads of the devices, with their own time, counted from 1970.
    pub fn new(
        file: impl Write + Send + 'static,
        medium: Medium,
        interfaces: &[&str],
    ) -> Recording {
        let epoch = Epoch::At(Duration::ZERO);
        Recording::with(Output::Here(Box::new(file)), medium, interfaces, epoch)
    }

    fn with(output: Output, medium: Medium, interfaces: &[&str], epoch: Epoch) -> Recording {
        let mut blocks = Blocks {
            output: Some(output),
            on_error: Box::new(drop),
            untold: None,
            buffer: header(medium, interfaces),
            gathered: 0,
            most_gathered: BUFFER_BYTES,
            snaplen: u32::MAX,
            losses: Losses { frames: 0, told_at: Instant::ZERO, tell: Box::new(drop) },
        };
        // A reader that is there already need not wait for the first frame.
        blocks.untold = blocks.write(Instant::ZERO).err();
        let blocks = Arc::new(Mutex::new(blocks));
        Recording { blocks, interfaces: interfaces.len(), epoch }
    }

    /// Captures the first `bytes` bytes of each frame only.
    #[must_use]
    pub fn snaplen(self, bytes: u32) -> Self {
        self.blocks().snaplen = bytes;
        self
    }

    /// Sets `tell`, which is called when the file cannot be written and capturing ends.
    #[must_use]
    pub fn on_error(self, mut tell: impl FnMut(io::Error) + Send + 'static) -> Self {
        let untold = self.blocks().untold.take();
        if let Some(error) = untold {
            tell(error);
        }
        self.blocks().on_error = Box::new(tell);
        self
    }

    /// Sets `tell`, which is called with the number of frames lost since the last call because the
    /// file was written too slowly. It is called every ten seconds at most, and at the end.
    #[must_use]
    pub fn on_loss(self, tell: impl FnMut(u64) + Send + 'static) -> Self {
        self.blocks().losses.tell = Box::new(tell);
        self
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first blocks of a capture.
fn header(medium: Medium, interfaces: &[&str]) -> Vec<u8> {
    let mut header = Vec::new();
    pcapng::section(&mut header);
    interfaces.iter().for_each(|name| pcapng::interface(medium, name, &mut header));
    header
}

impl Epoch {
    /// The time in the file of `now`.
    fn time(&mut self, now: Instant) -> Instant {
        let epoch = match *self {
            Epoch::At(epoch) => epoch,
            Epoch::Wall => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                wall.saturating_sub(now.since(Instant::ZERO))
            }
        };
        *self = Epoch::At(epoch);
        now + epoch
    }
}

impl Capture {
    fn new(recording: &Recording, interface: u32, medium: Medium) -> Capture {
        Capture {
            recording: recording.clone(),
            interface,
            medium,
            since: None,
            epoch: recording.epoch,
            scratch: Vec::new(),
            keep: None,
        }
    }

    /// Adds the frame in `scratch` to the capture.
    fn add_scratch(&mut self, now: Instant, direction: Direction) {
        if let Some(keep) = &self.keep
            && !keep(packets::ends(self.medium, &self.scratch))
        {
            return;
        }
        let time = self.epoch.time(now);
        let mut blocks = self.recording.blocks();
        if blocks.output.is_none() {
            return;
        }
        let block = self.scratch.len().min(blocks.snaplen as usize) + BLOCK_BYTES;
        if blocks.buffer.len() + block > blocks.most_gathered {
            blocks.write_or_end(now);
        }
        let (frame, snaplen, interface) = (&self.scratch, blocks.snaplen, self.interface);
        let direction = Some(direction);
        pcapng::cut_packet(interface, time, direction, frame, snaplen, &mut blocks.buffer);
        blocks.gathered += 1;
        self.since.get_or_insert(now);
    }

    fn add_received(&mut self, now: Instant, frame: &RxFrame<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(frame.bytes);
        if frame.checksum == RxChecksum::Good {
            packets::complete_in_place(self.medium, &mut self.scratch);
        }
        self.add_scratch(now, Direction::Inbound);
    }

    /// The time by which the last frames must be written.
    fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + INTERVAL)
    }

    fn write_if_due(&mut self, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.since = None;
            self.recording.blocks().write_or_end(now);
        }
    }
}

impl Blocks {
    /// Writes the gathered blocks. If that fails, capturing ends.
    fn write_or_end(&mut self, now: Instant) {
        if let Err(error) = self.write(now) {
            (self.on_error)(error);
        }
    }

    fn write(&mut self, now: Instant) -> io::Result<()> {
        let frames = std::mem::take(&mut self.gathered);
        let Some(output) = &mut self.output else { return Ok(()) };
        if self.buffer.is_empty() {
            return Ok(());
        }
        match output.write(&mut self.buffer) {
            Ok(Taken::Yes) => self.losses.tell_at_intervals(now),
            Ok(Taken::No) => self.losses.frames += frames,
            Err(error) => {
                self.output = None;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Losses {
    fn tell_at_intervals(&mut self, now: Instant) {
        if now.since(self.told_at) >= LOSS_INTERVAL {
            self.tell();
            self.told_at = now;
        }
    }

    fn tell(&mut self) {
        match std::mem::take(&mut self.frames) {
            0 => {}
            frames => (self.tell)(frames),
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.write_or_end(Instant::ZERO);
        self.losses.tell();
    }
}

impl<D: Device> Device for Pcap<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        self.follow();
        let Some(capture) = &mut self.capture else {
            return self.device.receive(now, budget, sink);
        };
        let received = self.device.receive(now, budget, &mut |frames| {
            frames.iter().for_each(|frame| capture.add_received(now, frame));
            sink(frames);
        });
        capture.write_if_due(now);
        received
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        if let Some(capture) = &mut self.capture {
            self.offered.before(outbox, |frame| {
                capture.scratch.clear();
                frame.complete_to(&mut capture.scratch);
                capture.add_scratch(now, Direction::Outbound);
            });
        }
        let result = self.device.transmit(now, outbox);
        self.offered.after(outbox);
        result
    }

    fn deadline(&self) -> Option<Instant> {
        let due = self.capture.as_ref().and_then(Capture::due);
        match (self.device.deadline(), due) {
            (Some(device), Some(capture)) => Some(device.min(capture)),
            (device, capture) => device.or(capture),
        }
    }

    fn take_link_up(&mut self) -> bool {
        self.device.take_link_up()
    }

    fn losses(&mut self) -> io::Result<device::Losses> {
        self.device.losses()
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        self.device.wait_on()
    }

    fn wants_writable(&self) -> bool {
        self.device.wants_writable()
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("interfaces", &self.interfaces).finish_non_exhaustive()
    }
}

impl<D: fmt::Debug> fmt::Debug for Pcap<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcap").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
