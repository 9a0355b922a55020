//! Devices: the frames' sources and destinations.
//!
//! A device moves *batches* of frames with their offload flags, and reports its capabilities. A
//! wrapper ([`crate::wrap`]) stands in front of any device and is a device itself.

#[cfg(target_os = "linux")]
mod af_packet;
#[cfg(target_os = "linux")]
mod af_xdp;
#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod kind;
pub mod memory;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod packet_fd;
#[cfg(target_os = "linux")]
mod presence;
#[cfg(target_os = "linux")]
mod refusal;
#[cfg(target_os = "linux")]
mod stamp;
#[cfg(target_os = "linux")]
mod tap;
#[cfg(target_os = "linux")]
mod tun;
#[cfg(target_os = "linux")]
mod virtio;
#[cfg(target_os = "linux")]
mod vlan;
#[cfg(feature = "tokio-driver")]
pub(crate) mod watch;

#[cfg(target_os = "linux")]
pub use af_packet::AfPacket;
#[cfg(target_os = "linux")]
pub use af_xdp::{AfXdp, AfXdpConfig, XdpMode};
pub use memory::{MemoryDevice, ThreadedMemory};
#[cfg(target_os = "linux")]
pub use netlink::{KernelAddress, kernel_address, kernel_addresses};
#[cfg(target_os = "linux")]
pub use presence::LinkState;
#[cfg(target_os = "linux")]
pub use tap::{Tap, TapConfig};
#[cfg(target_os = "linux")]
pub use tun::Tun;

use std::io;
use std::os::fd::BorrowedFd;

use lightwait_core::{Capabilities, Instant, Outbox, RxFrame};

/// Receives frames that have arrived, some at a time, oldest first. The host takes them in; its
/// replies are transmitted after [`Device::receive`] has returned.
pub type Sink<'a> = dyn FnMut(&[RxFrame<'_>]) + 'a;

/// Receives frames from a link and sends frames to it.
pub trait Device {
    /// The device's capabilities. Constant for the device's life.
    fn capabilities(&self) -> Capabilities;

    /// Hands at most `budget` frames that have arrived to `sink`, oldest first, and returns their
    /// number. It hands over several at a time where it has them ([`in_bursts`]): the host then
    /// fetches their connections from memory together. Never waits.
    ///
    /// [`in_bursts`]: lightwait_core::frame::in_bursts
    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize>;

    /// Takes frames from the front of `outbox` and sends them. A frame that it cannot take now
    /// stays in `outbox`. Never waits.
    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()>;

    /// The next time at which the device itself will have a frame to hand over or to send, if time
    /// alone decides (a wrapper that delays); `None` otherwise.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// True if the link has come up again since the last call: neighbours, and the switches
    /// between, may have forgotten us.
    fn take_link_up(&mut self) -> bool {
        false
    }

    /// Frames lost at the device, since its beginning. This asks the kernel: do not call it every
    /// turn.
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses::default())
    }

    /// The descriptor that becomes readable when frames arrive, if the device has one.
    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True if [`Device::transmit`] left frames behind because the file descriptor was full. The
    /// driver then waits until the descriptor is writable, too.
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

/// The largest IP packet, in bytes: the most that a device with segmentation offload takes.
pub const LARGEST_PACKET: u32 = 65_535;

/// Frames lost at a device, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Dropped by the kernel because no read fetched them in time.
    pub missed: u64,
    /// Refused by the kernel at transmission: [`Counters::transmit_errors`].
    pub refused: u64,
}

/// Frames that a device has moved and dropped, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the host.
    pub received: u64,
    /// Too short to be a frame, or dropped by the kernel: no virtio header tells its offloads.
    pub receive_errors: u64,
    /// Taken by the kernel.
    pub transmitted: u64,
    /// Refused by the kernel and dropped: its interface was down or its queue full.
    pub transmit_errors: u64,
}
