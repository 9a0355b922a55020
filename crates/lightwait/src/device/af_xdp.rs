//! Sockets of AF_XDP on a network card (Linux, Documentation/networking/af_xdp.rst): frames come
//! from the driver's receive queue and go to its send queue, past the kernel's own stack.
//!
//! A program of XDP takes what is ours: ARP, ICMP and neighbour discovery for our addresses, and
//! what is sent to them. All else goes on to the kernel, so that the machine's own network keeps
//! working on the interface. Our addresses must not be the kernel's as well. Frames with VLAN tags,
//! router advertisements and multicast are the kernel's.
//!
//! ```text
//!   card ── receive queue n ── program ──┬── socket n ── shard n
//!                                        └── the kernel's own stack
//! ```
//!
//! The card chooses a frame's queue, by a hash of its own (RSS): most frames come to another shard
//! than the owner of their connection, and are handed over.
//!
//! A segment is a frame. Where the kernel copies frames it completes our checksums, or has the card
//! do it (from Linux 6.8 on). It tells nothing of the checksums of arrivals: a peer on the same
//! machine, behind a veth, must not leave its own undone (`ethtool -K PEER tx off`). The card hears
//! its own hardware address alone: use [`AfXdp::hardware`] for the stack.
//!
//! Needs Linux 5.9 (6.6 with an MTU above 3818), CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or
//! CAP_SYS_ADMIN, in the machine's own user namespace. Frames take 8 MiB of locked memory for each
//! queue, or 16 with an MTU above 1770.

mod channels;
mod rings;

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lightwait_core::wire::ethernet::{HEADER_BYTES, TAG_BYTES, TAGS_MAX};
use lightwait_core::{Capabilities, Instant, Medium, Outbox};
use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpOptionsFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};

use self::rings::{Layout, PARTS_MAX, Pushed, Rings};
use super::bpf::{Attachment, Kind, Program, SocketMap, XdpFlag, filter};
use super::netlink::{Interface, Netlink};
use super::presence::Presence;
use super::refusal::Call;
use super::{Counters, Device, LinkState, Losses, Sink};

/// Bytes that the kernel keeps free before a frame that it receives (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;

/// Bytes of an Ethernet header with tags.
const LINK_LEN: u32 = (HEADER_BYTES + TAGS_MAX * TAG_BYTES) as u32;

/// The largest MTU of an interface whose frames take 2 KiB each, in bytes.
const SMALL_MTU: u32 = 2048 - HEADROOM - LINK_LEN;

/// The largest MTU of an interface whose frames take a page each, in bytes.
const PAGE_MTU: u32 = 4096 - HEADROOM - LINK_LEN;

/// The largest MTU, in bytes: of frames that take as many pages as they may.
const LARGEST_MTU: u32 = PARTS_MAX * (4096 - HEADROOM) - LINK_LEN;

/// How long the kernel may take to release the queue of a socket that was closed.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// What sockets of AF_XDP take from which interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdpConfig {
    /// The interface's name. It must exist.
    pub interface: String,
    /// Our addresses, all of them, link-local ones as well: what comes to others is the kernel's.
    pub addresses: Vec<IpAddr>,
    /// With ports, only TCP to one of them is ours, and ICMP. What else comes to our addresses is
    /// the kernel's, fragments as well. Connections that we open need their ports in it.
    pub ports: Option<RangeInclusive<u16>>,
    /// The card reads and writes our memory itself, if its driver can; else the kernel copies.
    pub zero_copy: bool,
}

impl AfXdpConfig {
    /// Takes all that comes to `addresses`, without copies where the driver can.
    pub fn new(interface: &str, addresses: Vec<IpAddr>) -> Self {
        AfXdpConfig { interface: interface.to_owned(), addresses, ports: None, zero_copy: true }
    }
}

/// How frames get from the card to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The card writes them to our memory.
    ZeroCopy,
    /// The driver runs the program, and the kernel copies frames that are ours.
    Driver,
    /// The driver knows no XDP: the kernel runs the program behind it, at the cost of a buffer and
    /// a copy for each frame.
    Generic,
}

/// A socket of AF_XDP on one queue of an interface.
#[derive(Debug)]
pub struct AfXdp {
    socket: OwnedFd,
    rings: Rings,
    /// Taken from the interface when the last of its sockets goes.
    _attached: Arc<Attached>,
    presence: Presence,
    hardware: [u8; 6],
    mode: XdpMode,
    mtu: u16,
    /// All chunks are on their way, or the kernel did not send all: wait until it is writable.
    full: bool,
    counters: Counters,
}

/// The program at its interface, and the sockets that it knows.
#[derive(Debug)]
struct Attached {
    _attachment: Attachment,
    sockets: SocketMap,
}

impl AfXdp {
    /// Opens the only queue of the interface, and brings it up if it is down.
    pub fn open(config: &AfXdpConfig) -> io::Result<AfXdp> {
        let mut queues = AfXdp::open_queues(config, 1)?;
        queues.pop().ok_or_else(|| io::Error::other("one queue was asked for"))
    }

    /// Opens a socket on each of the interface's receive queues, of which there must be so many:
    /// a socket's place in the vector is the queue's number. The error says which command helps.
    pub fn open_queues(config: &AfXdpConfig, queues: usize) -> io::Result<Vec<AfXdp>> {
        let (name, queues) = (&config.interface[..], queues.max(1) as u32);
        let netlink = Netlink::open()?;
        let link = netlink.interface(name)?;
        let loaded = Loaded::new(config, &link, queues)?;
        check_mtu(name, link.mtu)?;
        if !link.up {
            let refused = |error| Call::SetUp(name).refused(&error);
            netlink.set_up(link.index).map_err(refused)?;
        }
        check_queues(netlink.as_fd(), name, queues)?;
        let (attached, flag) = loaded.attach(name, link.index)?;
        let attached = Arc::new(attached);
        (0..queues).map(|queue| open_queue(config, &link, queue, flag, &attached)).collect()
    }

    /// How frames come.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Calls `listener` when the interface is found to be down, and when it is up again. If it is
    /// gone, [`Device::transmit`] fails.
    #[must_use]
    pub fn on_link(mut self, listener: impl FnMut(LinkState) + Send + 'static) -> AfXdp {
        self.presence.tell(listener);
        self
    }

    /// True if the interface's cable leads to an end that is up.
    pub fn has_carrier(&self) -> io::Result<bool> {
        self.presence.has_carrier()
    }

    /// The interface's own hardware address.
    pub fn hardware(&self) -> [u8; 6] {
        self.hardware
    }

    /// Frames moved and dropped.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Has the kernel send what was submitted, where it waits to be called. Returns true if the
    /// interface is down.
    fn kick(&mut self) -> io::Result<bool> {
        self.full = false;
        while self.rings.unsent() > 0 && self.rings.send_needs_call() {
            let before = self.rings.unsent();
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                // It sends some at a time. Where it sent none its queue is full.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => {
                    if self.rings.unsent() == before {
                        self.full = true;
                        break;
                    }
                }
                Err(Errno::NETDOWN) => return Ok(true),
                Err(error) => return Err(self.explain(error)),
            }
        }
        Ok(false)
    }

    fn explain(&self, error: Errno) -> io::Error {
        self.presence.explain(error.into(), &[libc::ENXIO, libc::ENODEV])
    }
}

impl Device for AfXdp {
    fn capabilities(&self) -> Capabilities {
        // Which cards complete checksums without the kernel's help is not asked.
        let checksum = self.rings.has_metadata() && self.mode != XdpMode::ZeroCopy;
        Capabilities { checksum, ..Capabilities::plain(Medium::Ethernet, self.mtu) }
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let received = self.rings.receive(budget, sink);
        self.counters.received += received as u64;
        let mut is_down = false;
        if self.rings.fill_needs_call() {
            is_down = match recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
                Err(Errno::NETDOWN) => true,
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::NOBUFS) => false,
                Err(error) => return Err(self.explain(error)),
            };
        }
        // What an earlier call left.
        if self.full {
            is_down |= self.kick()?;
        }
        self.presence.look(now, is_down)?;
        Ok(received)
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        let mut is_full = false;
        while let Some(frame) = outbox.front() {
            match self.rings.push(frame) {
                Pushed::Taken => self.counters.transmitted += 1,
                Pushed::TooLarge => self.counters.transmit_errors += 1,
                Pushed::Full => {
                    is_full = true;
                    break;
                }
            }
            outbox.pop();
        }
        self.rings.submit();
        let is_down = self.kick()?;
        self.full |= is_full;
        self.presence.look(now, is_down)
    }

    fn deadline(&self) -> Option<Instant> {
        self.presence.deadline()
    }

    fn take_link_up(&mut self) -> bool {
        self.presence.take_up()
    }

    fn losses(&mut self) -> io::Result<Losses> {
        let seen = sockopt::xdp_statistics(&self.socket)?;
        let missed = seen.rx_dropped + seen.rx_ring_full.unwrap_or_default();
        Ok(Losses { missed, refused: self.counters.transmit_errors + seen.tx_invalid_descs })
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn wants_writable(&self) -> bool {
        self.full
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn check_mtu(name: &str, mtu: u32) -> io::Result<()> {
    if mtu <= LARGEST_MTU {
        return Ok(());
    }
    Err(invalid(format!(
        "`{name}` has an MTU of {mtu}, and AF_XDP carries {LARGEST_MTU} at most: `sudo ip link set \
         dev {name} mtu {LARGEST_MTU}`"
    )))
}

/// Refuses an interface with more receive queues than sockets: the kernel's own stack would get
/// frames of ours.
fn check_queues(socket: BorrowedFd<'_>, name: &str, queues: u32) -> io::Result<()> {
    match channels::receive_queues(socket, name)? {
        None => Ok(()),
        Some(there) if there == queues => Ok(()),
        Some(there) => Err(invalid(format!(
            "`{name}` has {there} receive queue(s), and AF_XDP needs one for each shard, {queues} \
             in all: `sudo ethtool -L {name} combined {queues}`, or `rx {queues} tx {queues}`, as \
             far as the card has them (`ethtool -l {name}`)"
        ))),
    }
}

/// The program, which leaves all to the kernel until its map has sockets.
struct Loaded {
    program: Program,
    sockets: SocketMap,
}

impl Loaded {
    fn new(config: &AfXdpConfig, link: &Interface, queues: u32) -> io::Result<Loaded> {
        let sockets = SocketMap::new(queues)?;
        let take = filter::Take::ToSocket(sockets.as_fd().as_raw_fd());
        let code = filter::ours(&config.addresses, config.ports.as_ref(), take);
        let kind = if is_split(link) { Kind::XdpInParts } else { Kind::Xdp };
        Ok(Loaded { program: Program::load(kind, &code)?, sockets })
    }

    /// Attaches it: in the driver or, where that refuses, behind it.
    fn attach(self, name: &str, interface: u32) -> io::Result<(Attached, XdpFlag)> {
        let mut flag = XdpFlag::Driver;
        let mut attachment = self.program.attach(interface, flag);
        let is_final = |error: &io::Error| {
            matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY | libc::ENODEV))
        };
        if attachment.as_ref().is_err_and(|error| !is_final(error)) {
            flag = XdpFlag::Generic;
            attachment = self.program.attach(interface, flag);
        }
        let attachment = attachment.map_err(|error| Call::AttachXdp(name).refused(&error))?;
        Ok((Attached { _attachment: attachment, sockets: self.sockets }, flag))
    }
}

/// True if a frame of the interface may take several chunks.
fn is_split(link: &Interface) -> bool {
    link.mtu > PAGE_MTU
}

fn open_queue(
    config: &AfXdpConfig,
    link: &Interface,
    queue: u32,
    flag: XdpFlag,
    attached: &Arc<Attached>,
) -> io::Result<AfXdp> {
    let name = &config.interface[..];
    let opened = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let socket = opened.map_err(|error| Call::XdpSocket.refused(&error.into()))?;
    let chunk_len = if link.mtu <= SMALL_MTU { 2048 } else { 4096 };
    let layout = Layout { chunk_len, is_split: is_split(link) };
    let rings = Rings::new(socket.as_fd(), layout);
    let rings = rings.map_err(|error| Call::XdpMemory.refused(&error.into()))?;
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    if flag == XdpFlag::Generic || !config.zero_copy {
        flags |= SocketAddrXdpFlags::XDP_COPY;
    }
    if layout.is_split {
        flags |= SocketAddrXdpFlags::XDP_USE_SG;
    }
    let bound = bind_released(&socket, &SocketAddrXdp::new(flags, link.index, queue));
    bound.map_err(|error| Call::XdpBind(name, queue).refused(&error.into()))?;
    let options = sockopt::xdp_options(&socket)?;
    let mode = match flag {
        _ if options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY) => XdpMode::ZeroCopy,
        XdpFlag::Driver => XdpMode::Driver,
        XdpFlag::Generic => XdpMode::Generic,
    };
    let known = attached.sockets.set(queue, socket.as_fd());
    known.map_err(|error| Call::XdpBind(name, queue).refused(&error))?;
    let presence = Presence::new(Netlink::open()?, link.index, format!("the interface `{name}`"));
    let presence = presence.watched();
    Ok(AfXdp {
        socket,
        rings,
        _attached: attached.clone(),
        presence,
        hardware: link.hardware,
        mode,
        mtu: link.mtu as u16,
        full: false,
        counters: Counters::default(),
    })
}

/// Binds a socket to a queue. The kernel releases the queue of a socket that was closed a little
/// later: the queue may be busy for so long.
fn bind_released(socket: &OwnedFd, address: &SocketAddrXdp) -> rustix::io::Result<()> {
    let end = std::time::Instant::now() + RELEASED_WITHIN;
    loop {
        match bind(socket, address) {
            Err(Errno::BUSY) if std::time::Instant::now() < end => {
                thread::sleep(RELEASED_WITHIN / 100);
            }
            result => return result,
        }
    }
}
