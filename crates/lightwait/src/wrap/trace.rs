//! A device that reports each frame in one line of text.
//!
//! ```text
//! 0.001250 out 10.9.0.2:80 > 10.9.0.1:41500: S. 1:1(0) ack 2 win 65535 <mss 1460>
//! 0.001377 in  10.9.0.1:41500 > 10.9.0.2:80: . ack 2 win 502
//! ```

use std::fmt::Write;
use std::os::fd::BorrowedFd;
use std::{fmt, io};

use lightwait_core::capture::pretty::Line;
use lightwait_core::{Capabilities, Instant, Outbox};

use super::outgoing::Offered;
use crate::device::{Device, Losses, Sink};

/// A device that reports each frame.
pub struct Trace<D> {
    device: D,
    sink: Box<dyn FnMut(&str)>,
    offered: Offered,
    text: String,
    frame: Vec<u8>,
}

impl<D: Device> Trace<D> {
    /// Hands a line, without its end, to `sink` for every frame of `device`.
    pub fn new(device: D, sink: impl FnMut(&str) + 'static) -> Self {
        Trace {
            device,
            sink: Box::new(sink),
            offered: Offered::default(),
            text: String::new(),
            frame: Vec::new(),
        }
    }
}

/// Writes a frame's line over `text`.
fn write_line(text: &mut String, now: Instant, way: &str, line: Line<'_>) {
    text.clear();
    // Writing to a `String` does not fail.
    let _ = write!(text, "{now} {way} {line}");
}

impl<D: Device> Device for Trace<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let medium = self.device.capabilities().medium;
        let (text, tell) = (&mut self.text, &mut self.sink);
        self.device.receive(now, budget, &mut |frames| {
            for frame in frames {
                write_line(text, now, "in ", Line { medium, bytes: frame.bytes });
                tell(text);
            }
            sink(frames);
        })
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let medium = self.device.capabilities().medium;
        let (text, tell, bytes) = (&mut self.text, &mut self.sink, &mut self.frame);
        self.offered.before(outbox, |frame| {
            bytes.clear();
            frame.copy_to(bytes);
            write_line(text, now, "out", Line { medium, bytes });
            tell(text);
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

    fn losses(&mut self) -> io::Result<Losses> {
        self.device.losses()
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        self.device.wait_on()
    }

    fn wants_writable(&self) -> bool {
        self.device.wants_writable()
    }
}

impl<D: fmt::Debug> fmt::Debug for Trace<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;
    use lightwait_core::{Medium, RxFrame};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn each_frame_is_told_once_with_its_time_and_way() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let plain = Capabilities::plain(Medium::Ip, 1500);
        let (device, mut wire) = MemoryDevice::with_wire(plain, 1);
        let told = lines.clone();
        let mut device = Trace::new(device, move |line| told.borrow_mut().push(line.to_owned()));
        let mut outbox = Outbox::new(2);
        for _ in 0..2 {
            outbox.push().unwrap().head.push(0x45);
        }
        device.transmit(Instant::from_millis(1500), &mut outbox).unwrap();
        device.transmit(Instant::from_millis(1600), &mut outbox).unwrap();
        assert_eq!(outbox.len(), 1, "the second waits");
        assert!(wire.inject(RxFrame::plain(&[0])));
        device.receive(Instant::from_millis(1700), 1, &mut |_| ()).unwrap();
        let lines = lines.borrow();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[..2].iter().all(|line| line.starts_with("1.500000 out malformed: ip")));
        assert!(lines[2].starts_with("1.700000 in  malformed: ip: unknown version"), "{lines:?}");
    }
}
