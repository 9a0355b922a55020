//! A packet socket on an existing interface (packet(7)): a veth end, or a network card.
//!
//! With the virtio header the socket exchanges TCP segments up to 64 KiB with their checksums
//! undone, as [`Tap`](super::Tap) does. Where the kernel refuses the header, frames are plain. A
//! peer on the same machine must then cut its segments itself (`ethtool -K PEER tso off gso off`),
//! since no header tells the size of the pieces of a frame that is too large.
//!
//! The kernel's own IP stack receives the same frames. Leave the interface without addresses, so
//! that the kernel does not answer. Use a hardware address other than the interface's own, so that
//! the kernel ignores the frames: the socket receives frames to every address.
//!
//! Each frame comes with the kernel's receive time (SO_TIMESTAMPNS). Packet pair therefore finds
//! the rate of the bottleneck even if a turn receives many frames.
//!
//! Each frame has its VLAN tags, as it had on the wire: the kernel hands the outer one over beside
//! the frame (PACKET_AUXDATA), and it is put back. A tagged frame is sent as it is. Beyond the MTU
//! the kernel takes only a frame that an outer tag of 802.1Q makes 4 bytes longer; other tags need
//! an MTU with room for them.
//!
//! Frames that come are found in a ring of memory that the kernel shares with us, without a system
//! call each: 4096 of them, which take 8 MiB of the kernel's memory for each socket. Longer ones
//! than 2 KiB are read from the socket, up to 8 MiB of them. Where the kernel refuses the ring, all
//! frames are.
//!
//! Several sockets may share the frames of an interface, one for each shard of a host:
//! [`AfPacket::open_queues`].
//!
//! Needs CAP_NET_RAW in the network namespace, which `unshare -Urn` gives an ordinary user.

mod ring;
mod socket;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lightwait_core::flow::Steering;
use lightwait_core::{Capabilities, Instant, Medium, Outbox};

use self::ring::Ring;
use self::socket::{Described, Sharing};
use super::bpf::{self, Program};
use super::netlink::{Interface, Netlink};
use super::packet_fd::{PacketFd, Reader};
use super::presence::Presence;
use super::refusal::Call;
use super::{Counters, Device, LARGEST_PACKET, LinkState, Losses, Sink, virtio};

/// Bytes of frames that may wait to be received. The kernel's default holds three large segments.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A packet socket, open on one interface: alone, or one of several that share its frames.
#[derive(Debug)]
pub struct AfPacket {
    frames: PacketFd,
    presence: Presence,
    hardware: [u8; 6],
    capabilities: Capabilities,
    /// Frames for which the socket had no room.
    missed: u64,
    /// It is one of several.
    is_shared: bool,
}

impl AfPacket {
    /// Opens the interface of that name, which must exist and be no loopback. Brings it up if it is
    /// down. With `offload`, checksums and segmentation are left to the other side, both ways, if
    /// the kernel supports it.
    pub fn open(interface: &str, offload: bool) -> io::Result<AfPacket> {
        let unbound = Unbound::open(interface, offload)?;
        // Bound last: the socket receives from here on, with every option in force.
        unbound.bind()?;
        unbound.device()
    }

    /// Opens so many sockets, 256 at most, as [`AfPacket::open`] opens its only one. They share the
    /// interface's frames: each comes to one of them (PACKET_FANOUT). A socket's place in the
    /// vector is its number. With one socket, or none, it is [`AfPacket::open`].
    ///
    /// With CAP_BPF or CAP_SYS_ADMIN all frames come to the first, until [`AfPacket::steer`] sets
    /// the rule. Otherwise the kernel spreads them by a hash of its own. Keep all sockets open:
    /// when one closes, the last one takes its number.
    pub fn open_queues(interface: &str, offload: bool, queues: usize) -> io::Result<Vec<AfPacket>> {
        if queues <= 1 {
            return Ok(vec![AfPacket::open(interface, offload)?]);
        }
        let may_steer = Program::load(bpf::Kind::SocketFilter, &bpf::steering::first()).is_ok();
        let sharing = if may_steer { Sharing::Program } else { Sharing::Hash };
        let option = |name| move |error| Call::Option(name).refused(&error);
        let mut sockets = Vec::with_capacity(queues);
        let mut group = None;
        for _ in 0..queues {
            let unbound = Unbound::open(interface, offload)?;
            let socket = &unbound.socket;
            // A socket must be bound to join. Until all have joined, a frame would come to each.
            socket::mute(socket).map_err(option("SO_ATTACH_FILTER"))?;
            unbound.bind()?;
            let joined = match group {
                None => socket::begin_fanout(socket, sharing).map(|begun| group = Some(begun)),
                Some(group) => socket::join_fanout(socket, sharing, group),
            };
            joined.map_err(|error| Call::FanOut.refused(&error))?;
            sockets.push(unbound);
        }
        let mut opened = Vec::with_capacity(queues);
        for bound in sockets {
            socket::unmute(&bound.socket).map_err(option("SO_DETACH_FILTER"))?;
            opened.push(AfPacket { is_shared: true, ..bound.device()? });
        }
        Ok(opened)
    }

    /// A socket that another process of this very program has opened on `interface`, by
    /// [`AfPacket::open`] or [`AfPacket::open_queues`], with its ring and its steering. Only one of
    /// both may receive at a time; either may send.
    pub fn from_fd(interface: &str, fd: OwnedFd) -> io::Result<AfPacket> {
        let netlink = Netlink::open()?;
        let link = netlink.interface(interface)?;
        let bound = socket::bound_to(fd.as_fd());
        let bound = bound.map_err(|error| Call::Option("getsockname").refused(&error))?;
        if bound != link.index {
            let text = format!("the packet socket is not bound to `{interface}`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let has_virtio_header = socket::has_virtio_header(fd.as_fd())?;
        let reader: Box<dyn Reader> = match Ring::shared(&fd, header_len(has_virtio_header)) {
            Ok(ring) => Box::new(ring),
            Err(_) => Box::new(Described),
        };
        Unbound { socket: fd, has_virtio_header, interface, link, netlink, reader }.device()
    }

    /// Has each frame come to the socket of the shard that owns its connection, by a program of
    /// eBPF. All but TCP and UDP comes to the first socket, and so do fragments, IPv6 extension
    /// headers and VLAN tags. The rule is for as many shards as there are sockets, and holds for
    /// all of them: one call on any is enough. A socket alone has nothing to steer.
    ///
    /// Needs CAP_BPF or CAP_SYS_ADMIN, in the machine's own user namespace; the error says so. A
    /// host whose frames are not steered is as correct.
    pub fn steer(&self, steering: &Steering) -> io::Result<()> {
        if !self.is_shared {
            return Ok(());
        }
        let code = bpf::steering::owner(steering, bpf::steering::Start::Network);
        let program = Program::load(bpf::Kind::SocketFilter, &code)?;
        let set = socket::steer(self.frames.as_fd(), program.as_fd());
        set.map_err(|error| Call::Option("PACKET_FANOUT_DATA").refused(&error))
    }

    /// Sets the room for frames that wait to be received, in place of the ring: no more than the
    /// kernel's limit without CAP_NET_ADMIN. The kernel doubles `bytes`, and each frame takes some
    /// hundred of its own: a small one 768 in all. It drops frames for which there is no room
    /// ([`Losses::missed`]). So this bounds how long a frame waits where more come than are taken.
    pub fn with_receive_buffer(self, bytes: usize) -> io::Result<AfPacket> {
        let frames = self.frames.described(Box::new(Described));
        let refused = |error: io::Error| Call::Option("PACKET_RX_RING").refused(&error);
        socket::set_ring(frames.as_fd(), None).map_err(refused)?;
        let this = AfPacket { frames, ..self };
        let room = socket::set_receive_buffer(this.frames.as_fd(), bytes);
        room.map_err(|error| Call::Option("SO_RCVBUF").refused(&error))?;
        Ok(this)
    }

    /// Another handle on this socket, for another thread: one may receive while the other sends.
    /// Fails where the socket receives through a ring: give that up first, by
    /// [`AfPacket::with_receive_buffer`].
    ///
    /// Each handle counts what it moved itself. The losses of the device are the sum of both. Each
    /// has its own listener ([`AfPacket::on_link`]), and either may be the one to notice.
    pub fn try_clone(&self) -> io::Result<AfPacket> {
        Ok(AfPacket {
            frames: self.frames.try_clone()?,
            presence: self.presence.try_clone()?,
            hardware: self.hardware,
            capabilities: self.capabilities,
            // The kernel forgets what it has told: whichever handle asked has it.
            missed: 0,
            is_shared: self.is_shared,
        })
    }

    /// Calls `listener` when the interface goes down and when it is up again. If the interface is
    /// gone, [`Device::receive`] and [`Device::transmit`] fail.
    #[must_use]
    pub fn on_link(mut self, listener: impl FnMut(LinkState) + Send + 'static) -> AfPacket {
        self.presence.tell(listener);
        self
    }

    /// True if the interface's cable leads to an end that is up. A veth has none while its other
    /// end is down, and nothing passes.
    pub fn has_carrier(&self) -> io::Result<bool> {
        self.presence.has_carrier()
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

fn loopback(interface: &str) -> String {
    format!(
        "`{interface}` is the loopback interface, where nobody but the kernel hears a packet \
         socket: name an interface that leads somewhere, or make a TAP"
    )
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
        // The socket is no longer bound to an interface.
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

/// A packet socket with every option in force, not bound yet.
struct Unbound<'a> {
    socket: OwnedFd,
    has_virtio_header: bool,
    interface: &'a str,
    link: Interface,
    netlink: Netlink,
    reader: Box<dyn Reader>,
}

impl Unbound<'_> {
    fn open(interface: &str, offload: bool) -> io::Result<Unbound<'_>> {
        let netlink = Netlink::open()?;
        let link = netlink.interface(interface)?;
        if link.loopback {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, loopback(interface)));
        }
        let socket = socket::open().map_err(|error| Call::PacketSocket.refused(&error))?;
        if !link.up {
            let refused = |error| Call::SetUp(interface).refused(&error);
            netlink.set_up(link.index).map_err(refused)?;
        }
        let has_virtio_header = offload && socket::use_virtio_header(&socket).is_ok();
        // Without receive times a frame comes when a turn finds it.
        let _ = socket::stamp_frames(&socket);
        let option = |name| move |error| Call::Option(name).refused(&error);
        socket::describe_frames(&socket).map_err(option("PACKET_AUXDATA"))?;
        socket::ignore_outgoing(&socket).map_err(option("PACKET_IGNORE_OUTGOING"))?;
        let room = socket::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES);
        room.map_err(option("SO_RCVBUF"))?;
        let hears = socket::hear_every_address(&socket, link.index);
        hears.map_err(option("PACKET_ADD_MEMBERSHIP"))?;
        let reader: Box<dyn Reader> = match Ring::new(&socket, header_len(has_virtio_header)) {
            Ok(ring) => Box::new(ring),
            Err(_) => Box::new(Described),
        };
        Ok(Unbound { socket, has_virtio_header, interface, link, netlink, reader })
    }

    fn bind(&self) -> io::Result<()> {
        let bound = socket::bind(&self.socket, self.link.index);
        bound.map_err(|error| Call::Bind(self.interface).refused(&error))
    }

    /// The device, once the socket is bound.
    fn device(self) -> io::Result<AfPacket> {
        let Unbound { socket, has_virtio_header, interface, link, netlink, reader } = self;
        let frames = PacketFd::new(socket, header_len(has_virtio_header))?;
        Ok(AfPacket {
            frames: frames.described(reader),
            presence: Presence::new(netlink, link.index, format!("the interface `{interface}`")),
            hardware: link.hardware,
            missed: 0,
            is_shared: false,
            capabilities: Capabilities {
                medium: Medium::Ethernet,
                mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
                checksum: has_virtio_header,
                segmentation: if has_virtio_header { LARGEST_PACKET } else { 0 },
                datagrams: 0,
            },
        })
    }
}

fn header_len(has_virtio_header: bool) -> usize {
    if has_virtio_header { virtio::SHORT_HEADER_LEN } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_refused_with_a_reason() {
        let error = AfPacket::open("lo", true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("`lo` is the loopback interface"), "{error}");
    }
}
