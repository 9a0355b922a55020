//! What is between the hosts of a simulation: a link from each of them to each other. It carries IP
//! packets and nothing below: a cut is one of a path, and no question for a neighbour.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use lightwait::device::{Device, Sink};
use lightwait_core::capture::pcapng::Direction;
use lightwait_core::capture::pretty::Line;
use lightwait_core::frame::in_bursts;
use lightwait_core::wire::ip;
use lightwait_core::{Capabilities, Instant, Medium, Outbox, RxFrame};
use lightwait_netem::{Link, LinkConfig, Packet};

use super::Packets;
use super::capture::Capture;
use crate::cable::fold;

/// From one host to another.
type Ends = (usize, usize);

/// True for a packet that is to be lost.
type Filter = Box<dyn FnMut(&[u8]) -> bool>;

pub(super) struct Switch {
    seed: u64,
    /// What a link is like that nobody has set.
    usual: LinkConfig,
    hosts: usize,
    links: BTreeMap<Ends, Way>,
    /// By the receiver: who has packets on the way to it, in order of their next arrival.
    due: Vec<BTreeSet<(Instant, usize)>>,
    pub(super) digest: u64,
    pub(super) trace: bool,
    scratch: Vec<u8>,
}

/// A link, and what is wrong with it.
struct Way {
    link: Link,
    due: Option<Instant>,
    is_cut: bool,
    filter: Option<Filter>,
    /// Recordings of what is sent, and as what.
    captures: Vec<(Capture, Direction)>,
    packets: Packets,
}

/// The addresses of the first host; the others follow.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

const FIRST_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);

/// The IPv6 address of a host.
pub(super) fn ipv6_address(number: usize) -> Ipv6Addr {
    Ipv6Addr::from_bits(FIRST_IPV6.to_bits() + number as u128)
}

/// The address of a host.
pub(super) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + number as u32)
}

impl Switch {
    pub(super) fn new(seed: u64) -> Switch {
        Switch {
            seed,
            usual: LinkConfig::default(),
            hosts: 0,
            links: BTreeMap::new(),
            due: Vec::new(),
            digest: 0,
            trace: false,
            scratch: Vec::new(),
        }
    }

    /// One host more, with links to all others.
    pub(super) fn add(&mut self, now: Instant) {
        let number = self.hosts;
        self.hosts += 1;
        self.due.push(BTreeSet::new());
        for other in 0..number {
            for ends in [(number, other), (other, number)] {
                let link = Link::changeable(now, self.seeded(ends, &self.usual));
                let (due, is_cut, filter, captures) = (None, false, None, Vec::new());
                let packets = Packets::default();
                let way = Way { link, due, is_cut, filter, captures, packets };
                self.links.insert(ends, way);
            }
        }
    }

    /// The configuration of that link, whose chances are its own.
    fn seeded(&self, (from, to): Ends, link: &LinkConfig) -> LinkConfig {
        let path = (from as u64) << 32 | to as u64;
        let seed = fold(fold(0, &self.seed.to_le_bytes()), &path.to_le_bytes());
        LinkConfig { seed, ..link.clone() }
    }

    fn way(&mut self, ends: Ends) -> &mut Way {
        self.links.get_mut(&ends).expect("a link leads from one host to another")
    }

    pub(super) fn set_all(&mut self, now: Instant, link: &LinkConfig) {
        self.usual = link.clone();
        let all: Vec<Ends> = self.links.keys().copied().collect();
        all.into_iter().for_each(|ends| self.set(now, ends, link));
    }

    pub(super) fn set(&mut self, now: Instant, ends: Ends, link: &LinkConfig) {
        let config = self.seeded(ends, link);
        self.way(ends).link.reconfigure(now, config);
        self.note_due(ends);
    }

    pub(super) fn set_cut(&mut self, ends: Ends, is_cut: bool) {
        self.way(ends).is_cut = is_cut;
    }

    pub(super) fn set_filter(&mut self, ends: Ends, filter: Filter) {
        self.way(ends).filter = Some(filter);
    }

    pub(super) fn record(&mut self, ends: Ends, capture: &Capture, direction: Direction) {
        self.way(ends).captures.push((capture.clone(), direction));
    }

    pub(super) fn packets(&self, ends: Ends) -> Packets {
        self.links.get(&ends).map_or(Packets::default(), |way| way.packets)
    }

    /// Drops what has arrived at a host that had no power.
    pub(super) fn discard(&mut self, now: Instant, to: usize) {
        while self.take(now, to).is_some() {}
    }

    fn send(&mut self, now: Instant, from: usize, outbox: &mut Outbox) {
        while let Some(frame) = outbox.front() {
            let mut bytes = std::mem::take(&mut self.scratch);
            bytes.clear();
            frame.copy_to(&mut bytes);
            outbox.pop();
            if self.trace {
                let line = Line { medium: Medium::Ip, bytes: &bytes };
                println!("{now} {from} {line}");
            }
            self.digest = fold(fold(self.digest, &now.as_nanos().to_le_bytes()), &bytes);
            let receivers = self.host_of(&bytes).map_or(0..self.hosts, |one| one..one + 1);
            for to in receivers.filter(|to| *to != from) {
                self.push(now, (from, to), &bytes);
            }
            self.scratch = bytes;
        }
    }

    /// The host that a packet is for; `None` if it is for all, or for nobody.
    fn host_of(&self, packet: &[u8]) -> Option<usize> {
        let number = match ip::Packet::parse(packet).ok()?.destination {
            IpAddr::V4(to) => to.to_bits().checked_sub(FIRST.to_bits())?.into(),
            IpAddr::V6(to) => to.to_bits().checked_sub(FIRST_IPV6.to_bits())?,
        };
        let number = usize::try_from(number).ok();
        number.filter(|number| *number < self.hosts)
    }

    fn push(&mut self, now: Instant, ends: Ends, bytes: &[u8]) {
        let way = self.way(ends);
        way.packets.sent += 1;
        let is_filtered = way.filter.as_mut().is_some_and(|filter| filter(bytes));
        let is_lost = way.is_cut || is_filtered;
        for (capture, direction) in &way.captures {
            capture.add(now, *direction, is_lost, bytes);
        }
        if is_lost {
            way.packets.lost += 1;
            return;
        }
        way.link.push(now, bytes);
        self.note_due(ends);
    }

    /// The next packet that has arrived at this host.
    fn take(&mut self, now: Instant, to: usize) -> Option<Packet> {
        loop {
            let from = self.due[to].first().filter(|(at, _)| *at <= now)?.1;
            let packet = self.way((from, to)).link.pop(now);
            self.note_due((from, to));
            if packet.is_some() {
                return packet;
            }
        }
    }

    /// Updates the next arrival of a link, after a packet has entered or left it.
    fn note_due(&mut self, ends: Ends) {
        let (from, to) = ends;
        let way = self.way(ends);
        let next = way.link.deadline();
        let before = std::mem::replace(&mut way.due, next);
        if next != before {
            let places = &mut self.due[to];
            before.iter().for_each(|at| _ = places.remove(&(*at, from)));
            next.iter().for_each(|at| _ = places.insert((*at, from)));
        }
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// A host's end of its links, as its shard's device.
#[derive(Debug)]
pub(super) struct Port {
    switch: Rc<RefCell<Switch>>,
    number: usize,
    capabilities: Capabilities,
}

impl Port {
    pub(super) fn new(
        switch: &Rc<RefCell<Switch>>,
        number: usize,
        capabilities: Capabilities,
    ) -> Port {
        Port { switch: switch.clone(), number, capabilities }
    }
}

impl Device for Port {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, now: Instant, budget: usize, sink: &mut Sink<'_>) -> io::Result<usize> {
        let next = || self.switch.borrow_mut().take(now, self.number);
        let arrived: Vec<Packet> = std::iter::from_fn(next).take(budget).collect();
        in_bursts(arrived.iter().map(|packet| RxFrame::plain(packet)), sink);
        Ok(arrived.len())
    }

    fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> io::Result<()> {
        self.switch.borrow_mut().send(now, self.number, outbox);
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.switch.borrow().due[self.number].first().map(|(at, _)| *at)
    }
}
