//! A device in memory: frames that one end sends are received by the other.

use std::collections::VecDeque;

use ::smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use ::smoltcp::time::Instant;

/// One end of the wire.
pub(super) struct Wire {
    capabilities: DeviceCapabilities,
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    /// Received frames, whose buffers are used for the next ones sent.
    spare: Vec<Vec<u8>>,
    sent: u64,
}

impl Wire {
    pub(super) fn new(mtu: u16, checksum: ChecksumCapabilities) -> Wire {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(mtu);
        capabilities.checksum = checksum;
        let (incoming, outgoing) = (VecDeque::new(), VecDeque::new());
        Wire { capabilities, incoming, outgoing, spare: Vec::new(), sent: 0 }
    }

    /// Receives the frames that `other` has sent.
    pub(super) fn join(&mut self, other: &mut Wire) {
        if self.incoming.is_empty() {
            std::mem::swap(&mut self.incoming, &mut other.outgoing);
        } else {
            self.incoming.append(&mut other.outgoing);
        }
        // An end that only receives gives back the buffers that the other needs.
        if other.spare.is_empty() {
            std::mem::swap(&mut self.spare, &mut other.spare);
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

impl Device for Wire {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let bytes = self.incoming.pop_front()?;
        // A reply sent at once takes a new buffer, since the received frame is still being read.
        let sending = Sending { outgoing: &mut self.outgoing, spare: None, sent: &mut self.sent };
        Some((Received { bytes, spare: &mut self.spare }, sending))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sending<'_>> {
        let spare = Some(&mut self.spare);
        Some(Sending { outgoing: &mut self.outgoing, spare, sent: &mut self.sent })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

/// A frame that has arrived.
pub(super) struct Received<'a> {
    bytes: Vec<u8>,
    spare: &'a mut Vec<Vec<u8>>,
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.bytes);
        self.spare.push(self.bytes);
        result
    }
}

/// The right to send a frame.
pub(super) struct Sending<'a> {
    outgoing: &'a mut VecDeque<Vec<u8>>,
    spare: Option<&'a mut Vec<Vec<u8>>>,
    sent: &'a mut u64,
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut bytes = self.spare.and_then(Vec::pop).unwrap_or_default();
        // Old bytes stay: all of them are overwritten.
        bytes.resize(len, 0);
        let result = write(&mut bytes);
        self.outgoing.push_back(bytes);
        *self.sent += 1;
        result
    }
}
