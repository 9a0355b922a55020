//! Devices: where frames come from and go to.
//!
//! A device moves *batches* of frames together with their offload facts, and says what it can do.
//! Wrappers ([`crate::wrap`]) stand in front of any device and are devices themselves.

#[cfg(target_os = "linux")]
mod af_packet;
pub mod memory;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod packet_fd;
#[cfg(target_os = "linux")]
mod presence;
#[cfg(target_os = "linux")]
mod stamp;
#[cfg(target_os = "linux")]
mod tap;
#[cfg(target_os = "linux")]
mod virtio;
#[cfg(feature = "tokio-driver")]
pub(crate) mod watch;

#[cfg(target_os = "linux")]
pub use af_packet::AfPacket;
pub use memory::MemoryDevice;
#[cfg(target_os = "linux")]
pub use netlink::{KernelAddress, kernel_address};
#[cfg(target_os = "linux")]
pub use presence::LinkState;
#[cfg(target_os = "linux")]
pub use tap::{Tap, TapConfig};

use std::io;
use std::os::fd::BorrowedFd;

use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};

/// Who hears of frames that have arrived, some at a time, oldest first. It takes them in; what it
/// has to say in return is transmitted after [`Device::receive`] has returned.
pub type Sink<'a> = dyn FnMut(&[RxFrame<'_>]) + 'a;

/// Where frames come from and go to.
pub trait Device {
    /// What it can do. Constant for the device's life.
    fn capabilities(&self) -> Capabilities;

    /// Hands at most `budget` frames that have arrived to `sink`, oldest first, and returns how
    /// many. It hands over several at a time where it has them ([`in_bursts`]): what they lead to
    /// is then fetched from memory together. Never waits.
    ///
    /// [`in_bursts`]: lightwait_core::frame::in_bursts
    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize>;

    /// Takes frames from the front of `outbox` and sends them. What it cannot take now stays.
    /// Never waits.
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()>;

    /// When the device itself will next have something to hand over or send, if time alone decides
    /// (a wrapper that delays); `None` otherwise.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// True if, since the last time, the link has come up again: neighbours, and the switches
    /// between, may have forgotten us.
    fn take_link_up(&mut self) -> bool {
        false
    }

    /// Frames lost at the device, since its beginning. Asks the kernel: not for every turn.
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses::default())
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
    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        (**self).receive(now, budget, sink)
    }
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        (**self).transmit(now, outbox)
    }
    fn deadline(&self) -> Option<Instant> {
        (**self).deadline()
    }
    fn take_link_up(&mut self) -> bool {
        (**self).take_link_up()
    }
    fn losses(&mut self) -> io::Result<Losses> {
        (**self).losses()
    }
    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_on()
    }
    fn wants_writable(&self) -> bool {
        (**self).wants_writable()
    }
}

/// The largest IP packet there is, in bytes: what a device that segments takes.
pub const LARGEST_PACKET: u32 = 65_535;

/// Frames lost at a device, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Dropped by the kernel because nobody fetched them in time.
    pub missed: u64,
    /// Refused by the kernel when they were to be sent: [`Counters::transmit_errors`].
    pub refused: u64,
}

/// What a device has done, since its beginning, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the host.
    pub received: u64,
    /// Too short to be a frame.
    pub receive_errors: u64,
    /// Taken by the kernel.
    pub transmitted: u64,
    /// Refused by the kernel and dropped: its interface was down or its queue full.
    pub transmit_errors: u64,
}
