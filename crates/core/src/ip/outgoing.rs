//! What IP sends of its own accord: ICMP, neighbour discovery and ARP.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use crate::flow::Tuple;
use crate::frame::Frame;
use crate::ip::path::Path;
use crate::wire::{icmpv4, icmpv6, ip};

/// A packet or a frame.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The addresses of a packet, ours and the other's, without ports; a frame has none.
    pub ends: Tuple,
    pub content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// The payload of an IP packet of this protocol.
    Packet { protocol: u8, hop_limit: u8, payload: Vec<u8> },
    /// A whole frame, link header and all.
    Frame(Vec<u8>),
}

impl Outgoing {
    /// An ICMP message of the version of the addresses: `v4` or `v6`.
    pub(crate) fn icmp(
        ours: IpAddr,
        theirs: IpAddr,
        v4: &icmpv4::Message<'_>,
        v6: &icmpv6::Message<'_>,
    ) -> Outgoing {
        if let (IpAddr::V6(ours), IpAddr::V6(theirs)) = (ours, theirs) {
            return Outgoing::icmpv6(ours, theirs, v6);
        }
        let mut payload = Vec::new();
        v4.emit(&mut payload);
        let (protocol, hop_limit) = (ip::protocol::ICMPV4, ip::DEFAULT_HOP_LIMIT);
        Outgoing::packet(ours, theirs, Content::Packet { protocol, hop_limit, payload })
    }

    /// An ICMP message of IPv6.
    pub(crate) fn icmpv6(
        ours: Ipv6Addr,
        theirs: Ipv6Addr,
        message: &icmpv6::Message<'_>,
    ) -> Outgoing {
        let mut payload = Vec::new();
        message.emit(ours, theirs, &mut payload);
        let (protocol, hop_limit) = (ip::protocol::ICMPV6, message.hop_limit());
        let content = Content::Packet { protocol, hop_limit, payload };
        Outgoing::packet(ours.into(), theirs.into(), content)
    }

    fn packet(ours: IpAddr, theirs: IpAddr, content: Content) -> Outgoing {
        Outgoing { ends: Tuple::new((ours, 0), (theirs, 0)), content }
    }

    /// A frame that is complete.
    pub(crate) fn frame(bytes: Vec<u8>) -> Outgoing {
        Outgoing { ends: Tuple::NOBODY, content: Content::Frame(bytes) }
    }
}

impl Content {
    /// Writes a packet along `path`. False if it is a frame, or its payload is too long.
    pub(crate) fn write(&self, frame: &mut Frame, path: &Path) -> bool {
        let Content::Packet { protocol, hop_limit, payload } = self else { return false };
        let header = ip::Header::new(path.source, path.destination, *protocol, payload.len());
        let Some(mut header) = header else { return false };
        header.hop_limit = *hop_limit;
        if let Some(link) = &path.link {
            link.emit(&mut frame.head);
        }
        header.emit(&mut frame.head);
        frame.head.extend_from_slice(payload);
        true
    }
}
