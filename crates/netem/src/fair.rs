//! Flow queueing: each flow has a queue, and they take turns by bytes (RFC 8290). A flow that sends
//! little finds its queue empty and goes before those that have a backlog.
//!
//! ```text
//!   first packet ─▶ new flows ─ credit used up, or empty ─▶ old flows ─ empty ─▶ gone
//!                   (served first)                              └─ credit used up ─▶ to the end
//! ```
//!
//! Each queue has its own CoDel, if the link has CoDel. Where all queues together are full, the
//! oldest packet of the longest one goes (§4.1).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use lightwait_core::Instant;

use crate::codel::Codel;
use crate::discipline::Judged;
use crate::frame::Flow;
use crate::queue::{Queue, Waiting};
use crate::{CodelConfig, FairConfig, Packet};

/// The queues of all flows.
#[derive(Clone, Debug)]
pub(crate) struct Fair {
    /// By the hash of the flow. A list of queues has each queue at most once.
    queues: Vec<FlowQueue>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    quantum: i64,
    salt: u64,
    packets: usize,
    bytes: usize,
    /// When a packet came last that found nothing.
    since: Instant,
}

#[derive(Clone, Debug)]
struct FlowQueue {
    queue: Queue,
    codel: Option<Codel>,
    /// Bytes that it may send in this turn.
    credit: i64,
    is_listed: bool,
}

impl Fair {
    /// `salt` decides which flows share a queue.
    pub(crate) fn new(config: FairConfig, codel: Option<CodelConfig>, salt: u64) -> Fair {
        let queue = FlowQueue {
            queue: Queue::default(),
            codel: codel.map(Codel::new),
            credit: 0,
            is_listed: false,
        };
        Fair {
            queues: alloc::vec![queue; config.queues.max(1) as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: i64::from(config.quantum_bytes.max(1)),
            salt,
            packets: 0,
            bytes: 0,
            since: Instant::ZERO,
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        if self.packets == 0 {
            self.since = waiting.entered;
        }
        let index = (hash(&waiting.packet, self.salt) % self.queues.len() as u64) as usize;
        self.packets += 1;
        self.bytes += waiting.packet.len();
        let flow = &mut self.queues[index];
        flow.queue.push(waiting);
        if !flow.is_listed {
            (flow.is_listed, flow.credit) = (true, self.quantum);
            self.new.push_back(index);
        }
    }

    /// The packet to send at `now`, if CoDel leaves any (RFC 8290 §4.2).
    pub(crate) fn pop(&mut self, now: Instant, judged: &mut Judged) -> Option<Waiting> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = list.pop_front()?;
            let flow = &mut self.queues[index];
            if flow.credit <= 0 {
                flow.credit += self.quantum;
                self.old.push_back(index);
                continue;
            }
            let before = (flow.queue.len(), flow.queue.bytes());
            let waiting = match &mut flow.codel {
                Some(codel) => codel.dequeue(now, &mut flow.queue, judged),
                None => flow.queue.pop(),
            };
            self.packets -= before.0 - flow.queue.len();
            self.bytes -= before.1 - flow.queue.bytes();
            if let Some(waiting) = waiting {
                flow.credit -= waiting.packet.len() as i64;
                let list = if is_new { &mut self.new } else { &mut self.old };
                list.push_front(index);
                return Some(waiting);
            }
            // One that was new waits for its turn once more, or it could be new all the time.
            flow.is_listed = is_new && !self.old.is_empty();
            if flow.is_listed {
                self.old.push_back(index);
            }
        }
    }

    /// Drops the oldest packet of the longest queue.
    pub(crate) fn drop_from_fattest(&mut self) -> Option<Packet> {
        let fattest = self.queues.iter_mut().max_by_key(|flow| flow.queue.bytes())?;
        let waiting = fattest.queue.pop()?;
        self.packets -= 1;
        self.bytes -= waiting.packet.len();
        Some(waiting.packet)
    }

    pub(crate) fn waits_since(&self) -> Option<Instant> {
        (self.packets > 0).then_some(self.since)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = Vec::with_capacity(self.packets);
        for flow in &mut self.queues {
            all.extend(core::iter::from_fn(|| flow.queue.pop()));
            (flow.is_listed, flow.credit) = (false, 0);
        }
        self.new.clear();
        self.old.clear();
        (self.packets, self.bytes) = (0, 0);
        all.sort_by_key(|waiting| waiting.entered);
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.packets
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What carries no IP packet is a flow of its own.
fn hash(frame: &[u8], salt: u64) -> u64 {
    let Some(Flow { source, destination, protocol }) = Flow::of(frame) else { return 0 };
    let ports = u64::from(source.port()) << 32 | u64::from(destination.port()) << 8;
    let mut state = mix(salt ^ ports ^ u64::from(protocol));
    for end in [source, destination] {
        let bits = match end.ip() {
            core::net::IpAddr::V4(v4) => u128::from(v4.to_bits()),
            core::net::IpAddr::V6(v6) => v6.to_bits(),
        };
        state = mix(state ^ bits as u64);
        state = mix(state ^ (bits >> 64) as u64);
    }
    state
}

/// Every bit of the input changes half of the output's: the finish of SplitMix64 (Steele, Lea &
/// Flood 2014).
fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::ipv4;
    use proptest::prelude::*;

    fn fair(codel: Option<CodelConfig>) -> Fair {
        Fair::new(FairConfig::default(), codel, 7)
    }

    fn push(fair: &mut Fair, ms: u64, port: u16, text: usize) {
        fair.push(Waiting { entered: Instant::from_millis(ms), packet: ipv4(port, 0, text) });
    }

    /// The source ports of the packets that leave at that time.
    fn ports(fair: &mut Fair, ms: u64) -> Vec<u16> {
        let mut next = || fair.pop(Instant::from_millis(ms), &mut Judged::default());
        core::iter::from_fn(|| Some(Flow::of(&next()?.packet)?.source.port())).collect()
    }

    #[test]
    fn flows_take_turns_by_bytes_and_a_new_one_goes_first() {
        let mut fair = fair(None);
        for _ in 0..4 {
            push(&mut fair, 0, 1, 1460);
        }
        for _ in 0..12 {
            push(&mut fair, 0, 2, 448);
        }
        let mut head = Judged::default();
        for _ in 0..2 {
            assert!(fair.pop(Instant::ZERO, &mut head).is_some());
        }
        push(&mut fair, 0, 3, 10);
        let ports = ports(&mut fair, 0);
        // One of each went before: a long packet is a quantum, and three short ones are almost one.
        assert_eq!(ports[..9], [2, 2, 2, 3, 1, 2, 2, 2, 1], "{ports:?}");
        assert_eq!(ports.len(), 15);
    }

    #[test]
    fn each_queue_has_a_codel_of_its_own() {
        let mut fair = fair(Some(CodelConfig::default()));
        let (mut judged, mut sent) = (Judged::default(), [0; 2]);
        for ms in 0..2000 {
            // Two fat packets come each ms, and a thin one each 10 ms; two leave each ms.
            push(&mut fair, ms, 1, 1460);
            push(&mut fair, ms, 1, 1460);
            if ms % 10 == 0 {
                push(&mut fair, ms, 2, 10);
            }
            for _ in 0..2 {
                let left = fair.pop(Instant::from_millis(ms), &mut judged).unwrap();
                sent[usize::from(left.packet.len() < 100)] += 1;
            }
        }
        assert_eq!(sent[1], 200, "the thin flow loses nothing");
        assert!(judged.dropped.iter().all(|packet| packet.len() > 1000));
        assert!(!judged.dropped.is_empty());
    }

    #[test]
    fn the_longest_queue_loses_its_oldest_packet() {
        let mut fair = fair(None);
        push(&mut fair, 0, 1, 100);
        (1..9).for_each(|n| push(&mut fair, n, 2, n as usize));
        assert_eq!(fair.drop_from_fattest(), Some(ipv4(2, 0, 1)));
        assert_eq!((fair.len(), fair.waits_since()), (8, Some(Instant::ZERO)));
    }

    proptest! {
        #[test]
        fn every_packet_leaves_once_in_the_order_of_its_flow(
            ops in prop::collection::vec((0u16..6, 0usize..1460), 0..200),
        ) {
            let mut fair = fair(None);
            let mut expected: Vec<(u16, usize)> = Vec::new();
            let mut got = Vec::new();
            for (at, (port, text)) in ops.into_iter().enumerate() {
                if port == 5 {
                    let left = fair.pop(Instant::from_millis(at as u64), &mut Judged::default());
                    got.extend(left);
                } else {
                    push(&mut fair, at as u64, port, text);
                    expected.push((port, text));
                }
            }
            got.extend(core::iter::from_fn(|| {
                fair.pop(Instant::from_millis(999), &mut Judged::default())
            }));
            let mut got: Vec<(u16, usize)> = got
                .iter()
                .map(|left| (Flow::of(&left.packet).unwrap().source.port(), left.packet.len() - 54))
                .collect();
            got.sort_by_key(|(port, _)| *port);
            expected.sort_by_key(|(port, _)| *port);
            prop_assert_eq!(got, expected);
            prop_assert_eq!((fair.len(), fair.bytes(), fair.waits_since()), (0, 0, None));
        }
    }
}
