//! The oracle reads every frame that is sent and every frame that arrives. It knows TCP's rules,
//! and nothing of the engine's implementation; but what no frame shows, the sender's windows and
//! timers, it reads from the hosts (`senders`).
//!
//! From the frames it checks these rules for each direction of each connection, after RFC 9293:
//! - sent segments are well-formed, with the right checksum (§3.1);
//! - no segment starts beyond the sent data, and none before the SYN: no holes (§3.4);
//! - new data stays within the right edge that has *arrived* from the receiver, except for one byte
//!   of zero-window probe (§3.8.6.1). Retransmissions may lie beyond an edge that was taken back,
//!   and keepalives one before SND.NXT (§3.8.4): both are within the sent data;
//! - an acknowledgement covers only data that has arrived, and never goes back;
//! - the right edge of the window never goes back (§3.8.6 SHLD-14), except for its scale's rounding
//!   (RFC 7323 §2.4);
//! - no data follows a FIN, and a FIN keeps its sequence number.

mod half;
mod senders;

use std::collections::HashMap;
use std::net::SocketAddr;

use lightwait_core::wire::ethernet::{Frame, ethertype};
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::tcp::{Flags, Segment, verify_checksum};
use lightwait_core::{Host, Instant};

use crate::cable::Side;
use half::{Half, Sent};
use senders::Senders;

/// Watches all connections over one cable.
#[derive(Debug, Default)]
pub struct Oracle {
    /// By the addresses at side A and at side B; each with a half for the segments of each side.
    flows: HashMap<(SocketAddr, SocketAddr), [Half; 2]>,
    /// The hosts, by side and shard.
    senders: HashMap<(usize, u16), Senders>,
    broken: Option<String>,
    segments: u64,
}

/// The reason for which a frame is not checked.
enum Unread {
    /// It does not carry TCP.
    Other,
    /// It is not well-formed.
    Malformed,
}

/// A TCP segment, with its source and destination.
struct Seen<'a> {
    source: SocketAddr,
    destination: SocketAddr,
    segment: Segment<'a>,
}

impl Oracle {
    /// The first broken rule, if any.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Segments that were checked.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// The host of a shard at a side has sent what it could, and no frame has left yet.
    pub fn on_emitted(&mut self, now: Instant, (side, shard): (Side, u16), host: &Host) {
        let senders = self.senders.entry((side.index(), shard)).or_default();
        if let Err(fault) = senders.on_emitted(now, host) {
            let (rule, sender) = *fault;
            self.report(now, side, rule, &format!("{sender:?}"));
        }
    }

    /// A frame leaves `side`.
    pub fn on_sent(&mut self, now: Instant, side: Side, bytes: &[u8]) {
        match read(bytes) {
            Ok(seen) => self.judge(now, side, &seen),
            Err(Unread::Malformed) => self.report(now, side, "sent a malformed packet", ""),
            Err(Unread::Other) => {}
        }
    }

    /// A frame arrives at `side`; it may be damaged.
    pub fn on_delivered(&mut self, side: Side, bytes: &[u8]) {
        let Ok(Seen { source, destination, segment }) = read(bytes) else { return };
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let [ours, theirs] = self.halves(side, destination, source);
        theirs.on_arrival(&segment);
        if segment.flags.contains(Flags::ACK) {
            let edge = theirs.edge_of(&segment, ours.offers_scale());
            ours.on_edge(segment.ack, edge);
        }
    }

    fn judge(&mut self, now: Instant, side: Side, seen: &Seen<'_>) {
        self.segments += 1;
        let segment = &seen.segment;
        // A reset may answer a segment of no connection: it has rules of its own.
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let [ours, theirs] = self.halves(side, seen.source, seen.destination);
        let verdict = ours.on_sent(segment).and_then(|sent| {
            if segment.flags.contains(Flags::ACK) {
                check_ack(segment, sent, theirs)
            } else {
                Ok(())
            }
        });
        if let Err(rule) = verdict {
            let text = format!(
                "{} > {}: {} seq {:?} len {} ack {:?} win {}",
                seen.source,
                seen.destination,
                segment.flags,
                segment.seq,
                segment.payload.len(),
                segment.ack,
                segment.window
            );
            self.report(now, side, rule, &text);
        }
    }

    /// The halves of a flow: the segments of `side`, and those of the other side.
    fn halves(&mut self, side: Side, own: SocketAddr, other: SocketAddr) -> [&mut Half; 2] {
        let key = if side == Side::A { (own, other) } else { (other, own) };
        let [a, b] = self.flows.entry(key).or_default();
        if side == Side::A { [a, b] } else { [b, a] }
    }

    fn report(&mut self, now: Instant, side: Side, rule: &str, text: &str) {
        if self.broken.is_none() {
            self.broken = Some(format!("{now} side {side:?} {rule}: {text}"));
        }
    }
}

/// The rules for an acknowledgement.
fn check_ack(segment: &Segment<'_>, sent: &mut Sent, peer: &Half) -> Result<(), &'static str> {
    if !peer.has_arrived(segment.ack) {
        return Err("acknowledges what has not arrived");
    }
    // If the peer has two incarnations, numbers of one do not apply to the other.
    if peer.incarnations() == 1 {
        sent.check_progress(segment, peer.offers_scale())
    } else {
        sent.forget_progress();
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Result<Seen<'_>, Unread> {
    let frame = Frame::parse(bytes).map_err(|_| Unread::Malformed)?;
    if frame.ethertype != ethertype::IPV4 && frame.ethertype != ethertype::IPV6 {
        return Err(Unread::Other);
    }
    let packet = Packet::parse(frame.payload).map_err(|_| Unread::Malformed)?;
    if packet.protocol != protocol::TCP || packet.fragment.is_some() {
        return Err(Unread::Other);
    }
    if !verify_checksum(packet.payload, packet.source, packet.destination) {
        return Err(Unread::Malformed);
    }
    let segment = Segment::parse(packet.payload).map_err(|_| Unread::Malformed)?;
    let source = SocketAddr::new(packet.source, segment.source_port);
    let destination = SocketAddr::new(packet.destination, segment.destination_port);
    Ok(Seen { source, destination, segment })
}

#[cfg(test)]
mod tests;
