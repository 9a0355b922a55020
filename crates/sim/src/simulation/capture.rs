//! What passes between two hosts, for Wireshark.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::{fs, io};

use lightwait_core::capture::pcapng::{self, Direction};
use lightwait_core::{Instant, Medium};

/// A recording of what two hosts send each other, in the pcapng format: one interface of the name
/// of the first, with what that has sent as outbound, at its time; and a second, `lost`, with what
/// was lost by a cut or a filter. It is in memory, and grows with each packet.
#[derive(Clone)]
pub struct Capture {
    bytes: Rc<RefCell<Vec<u8>>>,
}

/// The interfaces of a recording.
const PASSED: u32 = 0;
const LOST: u32 = 1;

impl Capture {
    pub(super) fn new(name: &str) -> Capture {
        let mut bytes = Vec::new();
        pcapng::section(&mut bytes);
        pcapng::interface(Medium::Ip, name, &mut bytes);
        pcapng::interface(Medium::Ip, "lost", &mut bytes);
        Capture { bytes: Rc::new(RefCell::new(bytes)) }
    }

    pub(super) fn add(&self, now: Instant, direction: Direction, is_lost: bool, packet: &[u8]) {
        let interface = if is_lost { LOST } else { PASSED };
        let mut bytes = self.bytes.borrow_mut();
        pcapng::packet(interface, now, Some(direction), packet, &mut bytes);
    }

    /// The file so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }

    /// Writes the file so far.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        fs::write(path, &*self.bytes.borrow())
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("bytes", &self.bytes.borrow().len()).finish()
    }
}
