//! Follows every call to IP: its packets join the replies, the user hears of our addresses, an ICMP
//! error reaches its connection, and connections that waited for a neighbour go on. Connections
//! begin to wait here, too, and fail without a route.

use core::net::IpAddr;

use super::Host;
use super::reply::write_reply;
use crate::event::Event;
use crate::frame::Frame;
use crate::ip::neighbour::{Resolution, Waiting};
use crate::ip::path::IpFields;
use crate::ip::shards::Hop;
use crate::tcp::connection::Shape;
use crate::tcp::timers::Timer;
use crate::time::{Duration, Instant};

/// A connection whose neighbour does not answer tries again after this.
const RETRY: Duration = Duration::from_secs(1);

impl Host {
    /// Does what a call to IP has left to the host. Asking for a neighbour may push another out of
    /// the cache, so this follows every question, too.
    pub(super) fn after_ip(&mut self, now: Instant) {
        while let Some(outgoing) = self.ip.outgoing() {
            self.reply(outgoing.into());
        }
        if self.ip.take_news() {
            self.events.push_back(Event::Addresses);
        }
        if let Some(error) = self.ip.icmp_error() {
            self.on_error_about(now, error, Hop::First);
        }
        while let Some((next_hop, resolution)) = self.ip.resolved() {
            self.wake_for_neighbour(now, next_hop, resolution);
        }
        self.shared.counters.neighbour_drops = self.ip.neighbour_drops();
        self.shared.counters.messages_lost = self.ip.messages_lost();
        self.ip.publish();
    }

    /// Lets the reply at `index` wait for its neighbour.
    pub(super) fn queue_for_neighbour(&mut self, now: Instant, next_hop: IpAddr, index: usize) {
        let Some(reply) = self.replies.get(index) else { return };
        let path = self.ip.path_of_waiting(&reply.ends);
        let mut frame = Frame::default();
        if write_reply(&mut frame, &path.marked(IpFields::default()), reply) {
            let is_segment = reply.is_segment();
            self.ip.wait(next_hop, Waiting { frame: frame.head, is_segment });
        }
        self.after_ip(now);
    }

    /// Lets a connection wait for its neighbour: it keeps what it has to send.
    pub(super) fn wait_for_neighbour(&mut self, now: Instant, next_hop: IpAddr, index: u32) {
        if let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.awaits_neighbour) {
            slot.awaits_neighbour = true;
            self.live.awaiting.entry(next_hop).or_default().push(index);
        }
        self.rearm(now, index);
        self.after_ip(now);
    }

    /// The neighbour at `next_hop` has answered, or has failed to: the connections that waited for
    /// it are ready again.
    fn wake_for_neighbour(&mut self, now: Instant, next_hop: IpAddr, resolution: Resolution) {
        for index in self.live.awaiting.remove(&next_hop).unwrap_or_default() {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.awaits_neighbour = false;
            }
            match resolution {
                Resolution::Forgotten => self.retry_later(now, index),
                Resolution::Resolved | Resolution::Failed => self.make_ready(index),
            }
        }
    }

    /// The cache is too small for all that are asked for at once. At once would push out another,
    /// and so on in a circle.
    fn retry_later(&mut self, now: Instant, index: u32) {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.ready) else { return };
        let connection = slot.connection_mut();
        if connection.is_over() {
            return self.on_unreachable(now, index);
        }
        if !connection.deadlines.is_set(Timer::Retransmit) {
            connection.deadlines.set(Timer::Retransmit, now + RETRY);
        }
        self.rearm(now, index);
    }

    /// There is no route to the peer. An attempt to open fails; an established connection tries
    /// again until its user timeout.
    pub(super) fn on_unreachable(&mut self, now: Instant, index: u32) {
        self.shared.counters.unreachable += 1;
        let Some(slot) = self.slots.get_mut(index) else { return };
        let connection = slot.connection_mut();
        let cx = self.shared.at(now);
        match &connection.shape {
            Shape::SynSent(_) | Shape::SynReceived(..) => {
                cx.counters.failed_opens += 1;
                connection.end(crate::tcp::State::Closed, Some(crate::Error::HostUnreachable), cx);
            }
            Shape::Ended(_) => connection.reset_due = None,
            Shape::Synchronized(_) => {
                if connection.is_given_up_unreachable(now, &cx.config) {
                    connection.abort(crate::Error::HostUnreachable, cx);
                    connection.reset_due = None;
                } else {
                    connection.deadlines.set(Timer::Retransmit, now + RETRY);
                }
            }
        }
        let over = connection.is_over();
        if over {
            self.after_input(now, index);
            self.retire(index);
        } else {
            self.rearm(now, index);
        }
    }
}
