//! A packet socket on an existing interface (packet(7)): a veth end, or a network card.
//!
//! With the virtio header it exchanges TCP segments up to 64 KiB with their checksums undone, as
//! [`Tap`](super::Tap) does. Where the kernel refuses the header, frames are plain, and a peer on
//! the same machine must have its offloads off (`ethtool -K PEER tx off tso off gso off`): nothing
//! would tell then that a frame is too large or its checksum undone.
//!
//! The kernel's own IP stack hears the same frames. Leave the interface without addresses, so that
//! it does not answer, and use a hardware address other than the interface's own, so that it does
//! not even look: the socket hears every address.
//!
//! Each frame comes with the kernel's receive time (SO_TIMESTAMPNS), so that packet pair finds the
//! rate of the bottleneck however many frames a turn takes in.
//!
//! Needs CAP_NET_RAW in the network namespace, which `unshare -Urn` gives an ordinary user.

mod socket;

use std::io;
use std::os::fd::BorrowedFd;

use lightwait_core::{Capabilities, Instant, Medium, Outbox};

use super::netlink::Netlink;
use super::packet_fd::{self, PacketFd};
use super::presence::Presence;
use super::{Counters, Device, LARGEST_PACKET, LinkState, Losses, Sink, virtio};

/// A packet socket, open on one interface.
#[derive(Debug)]
pub struct AfPacket {
    frames: PacketFd,
    presence: Presence,
    hardware: [u8; 6],
    capabilities: Capabilities,
    /// Frames for which the socket had no room.
    missed: u64,
}

impl AfPacket {
    /// Opens the interface of that name, which must exist; brings it up if it is not. With
    /// `offload`, checksums and segmentation are left to the other side, both ways, if the kernel
    /// can.
    pub fn open(interface: &str, offload: bool) -> io::Result<AfPacket> {
        let netlink = Netlink::open()?;
        let link = netlink.interface(interface)?;
        let socket = socket::open().map_err(|error| {
            let text = format!(
                "a packet socket needs CAP_NET_RAW: run as root, or `sudo setcap \
                 cap_net_raw,cap_net_admin+ep` the program, or run it in a namespace of its own \
                 (`unshare -Urn`) ({error})"
            );
            io::Error::new(error.kind(), text)
        })?;
        if !link.up {
            netlink.set_up(link.index).map_err(|error| {
                let text = format!(
                    "`{interface}` is down: `sudo ip link set dev {interface} up` ({error})"
                );
                io::Error::new(error.kind(), text)
            })?;
        }
        let virtio_header = offload && socket::use_virtio_header(&socket).is_ok();
        // Without receive times nothing is wrong but what packet pair finds.
        let is_stamped = socket::stamp_frames(&socket).is_ok();
        let read = if is_stamped { socket::read_stamped } else { packet_fd::read };
        socket::ignore_outgoing(&socket)?;
        socket::enlarge_receive_buffer(&socket)?;
        socket::hear_every_address(&socket, link.index)?;
        // Bound last: from here on it hears, with every option in force.
        socket::bind(&socket, link.index)?;
        let header_len = if virtio_header { virtio::SHORT_HEADER_LEN } else { 0 };
        Ok(AfPacket {
            frames: PacketFd::new(socket, header_len, read)?,
            presence: Presence::new(netlink, link.index, format!("the interface `{interface}`")),
            hardware: link.hardware,
            missed: 0,
            capabilities: Capabilities {
                medium: Medium::Ethernet,
                mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
                checksum: virtio_header,
                segmentation: if virtio_header { LARGEST_PACKET } else { 0 },
            },
        })
    }

    /// Tells `listener` when the interface goes down, and when it is up again. That it is gone is
    /// a failure of [`Device::receive`] and [`Device::transmit`].
    #[must_use]
    pub fn on_link(mut self, listener: impl FnMut(LinkState) + Send + 'static) -> AfPacket {
        self.presence.tell(listener);
        self
    }

    /// The interface's own hardware address.
    pub fn hardware(&self) -> [u8; 6] {
        self.hardware
    }

    /// Frames moved and dropped.
    pub fn counters(&self) -> Counters {
        self.frames.counters()
    }
}

impl Device for AfPacket {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let received = self.frames.receive(now, budget, sink);
        self.presence.look(now, self.frames.take_trouble())?;
        received
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let sent = self.frames.transmit(outbox);
        self.presence.look(now, self.frames.take_trouble())?;
        // The socket is bound to nothing any more.
        sent.map_err(|error| self.presence.explain(error, &[libc::ENXIO, libc::ENODEV]))
    }

    fn deadline(&self) -> Option<Instant> {
        self.presence.deadline()
    }

    fn take_link_up(&mut self) -> bool {
        self.presence.take_up()
    }

    fn losses(&mut self) -> io::Result<Losses> {
        self.missed += u64::from(socket::take_drops(self.frames.as_fd())?);
        Ok(Losses { missed: self.missed, refused: self.frames.counters().transmit_errors })
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.frames.as_fd())
    }

    fn wants_writable(&self) -> bool {
        self.frames.is_full()
    }
}
