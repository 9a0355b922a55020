//! A device that loses the end of each answer once, and notes when the sender heard something last
//! and when it repeats something.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as WallInstant};

use lightwait::device::{Device, Losses, Sink};
use lightwait_core::wire::ethernet;
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::tcp::Segment;
use lightwait_core::{Capabilities, Instant, Outbox};

use crate::routed::AnyDevice;

/// What happened to the answers, by the receiver's port. Each connection carries one answer.
pub(super) type Tails = Arc<Mutex<HashMap<u16, Tail>>>;

/// An answer on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    /// Sequence number of its first byte.
    first: u32,
    /// Bytes of its first segment: all but the last are as long.
    segment: u32,
    /// Its length with the head; 0 if that is not known.
    length: u32,
    /// What was sent so far.
    sent: u32,
    /// What was acknowledged so far.
    acknowledged: u32,
    /// When something was sent for the first time, last.
    sent_at: Option<WallInstant>,
    /// When an acknowledgement that advances passed, last before anything was sent again.
    heard_at: Option<WallInstant>,
    /// When something was sent again, first.
    repeated_at: Option<WallInstant>,
    pub(super) lost: u32,
}

impl Tail {
    /// How long nothing was sent and nothing heard before something was sent again. RFC 8985 §7.2:
    /// both new data and an acknowledgement that advances start the timer of the probe anew.
    pub(super) fn silence(&self) -> Option<Duration> {
        let begins = self.sent_at.max(self.heard_at)?;
        Some(self.repeated_at?.duration_since(begins))
    }

    /// An acknowledgement passes on its way to the sender.
    fn on_acknowledgement(&mut self, number: u32, now: WallInstant) {
        let offset = number.wrapping_sub(self.first);
        let advances = self.acknowledged < offset && offset <= self.sent;
        if self.length > 0 && advances && self.repeated_at.is_none() {
            (self.acknowledged, self.heard_at) = (offset, Some(now));
        }
    }

    /// Takes a segment of the answer. Returns true if it is to be lost: it is one of the last
    /// `losses`, and it is sent for the first time.
    fn on_segment(&mut self, seq: u32, payload: &[u8], losses: u32, now: WallInstant) -> bool {
        let length = payload.len() as u32;
        if self.length == 0 {
            let Some(whole) = whole_length(payload) else { return false };
            (self.first, self.segment, self.length) = (seq, length, whole);
        }
        let offset = seq.wrapping_sub(self.first);
        if offset < self.sent {
            self.repeated_at.get_or_insert(now);
            return false;
        }
        self.sent = offset + length;
        self.sent_at = Some(now);
        let segments = self.length.div_ceil(self.segment);
        let is_last = offset / self.segment + losses >= segments;
        self.lost += u32::from(is_last);
        is_last
    }
}

/// The length of an answer with its head, from its first segment.
fn whole_length(payload: &[u8]) -> Option<u32> {
    let head = payload.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&payload[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    Some(head as u32 + length.trim().parse::<u32>().ok()?)
}

/// Loses the last segments of each answer longer than `least` that comes from a device.
pub(super) struct TailLoss {
    pub(super) device: AnyDevice,
    pub(super) losses: u32,
    /// Shorter answers pass: they are not measured.
    pub(super) least: u32,
    pub(super) tails: Tails,
}

impl TailLoss {
    fn loses(tails: &Tails, (losses, least): (u32, u32), bytes: &[u8]) -> bool {
        let Some(segment) = segment_of(bytes).filter(|segment| !segment.payload.is_empty()) else {
            return false;
        };
        let mut tails = tails.lock().expect("nobody panics with it");
        let tail = tails.entry(segment.destination_port).or_default();
        if tail.length == 0 && whole_length(segment.payload).is_none_or(|length| length < least) {
            return false;
        }
        tail.on_segment(segment.seq.0, segment.payload, losses, WallInstant::now())
    }
}

/// The segment in a frame.
fn segment_of(bytes: &[u8]) -> Option<Segment<'_>> {
    let frame = ethernet::Frame::parse(bytes).ok()?;
    let packet = Packet::parse(frame.payload).ok()?;
    let is_tcp = packet.protocol == protocol::TCP;
    Segment::parse(packet.payload).ok().filter(|_| is_tcp)
}

/// Notes the acknowledgements that wait to be sent.
fn note_acknowledgements(tails: &Tails, outbox: &Outbox) {
    let (now, mut bytes) = (WallInstant::now(), Vec::new());
    let mut tails = tails.lock().expect("nobody panics with it");
    for frame in outbox.frames() {
        bytes.clear();
        frame.copy_to(&mut bytes);
        let Some(segment) = segment_of(&bytes) else { continue };
        if let Some(tail) = tails.get_mut(&segment.source_port) {
            tail.on_acknowledgement(segment.ack.0, now);
        }
    }
}

impl Device for TailLoss {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let TailLoss { device, losses, least, tails } = self;
        device.receive(now, budget, &mut |frames| {
            for frame in frames {
                if !TailLoss::loses(tails, (*losses, *least), frame.bytes) {
                    sink(&[*frame]);
                }
            }
        })
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        note_acknowledgements(&self.tails, outbox);
        self.device.transmit(now, outbox)
    }

    fn losses(&mut self) -> io::Result<Losses> {
        self.device.losses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segments_are_lost_once() {
        let mut first = b"HTTP/1.1 200 OK\r\nContent-Length: 3460\r\n\r\n".to_vec();
        let head = first.len();
        first.resize(1000, b'x');
        let (mut tail, now) = (Tail::default(), WallInstant::now());
        let mut lost = Vec::new();
        for (seq, length) in [(1000, 1000), (2000, 1000), (3000, head + 460), (2000, 1000)] {
            lost.push(tail.on_segment(seq, &vec![0; length], 2, now));
        }
        assert_eq!(lost, [false; 4], "without the first segment nothing is known");
        let mut tail = Tail::default();
        let sent = [(0_u32, &first[..]), (1000, &[0; 1000]), (2000, &[0; 1000]), (3000, &[0; 502])];
        let lost: Vec<bool> = sent
            .iter()
            .map(|(seq, payload)| tail.on_segment(seq.wrapping_sub(5), payload, 2, now))
            .collect();
        assert_eq!(lost, [false, false, true, true]);
        assert_eq!((tail.lost, tail.repeated_at), (2, None));
        assert!(!tail.on_segment(3000_u32.wrapping_sub(5), &[0; 502], 2, now));
        assert!(tail.repeated_at.is_some());
    }

    #[test]
    fn silence_begins_with_what_was_sent_or_heard_last() {
        let begin = WallInstant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let known = Tail { first: u32::MAX, segment: 1000, length: 3000, ..Tail::default() };
        let mut tail = known.clone();
        for (number, ms) in [(0, 0), (1000, 1), (2000, 2)] {
            tail.on_segment(tail.first.wrapping_add(number), &[0; 1000], 1, at(ms));
        }
        tail.on_acknowledgement(999, at(40));
        tail.on_acknowledgement(1999, at(41));
        tail.on_acknowledgement(1999, at(60));
        tail.on_acknowledgement(3000, at(61));
        assert_eq!(tail.silence(), None, "nothing was sent again");
        tail.on_segment(tail.first.wrapping_add(2000), &[0; 1000], 1, at(121));
        tail.on_acknowledgement(2999, at(161));
        let since_the_ack = Some(Duration::from_millis(80));
        assert_eq!(tail.silence(), since_the_ack, "a repeat, or of what was not sent, is no news");
        let mut tail = known;
        tail.on_segment(tail.first, &[0; 1000], 1, at(5));
        tail.on_segment(tail.first, &[0; 1000], 1, at(25));
        assert_eq!(tail.silence(), Some(Duration::from_millis(20)), "nothing was heard");
    }
}
