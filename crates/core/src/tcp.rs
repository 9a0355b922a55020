//! TCP (RFC 9293), sans I/O: connections and their rules, listeners, the tables that find both, and
//! the timers. The host passes segments, calls and the time in, and takes frames out.
//!
//! What the documentation hides is for the project's own measures: it may change in any release.

#[doc(hidden)]
pub mod account;
pub(crate) mod arrive;
pub(crate) mod block_pool;
pub(crate) mod challenge;
#[doc(hidden)]
pub mod congestion;
#[doc(hidden)]
pub mod connection;
#[doc(hidden)]
pub mod demux;
#[doc(hidden)]
pub mod ecn;
pub(crate) mod egress;
#[doc(hidden)]
pub mod emit;
pub(crate) mod held;
#[doc(hidden)]
pub mod isn;
#[doc(hidden)]
pub mod listen;
#[doc(hidden)]
pub mod port;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod recv;
pub mod send;
#[doc(hidden)]
pub mod settings;
pub(crate) mod slot;
pub mod state;
pub(crate) mod syn_cache;
pub(crate) mod syn_cookie;
pub(crate) mod terms;
#[doc(hidden)]
pub mod time_wait;
#[doc(hidden)]
pub mod timers;

pub use account::Account;
#[doc(hidden)]
pub use connection::Connection;
pub use send::source::{Demand, SendInfo, Supply};
#[doc(hidden)]
pub use settings::Settings;
pub use state::State;
pub use time_wait::negotiate::Holder;
pub use timers::Timer;

pub use crate::flow::{Seq, Tuple};

use core::num::NonZeroU64;

use crate::config::{Algorithm, SendSize, TcpConfig, Wish};
use crate::ip::path::IpFields;
use crate::time::{Duration, Instant};
use send::recovery::Mode;

/// The options of a socket; each connection starts with its host's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Send small segments at once (Nagle's algorithm off).
    pub nodelay: bool,
    /// Send only full segments until uncorked, for 200 ms at most.
    pub cork: bool,
    /// The congestion control; a connection goes on by it with the window that it has.
    pub congestion: Algorithm,
    /// Spread what is sent over the round trip, whatever the congestion control. BBR is paced in
    /// any case.
    pub pacing: bool,
    /// The rate of a connection, payload alone, in bytes a second, at most; paces it. `None`: as
    /// the congestion control finds.
    pub max_pacing_rate: Option<NonZeroU64>,
    /// Keepalive probes after this idle time; `None`: off.
    pub keepalive: Option<Keepalive>,
    /// Give up opening after this long.
    pub open_timeout: Duration,
    /// Fail when data stays unacknowledged this long (RFC 5482).
    pub user_timeout: Duration,
    /// The fate of data not yet sent at the close: `None`: sent in the background; zero: dropped,
    /// and the connection reset; else sent in the background for at most this long.
    pub linger: Option<Duration>,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// TTL or hop limit (RFC 9293 MUST-49: configurable); `None`: the host's.
    pub hop_limit: Option<u8>,
    /// Send buffer, in bytes, at most.
    pub send_buffer_bytes: u32,
    /// How large it is, within that.
    pub send_size: SendSize,
    /// Receive window, in bytes, fixed: no right-sizing; at least what the window field can tell
    /// with our shift count. `None`: as the host's configuration says.
    pub receive_buffer_bytes: Option<u32>,
    /// MSS announced, and payload and options sent in a segment, at most; 0: as the path and the
    /// peer allow. Counts when the connection opens.
    pub mss_max: u16,
    /// How long an orphan waits for the peer's FIN in FIN-WAIT-2.
    pub fin_wait_2_timeout: Duration,
    /// Packets must not be fragmented on the way, so that the path's MTU is learnt (RFC 1191).
    pub path_mtu_discovery: bool,
    /// Closing means [`Host::close_swap`](crate::Host::close_swap): where the peer closed first, we
    /// take TIME-WAIT over from it. Counts until our FIN is acknowledged.
    pub close_swap: bool,
    /// Which end shall hold TIME-WAIT, as the peer is asked when the connection is opened, or
    /// answered; with [`Wish::Off`] it is neither. Counts when the connection opens; on a listener,
    /// for those that it accepts.
    pub negotiate: Wish,
    /// Without an agreement about that there is to be no connection: one with a peer that does not
    /// negotiate, or wishes otherwise, is reset.
    pub require_agreement: bool,
    /// Count segments, and what holds the sender back ([`Host::account`](crate::Host::account));
    /// sample the rate of delivery ([`ConnectionInfo::delivery`]).
    /// That takes memory, and the connection no fast path. Counts from the opening on, or from when
    /// it is set.
    pub accounting: bool,
}

impl SocketOptions {
    /// The defaults of a host with `config`.
    pub fn new(config: &TcpConfig) -> Self {
        SocketOptions {
            nodelay: !config.nagle,
            cork: false,
            congestion: config.congestion.algorithm,
            pacing: config.congestion.pacing,
            max_pacing_rate: None,
            keepalive: None,
            open_timeout: config.timeout.open,
            user_timeout: config.timeout.user,
            linger: None,
            traffic_class: 0,
            hop_limit: None,
            send_buffer_bytes: config.buffers.send,
            send_size: config.buffers.send_size(),
            receive_buffer_bytes: None,
            mss_max: 0,
            fin_wait_2_timeout: config.timeout.fin_wait_2,
            path_mtu_discovery: true,
            close_swap: config.time_wait.close_swap,
            negotiate: config.time_wait.negotiate,
            require_agreement: config.time_wait.require,
            accounting: false,
        }
    }
}

impl SocketOptions {
    /// The fields that it asks of its IP headers.
    pub(crate) fn ip_fields(&self) -> IpFields {
        IpFields { traffic_class: self.traffic_class, hop_limit: self.hop_limit }
    }

    /// True if there is to be no connection without an agreement about TIME-WAIT.
    pub(crate) fn requires_agreement(&self) -> bool {
        self.require_agreement && self.negotiate != Wish::Off
    }

    /// True if its connections are paced, whatever their congestion control.
    pub(crate) fn is_paced(&self) -> bool {
        self.pacing || self.max_pacing_rate.is_some()
    }

    /// True if its IP headers are those that every packet has.
    pub(crate) fn asks_nothing_of_ip(&self) -> bool {
        self.ip_fields() == IpFields::default() && self.path_mtu_discovery
    }
}

/// When to probe an idle connection (RFC 1122 §4.2.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes after which the connection fails.
    pub probes: u8,
}

/// What the peer has of the data written to a connection: a small part of [`ConnectionInfo`], which
/// takes much longer to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Bytes that the peer has not acknowledged. After the connection's end: those that it had not
    /// acknowledged then.
    pub unacknowledged_bytes: u32,
    /// Segments sent again since the connection began.
    pub retransmits: u32,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
}

/// The state of a connection for its user: what Linux tells in `tcp_info`, in bytes where that
/// counts segments.
///
/// Segments, in, out and delivered, how long the connection was busy, held by the
/// peer's window or by its own buffer, and when data was last received are counted only where the
/// socket asks for that: [`SocketOptions::accounting`], [`Host::account`](crate::Host::account).
/// Each of them would cost every connection at rest 4 or 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Its state.
    pub state: State,
    /// Congestion window, bytes.
    pub cwnd_bytes: u32,
    /// Slow-start threshold, bytes.
    pub ssthresh_bytes: u32,
    /// Smoothed round-trip time; zero before the first sample. Kept after the end.
    pub srtt: Duration,
    /// Round-trip time variation.
    pub rttvar: Duration,
    /// Retransmission timeout in force, back-off included; zero after the end.
    pub rto: Duration,
    /// The latest round-trip sample; zero before the first.
    pub latest_rtt: Duration,
    /// The least round trip since the connection began; zero before the first.
    pub min_rtt: Duration,
    /// The round trip by which the receive window is sized; zero while it is not known.
    pub receiver_rtt: Duration,
    /// How long a range may be late before it is held lost (RFC 8985 §6.2, step 4); zero if losses
    /// are not found by time.
    pub reordering_window: Duration,
    /// The path has reordered segments.
    pub has_reordered: bool,
    /// ACKs that showed so: of what was sent once, behind what was sent later; or that what was
    /// sent again had only been late. Since the connection rested, if nothing else went wrong.
    pub reorderings: u64,
    /// Bytes that had overtaken what was late, at most, holes among them. 0 where only the second
    /// kind of ACK has told: it does not say how late.
    pub overtaken_bytes: u32,
    /// The rate of the narrowest link on the way, payload alone, in bytes a second (packet pair:
    /// Aron & Druschel 1999, §3); `None` before three samples.
    pub bottleneck_bytes_per_second: Option<u64>,
    /// The rate at which the path delivered lately (draft-ietf-ccwg-bbr §4.1, told as Linux does);
    /// `None` before the first sample, and where nothing samples it: BBR does, and every connection
    /// whose socket asks for an account ([`SocketOptions::accounting`]).
    pub delivery: Option<DeliveryRate>,
    /// What congestion control knows of the path; `None` for algorithms that do not model it.
    pub model: Option<PathModel>,
    /// The rate at which bursts leave, payload alone, in bytes a second; where the connection is
    /// not paced, at which they would.
    pub pacing_bytes_per_second: u64,
    /// How it paces; `None` if it does not.
    pub pace: Option<Pace>,
    /// Retransmission timeouts in a row, or zero-window probes.
    pub backoff: u8,
    /// Sent and not acknowledged, bytes.
    pub in_flight_bytes: u32,
    /// Of the bytes in flight, those that the peer holds out of order (RFC 2018).
    pub sacked_bytes: u32,
    /// Of the bytes in flight, those that are held lost and were not sent again yet.
    pub lost_bytes: u32,
    /// Of the bytes in flight, those that were sent again in this recovery.
    pub resent_bytes: u32,
    /// Segments that are acknowledged at once before ACKs are delayed.
    pub quick_acks: u8,
    /// Why segments are being sent again.
    pub recovery: Mode,
    /// Duplicate ACKs in a row.
    pub duplicate_acks: u32,
    /// Segments retransmitted since the connection began. Kept after the end.
    pub retransmits: u64,
    /// Bytes of data in them.
    pub retransmitted_bytes: u64,
    /// Retransmission timeouts since the connection began.
    pub timeouts: u64,
    /// ACKs that reported a duplicate (RFC 2883) while something was missing.
    pub duplicate_sacks: u64,
    /// Recoveries that were not needed, and undone.
    pub recoveries_undone: u64,
    /// Bytes of data that the peer has acknowledged since the connection began.
    pub acknowledged_bytes: u64,
    /// Bytes of data sent since the connection began, each as often as it was.
    pub sent_bytes: u64,
    /// Bytes of data that have arrived in order since the connection began, read or not.
    pub received_bytes: u64,
    /// Segments that have arrived out of order; what the device has joined is one.
    pub out_of_order: u64,
    /// When data was last sent, new or again, on the host's clock. Before the first: when the
    /// connection was established.
    pub last_sent: Instant,
    /// When a segment of the peer was last heard, on the host's clock.
    pub last_heard: Instant,
    /// In the send buffer, bytes, whether sent or not. After the end: those that the peer had not
    /// acknowledged then.
    pub send_buffered_bytes: u32,
    /// In the receive buffer in order, bytes; also after the end.
    pub receive_buffered_bytes: u32,
    /// In the send buffer and never sent, bytes.
    pub unsent_bytes: u32,
    /// The largest packet that the path carries, bytes: what ICMP has told of it or a search has
    /// found, or else what the device sends.
    pub path_mtu_bytes: u16,
    /// Largest segment we send, bytes of payload and options.
    pub mss_bytes: u16,
    /// The MSS that we announced, bytes.
    pub announced_mss_bytes: u16,
    /// The largest segment seen from the peer, bytes of payload; 0 before the first.
    pub peer_segment_bytes: u16,
    /// Both ends use timestamps.
    pub timestamps: bool,
    /// Both ends use SACK.
    pub sack: bool,
    /// Both ends use ECN.
    pub ecn: bool,
    /// Which end will hold TIME-WAIT.
    pub holder: Holder,
    /// Shift counts, the peer's and ours; 0 without scaling.
    pub shifts: (u8, u8),
    /// Window the peer offers, bytes.
    pub peer_window_bytes: u32,
    /// Window we offer, bytes.
    pub receive_window_bytes: u32,
    /// Bytes that the receive buffer may hold now: it follows what is read in a round trip.
    pub receive_limit_bytes: u32,
}

impl Keepalive {
    /// For a socket that asks for probes and does not say when (RFC 9293 MUST-28).
    pub fn by_default(config: &TcpConfig) -> Self {
        Keepalive {
            idle: config.keepalive.idle,
            interval: config.keepalive.interval,
            probes: config.keepalive.probes,
        }
    }
}

/// The rate at which a path has delivered lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRate {
    /// Bytes a second, headers apart.
    pub bytes_per_second: u64,
    /// The application sent too little for that to be the path's limit.
    pub is_app_limited: bool,
}

/// What BBR knows of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathModel {
    /// The greatest rate of delivery of the last two probes, bytes a second: BBR.max_bw.
    pub bandwidth_bytes_per_second: u64,
}

/// How a connection paces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The largest burst, bytes.
    pub burst_bytes: u32,
    /// How late bursts left that were waited for, in the mean: the error of their spacing.
    pub late: Duration,
}

impl ConnectionInfo {
    /// A connection in `state` that has neither sent nor received.
    fn of_state(state: State) -> Self {
        ConnectionInfo { state, ssthresh_bytes: u32::MAX, ..ConnectionInfo::default() }
    }
}
