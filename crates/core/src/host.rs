//! One IP host: wires IP, TCP and UDP together, and finds what a segment belongs to.
//!
//! ```text
//!   on_frames ─▶ input.rs ─▶ tcp_input.rs ─▶ the first that knows the ends:
//!                   │            1. a connection                  ─▶ ready list
//!                   │            2. a FIN-WAIT-2 record           ─▶ a connection again
//!                   │            3. the SYN cache                 ─▶ a connection, or a reply
//!                   │            4. a TIME-WAIT record            ─▶ reply, or a listener
//!                   │            5. a listener                    ─▶ SYN cache, or a cookie
//!                   │            none: RST                        ─▶ replies
//!                   ├─▶ udp/input.rs: a UDP socket, or nobody     ─▶ events, replies
//!                   └─▶ IP ─▶ after_ip.rs                         ─▶ replies, events
//!   calls     ─▶ sockets.rs                                       ─▶ ready list
//!   on_time   ─▶ every timer that is due                          ─▶ ready list, replies
//!
//!   emit      ─▶ output.rs: replies first, then each ready socket once, within its budget
//! ```
//!
//! Inputs mark and never send; `emit` sends. A connection that could not finish stays on the ready
//! list, behind the others.
//!
//! What comes in is, stage by stage:
//!
//! ```text
//!   RxFrame ─┬─▶ FastSegment, Guess ─┬─▶ ParsedSegment ─┬─▶ a connection
//!            └─▶ Packet ─┬─▶ Segment ┘                  └─▶ UnmatchedSegment ─▶ 2 to 5
//!                        ├─▶ Datagram ─▶ Arrival, in the queue of a UDP socket
//!                        └─▶ HandedPacket ─▶ the shard that it is for
//! ```

mod admission;
mod after_input;
mod after_ip;
mod coalesce;
mod fin_wait_2;
mod half_open;
mod handover;
mod icmp;
mod identity;
mod input;
mod leases;
mod lookup;
mod negotiate;
mod orphans;
mod output;
mod pace;
mod parts;
mod prefetch;
mod reply;
mod senders;
mod shards;
mod shortage;
mod sockets;
mod tcp_input;
mod time_wait;
mod udp;

pub use admission::{HeldSyn, Refusal};
pub use handover::Remains;
#[doc(hidden)]
pub use senders::Sender;
pub use shortage::PoolInfo;
pub use sockets::{
    ConnectionDetail, HalfOpenInfo, ListenerInfo, LiveConnection, RecordInfo, Socket, SocketPlace,
    any_local,
};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::buffer::{ConnectionRoom, Level};
use crate::config::Config;
use crate::counters::Counters;
use crate::error::Error;
use crate::event::{ConnectionId, Event, ListenerId};
use crate::fifo::Fifo;
use crate::flow::Tuple;
use crate::flow::keyed::KeyedHash;
use crate::ip::conflict::{Claimed, Conflict};
use crate::ip::{self, Ip};
use crate::tcp::challenge::Challenges;
use crate::tcp::connection::Context;
use crate::tcp::recv::window::WindowBudget;
use crate::tcp::slot::{Seat, Slot, SlotFlags, Slots, take_seat};
use crate::tcp::timers::Timer;
use crate::tcp::{Connection, Settings};
use crate::time::Instant;
use crate::udp::Udp;
use crate::wire::Malformed;
use leases::Leases;
use parts::{Closed, Live, Opening};
use reply::Reply;
use shortage::Shortage;

/// A whole host.
#[derive(Debug)]
pub struct Host {
    config: Arc<Config>,
    /// The state that connections share. Apart from the slots, both can be borrowed at once.
    shared: Context,
    slots: Slots,
    live: Live,
    opening: Opening,
    closed: Closed,
    /// What of the limits is this shard's.
    leases: Leases,
    /// The connections that wait for pages, and those that hold some and stall.
    shortage: Shortage,
    ip: Ip,
    udp: Udp,
    /// Replies that belong to no connection, in their order.
    replies: VecDeque<Reply>,
    events: Fifo<Event>,
}

impl Host {
    /// A host as configured, or why the configuration makes none.
    pub fn new(config: Config) -> Result<Host, Error> {
        config.check()?;
        let config = Arc::new(config);
        let limits = &config.limits;
        let tcp = Settings::new(config.tcp.clone());
        let shared = Context {
            now: Instant::ZERO,
            arrived: Instant::FAR_FUTURE,
            pool: shortage::pool(&config),
            budget: WindowBudget::new(limits.receive_window_bytes, tcp.shift),
            config: tcp,
            challenges: Challenges::new(
                limits.challenge_acks_per_second,
                KeyedHash::new(&config.secret, "challenges").quick(&[]),
            ),
            counters: Counters::default(),
            path_news: None,
        };
        Ok(Host {
            slots: Slots::default(),
            live: Live::new(&config),
            opening: Opening::new(&config, shortage::options(&config.tcp, &shared.pool)),
            closed: Closed::new(&config),
            leases: Leases::new(&config),
            shortage: Shortage::new(&config.tcp.pool),
            ip: Ip::new(Arc::clone(&config)),
            udp: Udp::new(&config),
            replies: VecDeque::new(),
            events: Fifo::default(),
            shared,
            config,
        })
    }

    // ---- inputs: time, and frames (`input.rs`). None of them sends anything: `emit` does.

    /// Time has passed: whatever was due by `now` is marked.
    pub fn on_time(&mut self, now: Instant) {
        self.begin_link(now);
        if self.ip.is_autoconfigured() {
            self.ip.on_autoconfigure_time(now);
            self.after_ip(now);
        }
        if self.live.timers.has_due(now) {
            self.on_timers(now);
        }
        if self.live.paces.first().is_some_and(|at| at <= now) {
            self.on_paces(now);
        }
        if self.opening.syn_cache.may_be_due(now) {
            self.on_syn_cache_time(now);
        }
        self.shared.counters.syns_held_ended += self.opening.held.on_time(now);
        if self.closed.time_wait.may_be_due(now) {
            self.shared.counters.time_wait_expired += self.closed.time_wait.on_time(now);
        }
        self.shared.counters.fin_wait_2_expired += self.closed.fin_wait_2.on_time(now);
        if self.ip.has_time() {
            let counters = &mut self.shared.counters;
            self.ip.on_time(&mut ip::Context { now, counters });
            self.after_ip(now);
        }
        self.ip.publish_again();
        if !self.config.member.is_alone() {
            self.ask_for_room(now);
        }
    }

    /// Runs every timer that is due, connections in order of slots: what leaves must not depend
    /// on the order in which a scheme finds them. Those beyond a turn's share stay due.
    fn on_timers(&mut self, now: Instant) {
        let mut due = core::mem::take(&mut self.live.due);
        let tick = self.live.ticks.instant(self.live.ticks.at_or_before(now));
        let slots = &mut self.slots;
        while due.len() < self.live.timers.share() {
            let Some((index, fired)) = self.live.timers.due(now, slots) else { break };
            due.push(index);
            if let (Some(timer), Some(slot)) = (fired, slots.get_mut(index)) {
                slot.connection_mut().deadlines.set(timer, tick);
            }
        }
        due.sort_unstable();
        due.dedup();
        // The loop is short, so that memory fetches many connections at once.
        for &index in &due {
            if let Some(slot) = self.slots.get_mut(index) {
                self.live.timers.take_out(&mut slot.filed);
                slot.connection_mut().deadlines.tighten();
            } else if let Some(filed) = self.slots.left_mut(index) {
                // No connection has begun in the slot since its last one went.
                self.live.timers.take_out(filed);
            }
        }
        for &index in &due {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let is_due = slot.connection_mut().deadlines.may_be_due(tick);
            if !is_due || self.let_rest(now, index, tick) {
                self.rearm(now, index);
                continue;
            }
            let Some(slot) = self.slots.get_mut(index) else { continue };
            if slot.is_in_time_wait() {
                self.end_whole_block(index);
                self.shared.counters.time_wait_expired += 1;
                continue;
            }
            let connection = slot.connection_mut();
            if connection.has_patience_ended(tick) && self.judge_orphan(now, index) {
                continue;
            }
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let connection = slot.connection_mut();
            connection.on_time(self.shared.at(now), tick);
            connection.deadlines.tighten();
            self.hear_of_path(now, index);
            self.note_stall(now, index);
            self.after_input(now, index);
        }
        due.clear();
        self.live.due = due;
    }

    /// Lets the connection in slot `index` rest if its timer for that is due and nothing has moved
    /// on it for a while. True if no other timer of it is due at `tick`.
    fn let_rest(&mut self, now: Instant, index: u32, tick: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return true };
        let connection = slot.connection_mut();
        if !connection.deadlines.take_due(Timer::Rest, tick) {
            return false;
        }
        let (moved, after) = (connection.last_moved(), self.shared.config.compact_after);
        if !connection.is_waiting() {
            // It is on its way out.
        } else if connection.orphan {
            if self.becomes_record(now, index) {
                return true;
            }
        } else if now.since(moved) < after {
            connection.deadlines.set(Timer::Rest, moved + after);
            slot.stay_awake(&mut self.live.block_pool);
        } else if slot.rest(&mut self.live.block_pool) {
            self.shared.counters.rested += 1;
            return true;
        }
        self.slots.get_mut(index).is_none_or(|s| s.connection_mut().deadlines.tighten() > tick)
    }

    /// True if `emit` has something to do at once: the last one ran out of room or budget, or an
    /// input has come since.
    pub fn wants_emit(&self) -> bool {
        !self.live.ready.is_empty()
            || !self.replies.is_empty()
            || !self.udp.ready.is_empty()
            || !self.ip.loopback.is_empty()
            || self.ip.wants_emit()
            || self.shortage.can_serve(&self.shared.pool)
    }

    /// When time alone may next have work; `None`: never.
    pub fn deadline(&self) -> Option<Instant> {
        let mut next = Instant::FAR_FUTURE;
        let mut note = |at: Option<Instant>| next = next.min(at.unwrap_or(Instant::FAR_FUTURE));
        note(self.live.timers.deadline());
        note(self.live.paces.first());
        note(self.opening.syn_cache.deadline());
        note(self.opening.held.deadline());
        note(self.closed.time_wait.deadline());
        note(self.closed.fin_wait_2.deadline());
        note(self.shortage_deadline());
        note(self.lease_deadline());
        if self.ip.has_time() || self.ip.is_autoconfigured() {
            note(self.ip.deadline());
        }
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// A block for a connection to begin in.
    fn take_block(&mut self) -> Box<Connection> {
        self.live.block_pool.take(|| Connection::block(&self.opening.options))
    }

    /// Gives a new connection of ours a slot and a name, and lets it be found.
    #[inline(always)]
    fn add_connection(&mut self, block: Box<Connection>, seat: Seat<'_>) -> ConnectionId {
        let hash = block.identity.hash;
        let id = take_seat(&mut self.slots, &mut self.live.ready, block, seat);
        self.list(hash, id.index);
        id
    }

    /// Lets a connection, or one that is half open, be found by its tuple.
    #[inline(always)]
    fn list(&mut self, hash: u64, number: u32) {
        let (slots, syn_cache) = (&self.slots, &self.opening.syn_cache);
        self.live.demux.insert(hash, number, |number| match slots.get(number) {
            Some(slot) => slot.tuple_hash,
            None => syn_cache.get(number).map_or(0, |entry| entry.hash),
        });
    }

    /// The connection of `tuple`, or the entry of the SYN cache.
    fn find(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        self.live.demux.find(hash, self.is_of(tuple))
    }

    /// The connection of `tuple`, or the entry of the SYN cache, where a hit would be a surprise.
    #[inline(always)]
    fn find_unexpected(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        self.live.demux.find_unexpected(hash, self.is_of(tuple))
    }

    /// Returns whether a number is that of the connection of `tuple`, or of the entry.
    fn is_of(&self, tuple: &Tuple) -> impl Fn(u32) -> bool {
        let (slots, syn_cache) = (&self.slots, &self.opening.syn_cache);
        move |number| match slots.get(number) {
            Some(slot) => slot.tuple == *tuple,
            None => syn_cache.has(number, tuple),
        }
    }

    fn find_connection(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        self.find(hash, tuple).filter(|number| !crate::tcp::syn_cache::is_entry(*number))
    }

    // ---- what the host says about itself

    /// Live connections, with a user or without. Records (TIME-WAIT, FIN-WAIT-2) do not count.
    pub fn connections(&self) -> usize {
        self.slots.len() - self.closed.whole_blocks.orphans()
    }

    /// Half-open connections that wait in the SYN cache.
    pub fn half_open(&self) -> usize {
        self.opening.syn_cache.len()
    }

    /// SYNs that wait for a verdict.
    pub fn held_syns(&self) -> usize {
        self.opening.held.len()
    }

    /// Pages of buffer memory in use.
    pub fn pages_in_use(&self) -> usize {
        self.shared.pool.in_use()
    }

    /// How much of the memory for buffers is used up.
    pub fn memory_level(&self) -> Level {
        self.shared.pool.level()
    }

    /// True if others may hold more memory that is charged to the host's budget.
    pub fn has_room_elsewhere(&self) -> bool {
        self.shared.pool.has_room_elsewhere()
    }

    /// Pages that connections can still have for sending more.
    pub fn pages_free(&self) -> usize {
        self.shared.pool.available_in_line()
    }

    /// Memory outside the host that is charged to its budget for buffers: so many bytes are held
    /// now, in all.
    pub fn set_memory_elsewhere(&mut self, bytes: usize) {
        self.shared.pool.set_elsewhere(bytes);
    }

    /// Bytes that users of connections take as long as these live, beside their buffers: part of
    /// the same budget. They are bounded by three quarters of it.
    pub fn set_memory_by_connections(&mut self, bytes: usize) {
        self.shared.pool.set_by_connections(bytes);
    }

    /// Whether the budget has room for one connection more, whose user will take `bytes` for it.
    /// Where it has little, connections that stall, or are slow, are reset in this turn.
    pub fn room_for_connection(&mut self, bytes: usize) -> ConnectionRoom {
        self.shared.pool.room_for_connection(bytes)
    }

    /// Notes whether new connections come, there is little room for them, and no connection that
    /// needs nothing can go in their place.
    pub fn set_crowded(&mut self, is_crowded: bool) {
        self.shared.pool.set_crowded(is_crowded);
    }

    /// Notes whether a holder of memory beside the host waits for more. While one does, and these
    /// holders have what they may, connections that stall are reset.
    pub fn want_memory_elsewhere(&mut self, is_wanted: bool) {
        self.shared.pool.want_elsewhere(is_wanted);
    }

    /// Bytes of receive window promised to all peers together.
    pub fn receive_window_promised(&self) -> u64 {
        self.shared.budget.promised()
    }

    /// How it stands with the configured addresses. [`Event::Addresses`] tells that it has changed.
    pub fn claimed(&self) -> Claimed {
        self.ip.claimed()
    }

    /// The link has come up again: probes our IPv4 addresses once more, if they are probed, while
    /// they stay in use (RFC 5227 §2.1), and then announces ours, if they are announced. A host
    /// that has one of them by now objects, and [`Host::conflict`] reports it.
    pub fn on_link_up(&mut self, now: Instant) {
        self.ip.on_link_up(now);
        self.after_ip(now);
    }

    /// A conflict over an address of ours that was found, the oldest first: each address that was
    /// lost, and each time that one was defended. [`Event::Addresses`] tells that there is one.
    pub fn conflict(&mut self) -> Option<Conflict> {
        self.ip.conflict()
    }

    /// Makes `cidr`'s address ours, as if it had been configured.
    pub fn add_address(&mut self, cidr: crate::address::Cidr) {
        self.ip.add_address(cidr);
        self.ip.publish();
        self.note_addresses();
    }

    /// Our addresses have changed: notes which connections have both ends here.
    fn note_addresses(&mut self) {
        let Host { ip, slots, .. } = self;
        slots.for_each(|slot| {
            let is_ours = ip.is_to_ourselves(&slot.tuple);
            slot.flags = slot.flags.with(SlotFlags::OURSELVES, is_ours);
        });
    }

    /// Established connections that wait for [`Host::accept`]; none for a name that is dead.
    pub fn accept_queue_len(&self, id: ListenerId) -> usize {
        self.opening.listeners.get(id).map_or(0, |listener| listener.queue.len())
    }

    /// Changes how many connections may wait for [`Host::accept`]; those that wait already stay.
    pub fn set_backlog(&mut self, id: ListenerId, backlog: usize) -> Result<(), Error> {
        let listener =
            self.opening.listeners.get_mut(id).ok_or(Error::InvalidInput("no such listener"))?;
        listener.backlog = backlog.max(1);
        Ok(())
    }

    /// Bytes that [`Host::read`] would return at once, given room for them.
    pub fn readable_bytes(&self, id: ConnectionId) -> usize {
        use crate::tcp::connection::Shape;
        let slot = self.slots.get(id.index);
        let slot = slot.filter(|_| self.slots.is_current(id.index, id.generation));
        match slot.and_then(Slot::awake).map(|connection| &connection.shape) {
            Some(Shape::Synchronized(s)) => s.recv.buffer.len(),
            Some(Shape::Ended(ended)) => ended.unread.len(),
            Some(Shape::SynSent(_) | Shape::SynReceived(..)) | None => 0,
        }
    }

    /// True if nothing will come after what can be read: the peer's FIN has been reached, or the
    /// connection is over.
    pub fn is_at_end(&self, id: ConnectionId) -> bool {
        use crate::tcp::connection::Shape;
        if !self.slots.is_current(id.index, id.generation) {
            return true;
        }
        let awake = self.slots.get(id.index).and_then(Slot::awake);
        match awake.map(|connection| &connection.shape) {
            Some(Shape::Synchronized(s)) => s.recv.is_finished(),
            Some(Shape::SynSent(_) | Shape::SynReceived(..)) | None => false,
            Some(Shape::Ended(_)) => true,
        }
    }

    /// Orphans in FIN-WAIT-2 that are kept as a record alone.
    pub fn fin_wait_2_len(&self) -> usize {
        self.closed.fin_wait_2.len()
    }

    /// TIME-WAIT records.
    pub fn time_wait_len(&self) -> usize {
        self.closed.time_wait.len() + self.closed.whole_blocks.len()
    }

    /// Counts of events since the host began.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Frames dropped because they made no sense, with the reason of each.
    pub fn malformed(&self) -> impl Iterator<Item = (Malformed, u64)> {
        self.ip.malformed()
    }

    /// The configuration it was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Our addresses, configured and learnt; ranges are not listed.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.ip.addresses().collect()
    }
}

#[cfg(test)]
mod tests;
