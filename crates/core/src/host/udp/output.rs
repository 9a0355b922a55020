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
use crate::udp::Udp;
use crate::udp::egress::{Egress, Sent};
use crate::udp::socket::Progress;

/// Frames of one datagram that wait for a neighbour, at most: all fragments of one, where packets
/// have 576 bytes.
const WAITING_FRAMES: usize = 128;

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
        while self.flush_run(now, index, outbox, &mut packets) == Turn::Goes {}
        self.after_flush(index);
    }

    /// Sends as much as may be of the oldest entry, and of those behind it that go the same way.
    fn flush_run(
        &mut self,
        now: Instant,
        index: u32,
        outbox: &mut Outbox,
        packets: &mut usize,
    ) -> Turn {
        let Udp { sockets, identifications, hasher, .. } = &mut self.udp;
        let Some(socket) = sockets.get_mut(index) else { return Turn::Ends };
        let Some(entry) = socket.outgoing.front() else { return Turn::Ends };
        let (ends, len, pool) = (entry.meta.ends, entry.len, &mut self.shared.pool);
        let sent = match self.ip.route(now, &ends) {
            Route::Open(place) => {
                let (route, outbox) = self.ip.along(place, outbox);
                let (path, local) = (&route.path, route.local);
                let mtu = if local { usize::MAX } else { path.mtu.into() };
                let budget = turn_budget(*packets, path.mtu);
                let sent = Egress { path, mtu, outbox, budget, identifications, hasher }
                    .send(socket, pool);
                self.shared.counters.frames_out += sent.frames as u64;
                sent
            }
            Route::Waiting(next_hop) => {
                let path = self.ip.path_of_waiting(&ends);
                let sent = self.wait_with_datagrams(index, &path, next_hop);
                self.after_ip(now);
                sent
            }
            Route::Closed => {
                socket.outgoing.consume(pool, len);
                socket.progress = Progress::default();
                self.shared.counters.unreachable += 1;
                if socket.connected.is_some() {
                    socket.note_error(Error::HostUnreachable);
                    self.tell_of_udp(index, Readiness::READABLE | Readiness::WRITABLE);
                }
                Sent { all: true, ..Sent::default() }
            }
        };
        *packets = packets.saturating_sub(sent.packets);
        let counters = &mut self.shared.counters;
        counters.fragments_out += sent.fragments as u64;
        counters.datagrams_out += sent.datagrams as u64;
        if sent.all && *packets > 0 { Turn::Goes } else { Turn::Ends }
    }

    /// Lets the oldest datagrams of a socket wait for their neighbour, as frames: those to other
    /// neighbours go past them. The oldest frames go where too many wait.
    fn wait_with_datagrams(&mut self, index: u32, path: &Path, next_hop: IpAddr) -> Sent {
        let Udp { sockets, identifications, hasher, .. } = &mut self.udp;
        let Some(socket) = sockets.get_mut(index) else { return Sent::default() };
        let (mut frames, mtu) = (Outbox::new(WAITING_FRAMES), path.mtu.into());
        let (outbox, budget) = (&mut frames, WAITING_FRAMES);
        let sent = Egress { path, mtu, outbox, budget, identifications, hasher }
            .send(socket, &mut self.shared.pool);
        while let Some(frame) = frames.take() {
            self.ip.wait(next_hop, Waiting { frame: frame.head, is_segment: false });
        }
        sent
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
