//! Names of sockets, and the events that the host reports about them.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Names a connection until it is closed by its user; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// The slot in the connection slab.
    pub(crate) index: u32,
    /// How often that slot has been used.
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// The slot: dense, so that a shard may keep its own table beside the engine's.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation)
    }
}

/// Names a listener until it is closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerId {
    /// The slot among the listeners.
    pub(crate) index: u32,
    /// How often that slot has been used.
    pub(crate) generation: u32,
}

impl ListenerId {
    /// The slot: dense and small.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a SYN that waits for a verdict; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SynId {
    /// The slot among the SYNs that wait.
    pub(crate) index: u32,
    /// How often that slot has been used.
    pub(crate) generation: u32,
}

/// Names a UDP socket until it is closed; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UdpId {
    /// The slot among the UDP sockets.
    pub(crate) index: u32,
    /// How often that slot has been used.
    pub(crate) generation: u32,
}

impl UdpId {
    /// The slot: dense, so that a shard may keep its own table beside the engine's.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The calls that have become possible on a socket: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness(u8);

impl Readiness {
    /// Nothing.
    pub const EMPTY: Readiness = Readiness(0);
    /// Data, the end of the stream, or an error can be read.
    pub const READABLE: Readiness = Readiness(1);
    /// Room to write, or an error that the next write returns. An active open that has completed
    /// becomes writable.
    pub const WRITABLE: Readiness = Readiness(2);
    /// The connection has failed or is over; every wait on it must wake.
    pub const CLOSED: Readiness = Readiness(4);
    /// Urgent data was announced (RFC 9293 MUST-32).
    pub const URGENT: Readiness = Readiness(8);
    /// The peer takes nothing: its window is still closed when the first probe is due, or it does
    /// not answer. What was written and never sent should be taken back
    /// ([`Host::take_back`](crate::Host::take_back)), if its source
    /// ([`Host::set_supply`](crate::Host::set_supply)) can be read again. Where memory is short
    /// each connection is asked whose peer takes next to nothing, and may be reset otherwise.
    pub const WANTED_BACK: Readiness = Readiness(16);

    /// True if every bit of `other` is set here.
    pub fn contains(self, other: Readiness) -> bool {
        self.0 & other.0 == other.0
    }

    /// All bits but those of `other`.
    #[must_use]
    pub fn without(self, other: Readiness) -> Readiness {
        Readiness(self.0 & !other.0)
    }

    /// True if no bit is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Readiness {
    type Output = Readiness;
    fn bitor(self, rhs: Readiness) -> Readiness {
        Readiness(self.0 | rhs.0)
    }
}

impl BitOrAssign for Readiness {
    fn bitor_assign(&mut self, rhs: Readiness) {
        self.0 |= rhs.0;
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Readiness::READABLE, "readable"),
            (Readiness::WRITABLE, "writable"),
            (Readiness::CLOSED, "closed"),
            (Readiness::URGENT, "urgent"),
            (Readiness::WANTED_BACK, "wanted back"),
        ];
        f.debug_set().entries(names.iter().filter(|(b, _)| self.contains(*b)).map(|n| n.1)).finish()
    }
}

/// A message of the host to its shard, polled with [`Host::event`](crate::Host::event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The listener has a connection to accept, or a SYN to be judged
    /// ([`Host::next_syn`](crate::Host::next_syn)).
    Acceptable(ListenerId),
    /// The connection has become ready for something.
    Ready(ConnectionId, Readiness),
    /// The UDP socket has become ready for something.
    Udp(UdpId, Readiness),
    /// A datagram has made a socket ([`Host::udp_accept`](crate::Host::udp_accept)).
    Flow,
    /// How it stands with our addresses has changed ([`Host::claimed`](crate::Host::claimed)), or
    /// there is a conflict over one ([`Host::conflict`](crate::Host::conflict)).
    Addresses,
}
