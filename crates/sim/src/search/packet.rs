//! A packet in flight, and the changes that a network, or a host with a rule removed, makes to it.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::rc::Rc;

use lightwait_core::flow::Seq;
use lightwait_core::wire::checksum::sum;
use lightwait_core::wire::ip;
use lightwait_core::wire::options::Experimental;
use lightwait_core::wire::tcp::{CHECKSUM_OFFSET, Flags, Header, Segment, checksum};

/// An IPv4 packet with a TCP segment. Its hash is stored, since it is needed often.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    hash: u64,
    bytes: Rc<[u8]>,
}

impl Hash for Packet {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

impl Packet {
    /// A packet of these bytes.
    pub fn new(bytes: &[u8]) -> Packet {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        Packet { hash: hasher.finish(), bytes: bytes.into() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn parts(&self) -> (IpAddr, IpAddr, Segment<'_>) {
        let packet = ip::Packet::parse(&self.bytes).expect("a host sends valid packets");
        let segment = Segment::parse(packet.payload).expect("a host sends valid segments");
        (packet.source, packet.destination, segment)
    }

    /// The control bits.
    pub fn flags(&self) -> Flags {
        self.parts().2.flags
    }

    /// The sequence number after its last byte.
    pub fn end(&self) -> Seq {
        self.parts().2.end()
    }

    /// True if it carries text.
    pub fn has_text(&self) -> bool {
        !self.parts().2.payload.is_empty()
    }

    /// True if it carries an experimental option.
    pub fn has_option(&self) -> bool {
        !self.parts().2.options.experimental.is_empty()
    }

    /// A copy of the packet without its experimental option.
    #[must_use]
    pub fn stripped(&self) -> Packet {
        self.with_option(Experimental::EMPTY)
    }

    /// A copy of the packet with this option.
    #[must_use]
    pub fn with_option(&self, option: Experimental) -> Packet {
        self.rebuilt(|header| header.options.experimental = option)
    }

    /// A RST with ACK whose sequence number is the end of this packet.
    #[must_use]
    pub fn reset_behind(&self) -> Packet {
        let (source, destination, segment) = self.parts();
        let (seq, flags) = (segment.end(), Flags::RST | Flags::ACK);
        let header = Header { seq, flags, ..header_of(&segment) };
        written((source, destination), &header, &[])
    }

    /// A copy whose only control bit is ACK, with the acknowledgement `ack`.
    #[must_use]
    pub fn acknowledging(&self, ack: Seq) -> Packet {
        self.rebuilt(|header| (header.ack, header.flags) = (ack, Flags::ACK))
    }

    /// Its source and destination.
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        let (source, destination, _) = self.parts();
        (source, destination)
    }

    fn rebuilt(&self, change: impl FnOnce(&mut Header)) -> Packet {
        let (source, destination, segment) = self.parts();
        let mut header = header_of(&segment);
        change(&mut header);
        written((source, destination), &header, segment.payload)
    }
}

fn header_of(segment: &Segment<'_>) -> Header {
    let &Segment {
        source_port, destination_port, seq, ack, flags, window, urgent, options, ..
    } = segment;
    Header { source_port, destination_port, seq, ack, flags, window, urgent, options }
}

fn written(ends: (IpAddr, IpAddr), header: &Header, text: &[u8]) -> Packet {
    let (source, destination) = ends;
    let mut bytes = Vec::new();
    let len = header.header_len() + text.len();
    let packet = ip::Header::new(source, destination, ip::protocol::TCP, len);
    packet.expect("a segment fits into a packet").emit(&mut bytes);
    let start = bytes.len();
    header.emit(&mut bytes);
    let value = checksum(source, destination, &bytes[start..], sum(text), text.len());
    bytes[start + CHECKSUM_OFFSET..][..2].copy_from_slice(&value.to_be_bytes());
    bytes.extend_from_slice(text);
    Packet::new(&bytes)
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, _, segment) = self.parts();
        let Segment { flags, seq, ack, payload, .. } = segment;
        write!(f, "{flags} seq {} len {}", seq.0, payload.len())?;
        if flags.contains(Flags::ACK) {
            write!(f, " ack {}", ack.0)?;
        }
        if let Some(first) = payload.first() {
            write!(f, " text {:?}…", char::from(*first))?;
        }
        for (_, data) in segment.options.experimental.iter() {
            write!(f, " names {:?}", data.get(2..).unwrap_or_default())?;
        }
        Ok(())
    }
}
