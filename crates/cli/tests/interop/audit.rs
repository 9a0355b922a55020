//! A checker of captures that knows the RFCs and nothing of the engine: every checksum is right,
//! nobody sends beyond the edge of the window that the other has advertised, nobody acknowledges
//! what was never sent, and what we send has no gaps and never shrinks a window.
//!
//! A capture is made next to our host: what stands before a frame of ours is what the host knew
//! when it sent it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use lightwait_core::Medium;
use lightwait_core::capture::pcapng::{Block, Direction, Reader};
use lightwait_core::flow::Seq;
use lightwait_core::wire::tcp::{self, Flags, Segment};
use lightwait_core::wire::{ethernet, ip};

/// Faults told, at most.
const FAULTS_MAX: usize = 20;

/// What a capture shows.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What is wrong, a line each; empty if all is well.
    pub(crate) faults: Vec<String>,
    pub(crate) connections: usize,
    pub(crate) segments: usize,
    /// New text, both ways.
    pub(crate) text_bytes: u64,
    /// Segments of ours with text that had been sent before.
    pub(crate) repeated_segments: usize,
    /// The largest IP packet, in bytes.
    pub(crate) largest_packet: usize,
}

/// Checks a whole capture.
pub(crate) fn audit(capture: &[u8]) -> Findings {
    let mut audit = Audit::default();
    for (number, block) in Reader::new(capture).enumerate() {
        match block {
            Err(error) => audit.fault(number, &error.to_string()),
            Ok(Block::Interface { medium: Some(medium) }) => audit.medium = Some(medium),
            Ok(Block::Packet { direction: Some(direction), bytes, .. }) => {
                audit.on_frame(number, direction, bytes);
            }
            Ok(_) => {}
        }
    }
    audit.findings.connections = audit.connections.len();
    audit.findings
}

#[derive(Default)]
struct Audit {
    medium: Option<Medium>,
    /// By our end and the peer's.
    connections: HashMap<(SocketAddr, SocketAddr), [End; 2]>,
    findings: Findings,
}

/// What one end of a connection has said. Our end is the first of two.
#[derive(Clone, Copy, Default)]
struct End {
    /// Its initial sequence number.
    iss: Option<Seq>,
    /// The window scale in its SYN.
    scale: Option<u8>,
    /// One past the last number it has sent.
    sent: Seq,
    /// One past the last number that it has ever allowed the other.
    edge: Option<Seq>,
}

impl Audit {
    fn fault(&mut self, number: usize, what: &str) {
        if self.findings.faults.len() < FAULTS_MAX {
            self.findings.faults.push(format!("block {number}: {what}"));
        }
    }

    fn on_frame(&mut self, number: usize, direction: Direction, bytes: &[u8]) {
        let packet = match self.medium {
            Some(Medium::Ethernet) => match ethernet::Frame::parse(bytes) {
                Ok(frame) if frame.ethertype == ethernet::ethertype::ARP => return,
                Ok(frame) => frame.payload,
                Err(why) => return self.fault(number, &why.to_string()),
            },
            _ => bytes,
        };
        // It checks IPv4's header checksum.
        let packet = match ip::Packet::parse(packet) {
            Ok(packet) => packet,
            Err(why) => return self.fault(number, &why.to_string()),
        };
        if packet.protocol != tcp::PROTOCOL {
            return;
        }
        self.findings.largest_packet = self.findings.largest_packet.max(packet.bytes.len());
        if !tcp::verify_checksum(packet.payload, packet.source, packet.destination) {
            return self.fault(number, "wrong TCP checksum");
        }
        match Segment::parse(packet.payload) {
            Ok(segment) => {
                self.on_segment(number, direction, (packet.source, packet.destination), &segment);
            }
            Err(why) => self.fault(number, &why.to_string()),
        }
    }

    fn on_segment(
        &mut self,
        number: usize,
        direction: Direction,
        (source, destination): (IpAddr, IpAddr),
        segment: &Segment<'_>,
    ) {
        self.findings.segments += 1;
        let sender = SocketAddr::new(source, segment.source_port);
        let receiver = SocketAddr::new(destination, segment.destination_port);
        let ours = direction == Direction::Outbound;
        let key = if ours { (sender, receiver) } else { (receiver, sender) };
        let mut ends = self.connections.remove(&key).unwrap_or_default();
        if segment.flags.contains(Flags::SYN) {
            open(&mut ends, ours, segment);
        }
        let [our_end, peers_end] = &mut ends;
        let (from, to) = if ours { (our_end, peers_end) } else { (peers_end, our_end) };
        let repeated = segment.seq.before(from.sent);
        let verdict = check(ours, from, to, segment);
        if !segment.payload.is_empty() {
            let new = segment.end().distance(from.sent).clamp(0, segment.payload.len() as i32);
            self.findings.text_bytes += new as u64;
            self.findings.repeated_segments += usize::from(ours && repeated);
        }
        note(from, to, segment);
        self.connections.insert(key, ends);
        if let Err(what) = verdict {
            let text = format!(
                "{sender} > {receiver} {} {}:{} ack {} win {}: {what}",
                segment.flags,
                segment.seq.0,
                segment.end().0,
                segment.ack.0,
                segment.window,
            );
            self.fault(number, &text);
        }
    }
}

/// A SYN begins a connection, unless it repeats what was said.
fn open(ends: &mut [End; 2], ours: bool, segment: &Segment<'_>) {
    let from = usize::from(!ours);
    if ends[from].iss == Some(segment.seq) {
        return;
    }
    if !segment.flags.contains(Flags::ACK) {
        *ends = Default::default();
    }
    ends[from] = End {
        iss: Some(segment.seq),
        scale: segment.options.window_scale.map(|scale| scale.min(14)),
        sent: segment.seq,
        edge: None,
    };
}

/// What is wrong with a segment, given what was said before it.
fn check(ours: bool, from: &End, to: &End, segment: &Segment<'_>) -> Result<(), String> {
    if segment.flags.contains(Flags::RST) {
        return Ok(());
    }
    if from.iss.is_none() {
        return Err("no SYN before it".to_owned());
    }
    if ours && segment.seq.after(from.sent) {
        return Err(format!("a gap after {}", from.sent.0));
    }
    if segment.flags.contains(Flags::ACK) && to.iss.is_some() && segment.ack.after(to.sent) {
        return Err(format!("acknowledges more than {}", to.sent.0));
    }
    if let (Some(edge), true) = (to.edge, segment.sequence_len() > 0) {
        let probe = segment.seq == edge && segment.sequence_len() == 1;
        if segment.end().after(edge) && !probe {
            return Err(format!("beyond the window's edge {}", edge.0));
        }
    }
    match (from.edge, edge_of(from, to, segment)) {
        (Some(before), Some(now)) if ours && now.before(before) => {
            Err(format!("shrinks the window from {} to {}", before.0, now.0))
        }
        _ => Ok(()),
    }
}

/// One past the last number that the segment allows.
fn edge_of(from: &End, to: &End, segment: &Segment<'_>) -> Option<Seq> {
    // Both must have offered scaling, and a SYN's own window is never scaled (RFC 7323 §2.2).
    let scale = match (from.scale, to.scale) {
        (Some(scale), Some(_)) if !segment.flags.contains(Flags::SYN) => scale,
        _ => 0,
    };
    let window = u32::from(segment.window) << scale;
    segment.flags.contains(Flags::ACK).then(|| segment.ack + window)
}

/// Remembers what a segment says.
fn note(from: &mut End, to: &End, segment: &Segment<'_>) {
    if segment.flags.contains(Flags::RST) {
        return;
    }
    from.sent = from.sent.max(segment.end());
    if let Some(edge) = edge_of(from, to, segment) {
        from.edge = Some(from.edge.map_or(edge, |before| before.max(edge)));
    }
}

#[cfg(test)]
mod tests;
