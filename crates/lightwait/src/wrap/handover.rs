//! One device for two processes, while the new one takes over from the old one.
//!
//! ```text
//!                       ┌ segments of the old process's connections ─▶ channel ─▶ old host
//!   device ─▶ new process
//!                       └ all else ─▶ new host
//!   device ◀─ both processes
//! ```
//!
//! The new process alone receives from the device. It knows the ends of the old one's connections,
//! and passes what comes for them on. Both send to the device directly. What concerns the whole
//! link or names a connection only inside (answers of neighbours, errors of ICMP, fragments) goes
//! to both. The new host knows nothing of a segment that it has put together from such fragments
//! between the old one's ends: the RST with which it answers is not sent.
//!
//! A channel is a pair of connected sockets, which keep frames apart. A frame for which the channel
//! has no room is lost, as on any link. When the process at its other end is gone, the old process
//! reads the device again ([`Way::Given`]), and the new one keeps all for itself
//! ([`Predecessor::end`]).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lightwait_core::frame::{Frame, RxChecksum};
use lightwait_core::wire::{ethernet, ip, tcp};
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::packets::behind_tags;
use crate::device::{Device, Losses, Sink};

/// The ends of a connection, ours first.
pub type Ends = (SocketAddr, SocketAddr);

/// Bytes before each frame in a channel: whether its checksum is good, nothing, and the size of its
/// segments.
const HEAD_LEN: usize = 4;
/// The longest frame, with what is before it.
const LONGEST: usize = HEAD_LEN + 65_535 + 64;
/// Bytes that may wait in a channel, if the kernel grants as many.
const CHANNEL_BYTES: usize = 4 << 20;

/// The two ends of a channel: for the process that passes frames on, and for the one that gets
/// them.
///
/// # Errors
/// If the kernel has none.
pub fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (new, old) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Without the privilege its default holds a hundred frames.
    if sockopt::set_socket_send_buffer_size_force(&new, CHANNEL_BYTES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(&new, CHANNEL_BYTES);
    }
    Ok((new, old))
}

/// Where frames come from, and where they go.
#[derive(Debug, Default)]
pub enum Way {
    /// From the device to the host.
    #[default]
    Straight,
    /// Nowhere: they wait in the device.
    Held,
    /// From the process that has taken over, until it is gone.
    Given(OwnedFd),
    /// From the device to the host or to the process before this one.
    Shared(Arc<Predecessor>),
}

/// Sets the way of a wrapper, from any thread. Clones set the same.
#[derive(Clone, Debug, Default)]
pub struct Switch(Arc<Next>);

#[derive(Debug, Default)]
struct Next {
    way: Mutex<Option<Way>>,
    is_new: AtomicBool,
}

impl Switch {
    /// The way from the next turn on. On another thread than the shard's, wake that.
    pub fn set(&self, way: Way) {
        *self.0.way.lock().unwrap_or_else(PoisonError::into_inner) = Some(way);
        self.0.is_new.store(true, Ordering::Release);
    }

    fn is_new(&self) -> bool {
        self.0.is_new.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Way> {
        self.0.is_new.store(false, Ordering::Release);
        self.0.way.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The process before this one, whose connections end.
#[derive(Debug)]
pub struct Predecessor {
    /// Its connections, and the shard of each.
    ends: RwLock<HashMap<Ends, u16>>,
    /// One to each of its shards.
    channels: Vec<OwnedFd>,
    passed: AtomicU64,
    lost: AtomicU64,
}

impl Predecessor {
    /// One with a channel for each shard, and no connections.
    pub fn new(channels: Vec<OwnedFd>) -> Predecessor {
        let (ends, passed, lost) = Default::default();
        Predecessor { ends, channels, passed, lost }
    }

    /// Frames between these ends are its shard's.
    pub fn add(&self, ends: impl IntoIterator<Item = Ends>, shard: u16) {
        let all = ends.into_iter().map(|ends| (ends, shard));
        self.ends.write().unwrap_or_else(PoisonError::into_inner).extend(all);
    }

    /// Frames between these ends are its own no more.
    pub fn remove(&self, ends: impl IntoIterator<Item = Ends>) {
        let mut known = self.ends.write().unwrap_or_else(PoisonError::into_inner);
        ends.into_iter().for_each(|ends| _ = known.remove(&ends));
    }

    /// It is gone. Returns how many connections it had left.
    pub fn end(&self) -> usize {
        std::mem::take(&mut *self.ends.write().unwrap_or_else(PoisonError::into_inner)).len()
    }

    /// How many connections it has, as far as it has told.
    pub fn connections(&self) -> usize {
        self.ends.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Frames that were passed on, and that were lost since a channel was full.
    pub fn frames(&self) -> (u64, u64) {
        (self.passed.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    fn shard_of(&self, ends: &Ends) -> Option<u16> {
        self.ends.read().unwrap_or_else(PoisonError::into_inner).get(ends).copied()
    }

    fn pass(&self, frame: &RxFrame<'_>, shard: u16) {
        let Some(channel) = self.channels.get(usize::from(shard)) else { return };
        let mut head = [0; HEAD_LEN];
        head[0] = u8::from(frame.checksum == RxChecksum::Good);
        head[2..].copy_from_slice(&frame.segment_size.to_be_bytes());
        let slices = [io::IoSlice::new(&head), io::IoSlice::new(frame.bytes)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::net::sendmsg(channel, &slices, &mut Default::default(), flags);
        let count = if sent.is_ok() { &self.passed } else { &self.lost };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A device that another process may take over.
#[derive(Debug)]
pub struct Handover<D> {
    device: D,
    way: Way,
    switch: Switch,
    buffer: Box<[u8]>,
}

impl<D: Device> Handover<D> {
    /// Puts it before `device`; its way is straight until `switch` says otherwise.
    pub fn new(device: D, switch: &Switch) -> Self {
        let buffer = Vec::new().into_boxed_slice();
        Handover { device, way: Way::Straight, switch: switch.clone(), buffer }
    }

    fn receive_given(&mut self, budget: usize, sink: &mut Sink<'_>) -> io::Result<Option<usize>> {
        let Way::Given(channel) = &self.way else { return Ok(None) };
        if self.buffer.is_empty() {
            self.buffer = vec![0; LONGEST].into_boxed_slice();
        }
        for received in 0..budget {
            match rustix::net::recv(channel, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                // The other process is gone.
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
                Ok((len, _)) => {
                    let bytes = &self.buffer[..len.min(LONGEST)];
                    let Some((head, bytes)) = bytes.split_first_chunk::<HEAD_LEN>() else {
                        continue;
                    };
                    let segment_size = u16::from_be_bytes([head[2], head[3]]);
                    let good = head[0] != 0;
                    let checksum = if good { RxChecksum::Good } else { RxChecksum::Unknown };
                    sink(&[RxFrame { checksum, segment_size, ..RxFrame::plain(bytes) }]);
                }
                Err(Errno::AGAIN) => return Ok(Some(received)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(budget))
    }
}

impl<D: Device> Device for Handover<D> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        if self.switch.is_new()
            && let Some(way) = self.switch.take()
        {
            self.way = way;
        }
        let medium = self.device.capabilities().medium;
        match &self.way {
            Way::Straight => self.device.receive(now, budget, sink),
            Way::Held => Ok(0),
            Way::Given(_) => {
                if let Some(received) = self.receive_given(budget, sink)? {
                    return Ok(received);
                }
                self.way = Way::Straight;
                self.device.receive(now, budget, sink)
            }
            Way::Shared(before) => self.device.receive(now, budget, &mut |frames| {
                let mut own = Vec::with_capacity(frames.len());
                own.extend(frames.iter().filter(|frame| is_own(medium, frame, before)));
                if !own.is_empty() {
                    sink(&own);
                }
            }),
        }
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        if let Way::Shared(before) = &self.way {
            drop_resets(self.device.capabilities().medium, outbox, before);
        }
        self.device.transmit(now, outbox)
    }

    fn deadline(&self) -> Option<Instant> {
        // At once, so that the driver waits for the right descriptor afterwards.
        if self.switch.is_new() {
            return Some(Instant::ZERO);
        }
        match &self.way {
            Way::Straight | Way::Shared(_) => self.device.deadline(),
            // What waits in the device stays there.
            Way::Held | Way::Given(_) => None,
        }
    }

    fn take_link_up(&mut self) -> bool {
        self.device.take_link_up()
    }

    fn losses(&mut self) -> io::Result<Losses> {
        self.device.losses()
    }

    fn wait_on(&self) -> Option<BorrowedFd<'_>> {
        match &self.way {
            Way::Straight | Way::Shared(_) => self.device.wait_on(),
            Way::Held => None,
            Way::Given(channel) => Some(channel.as_fd()),
        }
    }

    fn wants_writable(&self) -> bool {
        // The driver waits for one descriptor, and a channel can be written to at any time. While
        // frames wait for a device of which nobody can tell when it has room, the shard takes its
        // next turn at once, and tries again.
        matches!(self.way, Way::Straight | Way::Shared(_)) && self.device.wants_writable()
    }
}

/// Passes a frame on to whom it is for. Returns true if it is for this process.
fn is_own(medium: Medium, frame: &RxFrame<'_>, before: &Predecessor) -> bool {
    match owner(medium, frame.bytes) {
        Owner::Connection(ends) => match before.shard_of(&ends) {
            Some(shard) => {
                before.pass(frame, shard);
                false
            }
            None => true,
        },
        Owner::Both => {
            (0..before.channels.len() as u16).for_each(|shard| before.pass(frame, shard));
            true
        }
        Owner::New => true,
    }
}

/// Drops what resets a connection of the process before: this one's host knows nothing of it, and
/// took a segment that came in pieces, or behind headers of extension, for a stranger's.
fn drop_resets(medium: Medium, outbox: &mut Outbox, before: &Predecessor) {
    let is_foreign = |frame: &Frame| {
        reset_ends(medium, frame).is_some_and(|ends| before.shard_of(&ends).is_some())
    };
    if !outbox.frames().any(is_foreign) {
        return;
    }
    // Once around, so that the others stay in order.
    for _ in 0..outbox.len() {
        let Some(frame) = outbox.take() else { break };
        if is_foreign(&frame) {
            outbox.recycle(frame);
        } else if let Some(place) = outbox.push() {
            *place = frame;
        }
    }
}

/// The ends of the connection that a frame of ours resets, if it does.
fn reset_ends(medium: Medium, frame: &Frame) -> Option<Ends> {
    // A reset has no text, and a frame with some is not looked into.
    if !frame.tail.is_empty() {
        return None;
    }
    let packet = match medium {
        Medium::Ip => &frame.head[..],
        Medium::Ethernet => behind_tags(&frame.head)?.payload,
    };
    let packet = ip::Packet::parse(packet).ok()?;
    if packet.protocol != ip::protocol::TCP || packet.fragment.is_some() {
        return None;
    }
    let segment = tcp::Segment::parse(packet.payload).ok()?;
    let ours = SocketAddr::new(packet.source, segment.source_port);
    let theirs = SocketAddr::new(packet.destination, segment.destination_port);
    segment.flags.contains(tcp::Flags::RST).then_some((ours, theirs))
}

/// Whom a frame is for.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// Who has this connection.
    Connection(Ends),
    Both,
    New,
}

const ARP_REPLY: &[u8] = &[0, 2];
/// Where the operation of a packet of ARP is (RFC 826).
const ARP_OPERATION: std::ops::Range<usize> = 6..8;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
/// Types of ICMP whose packets quote one of ours (RFC 792).
const ERRORS: [u8; 4] = [3, 4, 11, 12];
/// Types of ICMPv6: errors (RFC 4443), and what routers and neighbours say of themselves (RFC
/// 4861).
const ERRORS_V6: [u8; 4] = [1, 2, 3, 4];
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The owner of a frame. It may have VLAN tags: the host takes one whose tag gives it a priority
/// alone. What belongs to a VLAN it drops, whichever process that is.
fn owner(medium: Medium, frame: &[u8]) -> Owner {
    let packet = match medium {
        Medium::Ip => Some(frame),
        Medium::Ethernet => match behind_tags(frame) {
            Some(frame) if frame.ethertype == ethernet::ethertype::ARP => {
                let is_reply = frame.payload.get(ARP_OPERATION) == Some(ARP_REPLY);
                return if is_reply { Owner::Both } else { Owner::New };
            }
            found => found.map(|frame| frame.payload),
        },
    };
    packet.and_then(owner_of_packet).unwrap_or(Owner::New)
}

fn owner_of_packet(packet: &[u8]) -> Option<Owner> {
    let version = packet.first()? >> 4;
    let (protocol, payload, source, destination): (u8, &[u8], IpAddr, IpAddr) = match version {
        4 => {
            let head: &[u8; 20] = packet.first_chunk()?;
            // More fragments, or an offset (RFC 791).
            if u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0 {
                return Some(Owner::Both);
            }
            let address = |at: usize| Some(Ipv4Addr::from(*head.get(at..)?.first_chunk::<4>()?));
            let payload = packet.get(usize::from(head[0] & 15) * 4..)?;
            (head[9], payload, address(12)?.into(), address(16)?.into())
        }
        6 => {
            let head: &[u8; 40] = packet.first_chunk()?;
            let address = |at: usize| Some(Ipv6Addr::from(*head.get(at..)?.first_chunk::<16>()?));
            (head[6], packet.get(40..)?, address(8)?.into(), address(24)?.into())
        }
        _ => return None,
    };
    let kind = payload.first().copied().unwrap_or_default();
    match (version, protocol) {
        (_, TCP) => {
            let &[a, b, c, d] = payload.first_chunk::<4>()?;
            let ours = SocketAddr::new(destination, u16::from_be_bytes([c, d]));
            let theirs = SocketAddr::new(source, u16::from_be_bytes([a, b]));
            Some(Owner::Connection((ours, theirs)))
        }
        (4, ICMP) if ERRORS.contains(&kind) => Some(Owner::Both),
        (6, ICMPV6) if ERRORS_V6.contains(&kind) => Some(Owner::Both),
        (6, ICMPV6) if kind == ROUTER_ADVERTISEMENT || kind == NEIGHBOUR_ADVERTISEMENT => {
            Some(Owner::Both)
        }
        (4, _) | (6, ICMPV6 | 17) => None,
        // Behind headers of extension.
        _ => Some(Owner::Both),
    }
}

#[cfg(test)]
mod tests;
