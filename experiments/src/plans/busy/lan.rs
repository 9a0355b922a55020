//! A server and its clients on one switch: hosts of ours, with an emulated link each way between
//! each client and the server. The server's segments are also looked up in lists of other systems.
//!
//! Time is virtual or true. True time goes on by the processor time of the server's turns, so that
//! a slow server is slow for everyone. Virtual time can do so too, by the speed of a processor of
//! the papers' days. Clients take no time; each is a machine of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait_bench::sample::processor_time;
use lightwait_core::address::Cidr;
use lightwait_core::frame::in_bursts;
use lightwait_core::tcp::State;
use lightwait_core::{Capabilities, Config, Event, Host, Instant, Medium, Outbox, RxFrame};
use lightwait_netem::{Link, LinkConfig};

use super::blocks::{Blocks, Key};
use crate::plans::newreno;

/// The most packets that the server receives in a turn: a shard's burst.
const BURST: usize = 32;
/// The most packets that a host sends in a turn.
const OUTBOX: usize = 256;
/// The same of a server that takes a time for each packet: between two of its packets others act.
const SLOW_BURST: usize = 1;
const SLOW_OUTBOX: usize = 2;
/// The least time between two turns.
const STEP: Duration = Duration::from_micros(1);
const MTU: u16 = 1500;
/// Offsets of addresses and ports in an IPv4 packet without options, and of TCP's flags.
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const PORTS: usize = 20;
const FLAGS: usize = 33;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The server's address.
pub(crate) fn server(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), port)
}

/// The address of a client, or one of its 65,536 other ones.
pub(crate) fn client(number: usize, other: u16) -> IpAddr {
    let [high, low] = other.to_be_bytes();
    Ipv4Addr::new(10, number as u8 + 1, high, low).into()
}

/// The server's configuration, on a device without offload.
pub(crate) fn server_config() -> Config {
    config(server(0).ip(), 255)
}

/// A client's configuration.
pub(crate) fn client_config(number: usize) -> Config {
    let mut config = config(client(number, 1), number as u8);
    config.ranges.push(Cidr::new(client(number, 0), 16).expect("16 bits of an address"));
    config
}

fn config(address: IpAddr, secret: u8) -> Config {
    let cidr = Cidr::new(address, 8).expect("8 bits of an address");
    let mut config = Config::new(Capabilities::plain(Medium::Ip, MTU), cidr, [secret; 32]);
    config.tcp = newreno();
    config
}

/// The application on the hosts.
pub(crate) trait Application {
    /// Handles an event of the server's host.
    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event);
    /// Handles an event of a client's host.
    fn on_client(&mut self, number: usize, host: &mut Host, now: Instant, event: Event);
    /// Called before a client sends: the time to open connections. Returns the time of its next
    /// work.
    fn before_client(&mut self, number: usize, host: &mut Host, now: Instant) -> Option<Instant>;
}

/// The progress of the hosts' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// Virtual: from one event to the next.
    Made,
    /// True: by the server's processor time.
    True,
    /// Virtual: by the time that a processor of this speed takes for the server's turns.
    Slow(Speed),
}

/// What a processor takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    /// For a packet that the server receives or sends.
    pub(crate) packet: Duration,
    /// For a block that a search looks at.
    pub(crate) block: Duration,
}

impl Speed {
    fn of(self, packets: usize, blocks: u64) -> Duration {
        self.packet * packets as u32 + self.block * blocks as u32
    }
}

/// A host, and its outbox.
struct Station {
    host: Host,
    outbox: Outbox,
}

impl Station {
    fn new(config: Config, outbox: usize) -> Station {
        let host = Host::new(config).expect("a sound configuration");
        Station { host, outbox: Outbox::new(outbox) }
    }
}

/// A client and its links.
struct Client {
    station: Station,
    to_server: Link,
    from_server: Link,
    /// The time of its application's next work.
    due: Option<Instant>,
}

/// The lists of another system at the server.
pub(crate) struct Lookup {
    pub(crate) blocks: Blocks,
    /// True if segments are looked up in it; else it is only kept in step.
    pub(crate) is_searched: bool,
    /// SYNs that were dropped, since the server had no block for them.
    pub(crate) refused: u64,
}

/// A packet that the server has received or sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) from_server: bool,
    pub(crate) packet: Vec<u8>,
}

/// Decides whether a packet to the server arrives.
pub(crate) type Filter = fn(&Host, &[u8]) -> bool;

/// The server, its clients and their time.
pub(crate) struct Lan {
    pub(crate) now: Instant,
    pub(crate) time: Time,
    server: Station,
    clients: Vec<Client>,
    lookups: Vec<Lookup>,
    /// Processor time of the server's turns, look-ups included.
    pub(crate) taken: Duration,
    /// Every packet of the server's, if they are kept.
    pub(crate) captured: Option<Vec<Captured>>,
    /// Decides which packets reach the server; `None` means all.
    pub(crate) filter: Option<Filter>,
    /// TIME-WAIT at the server in order of entry, for connections that the lists still have.
    waits: std::collections::VecDeque<Key>,
    arrived: Vec<Vec<u8>>,
    whole: Vec<u8>,
    turns: usize,
}

/// True if a packet is for a connection in TIME-WAIT at the server and has the flag RST.
pub(crate) fn is_reset_in_time_wait(server: &Host, packet: &[u8]) -> bool {
    let key = key_of(packet);
    packet[FLAGS] & RST != 0
        && server.state_between(self::server(key.local_port), remote(key)) == State::TimeWait
}

/// The ends of a packet to the server.
fn key_of(packet: &[u8]) -> Key {
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let address = u32::from(word(SOURCE)) << 16 | u32::from(word(SOURCE + 2));
    Key { address, port: word(PORTS), local_port: word(PORTS + 2) }
}

/// A listener's block.
fn listener(port: u16) -> Key {
    Key { address: 0, port: 0, local_port: port }
}

fn remote(key: Key) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::from_bits(key.address).into(), key.port)
}

impl Lan {
    /// A server that listens on `ports`, clients, and a link each way to each client.
    pub(crate) fn new(
        time: Time,
        server: Config,
        ports: &[u16],
        clients: Vec<Config>,
        link: &LinkConfig,
    ) -> Lan {
        let outbox = if let Time::Slow(_) = time { SLOW_OUTBOX } else { OUTBOX };
        let mut server = Station::new(server, outbox);
        for &port in ports {
            server.host.listen(self::server(port), 4096).expect("a free port");
        }
        let client = |(number, config)| {
            let link = |way: u64| {
                Link::new(LinkConfig {
                    seed: link.seed ^ (2 * number as u64 + way),
                    ..link.clone()
                })
            };
            Client {
                station: Station::new(config, OUTBOX),
                to_server: link(0),
                from_server: link(1),
                due: Some(Instant::ZERO),
            }
        };
        Lan {
            now: Instant::from_millis(1000),
            time,
            server,
            clients: clients.into_iter().enumerate().map(client).collect(),
            lookups: Vec::new(),
            taken: Duration::ZERO,
            captured: None,
            filter: None,
            waits: std::collections::VecDeque::new(),
            arrived: Vec::new(),
            whole: Vec::new(),
            turns: 0,
        }
    }

    /// Keeps another system's lists in step from now on. Call it before any client has connected.
    pub(crate) fn keep(&mut self, mut blocks: Blocks, ports: &[u16], is_searched: bool) {
        let has_room = ports.iter().all(|&port| blocks.insert(listener(port)));
        assert!(has_room, "a block for each listener");
        self.lookups.push(Lookup { blocks, is_searched, refused: 0 });
    }

    /// The lists.
    pub(crate) fn lookups(&mut self) -> &mut [Lookup] {
        &mut self.lookups
    }

    /// The server's host.
    pub(crate) fn server(&self) -> &Host {
        &self.server.host
    }

    /// A client's host.
    pub(crate) fn client(&self, number: usize) -> &Host {
        &self.clients[number].station.host
    }

    /// A client's host, to call it, and the time.
    pub(crate) fn client_mut(&mut self, number: usize) -> (&mut Host, Instant) {
        (&mut self.clients[number].station.host, self.now)
    }

    /// Wakes a client's application, which has work that its deadline did not include.
    pub(crate) fn wake(&mut self, number: usize) {
        self.clients[number].due = Some(self.now);
    }

    /// Runs a turn of every host, and moves the time on.
    pub(crate) fn turn(&mut self, application: &mut impl Application) {
        let begin = self.now;
        self.arrive();
        let is_busy = !self.arrived.is_empty();
        self.serve(application);
        for number in 0..self.clients.len() {
            self.turn_of_client(application, number);
        }
        self.now = match self.time {
            Time::True | Time::Slow(_) if is_busy => self.now.max(begin + STEP),
            // Waiting takes no processor time.
            Time::True | Time::Slow(_) | Time::Made => self.next(),
        };
    }

    /// Runs turns until `done`, or for `limit` of the hosts' time. Returns true if it is done.
    pub(crate) fn run_until<A: Application>(
        &mut self,
        application: &mut A,
        limit: Duration,
        mut done: impl FnMut(&Lan, &A) -> bool,
    ) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if done(self, application) {
                return true;
            }
            self.turn(application);
            self.now = self.now.min(end);
        }
        done(self, application)
    }

    /// Lets time pass without new work, as for a server that is left alone.
    pub(crate) fn rest(&mut self, application: &mut impl Application, time: Duration) {
        let (end, mode) = (self.now + time, std::mem::replace(&mut self.time, Time::Made));
        while self.now < end {
            self.turn(application);
            self.now = self.now.min(end);
        }
        // Work that is due at the end.
        self.turn(application);
        (self.now, self.time) = (end, mode);
    }

    /// The time of the next event.
    fn next(&self) -> Instant {
        let soon = self.now + STEP;
        let hosts = std::iter::once(&self.server).chain(self.clients.iter().map(|c| &c.station));
        let hosts = hosts.filter_map(|station| {
            if station.host.wants_emit() { Some(soon) } else { station.host.deadline() }
        });
        let links = self.clients.iter().flat_map(|client| {
            [client.to_server.deadline(), client.from_server.deadline(), client.due]
        });
        hosts.chain(links.flatten()).min().unwrap_or(Instant::FAR_FUTURE).max(soon)
    }

    /// Receives packets for the server, one of each client in turn, as a switch forwards them.
    fn arrive(&mut self) {
        let count = self.clients.len();
        let burst = if let Time::Slow(_) = self.time { SLOW_BURST } else { BURST };
        let mut silent = 0;
        while silent < count && self.arrived.len() < burst {
            self.turns = (self.turns + 1) % count;
            match self.clients[self.turns].to_server.pop(self.now) {
                Some(packet) => {
                    silent = 0;
                    if self.filter.is_none_or(|passes| passes(&self.server.host, &packet)) {
                        self.arrived.push(packet);
                    }
                }
                None => silent += 1,
            }
        }
    }

    /// Runs a turn of the server, like a shard's, after the look-ups of its segments.
    fn serve(&mut self, application: &mut impl Application) {
        self.refuse();
        if let Some(captured) = &mut self.captured {
            let to_server =
                |packet: &Vec<u8>| Captured { from_server: false, packet: packet.clone() };
            captured.extend(self.arrived.iter().map(to_server));
        }
        let now = self.now;
        let begin = if self.time == Time::True { processor_time() } else { Duration::ZERO };
        let mut looked_at = 0;
        for lookup in self.lookups.iter_mut().filter(|lookup| lookup.is_searched) {
            let before = lookup.blocks.work.blocks;
            for packet in &self.arrived {
                lookup.blocks.find(key_of(packet));
            }
            looked_at += lookup.blocks.work.blocks - before;
        }
        let Station { host, outbox } = &mut self.server;
        let frames = self.arrived.iter().map(|packet| RxFrame::plain(packet));
        in_bursts(frames, |burst| host.on_frames(now, burst));
        host.on_time(now);
        while let Some(event) = host.event() {
            application.on_server(host, now, event);
        }
        host.emit(now, outbox);
        let taken = match self.time {
            Time::Made => Duration::ZERO,
            Time::True => processor_time().saturating_sub(begin),
            Time::Slow(speed) => speed.of(self.arrived.len() + outbox.len(), looked_at),
        };
        self.taken += taken;
        self.now = self.now + taken;
        self.keep_in_step();
        while let Some(frame) = self.server.outbox.front() {
            self.whole.clear();
            frame.copy_to(&mut self.whole);
            self.server.outbox.pop();
            if let Some(captured) = &mut self.captured {
                captured.push(Captured { from_server: true, packet: self.whole.clone() });
            }
            let number = usize::from(self.whole[DESTINATION + 1]) - 1;
            self.clients[number].from_server.push(self.now, &self.whole);
        }
    }

    /// Drops a SYN if the server's pool of blocks is used up.
    fn refuse(&mut self) {
        let host = &self.server.host;
        for lookup in &mut self.lookups {
            let mut left = lookup.blocks.free();
            let before = self.arrived.len();
            self.arrived.retain(|packet| {
                let key = key_of(packet);
                let opens = packet[FLAGS] & (SYN | ACK) == SYN && !lookup.blocks.has(key);
                let opens = opens
                    && host.state_between(server(key.local_port), remote(key)) == State::Closed;
                let has_room = !opens || left > 0;
                left -= usize::from(opens && has_room);
                has_room
            });
            lookup.refused += (before - self.arrived.len()) as u64;
        }
    }

    /// Updates the lists with the host's connections.
    fn keep_in_step(&mut self) {
        if !self.lookups.is_empty() {
            self.follow_arrived();
            self.follow_expired();
        }
        for packet in self.arrived.drain(..) {
            let number = usize::from(packet[SOURCE + 1]) - 1;
            self.clients[number].to_server.recycle(packet);
        }
    }

    /// Updates the connections of arrived packets.
    fn follow_arrived(&mut self) {
        let host = &self.server.host;
        for packet in &self.arrived {
            let key = key_of(packet);
            let state = host.state_between(server(key.local_port), remote(key));
            let mut has_begun_to_wait = false;
            for Lookup { blocks, .. } in &mut self.lookups {
                match state {
                    State::Closed => blocks.remove(key),
                    State::TimeWait => has_begun_to_wait |= blocks.wait(key),
                    _ => {
                        if blocks.is_waiting(key) {
                            // A new connection between the same ends.
                            blocks.remove(key);
                        }
                        assert!(blocks.has(key) || blocks.insert(key), "refused before");
                    }
                }
            }
            if has_begun_to_wait {
                self.waits.push_back(key);
            }
        }
    }

    /// Removes connections whose TIME-WAIT is over. These are mostly the first ones, but a repeated
    /// FIN restarts the time.
    fn follow_expired(&mut self) {
        let host = &self.server.host;
        let waiting = self.lookups.first().map_or(0, |lookup| lookup.blocks.waiting());
        let (mut over, mut at) = (waiting.saturating_sub(host.time_wait_len()), 0);
        while over > 0
            && let Some(&key) = self.waits.get(at)
        {
            if host.state_between(server(key.local_port), remote(key)) == State::TimeWait {
                at += 1;
                continue;
            }
            self.waits.remove(at);
            over -= usize::from(self.lookups[0].blocks.has(key));
            self.lookups.iter_mut().for_each(|lookup| lookup.blocks.remove(key));
        }
    }

    fn turn_of_client(&mut self, application: &mut impl Application, number: usize) {
        let now = self.now;
        let client = &mut self.clients[number];
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let has_news = is_due(client.from_server.deadline())
            || is_due(client.due)
            || is_due(client.station.host.deadline())
            || client.station.host.wants_emit();
        if !has_news {
            return;
        }
        let Client { station: Station { host, outbox }, to_server, from_server, due } = client;
        while let Some(packet) = from_server.pop(now) {
            host.on_frame(now, RxFrame::plain(&packet));
            from_server.recycle(packet);
        }
        host.on_time(now);
        while let Some(event) = host.event() {
            application.on_client(number, host, now, event);
        }
        *due = application.before_client(number, host, now);
        host.emit(now, outbox);
        while let Some(frame) = outbox.front() {
            self.whole.clear();
            frame.copy_to(&mut self.whole);
            outbox.pop();
            to_server.push(now, &self.whole);
        }
    }

    /// Asserts that the lists have the host's connections, and the same number in TIME-WAIT.
    pub(crate) fn assert_in_step(&self) {
        let host = &self.server.host;
        for Lookup { blocks, .. } in &self.lookups {
            let has = |key: Key| blocks.has(key);
            let known = host.sockets().filter_map(|socket| {
                let remote = socket.remote()?;
                let IpAddr::V4(address) = remote.ip() else { return None };
                let (port, local_port) = (remote.port(), socket.local().port());
                Some(Key { address: address.to_bits(), port, local_port })
            });
            let listeners = host.sockets().filter(|socket| socket.remote().is_none()).count();
            let (mut count, mut missing) = (listeners, 0);
            for key in known {
                count += 1;
                missing += usize::from(!has(key));
            }
            assert_eq!((blocks.len(), missing), (count, 0), "the lists have what the host has");
            assert_eq!(blocks.waiting(), host.time_wait_len());
        }
    }
}
