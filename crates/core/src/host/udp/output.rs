//! `emit`, for UDP sockets: each that has something to send has its turn.

use core::net::IpAddr;

use super::Host;
use crate::error::Error;
use crate::event::Readiness;
use crate::frame::Outbox;
use crate::host::output::turn_budget;
use crate::ip::link::Route;
use crate::ip::neighbour::Waiting;
use crate::ip::path::Path;
use crate::time::Instant;
use crate::udp::egress::{Egress, Sent};
use crate::wire::ipv6;

/// Frames of one datagram that wait for a neighbour, at most: all fragments of one, where packets
/// have 576 bytes.
const WAITING_FRAMES: usize = 128;

/// The largest packet that any path carries: none is said to be too big.
const SMALL_PACKET: usize = ipv6::MIN_MTU as usize / 2;

/// Whether a socket goes on in this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Goes,
    /// There is no room, or it has had its part.
    Ends,
}

impl Host {
    /// Sends what UDP sockets have to send, while there is room. Connections have half of it if
    /// some wait, so that neither keeps the other out.
    pub(in crate::host) fn flush_datagrams(&mut self, now: Instant, outbox: &mut Outbox) {
        let kept = if self.live.ready.is_empty() { 0 } else { outbox.room() / 2 };
        let count = self.udp.ready.len();
        for _ in 0..count {
            if outbox.room() <= kept {
                return;
            }
            let Some(index) = self.udp.ready.pop_front() else { return };
            self.flush_socket(now, index, outbox);
        }
    }

    fn flush_socket(&mut self, now: Instant, index: u32, outbox: &mut Outbox) {
        let Some(socket) = self.udp.sockets.get_mut(index) else { return };
        if !core::mem::take(&mut socket.is_ready) {
            // The slot's last socket was on the list.
            return;
        }
        let mut packets = self.config.limits.frames_per_turn;
        while self.flush_entry(now, index, outbox, &mut packets) == Turn::Goes {}
        self.after_flush(index);
    }

    /// Sends as much as may be of the oldest entry.
    fn flush_entry(
        &mut self,
        now: Instant,
        index: u32,
        outbox: &mut Outbox,
        packets: &mut usize,
    ) -> Turn {
        let Some(socket) = self.udp.sockets.get_mut(index) else { return Turn::Ends };
        let Some(entry) = socket.outgoing.front() else { return Turn::Ends };
        let ends = entry.meta.ends;
        let sent = match self.ip.route(now, &ends) {
            Route::Open(place) => {
                let (route, outbox) = self.ip.along(place, outbox);
                let (path, local) = (&route.path, route.local);
                let mtu = if local { usize::MAX } else { path.mtu.into() };
                let budget = turn_budget(*packets, path.mtu);
                let identifications = &mut self.udp.identifications;
                let mut egress = Egress { path, mtu, outbox, budget, identifications };
                egress.send(&socket.outgoing, &mut socket.progress)
            }
            Route::Waiting(next_hop) => {
                let path = self.ip.path_of_waiting(&ends);
                let sent = self.wait_with_datagram(index, &path, next_hop);
                self.after_ip(now);
                sent
            }
            Route::Closed => {
                self.shared.counters.unreachable += 1;
                if socket.connected.is_some() {
                    socket.note_error(Error::HostUnreachable);
                    self.tell_of_udp(index, Readiness::READABLE | Readiness::WRITABLE);
                }
                Sent { all: true, ..Sent::default() }
            }
        };
        *packets = packets.saturating_sub(sent.packets);
        self.note_sent(index, &sent);
        if sent.all && *packets > 0 { Turn::Goes } else { Turn::Ends }
    }

    /// Lets the oldest entry of a socket wait for its neighbour, as frames: datagrams to other
    /// neighbours go past it. The oldest frames go where too many wait.
    fn wait_with_datagram(&mut self, index: u32, path: &Path, next_hop: IpAddr) -> Sent {
        let Some(socket) = self.udp.sockets.get_mut(index) else { return Sent::default() };
        let (mut frames, mut total) = (Outbox::new(WAITING_FRAMES), Sent::default());
        while !total.all {
            let identifications = &mut self.udp.identifications;
            let (mtu, outbox) = (path.mtu.into(), &mut frames);
            let mut egress = Egress { path, mtu, outbox, budget: WAITING_FRAMES, identifications };
            let sent = egress.send(&socket.outgoing, &mut socket.progress);
            let largest = total.largest.max(sent.largest);
            let fragments = total.fragments + sent.fragments;
            let datagrams = total.datagrams + sent.datagrams;
            total = Sent { all: sent.all, largest, fragments, datagrams, ..total };
            while let Some(frame) = frames.take() {
                self.ip.wait(next_hop, Waiting { frame: frame.head, is_segment: false });
            }
        }
        total
    }

    /// Counts what has left of the oldest entry, and drops that if it was all.
    fn note_sent(&mut self, index: u32, sent: &Sent) {
        let counters = &mut self.shared.counters;
        counters.frames_out += sent.frames as u64;
        counters.fragments_out += sent.fragments as u64;
        counters.datagrams_out += sent.datagrams as u64;
        let sockets = &mut self.udp.sockets;
        let ends = sockets.get(index).and_then(|it| it.outgoing.front()).map(|it| it.meta.ends);
        let Some(ends) = ends else { return };
        let hash = if sent.largest > SMALL_PACKET { sockets.hash(&ends) } else { 0 };
        let Some(socket) = sockets.get_mut(index) else { return };
        if sent.largest > SMALL_PACKET {
            socket.note_sent(hash, sent.largest);
        }
        if sent.all {
            let len = socket.outgoing.front().map_or(0, |entry| entry.len);
            socket.outgoing.consume(&mut self.shared.pool, len);
            socket.progress = Default::default();
        }
    }

    /// Lists a socket again that has more to send, frees one that was closed and has not, and tells
    /// the user of one that has room again.
    fn after_flush(&mut self, index: u32) {
        let Some(socket) = self.udp.sockets.get_mut(index) else { return };
        let is_done = socket.outgoing.is_empty();
        let half = socket.options.send_bytes as usize / 2;
        let has_room = socket.is_full && (is_done || socket.outgoing.cost() <= half);
        let is_closed = socket.is_closed;
        if has_room {
            socket.is_full = false;
        }
        if !is_done {
            self.udp.make_ready(index);
        } else if is_closed {
            self.udp.sockets.remove(index);
            return;
        }
        if has_room && !is_closed {
            self.tell_of_udp(index, Readiness::WRITABLE);
        }
    }
}
