//! Devices: where frames come from and go to.
//!
//! A device moves *batches* of frames together with their offload facts, and says what it can do.
//! Wrappers ([`crate::wrap`]) stand in front of any device and are devices themselves.

use std::io;
use std::os::fd::BorrowedFd;

use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};

/// Where frames come from and go to.
pub trait Device {
    /// What it can do. Constant for the device's life.
    fn capabilities(&self) -> Capabilities;

    /// Hands at most `budget` frames that have arrived to `sink`, oldest first, and returns how
    /// many. Never waits.
    fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize>;

    /// Takes frames from the front of `outbox` and sends them. What it cannot take now stays.
    /// Never waits.
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()>;

    /// When the device itself will next have something to hand over or send, if time alone decides
    /// (a wrapper that delays); `None` otherwise.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// What to wait on until frames arrive (readable), if there is such a thing.
    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True if [`Device::transmit`] left frames behind because the file descriptor was full: then
    /// wait until it is writable too.
    fn wants_writable(&self) -> bool {
        false
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
    fn receive(
        &mut self,
        now: Instant,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        (**self).receive(now, budget, sink)
    }
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        (**self).transmit(now, outbox)
    }
    fn deadline(&self) -> Option<Instant> {
        (**self).deadline()
    }
    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_on()
    }
    fn wants_writable(&self) -> bool {
        (**self).wants_writable()
    }
}
