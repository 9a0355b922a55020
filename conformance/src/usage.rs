//! Measures how long a connection's sender was limited and why, and when its receiver last got
//! data: the times of TCP_INFO, which the engine does not keep.
//!
//! The state at the end of one look holds until the next, and there is a look after every event.

use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::tcp::ConnectionInfo;

/// The sender's limit at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Hold {
    /// It has nothing to send.
    #[default]
    Idle,
    /// The network: data is in flight.
    Network,
    /// The peer's window.
    Window,
    /// Room in the send buffer.
    Buffer,
}

/// The times of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    hold: Hold,
    looked_at: Option<Instant>,
    /// Data was not acknowledged, or waited to be sent.
    pub busy: Duration,
    /// The part of that in which the peer's window was too small.
    pub window_limited: Duration,
    /// The part of that in which the send buffer was full, and the network would have taken more.
    pub buffer_limited: Duration,
    /// Bytes that have arrived in order.
    received: u64,
    received_at: Option<Instant>,
    /// The last write found less room than it wanted.
    pub wants_room: bool,
}

impl Usage {
    /// Looks at the connection. `received`: bytes that have arrived in order since it began.
    pub fn look(&mut self, now: Instant, info: &ConnectionInfo, received: u64) {
        let passed = self.looked_at.map_or(Duration::ZERO, |before| now.since(before));
        self.looked_at = Some(now);
        match self.hold {
            Hold::Idle => {}
            Hold::Network => self.busy += passed,
            Hold::Window => {
                self.busy += passed;
                self.window_limited += passed;
            }
            Hold::Buffer => {
                self.busy += passed;
                self.buffer_limited += passed;
            }
        }
        self.hold = self.hold_of(info);
        if received != self.received || self.received_at.is_none() {
            self.received = received;
            self.received_at = Some(now);
        }
    }

    fn hold_of(&self, info: &ConnectionInfo) -> Hold {
        let next = info.in_flight_bytes + info.unsent_bytes.min(info.mss_bytes.into());
        match (info.unsent_bytes, info.in_flight_bytes) {
            (0, 0) => Hold::Idle,
            (0, _) if self.wants_room && info.in_flight_bytes < info.cwnd_bytes => Hold::Buffer,
            (1.., _) if next > info.peer_window_bytes && next <= info.cwnd_bytes => Hold::Window,
            _ => Hold::Network,
        }
    }

    /// How long ago data last arrived.
    pub fn since_received(&self, now: Instant) -> Duration {
        self.received_at.map_or(Duration::ZERO, |at| now.since(at))
    }
}
