//! What happens on chosen connections, event by event: segments, states, congestion, losses,
//! timers, windows.
//!
//! The engine knows nothing of it. A shard that is observed hands its frames to the host one by
//! one, and compares what the host tells of a connection before and after:
//!
//! ```text
//!   frame ──▶ look ─▶ Host::on_frame ─▶ look ─▶ events     what changed was the frame's doing
//!   time  ──▶ look ─▶ Host::on_time  ─▶ look ─▶ events     … a timer's
//!   tasks run
//!             Host::emit ─▶ frames, look ─▶ events         … the application's, and the sending
//! ```
//!
//! A shard that is not observed pays one look at a flag in each pass.

mod observer;
mod parse;
mod snapshot;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use lightwait_core::Instant;
pub use lightwait_core::capture::pcapng::Direction;
use lightwait_core::tcp::State;
use lightwait_core::tcp::send::recovery::Mode;
use lightwait_core::tcp::timers::Timer;
use lightwait_core::time::Duration;
use lightwait_core::wire::options::SackBlocks;
use lightwait_core::wire::tcp::Flags;

pub(crate) use observer::Observer;

/// Which connections are observed: those of which it returns true, given our end and the peer's.
pub type Wanted = Arc<dyn Fn(SocketAddr, SocketAddr) -> bool + Send + Sync>;

/// What to observe, and how much of it is kept.
#[derive(Clone)]
pub struct Watching {
    /// The connections.
    pub wanted: Wanted,
    /// Connections at most; others are counted.
    pub connections: usize,
    /// Events kept of each; the oldest go, and are counted.
    pub events: usize,
    /// It ends by itself after this long, if nobody has ended it.
    pub time: Duration,
}

/// What a shard has seen.
#[derive(Clone, Debug)]
pub struct Log {
    /// The connections, in the order in which they were first seen.
    pub connections: Vec<ConnectionLog>,
    /// Connections beyond the limit.
    pub left_out: u64,
    /// The system's time at the shard's [`Instant::ZERO`].
    pub zero: SystemTime,
}

/// What has happened on one connection, or on several that had the same ends one after another.
#[derive(Clone, Debug)]
pub struct ConnectionLog {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The oldest first.
    pub events: VecDeque<Event>,
    /// Events before these that there was no room for.
    pub dropped: u64,
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When, on the shard's clock.
    pub at: Instant,
    /// What.
    pub what: What,
}

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// It is there: it was opened, or was open when it was first seen.
    Opened {
        /// Its state.
        state: State,
        /// It was there before.
        is_old: bool,
    },
    /// Its state has changed.
    State {
        /// The state before.
        old: State,
        /// The state now.
        new: State,
        /// What changed it.
        by: Trigger,
    },
    /// Nothing is left of it.
    Closed {
        /// Its last state.
        state: State,
        /// What ended it.
        by: Trigger,
    },
    /// A segment has come or left.
    Segment(Segment),
    /// Congestion control, the round trip or what is in flight has changed.
    Parameters(Parameters),
    /// A recovery has begun or ended.
    Recovery {
        /// Why segments were sent again.
        old: Mode,
        /// Why they are now.
        new: Mode,
        /// What changed it.
        by: Trigger,
    },
    /// A recovery was not needed, and its reduction is undone.
    Undone,
    /// Bytes in flight are held lost.
    Lost {
        /// How many, beside those that were before.
        bytes: u32,
        /// By what they were found.
        by: Detector,
    },
    /// A timer was set, has fired or was cancelled.
    Timer {
        /// Which.
        timer: Timer,
        /// What happened to it.
        change: TimerChange,
    },
    /// The peer's window has closed, or opened again.
    PeerWindow {
        /// Bytes that it offers.
        bytes: u32,
    },
    /// Our window has closed, or opened again.
    OurWindow {
        /// Bytes that we offer.
        bytes: u32,
    },
    /// The writer waits for room in the send buffer, or for memory; or it waits no more.
    Writer {
        /// It waits.
        waits: bool,
        /// Bytes in the buffer.
        buffered: u32,
    },
}

/// What changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A segment of the peer.
    Segment,
    /// A timer.
    Timer(Timer),
    /// The application, or what the host did for it.
    Application,
}

/// By what a loss was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detector {
    /// By an ACK, and the time at which segments left (RFC 8985 §6.2).
    Rack,
    /// By the timer of the reordering window (RFC 8985 §6.3).
    RackTimer,
    /// By how much is sacked beyond a hole (RFC 6675 §4).
    Sack,
    /// By duplicate ACKs, or a partial one (RFC 5681 §3.2, RFC 6582 §3.2).
    DuplicateAcks,
    /// By the retransmission timeout (RFC 6298 §5).
    Timeout,
    /// By something else, such as a path that has become narrower.
    Other,
}

/// Why a segment was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// In a fast recovery.
    FastRecovery,
    /// After a timeout.
    Timeout,
    /// As the loss probe of a tail (RFC 8985 §7).
    LossProbe,
    /// In the handshake.
    Handshake,
    /// What a zero-window probe had sent before, or such a probe itself.
    WindowProbe,
    /// For another reason, such as a path that has become narrower.
    Other,
}

/// What happened to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// It fires then, unless it is set anew.
    Set(Instant),
    /// It has fired.
    Fired,
    /// It fires no more.
    Cancelled,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Whether it came or left.
    pub direction: Direction,
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK, if it has one.
    pub ack: Option<u32>,
    /// Bytes of text.
    pub len: u32,
    /// The control bits.
    pub flags: Flags,
    /// The window, in bytes.
    pub window: u32,
    /// What its sender holds out of order.
    pub sack: SackBlocks,
    /// TSval and TSecr.
    pub stamps: Option<(u32, u32)>,
    /// Segments that the device has joined into it, or cuts it into.
    pub packets: u32,
    /// It has left before, a part of it at least, and why it leaves again.
    pub again: Option<Again>,
}

/// Where congestion control and the measurement of the round trip stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes; `None`: there was no loss yet.
    pub ssthresh: Option<u32>,
    /// Smoothed round trip; zero before the first sample.
    pub srtt: Duration,
    /// The least round trip.
    pub min_rtt: Duration,
    /// The latest round trip.
    pub latest_rtt: Duration,
    /// Its variation.
    pub rttvar: Duration,
    /// Retransmission timeout, with its back-off.
    pub rto: Duration,
    /// The rate at which bursts leave, bytes a second.
    pub pacing_rate: u64,
    /// Sent and not acknowledged, bytes.
    pub in_flight: u32,
    /// Of those, sacked.
    pub sacked: u32,
    /// Of those, held lost and not sent again.
    pub lost: u32,
    /// The peer's window, bytes.
    pub peer_window: u32,
}

impl ConnectionLog {
    fn new(local: SocketAddr, remote: SocketAddr) -> ConnectionLog {
        ConnectionLog { local, remote, events: VecDeque::new(), dropped: 0 }
    }

    /// Adds an event; the oldest goes where there are `most`.
    fn push(&mut self, event: Event, most: usize) {
        while self.events.len() >= most.max(1) {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("connections", &self.connections)
            .field("events", &self.events)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
