//! The limit of a TAP: a loop that answers requests with ready-made segments of 64 KiB.
//!
//! It speaks as little TCP as a client on the kernel's stack needs: it answers a SYN, counts a
//! segment with text as one request, and sends the same bytes as far as the client's window lets
//! it. It has no timer, no congestion control and no recovery, since a TAP loses nothing. What a
//! server takes beyond this loop is its own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use lightwait::clock::Clock;
use lightwait::device::{Device, Tap, TapConfig};
use lightwait::driver::{self, Descriptor, Driven, SPIN, Stop};
use lightwait_core::flow::Seq;
use lightwait_core::frame::{Segmentation, Slice, TxChecksum};
use lightwait_core::wire::checksum::pseudo_header;
use lightwait_core::wire::tcp::{CHECKSUM_OFFSET, Flags, PROTOCOL};
use lightwait_core::wire::{arp, ethernet, ip, options::Options, tcp};
use lightwait_core::{Instant, Outbox};

/// Our hardware address.
const HARDWARE: ethernet::Mac = [2, 0, 0, 0, 0, 0x77];

/// Payload of a segment: MTU 1500, no options.
const MSS: u16 = 1460;

/// Payload of a frame: as many whole segments as 65,535 bytes have room for.
const FRAME_BYTES: usize = 44 * MSS as usize;

/// Scale of the windows that we offer, in bits; and the window.
const SCALE: u8 = 7;
const WINDOW: u16 = 8192;

/// Frames that arrive between two sends, at most.
const BUDGET: usize = 256;

/// Our initial sequence number.
const FIRST: Seq = Seq(0x1000_0000);

/// A connection.
#[derive(Debug)]
struct Peer {
    hardware: ethernet::Mac,
    /// SND.UNA, SND.NXT and RCV.NXT.
    unacked: Seq,
    next: Seq,
    expected: Seq,
    window: u32,
    scale: u8,
    /// Bytes of answers that were not sent.
    left: u64,
    /// Where in an answer the next byte is.
    at: usize,
    /// Text came since our last segment.
    owes_ack: bool,
}

/// The loop.
struct Limit {
    device: Tap,
    outbox: Outbox,
    clock: Clock,
    address: Ipv4Addr,
    port: u16,
    peers: HashMap<(IpAddr, u16), Peer>,
    /// Peers that a frame came from, and that may be sent something.
    touched: Vec<(IpAddr, u16)>,
    /// The head and the body of an answer.
    answer: Bytes,
}

/// Answers each request on `address` with `bytes` bytes, until the process ends.
///
/// # Errors
/// If the TAP cannot be opened, or is gone.
pub fn serve(tap: &str, address: Ipv4Addr, port: u16, bytes: usize) -> io::Result<()> {
    let device = Tap::open(&TapConfig::new(tap))?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + bytes, b'x');
    let limit = Limit {
        device,
        outbox: Outbox::new(BUDGET),
        clock: Clock::new(),
        address,
        port,
        peers: HashMap::new(),
        touched: Vec::new(),
        answer: answer.into(),
    };
    driver::run(&mut [limit], &Stop::new(), SPIN)
}

impl Driven for Limit {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn turn(&mut self, now: Instant) -> io::Result<()> {
        let Limit { device, outbox, address, port, peers, touched, answer, .. } = self;
        let mut received = 0;
        device.receive(now, BUDGET, &mut |frames| {
            received += frames.len();
            for frame in frames {
                if let Ok(frame) = ethernet::Frame::parse(frame.bytes) {
                    on_frame(&frame, (*address, *port), peers, touched, outbox, answer.len());
                }
            }
        })?;
        let from = (*address, *port);
        for to in touched.drain(..) {
            if let Some(peer) = peers.get_mut(&to) {
                while peer.send(from, to, answer, outbox) {}
            }
        }
        device.transmit(now, outbox)
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        // What the device did not take is tried again at once.
        (!self.outbox.is_empty()).then_some(now)
    }

    fn descriptors<'a>(&'a self, visit: &mut dyn FnMut(Descriptor<'a>)) {
        if let Some(fd) = self.device.wait_on() {
            visit(Descriptor { fd, wants_writable: self.device.wants_writable() });
        }
    }
}

/// Takes a frame in.
fn on_frame(
    frame: &ethernet::Frame<'_>,
    to: (Ipv4Addr, u16),
    peers: &mut HashMap<(IpAddr, u16), Peer>,
    touched: &mut Vec<(IpAddr, u16)>,
    outbox: &mut Outbox,
    answer_bytes: usize,
) {
    if let Ok(asked) = arp::Packet::parse(frame.payload) {
        if asked.operation == arp::Operation::Request && asked.target == to.0 {
            answer_arp(&asked, to.0, outbox);
        }
        return;
    }
    let Ok(packet) = ip::Packet::parse(frame.payload) else { return };
    let Ok(segment) = tcp::Segment::parse(packet.payload) else { return };
    if (packet.destination, segment.destination_port) != (to.0.into(), to.1) {
        return;
    }
    let from = (packet.source, segment.source_port);
    if segment.flags.contains(Flags::RST) {
        peers.remove(&from);
        return;
    }
    if segment.flags.contains(Flags::SYN) {
        let peer = Peer::new(frame.source, &segment);
        peer.emit(to, from, (Flags(Flags::SYN.0 | Flags::ACK.0), FIRST), &[], outbox);
        peers.insert(from, peer);
        return;
    }
    let Some(peer) = peers.get_mut(&from) else { return };
    peer.on_segment(&segment, answer_bytes);
    if segment.flags.contains(Flags::FIN) {
        let flags = Flags(Flags::FIN.0 | Flags::ACK.0);
        peer.expected = segment.end();
        peer.emit(to, from, (flags, peer.next), &[], outbox);
        peers.remove(&from);
        return;
    }
    if touched.last() != Some(&from) {
        touched.push(from);
    }
}

fn answer_arp(asked: &arp::Packet, address: Ipv4Addr, outbox: &mut Outbox) {
    let Some(frame) = outbox.push() else { return };
    let (destination, source) = (asked.sender_mac, HARDWARE);
    let ethertype = ethernet::ethertype::ARP;
    ethernet::Header { destination, source, ethertype }.emit(&mut frame.head);
    let answer = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: HARDWARE,
        sender: address,
        target_mac: asked.sender_mac,
        target: asked.sender,
    };
    answer.emit(&mut frame.head);
}

impl Peer {
    /// The connection that a SYN opens.
    fn new(hardware: ethernet::Mac, syn: &tcp::Segment<'_>) -> Peer {
        Peer {
            hardware,
            unacked: FIRST,
            next: FIRST + 1,
            expected: syn.end(),
            window: syn.window.into(),
            scale: syn.options.window_scale.unwrap_or(0).min(14),
            left: 0,
            at: 0,
            owes_ack: false,
        }
    }

    fn on_segment(&mut self, segment: &tcp::Segment<'_>, answer_bytes: usize) {
        if segment.ack.since(self.unacked) <= self.next.since(self.unacked) {
            self.unacked = segment.ack;
        }
        self.window = u32::from(segment.window) << self.scale;
        if segment.seq == self.expected && !segment.payload.is_empty() {
            self.expected = segment.end();
            self.left += answer_bytes as u64;
            self.owes_ack = true;
        }
    }

    /// Sends a frame, if one is due and the window has room for all of it. False if not.
    fn send(
        &mut self,
        from: (Ipv4Addr, u16),
        to: (IpAddr, u16),
        answer: &Bytes,
        outbox: &mut Outbox,
    ) -> bool {
        let mut wanted = self.left.min(FRAME_BYTES as u64) as u32;
        let in_flight = self.next.since(self.unacked);
        let room = self.window.saturating_sub(in_flight);
        if wanted > room {
            // A window that never has room for a frame gets whole segments.
            let mss = u32::from(MSS);
            wanted = if in_flight == 0 { room / mss * mss } else { 0 };
        }
        if wanted == 0 {
            if self.owes_ack {
                self.owes_ack = !self.emit(from, to, (Flags::ACK, self.next), &[], outbox);
            }
            return false;
        }
        let mut parts = Vec::with_capacity(2);
        let (mut rest, mut at) = (wanted as usize, self.at);
        while rest > 0 {
            let part = answer.slice(at..answer.len().min(at + rest));
            (rest, at) = (rest - part.len(), (at + part.len()) % answer.len());
            parts.push(part);
        }
        let flags = Flags(Flags::ACK.0 | Flags::PSH.0);
        if !self.emit(from, to, (flags, self.next), &parts, outbox) {
            return false;
        }
        (self.at, self.owes_ack) = (at, false);
        self.next += wanted;
        self.left -= u64::from(wanted);
        true
    }

    /// Writes a segment. False if the outbox is full.
    fn emit(
        &self,
        from: (Ipv4Addr, u16),
        to: (IpAddr, u16),
        (flags, seq): (Flags, Seq),
        text: &[Bytes],
        outbox: &mut Outbox,
    ) -> bool {
        let Some(frame) = outbox.push() else { return false };
        let (destination, source) = (self.hardware, HARDWARE);
        let ethertype = ethernet::ethertype::IPV4;
        ethernet::Header { destination, source, ethertype }.emit(&mut frame.head);
        let mut options = Options::NONE;
        if flags.contains(Flags::SYN) {
            options = Options { mss: Some(MSS), window_scale: Some(SCALE), ..options };
        }
        let header = tcp::Header {
            source_port: from.1,
            destination_port: to.1,
            seq,
            ack: self.expected,
            flags,
            window: WINDOW,
            urgent: 0,
            options,
        };
        let text_bytes: usize = text.iter().map(Bytes::len).sum();
        let length = header.header_len() + text_bytes;
        let packet = ip::Header::new(from.0.into(), to.0, PROTOCOL, length).expect("it fits");
        packet.emit(&mut frame.head);
        let start = frame.head.len();
        header.emit(&mut frame.head);
        let sum = pseudo_header(from.0.into(), to.0, PROTOCOL, length as u32);
        // What the device sums includes the folded sum of the pseudo-header.
        let field = start + CHECKSUM_OFFSET;
        frame.head[field..field + 2].copy_from_slice(&sum.fold().to_be_bytes());
        let offset = CHECKSUM_OFFSET as u16;
        frame.checksum = TxChecksum::Partial { start: start as u16, offset };
        if text_bytes > usize::from(MSS) {
            let header_len = frame.head.len() as u16;
            frame.segmentation =
                Some(Segmentation { size: MSS, header_len, ipv6: false, datagrams: false });
        }
        frame.tail.extend(text.iter().cloned().map(Slice::Bytes));
        true
    }
}
