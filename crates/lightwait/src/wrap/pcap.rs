//! A device that captures its frames, both ways, in a pcapng file.
//!
//! Frames are written whole, as the host and the device exchange them. Large segments are not cut,
//! but a checksum that one side left to the other is filled in, so that a reader finds it right. A
//! frame is in the file [`INTERVAL`] after it passed, also without further traffic.
//!
//! A capture must not stop the traffic, so a thread writes it. Frames that it cannot keep up with
//! are lost and counted ([`Pcap::on_loss`]). If the file can no longer be written, capturing ends,
//! and [`Pcap::on_error`] is called.

mod files;
mod output;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lightwait_core::capture::pcapng::{self, Direction};
use lightwait_core::frame::RxChecksum;
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};

use super::outgoing::Offered;
use super::packets;
use crate::device::{self, Device, Sink};
use files::Rotating;
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
    capture: Capture,
    offered: Offered,
}

/// The file, and the frames not yet written to it.
struct Capture {
    /// `None` after an error.
    output: Option<Output>,
    on_error: Box<dyn FnMut(io::Error)>,
    /// An error from before [`Pcap::on_error`] was called.
    untold: Option<io::Error>,
    medium: Medium,
    buffer: Vec<u8>,
    /// Frames in the buffer.
    gathered: u64,
    /// The time at which the first of them passed.
    since: Option<Instant>,
    /// Bytes of the buffer, at most; a larger frame is alone in it.
    most_gathered: usize,
    /// Bytes of a frame, at most.
    snaplen: u32,
    losses: Losses,
    epoch: Epoch,
    scratch: Vec<u8>,
}

/// Frames for which there was no room.
struct Losses {
    frames: u64,
    told_at: Instant,
    tell: Box<dyn FnMut(u64)>,
}

/// The time in the file of the shard's time zero.
#[derive(Clone, Copy)]
enum Epoch {
    /// This long after 1970.
    At(Duration),
    /// The wall clock decides at the first frame.
    Wall,
}

impl<D: Device> Pcap<D> {
    /// Captures into a new file at `path`, with wall time. The interface is called `name` in it. A
    /// FIFO is opened when a reader opens it; the traffic does not wait for that.
    pub fn create(device: D, path: &Path, name: &str) -> io::Result<Pcap<D>> {
        let background = if fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
            let path = path.to_owned();
            Background::start(move || File::create(path))?
        } else {
            let file = File::create(path)?;
            Background::start(move || Ok(file))?
        };
        Ok(Pcap::with(device, Output::Thread(background), name, Epoch::Wall))
    }

    /// Captures into a new file at `path`, of `limit` bytes at most. At half of that the file is
    /// renamed to end in `.1`, which replaces the previous one, and a new file begins.
    ///
    /// # Panics
    /// If `limit` is less than [`LEAST_LIMIT`].
    pub fn create_within(device: D, path: &Path, name: &str, limit: u64) -> io::Result<Pcap<D>> {
        assert!(limit >= LEAST_LIMIT, "{limit} bytes do not hold the largest frame twice");
        let header = header(device.capabilities().medium, name);
        let files = Rotating::create(path, header, limit)?;
        let background = Background::start(move || Ok(files))?;
        let mut pcap = Pcap::with(device, Output::Thread(background), name, Epoch::Wall);
        let most = usize::try_from(limit / 4).unwrap_or(usize::MAX);
        pcap.capture.most_gathered = BUFFER_BYTES.min(most);
        Ok(pcap)
    }

    /// Captures into `pipe`, with wall time.
    pub fn stream(device: D, pipe: impl Write + Send + 'static, name: &str) -> io::Result<Pcap<D>> {
        let background = Background::start(move || Ok(pipe))?;
        Ok(Pcap::with(device, Output::Thread(background), name, Epoch::Wall))
    }

    /// Captures into `file`, on this thread, with the shard's own time, counted from 1970.
    pub fn new(device: D, file: impl Write + 'static, name: &str) -> Pcap<D> {
        Pcap::with(device, Output::Here(Box::new(file)), name, Epoch::At(Duration::ZERO))
    }

    fn with(device: D, output: Output, name: &str, epoch: Epoch) -> Pcap<D> {
        let medium = device.capabilities().medium;
        let mut capture = Capture {
            output: Some(output),
            on_error: Box::new(drop),
            untold: None,
            medium,
            buffer: header(medium, name),
            gathered: 0,
            since: None,
            most_gathered: BUFFER_BYTES,
            snaplen: u32::MAX,
            losses: Losses { frames: 0, told_at: Instant::ZERO, tell: Box::new(drop) },
            epoch,
            scratch: Vec::new(),
        };
        // A reader that is there already need not wait for the first frame.
        capture.untold = capture.write(Instant::ZERO).err();
        Pcap { device, capture, offered: Offered::default() }
    }

    /// Captures the first `bytes` bytes of each frame only.
    #[must_use]
    pub fn snaplen(mut self, bytes: u32) -> Self {
        self.capture.snaplen = bytes;
        self
    }

    /// Sets `tell`, which is called when the file cannot be written and capturing ends.
    #[must_use]
    pub fn on_error(mut self, mut tell: impl FnMut(io::Error) + 'static) -> Self {
        if let Some(error) = self.capture.untold.take() {
            tell(error);
        }
        self.capture.on_error = Box::new(tell);
        self
    }

    /// Sets `tell`, which is called with the number of frames lost since the last call because the
    /// file was written too slowly. It is called every ten seconds at most, and at the end.
    #[must_use]
    pub fn on_loss(mut self, tell: impl FnMut(u64) + 'static) -> Self {
        self.capture.losses.tell = Box::new(tell);
        self
    }
}

/// The first blocks of a capture.
fn header(medium: Medium, name: &str) -> Vec<u8> {
    let mut header = Vec::new();
    pcapng::section(&mut header);
    pcapng::interface(medium, name, &mut header);
    header
}

impl Capture {
    /// Adds the frame in `scratch` to the capture.
    fn add_scratch(&mut self, now: Instant, direction: Direction) {
        if self.output.is_none() {
            return;
        }
        let epoch = match self.epoch {
            Epoch::At(epoch) => epoch,
            Epoch::Wall => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let epoch = wall.saturating_sub(now.since(Instant::ZERO));
                self.epoch = Epoch::At(epoch);
                epoch
            }
        };
        let block = self.scratch.len().min(self.snaplen as usize) + BLOCK_BYTES;
        if self.buffer.len() + block > self.most_gathered {
            self.write_or_end(now);
        }
        let (time, frame, snaplen) = (now + epoch, &self.scratch, self.snaplen);
        pcapng::cut_packet(0, time, Some(direction), frame, snaplen, &mut self.buffer);
        self.gathered += 1;
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

    /// The time by which the gathered blocks must be written.
    fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + INTERVAL)
    }

    fn write_if_due(&mut self, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.write_or_end(now);
        }
    }

    /// Writes the gathered blocks. If that fails, capturing ends.
    fn write_or_end(&mut self, now: Instant) {
        if let Err(error) = self.write(now) {
            (self.on_error)(error);
        }
    }

    fn write(&mut self, now: Instant) -> io::Result<()> {
        let frames = std::mem::take(&mut self.gathered);
        self.since = None;
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

impl Drop for Capture {
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
        let capture = &mut self.capture;
        let received = self.device.receive(now, budget, &mut |frames| {
            frames.iter().for_each(|frame| capture.add_received(now, frame));
            sink(frames);
        });
        self.capture.write_if_due(now);
        received
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let capture = &mut self.capture;
        self.offered.before(outbox, |frame| {
            capture.scratch.clear();
            frame.complete_to(&mut capture.scratch);
            capture.add_scratch(now, Direction::Outbound);
        });
        let result = self.device.transmit(now, outbox);
        self.offered.after(outbox);
        result
    }

    fn deadline(&self) -> Option<Instant> {
        match (self.device.deadline(), self.capture.due()) {
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

impl<D: fmt::Debug> fmt::Debug for Pcap<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcap").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
