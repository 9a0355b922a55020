//! Answers that belong to no connection.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::counters::Counters;
use crate::flow::Tuple;
use crate::frame::Frame;
use crate::ip::outgoing::{Content, Outgoing};
use crate::ip::path::{IpFields, PacketPath};
use crate::tcp::egress;
use crate::wire::fast::{Stamped, Syn};
use crate::wire::tcp::Header;

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
    /// What IP sends of its own accord.
    Ip(Content),
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
}

impl From<Outgoing> for Reply {
    fn from(Outgoing { ends, content }: Outgoing) -> Reply {
        Reply { ends, marks: IpFields::default(), body: Body::Ip(content) }
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
        Body::Ip(content) => content.write(frame, path.base),
    }
}
