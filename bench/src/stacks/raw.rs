//! Our engine alone: two hosts back to back in memory, each driven as a shard drives one.
//!
//! A turn of an end: the host takes in arrived frames, time passes, the application handles the
//! events, and the host sends once. Frames move from one outbox straight into the other host. Each
//! is an IP packet of at most the MTU; its checksum is computed here and verified there.
//!
//! The hosts' time is virtual, with a fixed part for each conversation. The number of TIME-WAIT
//! records is therefore exact, and instruction counts are repeatable. The clock is still read once
//! a turn of an end, since a shard pays for that.

mod bulk;
mod datagrams;
mod pingpong;
mod short;
pub mod sources;

pub use bulk::Bulk;
pub use datagrams::Datagrams;
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

/// Fewer frames than this are not worth a burst.
const FEW: usize = 4;

/// The server's address and port.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);

/// Hosts of the bench's network, by number.
impl Ip {
    /// The server's address and port.
    fn server(self) -> SocketAddr {
        SocketAddr::new(self.host(2), SERVER.port())
    }

    /// `count` of the network's hosts, a power of two, around host `number`.
    fn hosts(self, number: u32, count: u32) -> Cidr {
        let bits = if self == Ip::V4 { 32 } else { 128 };
        Cidr::new(self.host(number), bits - count.ilog2() as u8).expect("fewer than all addresses")
    }
}

/// Connections opened at a time where opening is not measured.
pub const OPENED_AT_ONCE: usize = 256;

/// A host and its outbox.
#[derive(Debug)]
pub struct End {
    /// The host.
    pub host: Host,
    outbox: Outbox,
    /// Frames sent.
    pub frames: u64,
    /// A buffer in which the pieces of a frame are joined.
    whole: Vec<u8>,
}

impl End {
    fn new(config: Config) -> End {
        let host = Host::new(config).expect("a sound configuration");
        End { host, outbox: Outbox::new(OUTBOX_FRAMES), frames: 0, whole: Vec::new() }
    }

    /// Receives the frames that the other end has sent.
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
                // A device that computes checksums copies the frame once.
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

/// The application of the two hosts.
pub trait Application {
    /// Handles an event of the client's host.
    fn on_client(&mut self, host: &mut Host, now: Instant, event: Event);
    /// Handles an event of the server's host.
    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event);
    /// Called before the client sends: the time to open connections.
    fn before_client(&mut self, _host: &mut Host, _now: Instant) {}
}

/// Two hosts, the wire between them, and their time.
#[derive(Debug)]
pub struct Ends {
    /// The end that opens connections.
    pub client: End,
    /// The end that answers.
    pub server: End,
    /// The hosts' time.
    pub now: Instant,
    /// The real clock, and the times of the ends.
    pub watch: Watch,
}

/// The time after which idle connections rest by default, and some more.
pub(crate) const QUIET: Duration = Duration::from_secs(3);

/// The hosts' time that a turn takes by itself.
const TURN: Duration = Duration::from_micros(1);

impl Ends {
    /// Hosts with these configurations.
    pub fn new([client, server]: [Config; 2]) -> Ends {
        Ends {
            client: End::new(client),
            server: End::new(server),
            now: Instant::from_millis(1000),
            watch: Watch::new(),
        }
    }

    /// Runs a turn of each end, at `now` or a little after the last one.
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

    /// Lets `time` pass; every timer in it fires when it is due.
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

    /// Asserts that no frame was lost, refused or malformed.
    pub fn check(&self) {
        assert_sound(&self.client.host);
        assert_sound(&self.server.host);
    }

    /// Frames in both directions.
    pub fn frames(&self) -> u64 {
        self.client.frames + self.server.frames
    }
}

/// Asserts that no frame was lost, refused or malformed on this host.
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

/// A host's configuration apart from the settings of each bench: the defaults, on a device without
/// offload.
fn config(cidr: Cidr, mtu: u16, secret: u8) -> Config {
    Config::new(Capabilities::plain(Medium::Ip, mtu), cidr, [secret; 32])
}

/// Both configurations, over IPv4.
pub fn configs(mtu: u16) -> [Config; 2] {
    configs_over(Ip::V4, mtu)
}

/// Both configurations; the client has more source addresses than any bench needs.
fn configs_over(ip: Ip, mtu: u16) -> [Config; 2] {
    let mut client = config(ip.hosts(1, 1 << 24), mtu, 1);
    client.ranges.push(ip.hosts(FIRST_SOURCE, 1 << 23));
    [client, config(ip.hosts(2, 1 << 24), mtu, 2)]
}

/// `config` with room for `connections` connections, and a whole initial window for each.
pub fn room_for(mut config: Config, connections: usize) -> Config {
    config.limits.connections = connections;
    config.limits.receive_window_bytes = connections as u64 * u64::from(config.tcp.buffers.receive);
    config
}

impl Variant {
    /// `config` in this variant.
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
    // BSD's ticks keep records up to 500 ms longer.
    let time_waits = 2 * plan.residents() + 20_000;
    let connections = plan.idle + 4 * plan.at_once.max(OPENED_AT_ONCE);
    let [client, mut server] =
        configs_over(plan.ip, 1500).map(|config| room_for(config, connections));
    server.tcp.time_wait.length = plan.time_wait_lasts();
    server.limits.time_wait = time_waits;
    if plan.half_closed {
        // Longer than it takes until all of them exist.
        server.tcp.timeout.fin_wait_2 = Duration::from_secs(86_400);
        server.limits.time_wait += plan.idle;
    }
    [client, server].map(|config| plan.variant.apply(config))
}

/// The counter of the connection, in a table that grows as needed.
fn count_on(table: &mut Vec<usize>, id: ConnectionId) -> &mut usize {
    if id.index() >= table.len() {
        table.resize(id.index() + 1, 0);
    }
    &mut table[id.index()]
}
