//! Answers that belong to no connection.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use crate::counters::Counters;
use crate::flow::Tuple;
use crate::frame::Frame;
use crate::ip::path::IpFields;
use crate::ip::path::PacketPath;
use crate::tcp::egress;
use crate::wire::tcp::Header;
use crate::wire::usual::{Stamped, Syn};
use crate::wire::{icmpv4, icmpv6, ip};

/// Replies that wait at most; beyond it they are dropped, as a full link would.
const REPLIES_MAX: usize = 4096;

/// An answer that belongs to no connection.
#[derive(Debug)]
pub(super) struct Reply {
    /// The ends, ours and the other's. A complete frame has none, and only a segment has ports.
    pub(super) ends: Tuple,
    pub(super) marks: IpFields,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    /// With timestamps as the only option.
    Stamped(Stamped),
    Syn(Syn),
    /// Any other: few are, and they are large.
    Segment(Box<Header>),
    /// The payload of an IP packet of this protocol.
    Packet {
        protocol: u8,
        hop_limit: u8,
        payload: Vec<u8>,
    },
    /// A whole frame, link header and all.
    Frame(Vec<u8>),
}

impl Reply {
    /// True if it is one of TCP.
    pub(super) fn is_segment(&self) -> bool {
        matches!(self.body, Body::Stamped(_) | Body::Syn(_) | Body::Segment(_))
    }

    /// A segment without payload between the ends of `tuple`.
    pub(super) fn segment(tuple: &Tuple, header: Header) -> Reply {
        Reply::marked(tuple, header, IpFields::default())
    }

    /// A segment without payload between the ends of `tuple`, in a packet of these marks.
    pub(super) fn marked(tuple: &Tuple, header: Header, marks: IpFields) -> Reply {
        Reply { ends: *tuple, marks, body: Body::Segment(Box::new(header)) }
    }

    /// A segment without payload between the ends of `tuple`, with timestamps as the only option.
    pub(super) fn stamped(tuple: &Tuple, header: Stamped) -> Reply {
        Reply { ends: *tuple, marks: IpFields::default(), body: Body::Stamped(header) }
    }

    /// A SYN, ACK, in a packet of these marks.
    pub(super) fn syn(tuple: &Tuple, header: Syn, marks: IpFields) -> Reply {
        Reply { ends: *tuple, marks, body: Body::Syn(header) }
    }

    /// An ICMP message of the version of the addresses: `v4` or `v6`.
    pub(super) fn icmp(
        (ours, theirs): (IpAddr, IpAddr),
        v4: &icmpv4::Message<'_>,
        v6: &icmpv6::Message<'_>,
    ) -> Reply {
        if let (IpAddr::V6(ours), IpAddr::V6(theirs)) = (ours, theirs) {
            return Reply::icmpv6((ours, theirs), v6);
        }
        let mut payload = Vec::new();
        v4.emit(&mut payload);
        let (protocol, hop_limit) = (ip::protocol::ICMPV4, ip::DEFAULT_HOP_LIMIT);
        Reply::packet((ours, theirs), Body::Packet { protocol, hop_limit, payload })
    }

    /// An ICMP message of IPv6.
    pub(super) fn icmpv6(
        (ours, theirs): (Ipv6Addr, Ipv6Addr),
        message: &icmpv6::Message<'_>,
    ) -> Reply {
        let mut payload = Vec::new();
        message.emit(ours, theirs, &mut payload);
        let (protocol, hop_limit) = (ip::protocol::ICMPV6, message.hop_limit());
        Reply::packet((ours.into(), theirs.into()), Body::Packet { protocol, hop_limit, payload })
    }

    fn packet((ours, theirs): (IpAddr, IpAddr), body: Body) -> Reply {
        Reply { ends: Tuple::new((ours, 0), (theirs, 0)), marks: IpFields::default(), body }
    }

    /// A frame that is complete.
    pub(super) fn frame(bytes: Vec<u8>) -> Reply {
        Reply { ends: Tuple::NOBODY, marks: IpFields::default(), body: Body::Frame(bytes) }
    }
}

/// Lets `reply` wait behind the others. False, and nothing has happened, if there are too many.
#[inline(always)]
pub(super) fn owe(replies: &mut VecDeque<Reply>, reply: Reply, counters: &mut Counters) -> bool {
    let has_room = replies.len() < REPLIES_MAX;
    if has_room {
        replies.push_back(reply);
    } else {
        counters.replies_suppressed += 1;
    }
    has_room
}

/// Writes a reply that is no frame yet; false if it cannot be written.
pub(super) fn write_reply(frame: &mut Frame, path: &PacketPath<'_>, reply: &Reply) -> bool {
    match &reply.body {
        Body::Stamped(header) => egress::write(frame, path, &header.header(), None),
        Body::Syn(header) => egress::write(frame, path, &header.header(), None),
        Body::Segment(header) => egress::write(frame, path, header, None),
        Body::Packet { protocol, hop_limit, payload } => {
            let (source, destination) = (path.base.source, path.base.destination);
            let header = ip::Header::new(source, destination, *protocol, payload.len());
            let Some(mut header) = header else { return false };
            header.hop_limit = *hop_limit;
            if let Some(link) = &path.base.link {
                link.emit(&mut frame.head);
            }
            header.emit(&mut frame.head);
            frame.head.extend_from_slice(payload);
            true
        }
        Body::Frame(_) => false,
    }
}
