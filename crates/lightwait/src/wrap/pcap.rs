//! A device whose frames, both ways, are captured in a pcapng file.
//!
//! Frames are written whole, as the host and the device exchange them: large segments are not cut,
//! but a checksum that one left to the other is filled in, so that a reader finds it right.
//!
//! A capture must not stop the traffic: if the file cannot be written any more, capturing ends, and
//! whoever asked for it ([`Pcap::on_error`]) is told.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lightwait_core::frame::RxChecksum;
use lightwait_core::wire::pcapng::{self, Direction};
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};

use super::outgoing::Offered;
use super::packets;
use crate::device::{Device, Sink};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// What was gathered is written after this time at the latest, if a turn comes.
const INTERVAL: Duration = Duration::from_secs(1);

/// A device whose frames are captured.
pub struct Pcap<D> {
    device: D,
    capture: Capture,
    offered: Offered,
}

/// The file, and what is yet to be written to it.
struct Capture {
    /// `None` after an error.
    file: Option<Box<dyn Write>>,
    on_error: Box<dyn FnMut(io::Error)>,
    medium: Medium,
    buffer: Vec<u8>,
    written_at: Instant,
    epoch: Epoch,
    scratch: Vec<u8>,
}

/// What the zero of the shard's time is in the file.
#[derive(Clone, Copy)]
enum Epoch {
    /// So long after 1970.
    At(Duration),
    /// Decided by the wall clock at the first frame.
    Wall,
}

impl<D: Device> Pcap<D> {
    /// Captures into a new file at `path`, with wall time; the interface is called `name` in it.
    pub fn create(device: D, path: &Path, name: &str) -> io::Result<Pcap<D>> {
        let file = File::create(path).map_err(|error| {
            let text = format!("cannot write a capture to {} ({error})", path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(Pcap::with(device, Box::new(file), name, Epoch::Wall))
    }

    /// Captures into `file`, with the shard's own time, counted from 1970.
    pub fn new(device: D, file: impl Write + 'static, name: &str) -> Pcap<D> {
        Pcap::with(device, Box::new(file), name, Epoch::At(Duration::ZERO))
    }

    fn with(device: D, file: Box<dyn Write>, name: &str, epoch: Epoch) -> Pcap<D> {
        let medium = device.capabilities().medium;
        let mut buffer = Vec::new();
        pcapng::section(&mut buffer);
        pcapng::interface(medium, name, &mut buffer);
        let capture = Capture {
            file: Some(file),
            on_error: Box::new(drop),
            medium,
            buffer,
            written_at: Instant::ZERO,
            epoch,
            scratch: Vec::new(),
        };
        Pcap { device, capture, offered: Offered::default() }
    }

    /// Has `tell` called when the file cannot be written and capturing ends.
    #[must_use]
    pub fn on_error(mut self, tell: impl FnMut(io::Error) + 'static) -> Self {
        self.capture.on_error = Box::new(tell);
        self
    }
}

impl Capture {
    /// Adds the frame in `scratch`.
    fn add_scratch(&mut self, now: Instant, direction: Direction) {
        if self.file.is_none() {
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
        pcapng::packet(0, now + epoch, Some(direction), &self.scratch, &mut self.buffer);
        if self.buffer.len() >= BUFFER_BYTES {
            self.write();
        }
    }

    fn add_received(&mut self, now: Instant, frame: &RxFrame<'_>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(frame.bytes);
        if frame.checksum == RxChecksum::Good {
            packets::complete_in_place(self.medium, &mut self.scratch);
        }
        self.add_scratch(now, Direction::Inbound);
    }

    fn write_at_intervals(&mut self, now: Instant) {
        if now.since(self.written_at) >= INTERVAL {
            self.written_at = now;
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(file) = &mut self.file else { return };
        let result = file.write_all(&self.buffer).and_then(|()| file.flush());
        self.buffer.clear();
        if let Err(error) = result {
            self.file = None;
            (self.on_error)(error);
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.write();
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
        self.capture.write_at_intervals(now);
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
        self.device.deadline()
    }

    fn take_link_up(&mut self) -> bool {
        self.device.take_link_up()
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
