//! Our engine alone: two hosts back to back in memory, each driven as a shard drives one.
//!
//! A turn of an end: the frames that have arrived go in, time passes, the application hears of the
//! events, and the host speaks once. Frames move from the one outbox straight into the other host;
//! every one is an IP packet of at most the MTU, its checksum computed here and verified there.
//!
//! The hosts' time is made: so much for each conversation. That makes how many
//! TIME-WAIT records stand exact, and counts of instructions repeatable. The clock is read all the
//! same, once a turn of an end, since that is what a shard pays.

mod bulk;
mod pingpong;
mod short;
pub mod sources;

pub use bulk::Bulk;
pub use pingpong::PingPong;
pub use short::Short;
pub use sources::Sources;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lightwait_core::config::{Scheme, TimeWaitState};

use self::sources::FIRST_SOURCE;
use super::watch::Watch;
use super::which::{Ip, Variant};
use crate::connections::Plan;
use lightwait_core::address::Cidr;
use lightwait_core::frame::{RxChecksum, TxChecksum, in_bursts};
use lightwait_core::{
    Capabilities, Config, ConnectionId, Event, Host, Instant, Medium, Outbox, RxFrame,
};

/// Frames that an end sends in a turn, at most.
const OUTBOX_FRAMES: usize = 256;

/// So few frames are not worth a burst.
const FEW: usize = 4;

/// Where the server listens.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);

/// Hosts of the bench's net by their numbers.
impl Ip {
    /// Where the server listens.
    fn server(self) -> SocketAddr {
        SocketAddr::new(self.host(2), SERVER.port())
    }

    /// So many of the net's hosts, a power of two, around one of them.
    fn hosts(self, number: u32, count: u32) -> Cidr {
        let bits = if self == Ip::V4 { 32 } else { 128 };
        Cidr::new(self.host(number), bits - count.ilog2() as u8).expect("fewer than all addresses")
    }
}

/// Connections that are opened together, where it matters only that they are open.
pub const OPENED_AT_ONCE: usize = 256;

/// One host and what it is about to send.
#[derive(Debug)]
pub struct End {
    /// The host.
    pub host: Host,
    outbox: Outbox,
    /// Frames sent.
    pub frames: u64,
    /// Where a frame in pieces becomes one.
    whole: Vec<u8>,
}

impl End {
    fn new(config: Config) -> End {
        let host = Host::new(config).expect("a sound configuration");
        End { host, outbox: Outbox::new(OUTBOX_FRAMES), frames: 0, whole: Vec::new() }
    }

    /// What the other end has sent arrives.
    fn receive(&mut self, now: Instant, from: &mut End) {
        from.frames += from.outbox.len() as u64;
        if from.outbox.len() < FEW || self.host.config().device.checksum {
            self.receive_each(now, &mut from.outbox);
        } else {
            let frames = from.outbox.frames().map(|frame| RxFrame::plain(&frame.head));
            in_bursts(frames, |burst| self.host.on_frames(now, burst));
            from.outbox.clear();
        }
        self.host.on_time(now);
    }

    fn receive_each(&mut self, now: Instant, outbox: &mut Outbox) {
        while let Some(frame) = outbox.front() {
            let checksum = match frame.checksum {
                TxChecksum::Complete => RxChecksum::Unknown,
                TxChecksum::Partial { .. } => RxChecksum::Good,
            };
            let mut bytes = &frame.head;
            if frame.checksum != TxChecksum::Complete {
                // Where checksums are left to the device, it copies them once itself.
                self.whole.clear();
                frame.copy_to(&mut self.whole);
                bytes = &self.whole;
            }
            let segment_size = frame.segmentation.map_or(0, |how| how.size);
            self.host.on_frame(now, RxFrame { checksum, segment_size, ..RxFrame::plain(bytes) });
            outbox.pop();
        }
    }
}

/// What uses the two hosts.
pub trait Application {
    /// The client's host has something to tell.
    fn on_client(&mut self, host: &mut Host, now: Instant, event: Event);
    /// The server's host has something to tell.
    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event);
    /// Before the client speaks: the time to open connections.
    fn before_client(&mut self, _host: &mut Host, _now: Instant) {}
}

/// Two hosts, the wire between them, and their time.
#[derive(Debug)]
pub struct Ends {
    /// Who opens connections.
    pub client: End,
    /// Who is asked.
    pub server: End,
    /// Their time.
    pub now: Instant,
    /// The clock beside it.
    pub watch: Watch,
}

/// After which idle connections rest, by default, and some more.
pub(crate) const QUIET: Duration = Duration::from_secs(3);

/// What a turn adds to the hosts' time by itself.
const TURN: Duration = Duration::from_micros(1);

impl Ends {
    /// Hosts so configured.
    pub fn new([client, server]: [Config; 2]) -> Ends {
        Ends {
            client: End::new(client),
            server: End::new(server),
            now: Instant::from_millis(1000),
            watch: Watch::new(),
        }
    }

    /// A turn of each end, at `now` or a little after the last one.
    pub fn turn(&mut self, application: &mut impl Application, now: Instant) {
        self.now = now.max(self.now + TURN);
        let now = self.now;
        let begin = self.watch.read();
        self.server.receive(now, &mut self.client);
        while let Some(event) = self.server.host.event() {
            application.on_server(&mut self.server.host, now, event);
        }
        self.server.host.emit(now, &mut self.server.outbox);
        let between = self.watch.read();
        self.client.receive(now, &mut self.server);
        while let Some(event) = self.client.host.event() {
            application.on_client(&mut self.client.host, now, event);
        }
        application.before_client(&mut self.client.host, now);
        self.client.host.emit(now, &mut self.client.outbox);
        self.watch.turn_over(begin, between);
    }

    /// So much time passes, and everything that is due in it happens when it is due.
    pub fn pass(&mut self, application: &mut impl Application, time: Duration) {
        while !self.client.outbox.is_empty() {
            self.turn(application, self.now);
        }
        let until = self.now + time;
        loop {
            let due =
                [&self.client, &self.server].into_iter().filter_map(|end| end.host.deadline());
            let Some(at) = due.min().filter(|at| *at <= until) else { break };
            self.turn(application, at);
        }
        self.now = self.now.max(until);
    }

    /// Asserts that nothing was lost, refused or confused.
    pub fn check(&self) {
        assert_sound(&self.client.host);
        assert_sound(&self.server.host);
    }

    /// Frames that went either way.
    pub fn frames(&self) -> u64 {
        self.client.frames + self.server.frames
    }
}

/// Asserts that nothing was lost, refused or confused on this host.
pub fn assert_sound(host: &Host) {
    let counters = host.counters();
    let odd = [
        counters.retransmits,
        counters.checksum_errors,
        counters.out_of_order,
        counters.resets_sent,
        counters.time_wait_evicted,
        counters.time_wait_reused,
        counters.cookies_sent,
    ];
    assert_eq!(odd, [0; 7], "{counters:?}");
}

/// How a host is configured, but for what differs from bench to bench: everything at its default,
/// on a device that does nothing for us.
fn config(cidr: Cidr, mtu: u16, secret: u8) -> Config {
    Config::new(Capabilities::plain(Medium::Ip, mtu), cidr, [secret; 32])
}

/// Both configurations, over IPv4.
pub fn configs(mtu: u16) -> [Config; 2] {
    configs_over(Ip::V4, mtu)
}

/// Both configurations; the client has more source addresses than anybody needs.
fn configs_over(ip: Ip, mtu: u16) -> [Config; 2] {
    let mut client = config(ip.hosts(1, 1 << 24), mtu, 1);
    client.ranges.push(ip.hosts(FIRST_SOURCE, 1 << 23));
    [client, config(ip.hosts(2, 1 << 24), mtu, 2)]
}

/// `config` with room for so many connections, and a whole initial window for each.
pub fn room_for(mut config: Config, connections: usize) -> Config {
    config.limits.connections = connections;
    config.limits.receive_window_bytes = connections as u64 * u64::from(config.tcp.buffers.receive);
    config
}

impl Variant {
    /// `config`, in this variant.
    pub fn apply(self, mut config: Config) -> Config {
        match self {
            Variant::Default => {}
            Variant::Full => config.tcp.time_wait.state = TimeWaitState::Full,
            Variant::Skip => config.tcp.time_wait.state = TimeWaitState::Skip,
            Variant::Scan => {
                config.tcp.time_wait.state = TimeWaitState::Full;
                config.tcp.timers = Scheme::Scan;
            }
            Variant::Keeping(timers, state) => {
                (config.tcp.timers, config.tcp.time_wait.state) = (timers, state);
            }
        }
        config
    }
}

/// Both configurations for a bench of short connections.
pub fn configs_for(plan: &Plan) -> [Config; 2] {
    // BSD's ticks let records stay for 500 ms longer.
    let time_waits = 2 * plan.residents() + 20_000;
    let connections = plan.idle + 4 * plan.at_once.max(OPENED_AT_ONCE);
    let [client, mut server] =
        configs_over(plan.ip, 1500).map(|config| room_for(config, connections));
    server.tcp.time_wait.length = plan.time_wait_lasts();
    server.limits.time_wait = time_waits;
    if plan.half_closed {
        // Longer than it takes until all of them are there.
        server.tcp.timeout.fin_wait_2 = Duration::from_secs(86_400);
        server.limits.time_wait += plan.idle;
    }
    [client, server].map(|config| plan.variant.apply(config))
}

/// What was counted on the connection, in a table as long as it must be.
fn count_on(table: &mut Vec<usize>, id: ConnectionId) -> &mut usize {
    if id.index() >= table.len() {
        table.resize(id.index() + 1, 0);
    }
    &mut table[id.index()]
}
