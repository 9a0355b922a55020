//! An ACK with one SACK block, for a sender with ten thousand segments in flight.
//!
//! ```text
//!   una                                              nxt
//!    │ lost │ sacked, a segment more with each ACK │ in flight │
//! ```
//!
//! The first segment is lost. Each ACK that is counted passes through the host: from the frame to
//! the end of `emit`, which has nothing to send then. The host does not verify checksums, so that
//! what is counted does not depend on the length of a segment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait_core::address::Cidr;
use lightwait_core::config::BufferConfig;
use lightwait_core::flow::Seq;
use lightwait_core::frame::RxChecksum;
use lightwait_core::wire::ip::{self, Packet, protocol};
use lightwait_core::wire::options::{Options, SackBlock};
use lightwait_core::wire::tcp::{Flags, Header, Segment};
use lightwait_core::{Capabilities, Config, ConnectionId, Host, Instant, Medium, Outbox, RxFrame};

use crate::instructions::{self, Uncounted, section};

/// What is counted.
pub const WHAT: &str = "ACK with a SACK block, among 10000 segments";
/// The name of the section.
const SECTION: &str = "sack_block";
/// Segments in flight.
const SEGMENTS: u32 = 10_000;
/// ACKs that are counted, and those before them: until the segment that is lost was sent again.
const COUNTED: u32 = 2000;
const BEFORE: u32 = 1000;
/// Payload of a segment.
const SEGMENT: u32 = 1000;
/// Segments that leave at one instant. There is a record of each such burst.
const BURST: u32 = 4;
/// The buffer, and the window that the peer offers in units of 2^14 bytes.
const BUFFER: u32 = 64 << 20;
const SHIFT: u8 = 14;
const WINDOW: u16 = 4096;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const PORTS: [u16; 2] = [1024, 80];

/// The host, and what its peer knows.
struct Sender {
    host: Host,
    id: ConnectionId,
    outbox: Outbox,
    now: Instant,
    /// The next number of the host's, as far as the peer has heard.
    next: Seq,
}

/// Instructions of an ACK.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn count() -> Result<Option<f64>, Uncounted> {
    instructions::count(&["sack".to_owned(), format!("--section={SECTION}")])
}

/// Runs everything once, for callgrind to count.
pub fn sections() {
    let mut sender = Sender::connected();
    sender.open_window();
    let first = sender.fill();
    let mut acks = (1..=BEFORE + COUNTED).map(|number| ack(first, number));
    for ack in acks.by_ref().take(BEFORE as usize) {
        sender.take(&ack);
    }
    let info = sender.host.info(sender.id).expect("it is open");
    assert_eq!((info.retransmits, info.sacked_bytes), (1, BEFORE * SEGMENT));
    let acks: Vec<Vec<u8>> = acks.collect();
    section(SECTION, COUNTED as usize, || acks.iter().for_each(|ack| sender.take(ack)));
    let info = sender.host.info(sender.id).expect("it is open");
    assert_eq!(info.sacked_bytes, (BEFORE + COUNTED) * SEGMENT);
    assert_eq!(info.in_flight_bytes, SEGMENTS * SEGMENT);
}

/// A segment from the peer.
fn segment(flags: Flags, seq: u32, ack: Seq, options: Options) -> Vec<u8> {
    let header = Header {
        source_port: PORTS[1],
        destination_port: PORTS[0],
        seq: Seq(seq),
        ack,
        flags,
        window: WINDOW,
        urgent: 0,
        options,
    };
    let mut bytes = Vec::new();
    let ip = ip::Header::new(PEER, HOST, protocol::TCP, header.header_len());
    ip.expect("it is short").emit(&mut bytes);
    header.emit(&mut bytes);
    bytes
}

/// The first segment is missing, and `number` segments behind it have arrived.
fn ack(first: Seq, number: u32) -> Vec<u8> {
    let mut options = Options::default();
    options.sack.push(SackBlock { start: first + SEGMENT, end: first + (number + 1) * SEGMENT });
    segment(Flags::ACK, 1, first, options)
}

impl Sender {
    fn connected() -> Sender {
        let device = Capabilities::plain(Medium::Ip, SEGMENT as u16 + 40);
        let address = Cidr::new(HOST, 24).expect("24 bits fit an IPv4 address");
        let mut config = Config::new(device, address, [1; 32]);
        config.tcp.timestamps = false;
        config.tcp.buffers = BufferConfig { send: BUFFER, ..BufferConfig::default() };
        let mut host = Host::new(config).expect("a valid configuration");
        let now = Instant::from_millis(1000);
        let at = |address, port| SocketAddr::new(address, port);
        let id = host.connect(now, at(HOST, PORTS[0]), at(PEER, PORTS[1])).expect("a free port");
        let mut sender = Sender { host, id, outbox: Outbox::new(256), now, next: Seq(0) };
        sender.emit();
        let options = Options {
            mss: Some(SEGMENT as u16),
            window_scale: Some(SHIFT),
            sack_permitted: true,
            ..Options::default()
        };
        sender.take(&segment(Flags::SYN | Flags::ACK, 0, sender.next, options));
        sender
    }

    /// Lets the host send, and hears it.
    fn emit(&mut self) {
        self.host.emit(self.now, &mut self.outbox);
        while let Some(frame) = self.outbox.take() {
            let mut bytes = Vec::new();
            frame.copy_to(&mut bytes);
            let packet = Packet::parse(&bytes).expect("a packet");
            let segment = Segment::parse(packet.payload).expect("a segment");
            if segment.end().after(self.next) || segment.flags.contains(Flags::SYN) {
                self.next = segment.end();
            }
            self.outbox.recycle(frame);
        }
    }

    /// A frame comes, and the host answers.
    fn take(&mut self, frame: &[u8]) {
        let frame = RxFrame { checksum: RxChecksum::Good, ..RxFrame::plain(frame) };
        self.host.on_frame(self.now, frame);
        self.emit();
    }

    fn write(&mut self, segments: u32) {
        let data = vec![0; (segments * SEGMENT) as usize];
        let written = self.host.write(self.now, self.id, &data).expect("there is room");
        assert_eq!(written, data.len());
        while self.host.wants_emit() {
            self.emit();
        }
    }

    /// Acknowledges windows until the congestion window has its size.
    fn open_window(&mut self) {
        while self.host.info(self.id).expect("it is open").cwnd_bytes < SEGMENTS * SEGMENT {
            let window = self.host.info(self.id).expect("it is open").cwnd_bytes;
            self.write(window / SEGMENT);
            self.now = self.now + Duration::from_millis(10);
            self.take(&segment(Flags::ACK, 1, self.next, Options::default()));
        }
    }

    /// Fills the window, a burst after the other. Returns the first number in flight.
    fn fill(&mut self) -> Seq {
        let first = self.next;
        for _ in 0..SEGMENTS / BURST {
            self.now = self.now + Duration::from_micros(1);
            self.write(BURST);
        }
        self.now = self.now + Duration::from_millis(10);
        first
    }
}
