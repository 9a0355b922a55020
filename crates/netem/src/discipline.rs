//! The order in which waiting packets leave: first come, first served, or in turns by flow (RFC
//! 8290).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lightwait_core::Instant;

use crate::codel::Codel;
use crate::fair::Fair;
use crate::queue::{Queue, Waiting};
use crate::{LinkConfig, Packet};

/// The packets before the serializer.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    Fifo(Fifo),
    Fair(Box<Fair>),
}

/// One queue for all.
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    queue: Queue,
    codel: Option<Codel>,
}

/// What became of packets that did not leave as they were.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Dropped by CoDel.
    pub(crate) dropped: Vec<Packet>,
    /// How many were marked instead.
    pub(crate) marked: u64,
}

impl Discipline {
    pub(crate) fn new(config: &LinkConfig) -> Discipline {
        match config.fair {
            None => {
                let codel = config.codel.map(Codel::new);
                Discipline::Fifo(Fifo { queue: Queue::default(), codel })
            }
            Some(fair) => Discipline::Fair(Box::new(Fair::new(fair, config.codel, config.seed))),
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        match self {
            Discipline::Fifo(fifo) => fifo.queue.push(waiting),
            Discipline::Fair(fair) => fair.push(waiting),
        }
    }

    /// Since when packets wait, at most; `None` if none does.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        match self {
            Discipline::Fifo(fifo) => fifo.queue.front().map(|head| head.entered),
            Discipline::Fair(fair) => fair.waits_since(),
        }
    }

    /// The bytes of the packet that leaves next, if that is certain.
    pub(crate) fn next_bytes(&self) -> Option<usize> {
        match self {
            Discipline::Fifo(Fifo { queue, codel: None }) => {
                queue.front().map(|head| head.packet.len())
            }
            Discipline::Fifo(_) | Discipline::Fair(_) => None,
        }
    }

    /// The packet to send at `now`, if CoDel leaves any.
    pub(crate) fn pop(&mut self, now: Instant, judged: &mut Judged) -> Option<Waiting> {
        match self {
            Discipline::Fifo(Fifo { queue, codel: None }) => queue.pop(),
            Discipline::Fifo(Fifo { queue, codel: Some(codel) }) => {
                codel.dequeue(now, queue, judged)
            }
            Discipline::Fair(fair) => fair.pop(now, judged),
        }
    }

    /// Makes room where there is too much: `None` if the newcomer is to go.
    pub(crate) fn drop_for_newcomer(&mut self) -> Option<Packet> {
        match self {
            Discipline::Fifo(_) => None,
            Discipline::Fair(fair) => fair.drop_from_fattest(),
        }
    }

    /// All that wait, in the order of their entry.
    pub(crate) fn take_all(&mut self) -> Vec<Waiting> {
        match self {
            Discipline::Fifo(fifo) => core::iter::from_fn(|| fifo.queue.pop()).collect(),
            Discipline::Fair(fair) => fair.take_all(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Discipline::Fifo(fifo) => fifo.queue.len(),
            Discipline::Fair(fair) => fair.len(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Discipline::Fifo(fifo) => fifo.queue.bytes(),
            Discipline::Fair(fair) => fair.bytes(),
        }
    }
}
