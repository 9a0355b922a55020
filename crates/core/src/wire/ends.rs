//! The flow that a packet belongs to, for those who steer packets.

use super::{ip, tcp, udp};
use crate::flow::Tuple;

/// The ends of the segment or datagram in the IP packet `bytes`, as its receiver sees them.
/// `None` of anything else: another protocol, a fragment, or what makes no sense.
pub fn of_packet(bytes: &[u8]) -> Option<Tuple> {
    let packet = ip::Packet::parse(bytes).ok()?;
    if !matches!(packet.protocol, tcp::PROTOCOL | udp::PROTOCOL) || packet.fragment.is_some() {
        return None;
    }
    let &[a, b, c, d] = packet.payload.first_chunk()?;
    let (theirs, ours) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some(Tuple::new((packet.destination, ours), (packet.source, theirs)))
}
