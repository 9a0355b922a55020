//! One UDP socket.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::queue::Queue;
use super::{Received, UdpOptions};
use crate::buffer::PagePool;
use crate::error::Error;
use crate::flow::Tuple;
use crate::ip::path::IpFields;
use crate::time::Instant;

/// ICMP errors that wait to be asked for; a later one is dropped.
const ERRORS_MAX: usize = 8;

/// Kinds of large packets that are remembered as sent.
const SENT_KINDS: usize = 8;

/// What is known of datagrams that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub from: SocketAddr,
    pub to: IpAddr,
    pub traffic_class: u8,
    pub arrived: Instant,
}

/// What is known of datagrams that are to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    /// Our end and the receiver's.
    pub ends: Tuple,
    pub fields: IpFields,
    pub dont_fragment: bool,
}

/// How far the oldest entry of the outgoing queue has left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of datagrams that have left whole.
    pub done: usize,
    /// Bytes of the next one, its header included, that have left in fragments.
    pub in_fragments: usize,
    /// The identification of these fragments.
    pub id: u32,
}

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Our end; the address is unspecified if it hears all of ours.
    pub local: SocketAddr,
    /// Both ends, once it is connected.
    pub connected: Option<Tuple>,
    /// What it is found by: both ends if it is connected, else ours alone.
    pub key: Tuple,
    /// The ends of the last datagram to another host that was sent from an address chosen for it,
    /// and the changes of our addresses and routes that there had been.
    pub recent: (Tuple, u64),
    pub options: UdpOptions,
    /// The groups that it listens to.
    pub groups: Vec<IpAddr>,
    pub incoming: Queue<Arrival>,
    pub outgoing: Queue<Departure>,
    pub progress: Progress,
    /// A send was refused for want of room, and there is none yet.
    pub is_full: bool,
    /// It is on the list of those that have something to send.
    pub is_ready: bool,
    /// A datagram has made it, and it has no port of its own.
    pub is_flow: bool,
    /// Its user is gone; it remains until all is sent.
    pub is_closed: bool,
    /// Datagrams that were not kept for want of room.
    pub dropped: u64,
    /// What the next call fails with.
    error: Option<Error>,
    errors: VecDeque<(SocketAddr, Error)>,
    /// Large packets that were sent lately, by the hash of their ends and their size.
    sent: [u64; SENT_KINDS],
    sent_next: usize,
}

impl Socket {
    pub(crate) fn new(local: SocketAddr, options: UdpOptions) -> Socket {
        Socket {
            local,
            connected: None,
            key: our_end(local),
            recent: (Tuple::NOBODY, 0),
            options,
            groups: Vec::new(),
            incoming: Queue::default(),
            outgoing: Queue::default(),
            progress: Progress::default(),
            is_full: false,
            is_ready: false,
            is_flow: false,
            is_closed: false,
            dropped: 0,
            error: None,
            errors: VecDeque::new(),
            sent: [0; SENT_KINDS],
            sent_next: 0,
        }
    }

    /// The socket of a flow between `ends`, ours first.
    pub(crate) fn of_flow(ends: &Tuple, options: UdpOptions) -> Socket {
        let socket = Socket::new(ends.local(), options);
        Socket { connected: Some(*ends), key: *ends, is_flow: true, ..socket }
    }

    /// True if it can carry packets of that version.
    pub(crate) fn speaks(&self, ipv4: bool) -> bool {
        let is_any_ipv6 = self.local.is_ipv6() && self.local.ip().is_unspecified();
        self.local.is_ipv4() == ipv4 || ipv4 && is_any_ipv6 && !self.options.only_ipv6
    }

    // ---- reading

    /// Copies the oldest datagram to `out`, or those joined with it for which there is room, and
    /// removes them if `takes`. `None` if none waits.
    pub(crate) fn read(
        &mut self,
        pool: &mut PagePool,
        out: &mut [u8],
        takes: bool,
    ) -> Option<Received> {
        let entry = self.incoming.front()?;
        let one = entry.segment.min(entry.len);
        let all = match self.options.joined {
            true if entry.len <= out.len() => entry.len,
            true => (out.len() / entry.segment * entry.segment).max(one),
            false => one,
        };
        let len = all.min(out.len());
        let segment = entry.segment.min(all);
        let Arrival { from, to, traffic_class, arrived } = entry.meta;
        self.incoming.copy(0, &mut out[..len]);
        if takes {
            self.incoming.consume(pool, all);
        }
        Some(Received { len, segment, from, to, traffic_class, arrived })
    }

    // ---- errors

    /// The error that ended the last thing asked of it, once.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// True if the next call fails.
    pub(crate) fn has_error(&self) -> bool {
        self.error.is_some() || !self.errors.is_empty()
    }

    /// Lets the next call fail with `error`.
    pub(crate) fn note_error(&mut self, error: Error) {
        self.error = Some(error);
    }

    /// The oldest reported error, and the destination of the datagram that it is about.
    pub(crate) fn reported(&mut self) -> Option<(SocketAddr, Error)> {
        self.errors.pop_front()
    }

    /// An ICMP error has come about a datagram to `to`. True if the user is to hear of it.
    pub(crate) fn on_error(&mut self, to: SocketAddr, error: Error, is_hard: bool) -> bool {
        if self.options.report_errors && self.errors.len() < ERRORS_MAX {
            self.errors.push_back((to, error));
        }
        let is_told = self.connected.is_some() && (is_hard || self.options.report_errors);
        if is_told {
            self.error = Some(error);
        }
        is_told || self.options.report_errors
    }

    // ---- packets that a router may find too large

    /// Remembers that a packet of so many bytes has left between ends of this hash.
    pub(crate) fn note_sent(&mut self, hash: u64, packet_bytes: usize) {
        let kind = kind_of(hash, packet_bytes);
        if self.sent.contains(&kind) {
            return;
        }
        self.sent[self.sent_next % SENT_KINDS] = kind;
        self.sent_next += 1;
    }

    /// True if such a packet has left lately.
    pub(crate) fn has_sent(&self, hash: u64, packet_bytes: usize) -> bool {
        self.sent.contains(&kind_of(hash, packet_bytes))
    }
}

/// Our end alone.
pub(crate) fn our_end(local: SocketAddr) -> Tuple {
    let any: IpAddr = match local {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    Tuple::new((local.ip(), local.port()), (any, 0))
}

/// A number for packets of one size between ends of one hash; none is zero.
fn kind_of(hash: u64, packet_bytes: usize) -> u64 {
    (hash & !0xffff ^ packet_bytes as u64).max(1)
}
