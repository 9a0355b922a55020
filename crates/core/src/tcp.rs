//! TCP (RFC 9293), sans I/O.

pub mod arrive;
pub mod challenge;
pub mod congestion;
pub mod connection;
pub mod egress;
pub mod emit;
pub mod pool;
pub mod recv;
pub mod send;
pub mod seq;
pub mod state;
pub mod time_wait;
pub mod timers;

pub use connection::{Connection, Tuple};
pub use seq::Seq;
pub use state::State;

use crate::time::Duration;

/// What a socket can be asked to do differently; each connection starts with its host's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Send small segments at once (Nagle's algorithm off).
    pub nodelay: bool,
    /// Send only full segments until uncorked, for 200 ms at most.
    pub cork: bool,
    /// Keepalive probes after this idle time; `None`: off.
    pub keepalive: Option<Keepalive>,
    /// Fail when data stays unacknowledged this long (RFC 5482).
    pub user_timeout: Duration,
    /// What closing means for data not yet sent: `None`: sent in the background; zero: dropped,
    /// and the connection reset; else sent in the background for at most this long.
    pub linger: Option<Duration>,
    /// DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// Send buffer, in bytes.
    pub send_buffer_bytes: u32,
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

/// What a connection says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Its state.
    pub state: State,
    /// Congestion window, bytes.
    pub cwnd_bytes: u32,
    /// Slow-start threshold, bytes.
    pub ssthresh_bytes: u32,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Round-trip time variation.
    pub rttvar: Duration,
    /// Retransmission timeout in force, back-off included.
    pub rto: Duration,
    /// Sent and not acknowledged, bytes.
    pub in_flight_bytes: u32,
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Retransmission timeouts since the connection began.
    pub timeouts: u64,
    /// In the send buffer, bytes, whether sent or not.
    pub send_buffered_bytes: u32,
    /// In the receive buffer in order, bytes.
    pub receive_buffered_bytes: u32,
    /// Largest segment we send, bytes of payload.
    pub mss_bytes: u16,
    /// Window the peer offers, bytes.
    pub peer_window_bytes: u32,
    /// Window we offer, bytes.
    pub receive_window_bytes: u32,
}

impl ConnectionInfo {
    /// A connection in `state` of which nothing more is known.
    fn of_state(state: State) -> Self {
        ConnectionInfo {
            state,
            cwnd_bytes: 0,
            ssthresh_bytes: u32::MAX,
            srtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            rto: Duration::ZERO,
            in_flight_bytes: 0,
            retransmits: 0,
            timeouts: 0,
            send_buffered_bytes: 0,
            receive_buffered_bytes: 0,
            mss_bytes: 0,
            peer_window_bytes: 0,
            receive_window_bytes: 0,
        }
    }
}
