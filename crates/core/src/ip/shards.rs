//! What the shards of one host tell each other.
//!
//! ```text
//!   any shard ── Packet, Error ──▶ the owner of the connection, or of a datagram's ends; and then,
//!                                  of a datagram, the owner of our port
//!   replica   ── Arp, Packet, Ask, Listens ▶ the first shard, which speaks for the host
//!   the first ── Neighbour, Routes ▶ replicas
//!   any shard ── TooBig, Want, Grant ▶ any other
//! ```
//!
//! A message may be lost on the way, where its receiver is too busy to take it: like a frame that
//! found no room. A segment is retransmitted, a question is asked again, routes are published
//! again, and a limit goes back to the shard that gave it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::icmp::IcmpError;
use super::input::Origin;
use super::route::Routes;
use super::{Context, Ip};
use crate::config::lease::{Grant, Leased};
use crate::config::{Config, Member};
use crate::flow::{Steering, Tuple};
use crate::frame::{RxChecksum, RxFrame};
use crate::ip::limiter::TokenBucket;
use crate::ip::neighbour::{Lookup, Resolution, Told};
use crate::time::Instant;
use crate::wire::arp;

/// Messages that wait until they are taken; more are lost.
const WAITING_MAX: usize = 1024;

/// Packets for the first shard, and ICMP errors for any, that a shard hands over in a second, and
/// at once. A flood of them burdens the shard that it comes to, and no other.
const RARE_PER_SECOND: u32 = 10_000;
const RARE_AT_ONCE: u32 = 1000;

/// What one shard of a host has to tell another: [`Host::message`](crate::Host::message) returns
/// it, [`Host::on_message`](crate::Host::on_message) takes it.
#[derive(Debug)]
pub struct Message {
    pub(crate) content: Content,
}

impl Message {
    /// The packet in it, without a link header, if it hands one over.
    pub fn packet(&self) -> Option<RxFrame<'_>> {
        let Content::Packet(packet) = &self.content else { return None };
        Some(packet.frame())
    }
}

/// A packet that has come to another shard than the one that takes it in.
#[derive(Debug)]
pub(crate) struct HandedPacket {
    /// From the IP header on.
    pub bytes: Vec<u8>,
    /// The state of its transport checksum.
    pub checksum: RxChecksum,
    /// Payload size of the segments or datagrams that were joined into it; 0 if it is a single one.
    pub segment_size: u16,
    pub origin: Origin,
    pub hop: Hop,
}

impl HandedPacket {
    /// The packet as it came. The device's time of it is the other shard's.
    pub(crate) fn frame(&self) -> RxFrame<'_> {
        let HandedPacket { checksum, segment_size, .. } = *self;
        RxFrame { checksum, segment_size, ..RxFrame::plain(&self.bytes) }
    }
}

/// How far a packet, or an error about one, has come. It matters where it is a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// To any shard, or to the one that owns both its ends.
    First,
    /// To the shard that owns the port: if that does not know it, nobody does.
    Last,
}

/// The content of a message.
#[derive(Debug)]
pub(crate) enum Content {
    /// A packet for a connection or socket of another shard, or one that only the first may answer.
    Packet(HandedPacket),
    /// An ICMP error about a packet of another shard's socket.
    Error(IcmpError, Hop),
    /// An ARP packet that came to a replica.
    Arp(arp::Packet),
    /// A replica has frames for that neighbour.
    Ask(IpAddr),
    /// The hardware address of a neighbour that was asked for, is new, or has changed.
    Neighbour(Told),
    /// The sender listens to that group, or not.
    Listens { group: IpAddr, listens: bool },
    /// The addresses and routes of the host.
    Routes(Arc<Routes>),
    /// That error was believed: the next hop takes packets of so many bytes.
    TooBig(IcmpError, u32),
    /// The sender has so much left of that limit, and wants more.
    Want { what: Leased, left: usize },
    /// A part of the sender's limit.
    Grant(Grant),
}

/// A shard among those of its host.
#[derive(Debug)]
pub(crate) struct Shards {
    member: Member,
    steering: Steering,
    /// Each with its receiver, oldest first.
    outbound: VecDeque<(u16, Message)>,
    /// The replicas that wait for a neighbour's answer, a bit each. The first shard's.
    asked: BTreeMap<IpAddr, u64>,
    /// The changes of routes that each shard knows of. The first shard's.
    published: Vec<u64>,
    /// Messages lost for want of room.
    lost: u64,
    /// What is handed over that is rare on an honest link.
    rare: TokenBucket,
    /// One of them published routes.
    owes_routes: bool,
}

/// What a replica that knows of no published routes knows.
const NOTHING: u64 = u64::MAX;

impl Shards {
    pub(crate) fn new(config: &Config) -> Shards {
        let member = config.member;
        Shards {
            member,
            steering: Steering::new(&config.secret, member.of),
            outbound: VecDeque::new(),
            asked: BTreeMap::new(),
            published: vec![NOTHING; member.of.into()],
            lost: 0,
            rare: TokenBucket::new(RARE_PER_SECOND, RARE_AT_ONCE),
            owes_routes: false,
        }
    }

    /// True if another shard speaks for the host.
    pub(crate) fn is_replica(&self) -> bool {
        self.member.is_replica()
    }

    /// True if the host has no other shard: everything is here.
    pub(crate) fn is_alone(&self) -> bool {
        self.member.is_alone()
    }

    /// The shard that owns the connection of `tuple`, if it is another one.
    pub(crate) fn elsewhere(&self, tuple: &Tuple) -> Option<u16> {
        let owner = self.steering.owner(tuple);
        (owner != self.member.index).then_some(owner)
    }

    /// Sends a message to shard `to`.
    pub(crate) fn send(&mut self, to: u16, content: Content) {
        if self.has_room() {
            self.outbound.push_back((to, Message { content }));
        } else {
            self.on_lost(to, &content);
        }
    }

    /// Sends a message to every other shard.
    pub(crate) fn send_to_others(&mut self, content: impl Fn() -> Content) {
        let own = self.member.index;
        (0..self.member.of).filter(|to| *to != own).for_each(|to| self.send(to, content()));
    }

    /// True if one message more can wait until it is taken.
    pub(crate) fn has_room(&self) -> bool {
        self.outbound.len() < WAITING_MAX
    }

    /// Hands over what is no segment, if little of that has come of late.
    pub(crate) fn hand_over_rare(&mut self, cx: &mut Context<'_>, to: u16, content: Content) {
        if self.rare.take(cx.now) {
            cx.counters.handed_over += 1;
            self.send(to, content);
        } else {
            self.on_lost(to, &content);
        }
    }

    fn send_to_replicas(&mut self, content: impl Fn() -> Content) {
        (1..self.member.of).for_each(|to| self.send(to, content()));
    }

    /// A message to shard `to` was lost.
    fn on_lost(&mut self, to: u16, content: &Content) {
        self.lost += 1;
        if let (Content::Routes(_), Some(known)) =
            (content, self.published.get_mut(usize::from(to)))
        {
            *known = NOTHING;
            self.owes_routes = true;
        }
    }
}

impl Ip {
    /// The oldest message for another shard, and its receiver.
    pub(crate) fn message(&mut self) -> Option<(u16, Message)> {
        self.shards.outbound.pop_front()
    }

    /// True if [`Ip::message`] has one.
    #[cfg(test)]
    pub(crate) fn has_message(&self) -> bool {
        !self.shards.outbound.is_empty()
    }

    /// A message found no room on its way to shard `to`.
    pub(crate) fn on_message_lost(&mut self, to: u16, message: &Message) {
        self.shards.on_lost(to, &message.content);
    }

    /// Messages that were lost for want of room.
    pub(crate) fn messages_lost(&self) -> u64 {
        self.shards.lost
    }

    /// Hands the packet `bytes`, which has come in `frame`, over to the shard that speaks for the
    /// host.
    pub(super) fn hand_to_first(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        frame: &RxFrame<'_>,
        origin: Origin,
    ) {
        let RxFrame { checksum, segment_size, .. } = *frame;
        let (bytes, hop) = (bytes.to_vec(), Hop::First);
        let packet = HandedPacket { bytes, checksum, segment_size, origin, hop };
        self.shards.hand_over_rare(cx, 0, Content::Packet(packet));
    }

    /// Tells replicas what has changed: addresses and routes, and neighbours' hardware addresses.
    /// The first shard calls it after whatever may have changed them.
    pub(crate) fn publish(&mut self) {
        if self.shards.is_alone() || self.shards.is_replica() {
            self.neighbours.forget_news();
            return;
        }
        while let Some(told) = self.neighbours.news() {
            self.shards.send_to_replicas(|| Content::Neighbour(told));
        }
        let changes = self.routes.changes();
        if self.shards.published[1..].iter().all(|known| *known == changes) {
            return;
        }
        let routes = Arc::new(self.routes.clone());
        for to in 1..self.shards.member.of {
            let known = &mut self.shards.published[usize::from(to)];
            if *known != changes {
                *known = changes;
                self.shards.send(to, Content::Routes(Arc::clone(&routes)));
            }
        }
    }

    /// Publishes routes again that were lost on their way.
    pub(crate) fn publish_again(&mut self) {
        if core::mem::take(&mut self.shards.owes_routes) {
            self.publish();
        }
    }

    /// A replica has frames for the neighbour at `address`.
    pub(crate) fn on_asked(&mut self, now: Instant, from: u16, address: IpAddr) {
        if from >= self.shards.member.of {
            return;
        }
        match self.neighbours.lookup(now, address) {
            Lookup::Known(_) => {
                if let Some(told) = self.neighbours.known(address) {
                    self.shards.send(from, Content::Neighbour(told));
                }
            }
            Lookup::Pending if self.shards.asked.len() < self.config.limits.neighbours => {
                *self.shards.asked.entry(address).or_default() |= 1 << from;
            }
            // The replica asks again, or finds out by itself that there is no answer.
            Lookup::Pending | Lookup::Failed => {}
        }
    }

    /// Answers the replicas that have asked for the neighbour at `address`.
    pub(super) fn answer_replicas(&mut self, address: IpAddr, resolution: Resolution) {
        let Some(waiting) = self.shards.asked.remove(&address) else { return };
        let known = match resolution {
            Resolution::Resolved => self.neighbours.known(address),
            Resolution::Failed | Resolution::Forgotten => None,
        };
        let Some(told) = known else { return };
        for to in (1..self.shards.member.of).filter(|to| waiting >> to & 1 == 1) {
            self.shards.send(to, Content::Neighbour(told));
        }
    }

    /// The first shard says where a neighbour is.
    pub(crate) fn on_told(&mut self, now: Instant, told: Told) {
        self.neighbours.on_told(now, told);
    }

    /// The first shard has published the host's addresses and routes.
    pub(crate) fn adopt_routes(&mut self, routes: &Routes) {
        self.routes.adopt(routes);
    }
}
