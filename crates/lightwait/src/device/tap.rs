//! A TAP: a network interface of the Linux kernel whose wire ends in this process (tun(4)).
//!
//! With the virtio header the kernel exchanges TCP segments up to 64 KiB with undone checksums,
//! both ways. Where it refuses the header, frames are plain.
//!
//! The kernel reports no receive times of frames on a TAP. The stack does not read the clock for
//! each frame either: it would measure when the frame left the queue, not when it came. Packet pair
//! uses the time of the turn, which is right where each frame wakes the stack. Where the stack
//! polls seldom, use a packet socket ([`AfPacket`](super::AfPacket)).
//!
//! A TAP may have several queues, one for each shard of a host: [`Tap::open_queues`]. The kernel
//! chooses a frame's queue; [`Tap::steer`] has it choose the one whose shard owns the connection.
//!
//! A macvtap is a TAP whose other end is the wire of a network card, and not this machine:
//! [`Tap::open_macvtap`].
//!
//! Making an interface and setting it up needs CAP_NET_ADMIN. Two ways need no privilege: an
//! interface that an administrator made for a user (`ip tuntap add dev NAME mode tap user USER`),
//! if it is already configured; and a descriptor that a privileged process hands over
//! ([`Tap::from_fd`]).

mod ioctl;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lightwait_core::address::Cidr;
use lightwait_core::flow::Steering;
use lightwait_core::{Capabilities, Instant, Medium, Outbox};
use rustix::fs::{Mode, OFlags};

use self::ioctl::{Attached, Offload, Queues};
use super::kind::Kind;
use super::netlink::{Netlink, Way};
use super::packet_fd::PacketFd;
use super::presence::Presence;
use super::refusal::Call;
use super::{Counters, Device, LARGEST_PACKET, LinkState, Losses, Sink, bpf, virtio};

const DEVICE_FILE: &str = "/dev/net/tun";

/// Errors of reads and writes once the interface is deleted.
const DETACHED: [i32; 1] = [libc::EBADFD];

/// The longest name of an interface, in bytes (IFNAMSIZ without its zero).
const NAME_LEN_MAX: usize = 15;

/// The configuration of a TAP, or of a TUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The interface's name; if it is empty, the kernel chooses one (`tap0`, …).
    pub name: String,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Addresses for the kernel's end, each with its on-link prefix.
    pub host_addresses: Vec<Cidr>,
    /// Leaves checksums and segmentation to the other side, both ways, if the kernel supports it.
    pub offload: bool,
}

impl TapConfig {
    /// An interface of that name: MTU 1500, offload on, no address for the kernel's end.
    pub fn new(name: &str) -> Self {
        TapConfig { name: name.to_owned(), mtu: 1500, host_addresses: Vec::new(), offload: true }
    }
}

/// A TAP, open, or one queue of it.
#[derive(Debug)]
pub struct Tap {
    frames: PacketFd,
    presence: Presence,
    name: String,
    /// The address that a macvtap hears; a TAP hears any.
    hardware: Option<[u8; 6]>,
    capabilities: Capabilities,
    /// Frames that the kernel dropped before we opened the interface. It counts them for all queues
    /// together, so that the first handle of the first one alone reports them.
    dropped_before: Option<u64>,
}

impl Tap {
    /// Opens the interface, makes it if there is none, brings it up and gives the kernel's end its
    /// addresses. The error says which command helps.
    pub fn open(config: &TapConfig) -> io::Result<Tap> {
        Tap::open_one(Kind::Tap, config)
    }

    /// Opens the only queue of an interface of that kind.
    pub(super) fn open_one(kind: Kind, config: &TapConfig) -> io::Result<Tap> {
        check_name(&config.name)?;
        let (fd, attached) = attach(kind, &config.name, config.offload, Queues::One)?;
        set_up(&attached.name, config)?;
        Tap::with(fd, attached, config.mtu, config.offload)
    }

    /// Opens so many queues of the interface, 256 at most, as [`Tap::open`] opens its only one: a
    /// queue's place in the vector is its number. With one queue, or none, it is [`Tap::open`].
    ///
    /// Without [`Tap::steer`] the kernel sends the frames of a connection to the queue from which
    /// it last had one, as a rule. Keep all queues open: when one closes, the last one takes its
    /// number.
    ///
    /// An interface that there is already must have been made for several queues (`ip tuntap add
    /// dev NAME mode tap multi_queue`), and no other program may use it.
    pub fn open_queues(config: &TapConfig, queues: usize) -> io::Result<Vec<Tap>> {
        Tap::open_several(Kind::Tap, config, queues)
    }

    /// Opens so many queues of an interface of that kind.
    pub(super) fn open_several(
        kind: Kind,
        config: &TapConfig,
        queues: usize,
    ) -> io::Result<Vec<Tap>> {
        if queues <= 1 {
            return Ok(vec![Tap::open_one(kind, config)?]);
        }
        check_name(&config.name)?;
        refuse_in_use(kind, &config.name)?;
        let (fd, attached) = attach(kind, &config.name, config.offload, Queues::Several)?;
        let (name, mut offload) = (attached.name.clone(), config.offload);
        offload &= attached.has_virtio_header;
        let mut opened = vec![(fd, attached)];
        for _ in 1..queues {
            opened.push(attach(kind, &name, offload, Queues::Several)?);
        }
        set_up(&name, config)?;
        let mut taps = Vec::with_capacity(queues);
        for (number, (fd, attached)) in opened.into_iter().enumerate() {
            let mut tap = Tap::with(fd, attached, config.mtu, offload)?;
            tap.dropped_before = tap.dropped_before.filter(|_| number == 0);
            taps.push(tap);
        }
        Ok(taps)
    }

    /// Opens a macvtap, which must exist, and brings it up if it is down:
    ///
    /// ```text
    /// sudo ip link add link eth0 name lw0 type macvtap mode bridge
    /// ```
    ///
    /// It hears its own hardware address alone: give the stack [`Tap::hardware`]. Every machine on
    /// the wire reaches it but this one. Nothing tells when it goes down. Needs the right to open
    /// `/dev/tapN`, where N is the number of the interface, and none else. The error says which
    /// command helps.
    pub fn open_macvtap(interface: &str) -> io::Result<Tap> {
        let netlink = Netlink::open()?;
        let link = netlink.interface(interface)?;
        let call = Call::OpenMacvtap(interface, link.index);
        let refused = |error: io::Error| call.refused(&error);
        let fd = open_device_file(&format!("/dev/tap{}", link.index)).map_err(refused)?;
        let attached = ioctl::attached(fd.as_fd()).map_err(refused)?;
        if attached.name != interface {
            // The number is that of an interface in another network namespace.
            return Err(refused(io::Error::from_raw_os_error(libc::ENOENT)));
        }
        if !link.up {
            let set = netlink.set_up(link.index);
            set.map_err(|error| Call::SetUp(interface).refused(&error))?;
        }
        let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        let offload = attached.has_virtio_header;
        let tap = Tap::with(fd, attached, mtu, offload)?;
        let before = netlink.dropped(link.index, Way::Received)?;
        Ok(Tap { hardware: Some(link.hardware), dropped_before: Some(before), ..tap })
    }

    /// Opens so many queues of a macvtap, 256 at most, as [`Tap::open_macvtap`] opens its only one.
    /// The kernel spreads frames over them by its own hash of a flow; [`Tap::steer`] is refused.
    pub fn open_macvtap_queues(interface: &str, queues: usize) -> io::Result<Vec<Tap>> {
        let open = |number| {
            let tap = Tap::open_macvtap(interface)?;
            Ok(Tap { dropped_before: tap.dropped_before.filter(|_| number == 0), ..tap })
        };
        (0..queues.max(1)).map(open).collect()
    }

    /// A TAP whose descriptor another process opened and attached, and whose interface it set up.
    /// That process decided whether frames carry a virtio header.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Tap> {
        Tap::from_fd_of(Kind::Tap, fd)
    }

    /// The interface, of that kind, which the descriptor is attached to.
    pub(super) fn from_fd_of(kind: Kind, fd: OwnedFd) -> io::Result<Tap> {
        let attached =
            ioctl::attached(fd.as_fd()).map_err(|error| Call::Attached.refused(&error))?;
        if attached.kind != kind {
            let text = format!("`{}` is a {}; a {kind} is needed", attached.name, attached.kind);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if attached.has_packet_info {
            let name = attached.name;
            let text = format!("`{name}` puts four bytes before each frame: attach with IFF_NO_PI");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mtu = Netlink::open()?.interface(&attached.name)?.mtu;
        let offload = attached.has_virtio_header;
        Tap::with(fd, attached, u16::try_from(mtu).unwrap_or(u16::MAX), offload)
    }

    fn with(fd: OwnedFd, attached: Attached, mtu: u16, offload: bool) -> io::Result<Tap> {
        let (kind, mut header_len) = (attached.kind, 0);
        if attached.has_virtio_header {
            let set = ioctl::set_virtio_header_len(fd.as_fd(), virtio::HEADER_LEN);
            set.map_err(|error| Call::Shape(kind, "a virtio header of 12 bytes").refused(&error))?;
            header_len = virtio::HEADER_LEN;
        }
        let offload = offload && attached.has_virtio_header;
        let set = |offload| ioctl::set_offload(fd.as_fd(), offload);
        let takes_datagrams = offload && set(Offload::SegmentsAndDatagrams).is_ok();
        if !takes_datagrams {
            // If the kernel refuses, its frames come plain, and ours may still be large.
            let _ = set(if offload { Offload::Segments } else { Offload::No });
        }
        let netlink = Netlink::open()?;
        let index = netlink.interface(&attached.name)?.index;
        Ok(Tap {
            hardware: None,
            dropped_before: Some(netlink.dropped(index, Way::Sent)?),
            frames: PacketFd::new(fd, header_len)?,
            presence: Presence::new(netlink, index, format!("the {kind} `{}`", attached.name)),
            name: attached.name,
            capabilities: Capabilities {
                medium: match kind {
                    Kind::Tap => Medium::Ethernet,
                    Kind::Tun => Medium::Ip,
                },
                mtu,
                checksum: offload,
                segmentation: if offload { LARGEST_PACKET } else { 0 },
                datagrams: if takes_datagrams { LARGEST_PACKET } else { 0 },
            },
        })
    }

    /// Has the kernel send each frame to the queue of the shard that owns its connection, by a
    /// program of eBPF. All but TCP and UDP goes to the first queue, and so do fragments, IPv6
    /// extension headers and VLAN tags. The rule is for as many shards as there are queues, and
    /// holds for the interface: one call on any of its queues is enough.
    ///
    /// Needs CAP_BPF or CAP_SYS_ADMIN, in the machine's own user namespace; the error says so. A
    /// host whose frames are not steered is as correct.
    pub fn steer(&self, steering: &Steering) -> io::Result<()> {
        let (kind, start) = match self.capabilities.medium {
            Medium::Ethernet => (Kind::Tap, bpf::steering::Start::Link),
            Medium::Ip => (Kind::Tun, bpf::steering::Start::Network),
        };
        let code = bpf::steering::owner(steering, start);
        let program = bpf::Program::load(bpf::Kind::SocketFilter, &code)?;
        let set = ioctl::steer(self.frames.as_fd(), program.as_fd());
        set.map_err(|error| Call::Shape(kind, "a program that steers").refused(&error))
    }

    /// Another handle on this queue, for another thread: one may receive while the other sends.
    /// Each handle counts what it moved itself. The losses of the device are the sum of both. Each
    /// has its own listener ([`Tap::on_link`]), and either may be the one to notice.
    pub fn try_clone(&self) -> io::Result<Tap> {
        Ok(Tap {
            frames: self.frames.try_clone()?,
            presence: self.presence.try_clone()?,
            name: self.name.clone(),
            hardware: self.hardware,
            capabilities: self.capabilities,
            dropped_before: None,
        })
    }

    /// Calls `listener` when frames are refused because the interface is down, and when it is up
    /// again. If the interface is gone, [`Device::receive`] and [`Device::transmit`] fail.
    #[must_use]
    pub fn on_link(mut self, listener: impl FnMut(LinkState) + Send + 'static) -> Tap {
        self.presence.tell(listener);
        self
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The hardware address that the stack must have: that of a macvtap. A stack on a TAP has any.
    pub fn hardware(&self) -> Option<[u8; 6]> {
        self.hardware
    }

    /// Frames moved and dropped.
    pub fn counters(&self) -> Counters {
        self.frames.counters()
    }
}

impl Device for Tap {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let received = self.frames.receive(now, budget, sink);
        let received = received.map_err(|error| self.presence.explain(error, &DETACHED))?;
        self.presence.look(now, self.frames.take_trouble())?;
        Ok(received)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let sent = self.frames.transmit(outbox);
        sent.map_err(|error| self.presence.explain(error, &DETACHED))?;
        self.presence.look(now, self.frames.take_trouble())
    }

    fn deadline(&self) -> Option<Instant> {
        self.presence.deadline()
    }

    fn take_link_up(&mut self) -> bool {
        self.presence.take_up()
    }

    fn losses(&mut self) -> io::Result<Losses> {
        let missed = match self.dropped_before {
            Some(before) => {
                let way = if self.hardware.is_some() { Way::Received } else { Way::Sent };
                self.presence.dropped(way)?.saturating_sub(before)
            }
            None => 0,
        };
        Ok(Losses { missed, refused: self.frames.counters().transmit_errors })
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.frames.as_fd())
    }

    fn wants_writable(&self) -> bool {
        self.frames.is_full()
    }
}

fn check_name(name: &str) -> io::Result<()> {
    if name.len() <= NAME_LEN_MAX && !name.contains(['\0', '/', ' ']) {
        return Ok(());
    }
    let text =
        format!("`{name}` is no interface name: at most {NAME_LEN_MAX} bytes, no blank, no slash");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Attaches a new descriptor to the interface `name`, made if there is none.
fn attach(
    kind: Kind,
    name: &str,
    offload: bool,
    queues: Queues,
) -> io::Result<(OwnedFd, Attached)> {
    let fd = open_device_file(DEVICE_FILE).map_err(|error| Call::OpenTun.refused(&error))?;
    let attached = match ioctl::attach(fd.as_fd(), kind, name, offload, queues) {
        // A kernel without virtio headers.
        Err(error) if offload && error.raw_os_error() == Some(libc::EINVAL) => {
            ioctl::attach(fd.as_fd(), kind, name, false, queues)
        }
        result => result,
    };
    let call = match queues {
        Queues::One => Call::Attach(kind, name),
        Queues::Several => Call::AttachQueue(kind, name),
    };
    Ok((fd, attached.map_err(|error| call.refused(&error))?))
}

/// Refuses an interface of which another program has a queue: the kernel would give it some of our
/// frames, and us other numbers. It has a carrier while a program is attached to it.
fn refuse_in_use(kind: Kind, name: &str) -> io::Result<()> {
    match Netlink::open()?.interface(name) {
        Ok(interface) if interface.tun && interface.carrier => {
            let busy = io::Error::from_raw_os_error(libc::EBUSY);
            Err(Call::AttachQueue(kind, name).refused(&busy))
        }
        Ok(_) => Ok(()),
        // An empty name is out of range, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_device_file(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Configures the interface. Asks the kernel only for settings that differ, and for the addresses.
fn set_up(name: &str, config: &TapConfig) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let interface = netlink.interface(name)?;
    let (mtu, index) = (config.mtu, interface.index);
    if interface.mtu != u32::from(mtu) {
        let set = netlink.set_mtu(index, mtu.into());
        set.map_err(|error| Call::SetMtu(name, mtu).refused(&error))?;
    }
    for &address in &config.host_addresses {
        let added = netlink.add_address(index, address);
        added.map_err(|error| Call::AddAddress(name, address).refused(&error))?;
    }
    if !interface.up {
        netlink.set_up(index).map_err(|error| Call::SetUp(name).refused(&error))?;
    }
    Ok(())
}
