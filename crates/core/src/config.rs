//! Every knob of a host: its default, its unit, and where the default comes from.

mod check;
mod hardware;
mod knob;

pub use hardware::hardware_address;
pub use knob::{KnobError, parse_time};

use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::Deref;

use crate::frame::Capabilities;
use crate::host::address::Cidr;
use crate::tcp::recv::ack::AckDelay;
use crate::tcp::recv::window::RecvWindow;
use crate::tcp::send::rtt::{Bounds, Estimator};
use crate::tcp::timers::Scheme;
use crate::time::{Duration, Resolutions};
use crate::wire::options::Layout;

/// The configuration of one host (one shard has one).
#[derive(Clone, Debug)]
pub struct Config {
    /// What the device can do.
    pub device: Capabilities,
    /// Our hardware address (ignored on a medium without one). One that follows from the secret.
    pub hardware: [u8; 6],
    /// Our addresses, each with the prefix that is on-link.
    pub addresses: Vec<Cidr>,
    /// Ranges of addresses that are ours as well: answered, and used for active opens, but not
    /// announced one by one; the peer needs a route to them through one of `addresses`.
    pub ranges: Vec<Cidr>,
    /// Gateways: the next hop for what is not on-link, at most one an IP version.
    pub gateways: Vec<IpAddr>,
    /// Take addresses, prefix and default route from router advertisements (RFC 4862).
    pub autoconfigure: bool,
    /// How long it may take to ask, on a medium with neighbours, whether anybody has our
    /// `addresses` before they are used; [`Host::claimed`](crate::Host::claimed) tells when all are
    /// ours. RFC 5227 §1.1 gives IPv4 [7 s](crate::host::conflict::PROBE_LONGEST), RFC 4862 §5.4
    /// IPv6 1 s. In a shorter time the probes keep the RFC's proportions: its constants are for any
    /// link of IEEE 802, and neighbours mostly answer within a millisecond. Zero: nobody is asked
    /// about IPv4, and IPv6 addresses are used while it is asked about them (RFC 4429).
    pub address_probe: Duration,
    /// Announce our `addresses` when they begin to be used, so that neighbours do not keep what
    /// they knew of whoever had them before (RFC 5227 §2.3, RFC 4861 §7.2.6).
    pub address_announce: bool,
    /// TTL or hop limit of our packets (RFC 9293 MUST-49); with `autoconfigure` a router may give
    /// another for IPv6.
    pub hop_limit: u8,
    /// This shard's part of the ephemeral ports: first and last, inclusive. RFC 6335 §6 gives
    /// 49152–65535; we use RFC 6056 §3.2's wider 1024–65535 with randomised order.
    pub ephemeral_ports: (u16, u16),
    /// TCP.
    pub tcp: TcpConfig,
    /// Bounds on memory and on work.
    pub limits: Limits,
    /// Secret of this process: keys of ISNs, cookies, timestamps, hashes and port order. The
    /// platform draws it from its random source; a simulator from its seed.
    pub secret: [u8; 32],
}

/// How TCP behaves; per-connection values are the initial ones of its sockets.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Offer and use window scaling (RFC 7323 §2).
    pub window_scaling: bool,
    /// Offer and use timestamps (RFC 7323 §3).
    pub timestamps: bool,
    /// Offer and use selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Initial congestion window, in segments (RFC 6928: 10).
    pub initial_window_segments: u32,
    /// Begin again with the initial window after an idle RTO (RFC 5681 §4.1: SHOULD).
    pub restart_after_idle: bool,
    /// RTO before any measurement (RFC 6298 §2.1: 1 s).
    pub initial_rto: Duration,
    /// How the RTO is found.
    pub rto_estimator: Estimator,
    /// Resolution of the measurement clock, by which RTTs are taken, in Hz; the platform's, if that
    /// is coarser ([`TcpConfig::coarsen`]).
    pub measure_resolution_hz: u64,
    /// Least variance term of the RTO: RTO = SRTT + max(G, 4·RTTVAR, floor). 200 ms covers a
    /// receiver's delayed ACK (Aron & Druschel 1999, §4).
    pub rto_floor: Duration,
    /// Largest RTO after back-off (RFC 6298 §2.4: at least 60 s).
    pub rto_max: Duration,
    /// Give up a handshake after this long (RFC 9293 MUST-23 for SYN: R2 at least 3 minutes).
    pub syn_timeout: Duration,
    /// Give up when data stays unacknowledged this long (RFC 9293 MUST-20, SHLD-11: R2 at least
    /// 100 s; RFC 5482's user timeout replaces it).
    pub user_timeout: Duration,
    /// How an ACK is delayed.
    pub ack_delay: AckDelay,
    /// The delay of an ACK by a timer, or the period of the ticks (RFC 9293 MUST-40: below 500 ms).
    pub delayed_ack: Duration,
    /// Least and longest delay of an ACK in buckets (Mansley 2004: 50 and 150 ms, 100 on average;
    /// where all peers are near, less is better).
    pub delayed_ack_min: Duration,
    /// See `delayed_ack_min`.
    pub delayed_ack_max: Duration,
    /// Segments acknowledged at once at a connection's start, before delaying begins.
    pub quick_acks: u8,
    /// Nagle's algorithm on by default (RFC 9293 SHLD-7).
    pub nagle: bool,
    /// Idle time before the first keepalive probe, when a socket asks for them (RFC 9293 MUST-28:
    /// at least 2 h by default).
    pub keepalive_idle: Duration,
    /// Time between keepalive probes.
    pub keepalive_interval: Duration,
    /// Unanswered probes after which the connection fails.
    pub keepalive_probes: u8,
    /// How long a connection that its user has closed may hold text that the peer does not take at
    /// [`TcpConfig::stalled_rate`]; as long as any may be silent while nobody answers; a quarter of
    /// it where memory is scarce.
    pub orphan_timeout: Duration,
    /// A peer that takes fewer bytes a second than this stalls. No honest one is as slow: GPRS
    /// carried 4 kB/s.
    pub stalled_rate: u32,
    /// Where buffer memory has run out, connections that have stalled for so long may be reset.
    pub stalled_after: Duration,
    /// How long an orphan waits for the peer's FIN in FIN-WAIT-2.
    pub fin_wait_2_timeout: Duration,
    /// TIME-WAIT, 2·MSL (RFC 9293 MUST-13). RFC 9293 says MSL = 2 min; the field uses 30 s.
    pub time_wait: Duration,
    /// What TIME-WAIT keeps of a connection.
    pub time_wait_state: TimeWaitState,
    /// TIME-WAIT where the peer is on a link of ours; zero: as all others. What was sent there is
    /// not under way for minutes (NetBSD's MSL truncation).
    pub time_wait_on_link: Duration,
    /// TIME-WAIT where the peer is this host itself; zero: as all others.
    pub time_wait_on_host: Duration,
    /// A connection on which nothing has moved for so long (established, or without a user and in
    /// FIN-WAIT-2) is kept in a compact form until something does; zero: never. Not with the timers
    /// of 4.4BSD, which keep every control block whole.
    pub rest_after: Duration,
    /// Send buffer of a socket, in bytes, at most.
    pub send_buffer_bytes: u32,
    /// Receive window a socket starts with, in bytes.
    pub initial_receive_window_bytes: u32,
    /// Largest receive window right-sizing may grow to, in bytes; decides the scale at the SYN.
    pub max_receive_window_bytes: u32,
    /// Receive windows are rounded up to whole segments, as the BSDs do.
    pub window_in_segments: bool,
    /// Our shift count (RFC 7323 §2.2); `None`: the smallest that expresses the largest window.
    pub window_shift: Option<u8>,
    /// The order of the options on our SYNs.
    pub syn_layout: Layout,
    /// When a segment carries PSH.
    pub push: Push,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Ecn,
    /// How timers are looked after.
    pub timers: Scheme,
    /// The tick of the scheduling clock: timers fire at the first one at or after their deadline.
    /// The platform's, if that is coarser ([`TcpConfig::coarsen`]). It and the tick of the
    /// measurement clock are the RTO's granularity (RFC 6298's G).
    pub tick: Duration,
    /// What asks a peer for its closed window.
    pub window_probe: WindowProbe,
    /// Segments without a timestamp are taken where timestamps were agreed on. RFC 7323 §3.2 says
    /// that such SHOULD be dropped; some stacks take them.
    pub missing_timestamps: bool,
    /// The ACK of the peer's FIN repeats ours if that is not acknowledged, as the BSDs do (RFC 9293
    /// §3.10.7.4 asks for a bare ACK).
    pub repeat_fin: bool,
    /// Segments are acceptable up to what the buffer could take, not only up to what was announced,
    /// as the BSDs do: without scaling, the field says 65,535 at most.
    pub unannounced_window: bool,
    /// RST is believed anywhere in the window, as RFC 793 had it, and not only at RCV.NXT
    /// (RFC 5961 §3.2). Off; to compare with stacks that do so.
    pub insecure_rst: bool,
    /// SYN inside the window resets the connection, as RFC 793 had it, and is not only challenged
    /// (RFC 5961 §4.2). Off; to compare with stacks that do so.
    pub insecure_syn: bool,
    /// MSS announced at most, in bytes; 0: whatever the device's MTU gives.
    pub mss_max: u16,
    /// Least MSS accepted from a peer, in bytes: a smaller announcement is raised to it.
    pub mss_min: u16,
}

/// When a segment with text carries PSH (RFC 9293 §3.9.1.2: a matter of implementation where there
/// is no PUSH call).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Push {
    /// It empties the send buffer (RFC 9293 MUST-61).
    #[default]
    Emptied,
    /// It empties the send buffer, or is handed to the device as several segments at once, whose
    /// last one then has it: the receiver need not wait for more before it passes the burst up.
    Burst,
}

/// Whether congestion may be told of by marks instead of losses (RFC 3168, RFC 9293 SHLD-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Never.
    Off,
    /// If the peer asks for it: some networks still drop SYNs that ask.
    #[default]
    Passive,
    /// Ask for it, and again without if the SYN is lost (RFC 3168 §6.1.1.1).
    Active,
}

/// What TIME-WAIT keeps of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeWaitState {
    /// A record of tens of bytes, in a table of its own.
    #[default]
    Compact,
    /// The whole control block, as 4.4BSD, in the structure of whichever scheme there is: in the
    /// lists of [`Scheme::Scan`] and [`Scheme::OrderedList`], or with a deadline under the other
    /// schemes. To compare with.
    Full,
    /// *Unsafe.* Nothing: old duplicates may be taken for a later connection's data, and the peer
    /// that lost our last ACK is reset. What mTCP and Seastar do; to compare with.
    Skip,
}

/// What a zero-window probe carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WindowProbe {
    /// The next byte (RFC 9293 §3.8.6.1: at least one octet of new data).
    #[default]
    Byte,
    /// Nothing, at a number that was acknowledged already: the answer tells the window as well, and
    /// a receiver that drops what it has no room for drops nothing. As Linux.
    Empty,
}

impl TcpConfig {
    /// How long TIME-WAIT lasts, by [`Distance`](crate::tcp::time_wait::Distance).
    pub fn time_wait_terms(&self) -> [Duration; 3] {
        let or_usual = |term: Duration| if term.is_zero() { self.time_wait } else { term };
        [self.time_wait, or_usual(self.time_wait_on_link), or_usual(self.time_wait_on_host)]
    }

    /// Our shift count (RFC 7323 §2.2); 0 if we do not scale.
    pub fn shift(&self) -> u8 {
        if !self.window_scaling {
            return 0;
        }
        let smallest = || RecvWindow::scale_for(self.max_receive_window_bytes);
        self.window_shift.map_or_else(smallest, |shift| shift.min(14))
    }
}

/// How TCP behaves, and what of it is wanted in ns for nearly every segment.
#[derive(Clone, Debug)]
pub struct Settings {
    tcp: TcpConfig,
    /// Of the retransmission timeouts.
    pub(crate) rto_bounds: Bounds,
    /// [`TcpConfig::shift`].
    pub(crate) shift: u8,
}

impl Settings {
    /// From what is configured.
    pub fn new(tcp: TcpConfig) -> Self {
        Settings { rto_bounds: Bounds::new(&tcp), shift: tcp.shift(), tcp }
    }
}

impl Deref for Settings {
    type Target = TcpConfig;

    fn deref(&self) -> &TcpConfig {
        &self.tcp
    }
}

/// Bounds: nothing grows past them; reaching one is counted.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections with a control block, at most; no more than 2^25.
    pub connections: usize,
    /// Half-open passive connections kept as state, no more than 2^25; beyond it SYN cookies.
    pub syn_cache: usize,
    /// TIME-WAIT records; beyond it the oldest goes.
    pub time_wait: usize,
    /// Connections with a control block and without a user, which still close. Those that wait for
    /// the peer's FIN become records, of which there may be as many as of TIME-WAIT.
    pub orphans: usize,
    /// Pages of 4 KiB for send and receive buffers together, and for what is charged to them
    /// ([`Host::set_memory_elsewhere`](crate::Host::set_memory_elsewhere)); a small one of 1 KiB
    /// counts a quarter, a large one of 16 KiB four.
    pub pages: usize,
    /// Bytes of receive window promised to all peers together; no more than `pages` can hold.
    pub receive_window_bytes: u64,
    /// Packets one connection may emit before the others have their turn, if they are no more than
    /// 128 KiB; those counted that the device cuts out of a large segment.
    pub frames_per_turn: usize,
    /// Answers to strangers (RST, ICMP errors) a second.
    pub replies_per_second: u32,
    /// Challenge ACKs a second, all connections together (RFC 5961 §7).
    pub challenge_acks_per_second: u32,
    /// Entries in the neighbour cache.
    pub neighbours: usize,
    /// Frames waiting for neighbours, all together.
    pub neighbour_queue: usize,
    /// Packets being reassembled from fragments.
    pub reassemblies: usize,
    /// Path MTUs remembered.
    pub path_mtus: usize,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            window_scaling: true,
            timestamps: true,
            sack: true,
            initial_window_segments: 10,
            restart_after_idle: true,
            initial_rto: Duration::from_secs(1),
            rto_estimator: Estimator::default(),
            measure_resolution_hz: 1_000_000_000,
            rto_floor: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
            syn_timeout: Duration::from_secs(180),
            user_timeout: Duration::from_secs(300),
            ack_delay: AckDelay::default(),
            delayed_ack: Duration::from_millis(100),
            delayed_ack_min: Duration::from_millis(50),
            delayed_ack_max: Duration::from_millis(150),
            quick_acks: 16,
            nagle: true,
            keepalive_idle: Duration::from_secs(7200),
            keepalive_interval: Duration::from_secs(75),
            keepalive_probes: 9,
            orphan_timeout: Duration::from_secs(30),
            stalled_rate: 1000,
            stalled_after: Duration::from_secs(3),
            fin_wait_2_timeout: Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
            time_wait_state: TimeWaitState::default(),
            time_wait_on_link: Duration::ZERO,
            time_wait_on_host: Duration::ZERO,
            rest_after: Duration::from_secs(2),
            send_buffer_bytes: 1 << 20,
            initial_receive_window_bytes: 64 << 10,
            max_receive_window_bytes: 4 << 20,
            window_in_segments: false,
            window_shift: None,
            syn_layout: Layout::default(),
            push: Push::default(),
            ecn: Ecn::default(),
            timers: Scheme::default(),
            tick: Duration::from_millis(1),
            window_probe: WindowProbe::default(),
            missing_timestamps: false,
            repeat_fin: false,
            unannounced_window: false,
            insecure_rst: false,
            insecure_syn: false,
            mss_max: 0,
            mss_min: 88,
        }
    }
}

impl TcpConfig {
    /// For a platform of these resolutions: what is configured finer becomes as coarse as they are.
    pub fn coarsen(&mut self, platform: Resolutions) {
        let tick = Duration::from_nanos(1_000_000_000_u64.div_ceil(platform.schedule_hz.max(1)));
        self.measure_resolution_hz = self.measure_resolution_hz.min(platform.measure_hz);
        self.tick = self.tick.max(tick);
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 1 << 20,
            syn_cache: 4096,
            time_wait: 1 << 20,
            orphans: 65_536,
            pages: 1 << 18,
            receive_window_bytes: 1 << 30,
            frames_per_turn: 64,
            replies_per_second: 1000,
            challenge_acks_per_second: 1000,
            neighbours: 4096,
            neighbour_queue: 256,
            reassemblies: 16,
            path_mtus: 1024,
        }
    }
}

impl Config {
    /// A host on `device` with one address, every other knob at its default. The secret must be
    /// random and no other host's: sequence numbers and the hardware address follow from it.
    pub fn new(device: Capabilities, address: Cidr, secret: [u8; 32]) -> Self {
        Config {
            device,
            hardware: hardware::of_secret(&secret),
            addresses: Vec::from([address]),
            ranges: Vec::new(),
            gateways: Vec::new(),
            autoconfigure: false,
            address_probe: Duration::ZERO,
            address_announce: false,
            hop_limit: crate::wire::ip::DEFAULT_HOP_LIMIT,
            ephemeral_ports: (1024, 65535),
            tcp: TcpConfig::default(),
            limits: Limits::default(),
            secret,
        }
    }
}
