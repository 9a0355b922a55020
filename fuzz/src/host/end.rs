//! One host with its sockets, and the calls on them.

use std::net::SocketAddr;

use lightwait_core::frame::Outbox;
use lightwait_core::tcp::{Keepalive, SocketOptions};
use lightwait_core::time::{Duration, Instant};
use lightwait_core::{AcceptError, Config, ConnectionId, Host, ListenerId, UdpId};

use super::World;
use super::check;
use super::forge::Seen;
use super::ledger::Way;
use super::setup::{self, PORTS};
use crate::source::Source;

/// Sockets kept open at an end at most.
const SOCKETS: usize = 16;

/// A connection that the application of an end holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Socket {
    pub(super) id: ConnectionId,
    /// From this end to the other.
    way: Way,
}

/// One end.
pub(super) struct End {
    pub(super) host: Host,
    pub(super) outbox: Outbox,
    pub(super) capacity: usize,
    pub(super) sockets: Vec<Socket>,
    pub(super) listeners: Vec<ListenerId>,
    /// The identifier of a connection that is gone.
    dead: Option<Socket>,
    /// Its UDP sockets.
    pub(super) udp: Vec<UdpId>,
    /// The packets that it has sent lately.
    pub(super) seen: Seen,
}

impl End {
    pub(super) fn new(config: Config, capacity: usize) -> End {
        End {
            host: Host::new(config).expect("the configurations of the target are valid"),
            outbox: Outbox::new(capacity),
            capacity,
            sockets: Vec::new(),
            listeners: Vec::new(),
            dead: None,
            udp: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// One of the sockets, or sometimes the identifier of a closed one.
    fn socket(&self, source: &mut Source<'_>) -> Option<Socket> {
        let beyond = usize::from(source.u8() > 250);
        let index = source.below(self.sockets.len() + beyond);
        self.sockets.get(index).copied().or(self.dead)
    }

    fn forget(&mut self, socket: Socket) {
        self.sockets.retain(|other| other.id != socket.id);
        self.dead = Some(socket);
    }

    /// The streams of the sockets, from here to the other end.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> + '_ {
        self.sockets.iter().map(|socket| socket.way)
    }

    pub(super) fn close_all(&mut self, now: Instant) {
        for socket in std::mem::take(&mut self.sockets) {
            self.host.close(now, socket.id);
        }
        for listener in std::mem::take(&mut self.listeners) {
            self.host.close_listener(now, listener);
        }
        for socket in std::mem::take(&mut self.udp) {
            self.host.udp_close(socket);
        }
    }
}

impl World {
    pub(super) fn adopt(&mut self, side: usize, id: ConnectionId) {
        let end = &mut self.ends[side];
        let local = end.host.local_address(id).expect("a new connection has addresses");
        let remote = end.host.peer_address(id).expect("a new connection has addresses");
        let way = (local, remote);
        self.ledger.on_open(way);
        end.sockets.push(Socket { id, way });
        if end.sockets.len() > SOCKETS {
            let oldest = end.sockets.remove(0);
            end.host.abort(self.now, oldest.id);
        }
    }

    pub(super) fn listen(&mut self, side: usize, source: &mut Source<'_>) {
        let address = SocketAddr::new(setup::address(source), source.pick(&PORTS));
        let backlog = source.pick(&[4, 1, 0, 16]);
        self.say(format_args!("{side} listens on {address}, backlog {backlog}"));
        let end = &mut self.ends[side];
        if let Ok(id) = end.host.listen(address, backlog) {
            assert!(end.host.listener_address(id).is_ok_and(|bound| bound.port() != 0));
            end.listeners.push(id);
        }
    }

    pub(super) fn close_listener(&mut self, side: usize, source: &mut Source<'_>) {
        let end = &mut self.ends[side];
        let index = source.below(end.listeners.len());
        if index < end.listeners.len() {
            let id = end.listeners.remove(index);
            end.host.close_listener(self.now, id);
            assert!(end.host.accept(self.now, id).is_err(), "a dead listener accepts");
        }
    }

    pub(super) fn connect(&mut self, side: usize, source: &mut Source<'_>) {
        let choice = source.u8();
        let remote = match choice & 7 {
            0..=2 => setup::IPV4[1 - side].into(),
            3 | 4 => setup::IPV6[1 - side].into(),
            5 => setup::IPV4[side].into(),
            _ => setup::address(source),
        };
        let remote = SocketAddr::new(remote, source.pick(&PORTS[..3]));
        let unspecified =
            if remote.is_ipv4() { setup::IPV4[7].into() } else { setup::IPV6[7].into() };
        let local = match choice >> 3 & 7 {
            0..=3 => SocketAddr::new(unspecified, 0),
            4 | 5 => SocketAddr::new(unspecified, source.pick(&PORTS)),
            _ => SocketAddr::new(setup::address(source), source.pick(&PORTS)),
        };
        let result = self.ends[side].host.connect(self.now, local, remote);
        self.say(format_args!("{side} connects {local} to {remote}: {result:?}"));
        if let Ok(id) = result {
            self.adopt(side, id);
        }
    }

    pub(super) fn accept(&mut self, side: usize, source: &mut Source<'_>) {
        let end = &mut self.ends[side];
        let index = source.below(end.listeners.len());
        let Some(listener) = end.listeners.get(index).copied() else { return };
        let result = end.host.accept(self.now, listener);
        self.say(format_args!("{side} accepts: {result:?}"));
        match result {
            Ok(id) => self.adopt(side, id),
            Err(error) => assert_eq!(error, AcceptError::WouldBlock),
        }
    }

    pub(super) fn write(&mut self, side: usize, source: &mut Source<'_>) {
        const LENGTHS: [usize; 8] = [1, 10, 100, 536, 1460, 4096, 20_000, 70_000];
        let Some(socket) = self.ends[side].socket(source) else { return };
        let (kind, len) = (source.below(8), source.pick(&LENGTHS));
        let data = self.ledger.next_bytes(socket.way, len);
        let host = &mut self.ends[side].host;
        let result = match kind {
            0..=3 => host.write(self.now, socket.id, &data),
            4 => host.write_record(self.now, socket.id, &data),
            5 | 6 => host.write_bytes(self.now, socket.id, &data.into()),
            _ => host.write_urgent(self.now, socket.id, &data),
        };
        self.say(format_args!("{side} writes {len} bytes to {:?}: {result:?}", socket.id));
        match result {
            Ok(n) => {
                assert!(n <= len, "more was written than there was");
                self.ledger.on_written(socket.way, n);
            }
            Err(error) => self.ledger.on_error((socket.way.1, socket.way.0), error.into()),
        }
    }

    pub(super) fn read(&mut self, side: usize, source: &mut Source<'_>) {
        let Some(socket) = self.ends[side].socket(source) else { return };
        let (peek, len) = (source.below(8) == 7, source.pick(&[100_000, 1, 100, 5000, 0]));
        self.read_from(side, socket, peek, len);
        check::answers(&mut self.ends[side].host, self.now, socket.id);
    }

    /// Reads all data of every socket.
    pub(super) fn read_all(&mut self) {
        for side in 0..self.ends.len() {
            for socket in self.ends[side].sockets.clone() {
                // A connection reports its end only after its data.
                while self.read_from(side, socket, false, 100_000) > 0 {}
            }
        }
    }

    /// Returns how many bytes it read.
    fn read_from(&mut self, side: usize, socket: Socket, peek: bool, len: usize) -> usize {
        let mut out = vec![0; len];
        let host = &mut self.ends[side].host;
        let result = match peek {
            true => host.peek(socket.id, &mut out),
            false => host.read(self.now, socket.id, &mut out),
        };
        self.say(format_args!("{side} reads from {:?}: {result:?}", socket.id));
        let way = (socket.way.1, socket.way.0);
        match result {
            Ok(0) if !peek && len > 0 => self.ledger.on_end(way),
            Ok(n) => self.ledger.on_read(way, &out[..n], peek),
            Err(error) => self.ledger.on_error(way, error.into()),
        }
        result.unwrap_or(0)
    }

    pub(super) fn shutdown(&mut self, side: usize, source: &mut Source<'_>) {
        let Some(socket) = self.ends[side].socket(source) else { return };
        let result = self.ends[side].host.shutdown_write(self.now, socket.id);
        self.say(format_args!("{side} shuts {:?} down: {result:?}", socket.id));
        let data = self.ledger.next_bytes(socket.way, 1);
        if result.is_ok() {
            let written = self.ends[side].host.write(self.now, socket.id, &data);
            assert!(written.is_err(), "written after shutdown");
            self.ledger.on_error((socket.way.1, socket.way.0), written.unwrap_err().into());
        }
    }

    pub(super) fn close(&mut self, side: usize, source: &mut Source<'_>, abort: bool) {
        let end = &mut self.ends[side];
        let Some(socket) = end.socket(source) else { return };
        match abort {
            true => end.host.abort(self.now, socket.id),
            false => end.host.close(self.now, socket.id),
        }
        end.forget(socket);
        assert!(end.host.info(socket.id).is_err(), "a dead name still answers");
        self.say(format_args!("{side} leaves {:?}", socket.id));
    }

    pub(super) fn set_options(&mut self, side: usize, source: &mut Source<'_>) {
        let Some(socket) = self.ends[side].socket(source) else { return };
        let (bits, times) = (source.u8(), source.u8());
        let seconds =
            |choice: u8| [1, 0, 300, 3600].map(Duration::from_secs)[usize::from(choice) % 4];
        let keepalive = Keepalive {
            idle: seconds(times),
            interval: seconds(times >> 2).max(Duration::from_secs(1)),
            probes: times >> 6,
        };
        let options = SocketOptions {
            nodelay: bits & 1 != 0,
            cork: bits & 2 != 0,
            keepalive: (bits & 4 != 0).then_some(keepalive),
            user_timeout: seconds(times >> 4),
            linger: (bits & 8 != 0).then(|| seconds(times >> 3)),
            traffic_class: bits & 0xf0,
            send_buffer_bytes: source.pick(&[65_536, 1, 0, 3000]),
            receive_buffer_bytes: source.pick(&[None, Some(3000), Some(20_000), Some(100_000)]),
            ..self.ends[side].host.default_options()
        };
        let result = self.ends[side].host.set_options(self.now, socket.id, options);
        self.say(format_args!("{side} sets {options:?}: {result:?}"));
    }
}
