//! The other end of a connection: builds segments by hand, and reads what the stack sends.

use std::net::{IpAddr, SocketAddr};

use lightwait_core::flow::Seq;
use lightwait_core::wire::icmpv4::Message;
use lightwait_core::wire::ip::{self, protocol};
use lightwait_core::wire::options::Options;
use lightwait_core::wire::tcp::{Flags, Header, Segment, checksum};

use super::stack::Stack;

/// A segment that the stack has sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) options: Options,
    pub(crate) text: Vec<u8>,
    /// When it left, in microseconds.
    pub(crate) at: i64,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// One peer, talking to one connection of `stack`.
pub(crate) struct Peer {
    pub(crate) stack: Stack,
    /// The peer's end.
    pub(crate) here: SocketAddr,
    /// The stack's end.
    pub(crate) there: SocketAddr,
    /// The next number that we send.
    pub(crate) seq: u32,
    /// The next number that we expect.
    pub(crate) ack: u32,
    pub(crate) window: u16,
}

impl Peer {
    pub(crate) fn new(stack: &Stack, here: &str, there: &str) -> Peer {
        Peer {
            stack: stack.clone(),
            here: here.parse().expect("an address"),
            there: there.parse().expect("an address"),
            seq: 1000,
            ack: 0,
            window: 65_535,
        }
    }

    /// Sends a segment at the place where we are, without moving on.
    pub(crate) fn send(&self, flags: Flags, text: &[u8]) {
        self.send_at(self.seq, flags, Options::default(), text);
    }

    pub(crate) fn send_at(&self, seq: u32, flags: Flags, options: Options, text: &[u8]) {
        let header = Header {
            source_port: self.here.port(),
            destination_port: self.there.port(),
            seq: Seq(seq),
            ack: Seq(if flags.contains(Flags::ACK) { self.ack } else { 0 }),
            flags,
            window: self.window,
            urgent: 0,
            options,
        };
        self.stack.packet_in(&packet(self.here.ip(), self.there.ip(), &header, text));
    }

    /// Sends text and moves on.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.send(Flags::ACK | Flags::PSH, text);
        self.seq = self.seq.wrapping_add(text.len() as u32);
    }

    /// Sends FIN and moves on.
    pub(crate) fn fin(&mut self) {
        self.send(Flags::FIN | Flags::ACK, &[]);
        self.seq = self.seq.wrapping_add(1);
    }

    /// A router says that the stack's segment at `seq` is too large for a link of `mtu` bytes.
    pub(crate) fn too_big(&self, seq: u32, mtu: u16) {
        let (from, to) = (self.there, self.here);
        let mut quoted = Vec::new();
        let len = 1480;
        ip::Header::new(from.ip(), to.ip(), protocol::TCP, len).expect("fits").emit(&mut quoted);
        quoted.extend_from_slice(&from.port().to_be_bytes());
        quoted.extend_from_slice(&to.port().to_be_bytes());
        quoted.extend_from_slice(&seq.to_be_bytes());
        let message = Message::Unreachable { code: 4, next_hop_mtu: mtu, quoted: &quoted };
        let (mut packet, mut payload) = (Vec::new(), Vec::new());
        message.emit(&mut payload);
        let header = ip::Header::new(to.ip(), from.ip(), protocol::ICMPV4, payload.len());
        header.expect("fits").emit(&mut packet);
        packet.extend_from_slice(&payload);
        self.stack.packet_in(&packet);
    }

    /// The next segment of the stack, to any peer.
    pub(crate) fn next(&self) -> Option<Sent> {
        let (packet, at) = self.stack.packet_out();
        (!packet.is_empty()).then(|| read(&packet, at))
    }

    /// The next segment; everything in it counts as received.
    pub(crate) fn expect(&mut self) -> Sent {
        let sent = self.next().expect("a segment");
        let control =
            u32::from(sent.flags.contains(Flags::SYN)) + u32::from(sent.flags.contains(Flags::FIN));
        self.ack = sent.seq.wrapping_add(sent.text.len() as u32).wrapping_add(control);
        sent
    }

    /// Opens a connection to a listening socket.
    pub(crate) fn open(&mut self) {
        self.open_with(Options { mss: Some(1460), ..Options::default() });
    }

    /// Opens a connection with these options to a listening socket.
    pub(crate) fn open_with(&mut self, options: Options) {
        self.send_at(self.seq, Flags::SYN, options, &[]);
        self.seq = self.seq.wrapping_add(1);
        let answer = self.expect();
        assert_eq!(answer.flags, Flags::SYN | Flags::ACK);
        assert_eq!((answer.from, answer.to), (self.there, self.here));
        self.send(Flags::ACK, &[]);
    }

    /// Answers the SYN of the stack.
    pub(crate) fn answer_open(&mut self) -> Sent {
        let syn = self.expect();
        assert_eq!(syn.flags, Flags::SYN);
        self.there = syn.from;
        let options = Options { mss: Some(1460), ..Options::default() };
        self.send_at(self.seq, Flags::SYN | Flags::ACK, options, &[]);
        self.seq = self.seq.wrapping_add(1);
        syn
    }
}

/// A whole IP packet.
pub(crate) fn packet(from: IpAddr, to: IpAddr, header: &Header, text: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    header.emit(&mut segment);
    let sum = lightwait_core::wire::checksum::sum(text);
    let sum = checksum(from, to, &segment, sum, text.len());
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment.extend_from_slice(text);
    let mut packet = Vec::new();
    ip::Header::new(from, to, protocol::TCP, segment.len()).expect("fits").emit(&mut packet);
    packet.extend_from_slice(&segment);
    packet
}

fn read(packet: &[u8], at: i64) -> Sent {
    let ip = ip::Packet::parse(packet).expect("an IP packet");
    assert!(
        lightwait_core::wire::tcp::verify_checksum(ip.payload, ip.source, ip.destination),
        "the checksum of what leaves is right"
    );
    let segment = Segment::parse(ip.payload).expect("a segment");
    Sent {
        flags: segment.flags,
        seq: segment.seq.0,
        ack: segment.ack.0,
        window: segment.window,
        options: segment.options,
        text: segment.payload.to_vec(),
        at,
        from: SocketAddr::new(ip.source, segment.source_port),
        to: SocketAddr::new(ip.destination, segment.destination_port),
    }
}
