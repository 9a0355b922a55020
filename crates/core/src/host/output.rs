//! `emit`: replies first, then every ready UDP socket and connection once, within its budget.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Host;
use super::reply::{Body, Reply, owe, write_reply};
use crate::counters::Counters;
use crate::frame::{Outbox, RxChecksum, RxFrame};
use crate::ip::input::Origin;
use crate::ip::link::Route;
use crate::ip::outgoing::Content;
use crate::ip::path::IpFields;
use crate::ip::route_cache::{CachedRoute, RouteIndex};
use crate::ip::shards::Hop;
use crate::tcp::connection::Context;
use crate::tcp::egress::Egress;
use crate::tcp::emit::Flushed;
use crate::tcp::slot::Slot;
use crate::time::Instant;

/// Bytes that one connection may emit before the others have their turn: they should still be in
/// the processor's caches when the device, or the peer on this machine, reads them.
const TURN_BYTES: usize = 128 << 10;

impl Host {
    /// Sends what every ready connection and every pending reply should, while `outbox` has room.
    pub fn emit(&mut self, now: Instant, outbox: &mut Outbox) {
        self.emit_all::<true>(now, outbox);
    }

    /// `FAST`: the fast paths are open, as in [`Host::on_frames`].
    pub(super) fn emit_all<const FAST: bool>(&mut self, now: Instant, outbox: &mut Outbox) {
        let pool = &self.shared.pool;
        if pool.was_refused() || pool.is_short_elsewhere() || !self.shortage.nobody_waits() {
            self.ease_shortage(now);
        } else {
            self.no_shortage(now);
        }
        if !self.replies.is_empty() || !self.ip.loopback.is_empty() || self.ip.wants_emit() {
            self.emit_replies::<FAST>(now, outbox);
        }
        if !self.udp.ready.is_empty() {
            self.flush_datagrams(now, outbox);
        }
        self.flush_ready::<FAST>(now, outbox);
        if self.closed.fin_wait_2.has_hurried() {
            self.make_records(now);
        }
    }

    /// Flushes the connections that are ready now, as far as there is room; a connection that
    /// becomes ready meanwhile comes behind.
    fn flush_ready<const FAST: bool>(&mut self, now: Instant, outbox: &mut Outbox) {
        let (count, mut done) = (self.live.ready.len(), 0);
        while done < count && outbox.room() > 0 {
            let Some(index) = self.live.ready.get(done) else {
                break;
            };
            done += 1;
            self.flush::<FAST>(now, index, outbox);
        }
        self.live.ready.drop_first(done);
    }

    #[inline(always)]
    pub(super) fn reply(&mut self, reply: Reply) {
        owe(&mut self.replies, reply, &mut self.shared.counters);
    }

    /// Sends the replies, which belong to no connection: packets that we have sent to ourselves are
    /// taken in first.
    fn emit_replies<const FAST: bool>(&mut self, now: Instant, outbox: &mut Outbox) {
        if !self.ip.loopback.is_empty() {
            self.take_loopback::<FAST>(now);
        }
        if self.ip.wants_emit() {
            self.ip.emit(outbox, &mut self.shared.counters);
        }
        let mut done = 0;
        while done < self.replies.len() && outbox.room() > 0 {
            self.emit_reply::<FAST>(now, done, outbox);
            done += 1;
        }
        drop_first(&mut self.replies, done);
    }

    /// Sends the reply at `index`, or lets it wait for its neighbour. A whole frame needs no route.
    fn emit_reply<const FAST: bool>(&mut self, now: Instant, index: usize, outbox: &mut Outbox) {
        let Some(reply) = self.replies.get(index) else { return };
        if let Body::Ip(Content::Frame(bytes)) = &reply.body {
            if let Some(frame) = outbox.push() {
                frame.head.extend_from_slice(bytes);
                self.shared.counters.frames_out += 1;
            }
            return;
        }
        match self.ip.route(now, &reply.ends) {
            Route::Open(place) => {
                let (route, outbox) = self.ip.along(place, outbox);
                push_reply(route, FAST, reply, outbox, &mut self.shared.counters);
            }
            Route::Waiting(next_hop) => self.queue_for_neighbour(now, next_hop, index),
            Route::Closed => self.shared.counters.unreachable += 1,
        }
    }

    /// Lets one connection send: what is predicted in one go, anything else step by step.
    fn flush<const FAST: bool>(&mut self, now: Instant, index: u32, outbox: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.ready = false;
        if FAST
            && let Some(route) = self.ip.good_route(now, slot.place, &slot.tuple)
            && flush_predicted(slot, route, &mut self.shared, now, outbox)
        {
            return slot.rearm(&mut self.live.timers, index, now);
        }
        self.flush_by_steps(now, index, outbox);
    }

    /// Finds the route of a connection that has something to send. Without a route, the connection
    /// waits for its neighbour or learns that there is none; a finished one is freed.
    fn find_route_of(&mut self, now: Instant, index: u32) -> Option<RouteIndex> {
        let slot = self.slots.get_mut(index)?;
        let connection = slot.connection_mut();
        if connection.is_silent() {
            if connection.is_finished() {
                self.free_connection(index);
            } else {
                slot.rearm(&mut self.live.timers, index, now);
            }
            return None;
        }
        match self.ip.route(now, &slot.tuple) {
            Route::Open(place) => return Some(place),
            Route::Waiting(next_hop) => self.wait_for_neighbour(now, next_hop, index),
            Route::Closed => self.on_unreachable(now, index),
        }
        None
    }

    /// Lets one connection send, step by step, whatever is due.
    fn flush_by_steps(&mut self, now: Instant, index: u32, outbox: &mut Outbox) {
        let Some(place) = self.find_route_of(now, index) else { return };
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        let (route, outbox) = self.ip.along(place, outbox);
        let mut path = route.path.marked(connection.options.ip_fields());
        path.dont_fragment &= connection.options.path_mtu_discovery;
        let budget = turn_budget(self.config.limits.frames_per_turn, route.path.mtu);
        let mut egress = Egress { outbox, path, budget, frames: 0 };
        let flushed = connection.emit(self.shared.at(now), &mut egress);
        self.shared.counters.frames_out += egress.frames as u64;
        let (is_finished, is_orphan) = (connection.is_finished(), connection.orphan);
        if let Some(at) = connection.synchronized_mut().and_then(|s| s.send.take_pace()) {
            self.live.paces.push(at, index);
        }
        slot.rearm(&mut self.live.timers, index, now);
        self.hear_of_path(now, index);
        if flushed == Flushed::More {
            self.make_ready(index);
        } else if is_finished {
            self.free_connection(index);
        } else if is_orphan {
            self.hurry_orphan(index);
        }
    }

    /// Tells the timers of the connection's deadlines.
    pub(super) fn rearm(&mut self, now: Instant, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.rearm(&mut self.live.timers, index, now);
        }
    }

    /// Takes in what we have sent to ourselves.
    fn take_loopback<const FAST: bool>(&mut self, now: Instant) {
        for _ in 0..self.ip.loopback.len() {
            let Some(frame) = self.ip.loopback.front() else { return };
            let mut bytes = Vec::with_capacity(frame.len());
            frame.copy_to(&mut bytes);
            let segment_size = frame.segmentation.map_or(0, |segmentation| segmentation.size);
            self.ip.loopback.pop();
            let checksum = RxChecksum::Good;
            let frame = RxFrame { checksum, segment_size, ..RxFrame::plain(&bytes) };
            self.take_packet_within::<FAST>(now, &frame, Origin::Ourselves, Hop::First);
        }
    }
}

/// The first `count` of a queue, mostly all of it, are done with.
fn drop_first<T>(queue: &mut VecDeque<T>, count: usize) {
    if count == queue.len() {
        queue.clear();
    } else {
        queue.drain(..count);
    }
}

/// The packets of `mtu` bytes that a turn may send: `packets`, or as many as [`TURN_BYTES`] holds.
pub(super) fn turn_budget(packets: usize, mtu: u16) -> usize {
    let mtu = usize::from(mtu);
    // Nearly always fewer: nothing is divided.
    if packets.saturating_mul(mtu) <= TURN_BYTES { packets } else { (TURN_BYTES / mtu).max(1) }
}

/// Sends the segment that is predicted of the connection in `slot`, which asks nothing of its IP
/// headers. False if another is due, or none.
fn flush_predicted(
    slot: &mut Slot,
    route: &CachedRoute,
    shared: &mut Context,
    now: Instant,
    outbox: &mut Outbox,
) -> bool {
    let is_sent = route.fast.as_ref().zip(slot.awake_mut()).is_some_and(|(path, connection)| {
        connection.emit_predicted(now, &shared.config, path, outbox)
    });
    if is_sent {
        shared.counters.segments_out += 1;
        shared.counters.frames_out += 1;
    }
    is_sent
}

/// Writes a reply to the outbox, along its route; by the words of the fast layout if it may be.
#[inline(always)]
fn push_reply(
    route: &CachedRoute,
    may_be_fast: bool,
    reply: &Reply,
    outbox: &mut Outbox,
    counters: &mut Counters,
) {
    let Some(frame) = outbox.push() else {
        counters.replies_suppressed += 1;
        return;
    };
    let may_be_fast = may_be_fast && reply.marks == IpFields::default();
    let fast = route.fast.as_ref().filter(|_| may_be_fast);
    let is_written = match (fast, &reply.body) {
        (Some(path), Body::Stamped(header)) => path.write(frame, header, &[]),
        (Some(path), Body::Syn(header)) => path.write_syn(frame, header),
        _ => false,
    };
    if is_written || write_reply(frame, &route.path.marked(reply.marks), reply) {
        counters.frames_out += 1;
        counters.segments_out += u64::from(reply.is_segment());
    } else {
        outbox.unpush();
    }
}
