//! Two hosts, a wire with a delay, and a filter that may drop or change what passes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::config::Config;
use crate::event::{ConnectionId, Event, ListenerId};
use crate::frame::{Capabilities, Medium, Outbox, RxFrame};
use crate::host::Host;
use crate::time::{Duration, Instant};
use crate::wire::ip;
use crate::wire::tcp::{CHECKSUM_OFFSET, Segment, checksum};

/// The end that opens, and the end that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Decides about a packet on its way: false drops it.
pub(crate) type Filter = alloc::boxed::Box<dyn FnMut(Side, &Segment<'_>) -> bool>;

/// May change a packet on its way. The checksum is made right again.
pub(crate) type Mangle = alloc::boxed::Box<dyn FnMut(Side, &mut Vec<u8>)>;

/// Two hosts on one wire.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Host,
    pub(crate) server: Host,
    pub(crate) delay: Duration,
    pub(crate) filter: Option<Filter>,
    pub(crate) mangle: Option<Mangle>,
    /// Frames an outbox takes in a turn.
    pub(crate) capacity: usize,
    /// Packets under way: the time of arrival, the receiving side and the bytes.
    wire: VecDeque<(Instant, Side, Vec<u8>)>,
    /// Every packet that entered the wire: the time, the sending side and the bytes.
    pub(crate) log: Vec<(Instant, Side, Vec<u8>)>,
    pub(crate) events: Vec<(Side, Event)>,
}

pub(crate) const CLIENT: &str = "10.0.0.1";
pub(crate) const SERVER: &str = "10.0.0.2";

pub(crate) fn config(address: &str) -> Config {
    let device = Capabilities::plain(Medium::Ip, 1500);
    let cidr = std::format!("{address}/24").parse().unwrap();
    Config::new(device, cidr, [address.as_bytes()[address.len() - 1]; 32])
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(config(CLIENT), config(SERVER))
    }

    pub(crate) fn with(client: Config, server: Config) -> Pair {
        Pair {
            now: Instant::from_millis(1000),
            client: Host::new(client).unwrap(),
            server: Host::new(server).unwrap(),
            delay: Duration::from_millis(5),
            filter: None,
            mangle: None,
            capacity: 256,
            wire: VecDeque::new(),
            log: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Takes in what has arrived, then lets both hosts speak.
    pub(crate) fn turn(&mut self) {
        let now = self.now;
        while self.wire.front().is_some_and(|packet| packet.0 <= now) {
            let Some((_, to, bytes)) = self.wire.pop_front() else { break };
            self.host(to).on_frame(now, RxFrame::plain(&bytes));
        }
        for side in [Side::Client, Side::Server] {
            self.host(side).on_time(now);
            let mut outbox = Outbox::new(self.capacity);
            self.host(side).emit(now, &mut outbox);
            while let Some(frame) = outbox.take() {
                let mut bytes = Vec::new();
                frame.copy_to(&mut bytes);
                self.send(side, bytes);
            }
            while let Some(event) = self.host(side).event() {
                self.events.push((side, event));
            }
        }
    }

    fn send(&mut self, from: Side, mut bytes: Vec<u8>) {
        self.log.push((self.now, from, bytes.clone()));
        let packet = ip::Packet::parse(&bytes).expect("a host sends valid packets");
        let segment = Segment::parse(packet.payload).expect("a host sends valid segments");
        let passes = self.filter.as_mut().is_none_or(|filter| filter(from, &segment));
        if passes {
            if let Some(mangle) = &mut self.mangle {
                mangle(from, &mut bytes);
                correct_checksum(&mut bytes);
            }
            let to = if from == Side::Client { Side::Server } else { Side::Client };
            self.wire.push_back((self.now + self.delay, to, bytes));
        }
    }

    /// When something will happen next.
    fn next(&self) -> Option<Instant> {
        if self.client.wants_emit() || self.server.wants_emit() {
            return Some(self.now);
        }
        let arrival = self.wire.front().map(|packet| packet.0);
        [arrival, self.client.deadline(), self.server.deadline()].into_iter().flatten().min()
    }

    /// Runs until nothing happens before `until` has passed.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.turn();
        for _ in 0..10_000_000 {
            match self.next().filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => {
                    self.now = until;
                    return;
                }
            }
            self.turn();
        }
        panic!("the pair does not come to rest");
    }

    /// A listener on port 80, and an established connection to it.
    pub(crate) fn connected(&mut self) -> (ListenerId, ConnectionId, ConnectionId) {
        let listener = self.server.listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
        let (client, server) = self.connect(listener);
        (listener, client, server)
    }

    pub(crate) fn connect(&mut self, listener: ListenerId) -> (ConnectionId, ConnectionId) {
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let remote = std::format!("{SERVER}:80").parse().unwrap();
        let client = self.client.connect(self.now, any, remote).unwrap();
        self.run_for(Duration::from_millis(50));
        let server = self.server.accept(self.now, listener).expect("the handshake completes");
        self.run_for(Duration::ZERO);
        (client, server)
    }

    /// One end closes, and so long passes.
    pub(crate) fn close(&mut self, side: Side, id: ConnectionId, time: Duration) {
        let now = self.now;
        self.host(side).close(now, id);
        self.run_for(time);
    }

    /// One line a packet: the sending side, flags, payload length.
    pub(crate) fn lines(&self, from: usize) -> Vec<std::string::String> {
        let mut lines = Vec::new();
        for (_, side, bytes) in &self.log[from..] {
            let packet = ip::Packet::parse(bytes).unwrap();
            let s = Segment::parse(packet.payload).unwrap();
            lines.push(std::format!("{side:?} {:?} {}", s.flags, s.payload.len()));
        }
        lines
    }

    /// Sends `total` bytes of a pattern from one side to the other and returns how long it took.
    pub(crate) fn transfer(
        &mut self,
        from: (Side, ConnectionId),
        to: (Side, ConnectionId),
        total: usize,
    ) -> Duration {
        let started = self.now;
        let (mut sent, mut received) = (0, 0);
        let mut buffer = std::vec![0; 65_536];
        while received < total {
            while sent < total {
                let chunk: Vec<u8> = (sent..total.min(sent + 16_384)).map(pattern).collect();
                let now = self.now;
                match self.host(from.0).write(now, from.1, &chunk) {
                    Ok(n) => sent += n,
                    Err(crate::WriteError::WouldBlock) => break,
                    Err(error) => panic!("write: {error}"),
                }
            }
            self.turn();
            loop {
                let now = self.now;
                match self.host(to.0).read(now, to.1, &mut buffer) {
                    Ok(n) => {
                        assert!(n > 0, "the stream ended early at {received}");
                        let expected = (received..received + n).map(pattern);
                        assert!(buffer[..n].iter().copied().eq(expected), "at {received}");
                        received += n;
                    }
                    Err(crate::ReadError::WouldBlock) => break,
                    Err(error) => panic!("read: {error}"),
                }
            }
            let next = self.next().expect("a transfer under way has something to wait for");
            self.now = self.now.max(next);
            assert!(self.now.since(started) < Duration::from_secs(3600), "stuck at {received}");
        }
        self.now.since(started)
    }
}

/// Makes the TCP checksum of a packet right.
pub(crate) fn correct_checksum(bytes: &mut [u8]) {
    let (header, source, destination) = {
        let packet = ip::Packet::parse(bytes).expect("it was a packet before");
        (bytes.len() - packet.payload.len(), packet.source, packet.destination)
    };
    let tcp = &mut bytes[header..];
    tcp[CHECKSUM_OFFSET..][..2].fill(0);
    let value = checksum(source, destination, tcp, crate::wire::checksum::sum(&[]), 0);
    tcp[CHECKSUM_OFFSET..][..2].copy_from_slice(&value.to_be_bytes());
}

/// The byte at `offset` of the test stream.
pub(crate) fn pattern(offset: usize) -> u8 {
    (offset.wrapping_mul(31) ^ (offset >> 8)) as u8
}
