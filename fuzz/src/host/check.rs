//! The invariants that hold after each step, whatever happened.

use lightwait_core::frame::{Frame, Medium, RxChecksum, TxChecksum};
use lightwait_core::tcp::State;
use lightwait_core::time::{Duration, Instant};
use lightwait_core::wire::checksum::sum;
use lightwait_core::wire::ethernet::{self, ethertype};
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::tcp::{Flags, Segment, verify_checksum};
use lightwait_core::wire::udp::Datagram;
use lightwait_core::wire::{arp, icmpv4, icmpv6};
use lightwait_core::{ConnectionId, Event, Host};

use super::Flight;
use super::end::End;

/// Turns at one point in time until a host must have come to rest.
pub(super) const TURNS_MAX: usize = 3000;
/// Turns after everything was closed until nothing may be left.
pub(super) const FINISH_TURNS_MAX: usize = 20_000;
/// Time after everything was closed until nothing may be left: longer than any timer.
pub(super) const FINISH_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Checks every bound of the configuration.
pub(super) fn bounds(end: &End) {
    let (host, limits) = (&end.host, &end.host.config().limits);
    assert!(host.pages_in_use() <= limits.pages, "{} pages", host.pages_in_use());
    assert!(host.connections() <= limits.connections, "{} connections", host.connections());
    // SYNs that a TIME-WAIT record lets through have places of their own.
    let half_open = limits.syn_cache + limits.time_wait;
    assert!(host.half_open() <= half_open, "{} half-open", host.half_open());
    assert!(host.time_wait_len() <= limits.time_wait, "{} in TIME-WAIT", host.time_wait_len());
    let sockets = host.udp_sockets().count();
    assert!(sockets <= limits.udp_sockets, "{sockets} UDP sockets");
    let orphans = host.fin_wait_2_len();
    assert!(orphans <= limits.time_wait, "{orphans} orphans that are records");
    // The window of a SYN stays promised, whatever other connections were promised since.
    let offered = 65_535 * host.connections() as u64;
    let promised = host.receive_window_promised();
    assert!(promised <= limits.receive_window_bytes + offered, "{promised} bytes promised");
    let malformed: u64 = host.malformed().map(|(_, count)| count).sum();
    assert_eq!(malformed, host.counters().frames_malformed);
}

/// A host at rest has no frame to send, and its next work is in the future. A host that never comes
/// to rest would run for ever.
pub(super) fn is_at_rest(end: &End, now: Instant) -> bool {
    let due = end.host.deadline().is_some_and(|deadline| deadline <= now);
    !end.host.wants_emit() && !due
}

/// True if a host holds no state of any connection, and no memory.
pub(super) fn is_empty(end: &End) -> bool {
    let host = &end.host;
    host.connections() + host.fin_wait_2_len() == 0
        && host.half_open() == 0
        && host.time_wait_len() == 0
        && host.pages_in_use() == 0
        && host.udp_sockets().count() == 0
        && host.receive_window_promised() == 0
}

/// Fails at the end of the run, because a host still holds something.
pub(super) fn left_over(ends: &[End; 2]) {
    for (side, end) in ends.iter().enumerate() {
        let host = &end.host;
        assert!(
            is_empty(end),
            "end {side} keeps {} connections, {} half-open, {} in TIME-WAIT, {} pages, {} bytes \
             promised; next work {:?}",
            host.connections(),
            host.half_open(),
            host.time_wait_len(),
            host.pages_in_use(),
            host.receive_window_promised(),
            host.deadline(),
        );
    }
}

/// A connection that is reported ready must be ready for something.
pub(super) fn event(event: Event) {
    if let Event::Ready(_, readiness) | Event::Udp(_, readiness) = event {
        assert!(!readiness.is_empty(), "{event:?}: ready for nothing");
    }
}

/// Every question about a connection has an answer, whether it is dead or alive, and the answers
/// agree.
pub(super) fn answers(host: &mut Host, now: Instant, id: ConnectionId) {
    let info = host.info(id);
    assert_eq!(info.is_ok(), host.options(id).is_ok());
    if let Ok(info) = info {
        assert_eq!(info.state, host.state(id));
        match info.state {
            // What the connection measured outlives it; its timers do not.
            State::Closed | State::TimeWait => assert!(info.rto.is_zero(), "{info:?}"),
            _ => assert!(
                info.srtt <= info.rto || info.retransmits > 0 || info.rto.as_secs() >= 60,
                "{info:?}"
            ),
        }
    }
    let _ = (host.readiness(now, id), host.urgent_mark(id), host.addresses());
}

/// Checks that a frame of a host is sound and fits the device. Completes its checksum, as the
/// device would, remembers the frame, and returns it as a frame in flight.
pub(super) fn emitted(end: &mut End, frame: &Frame, to: usize) -> Flight {
    let device = end.host.config().device;
    let mut bytes = Vec::new();
    frame.copy_to(&mut bytes);
    assert_eq!(bytes.len(), frame.len());
    let mut checksum = RxChecksum::Unknown;
    if let TxChecksum::Partial { start, offset } = frame.checksum {
        assert!(device.checksum, "a checksum is left to a device that cannot complete it");
        let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
        let value = sum(&bytes[start..]).checksum();
        bytes[field..field + 2].copy_from_slice(&value.to_be_bytes());
        checksum = RxChecksum::Good;
    }
    let packet = match device.medium {
        Medium::Ip => Some(&bytes[..]),
        Medium::Ethernet => link(&bytes, end.host.config().hardware),
    };
    if let Some(bytes) = packet {
        let limit = match frame.segmentation {
            Some(it) if it.datagrams => device.datagrams as usize,
            Some(_) => device.segmentation as usize,
            None => usize::from(device.mtu),
        };
        assert!(bytes.len() <= limit, "a packet of {} bytes, at most {limit}", bytes.len());
        let packet = sound_packet(bytes);
        end.seen.note(&packet);
    }
    let segment_size = frame.segmentation.map_or(0, |segmentation| segmentation.size);
    Flight { to, bytes, checksum, segment_size }
}

/// The IP packet in an Ethernet frame; `None`: it is an ARP packet.
fn link(bytes: &[u8], hardware: [u8; 6]) -> Option<&[u8]> {
    let link = ethernet::Frame::parse(bytes).expect("a host sends whole frames");
    assert_eq!(link.source, hardware);
    match link.ethertype {
        ethertype::ARP => {
            assert!(arp::Packet::parse(link.payload).is_ok());
            None
        }
        ethertype::IPV4 | ethertype::IPV6 => Some(link.payload),
        other => panic!("a frame of type {other:#x}"),
    }
}

/// Group management for IPv4.
const IGMP: u8 = 2;

fn sound_packet(bytes: &[u8]) -> Packet<'_> {
    let packet = Packet::parse(bytes).expect("a host sends sound packets");
    assert_eq!(packet.bytes.len(), bytes.len(), "bytes behind the packet");
    if packet.fragment.is_some() {
        assert_eq!(packet.protocol, protocol::UDP, "nothing else is cut");
        return packet;
    }
    match packet.protocol {
        protocol::TCP => {
            let (source, destination) = (packet.source, packet.destination);
            assert!(verify_checksum(packet.payload, source, destination), "a wrong checksum");
            let segment = Segment::parse(packet.payload).expect("a host sends sound segments");
            let controls = [Flags::SYN, Flags::FIN, Flags::RST];
            let set = controls.iter().filter(|flag| segment.flags.contains(**flag)).count();
            assert!(set <= 1, "{} in one segment", segment.flags);
        }
        protocol::UDP => {
            let datagram = Datagram::parse(packet.payload).expect("a host sends sound datagrams");
            assert!(datagram.is_sound(packet.source, packet.destination), "a wrong checksum");
        }
        protocol::ICMPV4 => assert!(icmpv4::Message::parse(packet.payload).is_ok()),
        protocol::ICMPV6 => {
            let message = icmpv6::Message::parse(&packet);
            assert!(message.is_ok(), "{message:?}");
        }
        IGMP => {
            assert_eq!((packet.hop_limit, sum(packet.payload).checksum()), (1, 0), "{packet:?}");
        }
        other => panic!("a packet of protocol {other}"),
    }
    packet
}
