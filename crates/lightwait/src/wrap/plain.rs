//! A device without offload: it hands over packets as on a wire, each with its checksum.
//!
//! It advertises no offload, so that the host gives it single packets, too. It cuts large segments
//! of the device underneath, and completes checksums that were left undone.

use std::io;
use std::os::fd::BorrowedFd;

use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};

use super::packets;
use crate::device::{Device, Losses, Sink};

/// A device whose offloads are undone.
#[derive(Debug)]
pub struct Plain<D> {
    device: D,
    scratch: Vec<u8>,
}

impl<D: Device> Plain<D> {
    /// Undoes the offloads of `device`.
    pub fn new(device: D) -> Self {
        Plain { device, scratch: Vec::new() }
    }
}

impl<D: Device> Device for Plain<D> {
    fn capabilities(&self) -> Capabilities {
        let Capabilities { medium, mtu, .. } = self.device.capabilities();
        Capabilities::plain(medium, mtu)
    }

    /// Receives like [`Device::receive`], but a large segment counts as one frame.
    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let (medium, scratch) = (self.device.capabilities().medium, &mut self.scratch);
        self.device.receive(now, budget, &mut |frames| {
            for frame in frames {
                packets::for_each_packet(medium, *frame, scratch, &mut |packet| {
                    sink(&[RxFrame { arrived: frame.arrived, ..RxFrame::plain(packet) }]);
                });
            }
        })
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.device.transmit(now, outbox)
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
