//! How TCP behaves: groups of knobs, and the words for their values.

use alloc::string::String;

use super::group::group;
use super::value::Value;
use crate::buffer::{PAGE_BYTES, SEGMENT_BYTES};
use crate::time::{Duration, Resolutions};
use crate::wire::options::{Layout, shift_for};

group! {
    /// How TCP behaves; per-connection values are the initial ones of its sockets.
    TcpConfig {
        /// Offer and use window scaling.
        window_scaling: bool = true, "", "RFC 7323 §2";
        /// Offer and use timestamps.
        timestamps: bool = true, "", "RFC 7323 §3";
        /// Offer and use selective acknowledgements.
        sack: bool = true, "", "RFC 2018";
        /// Explicit congestion notification: if the peer asks, asked for by our SYNs, or never.
        /// With DCTCP our SYNs ask as well, unless never.
        ecn: Ecn = Ecn::Passive, "", "RFC 3168, RFC 9293 SHLD-8";
        /// Nagle's algorithm, unless a socket turns it off.
        nagle: bool = true, "", "RFC 9293 SHLD-7";
        /// MSS announced at most; 0: whatever the device's MTU gives.
        mss_max: u16 = 0, "bytes", "ours";
        /// Least MSS accepted from a peer: a smaller announcement is raised to it.
        mss_min: u16 = 88, "bytes", "Linux (TCP_MIN_MSS)";
        /// Search for the largest packet that a path carries, where larger ones vanish without a
        /// report.
        path_mtu_search: bool = true, "", "RFC 8899; RFC 4821";
        /// A connection on which nothing has moved for so long (established, or without a user and
        /// in FIN-WAIT-2) is kept in a compact form until something does; 0s: never. Not with the
        /// timers of 4.4BSD, which keep every control block whole.
        compact_after: Duration = Duration::from_secs(2), "", "ours";
        /// How timers are looked after: by one entry a connection, by one entry a timer, or as
        /// 4.4BSD's lists, to compare with.
        timers: Scheme = Scheme::Inline, "", "ours; Aron & Druschel 1999 §2";
    }
    groups {
        /// The congestion window.
        congestion: CongestionConfig;
        /// The retransmission timeout.
        rto: RtoConfig;
        /// Acknowledgements.
        ack: AckConfig;
        /// Keepalive probes.
        keepalive: KeepaliveConfig;
        /// How long something may take.
        timeout: TimeoutConfig;
        /// Peers that take nothing, or too little.
        stall: StallConfig;
        /// TIME-WAIT.
        time_wait: TimeWaitConfig;
        /// Send and receive buffers.
        buffers: BufferConfig;
        /// How the memory of send buffers is shared where it is short.
        pool: PoolConfig;
        /// The two clocks.
        clock: ClockConfig;
        /// What other systems do and the RFCs do not ask for.
        quirks: Quirks;
    }
}

group! {
    /// The congestion window.
    CongestionConfig {
        /// The algorithm, unless a socket chooses another.
        algorithm: Algorithm = Algorithm::Cubic, "",
            "RFC 9438; RFC 5681; RFC 8257; draft-ietf-ccwg-bbr";
        /// Spread what is sent over the round trip, whatever the algorithm. BBR is paced in any
        /// case.
        pacing: bool = false, "", "RFC 9002 §7.7; Linux";
        /// Initial congestion window.
        initial_window: u32 = 10, "segments", "RFC 6928";
        /// Halve the congestion window for each RTO in which nothing is sent, down to the initial
        /// one.
        restart_after_idle: bool = true, "", "RFC 2861 §3.1; RFC 7661 §4.4.3";
        /// How losses are found where the peer sends SACK blocks: by when segments left, or by how
        /// many are sacked. By time only with the timers `inline` or `wheel` and the estimator
        /// `rfc6298`.
        detection: LossDetection = LossDetection::Rack, "", "RFC 8985; RFC 6675";
    }
}

group! {
    /// The retransmission timeout: SRTT + max(G, 4·RTTVAR, floor).
    RtoConfig {
        /// RTO before any measurement.
        initial: Duration = Duration::from_secs(1), "", "RFC 6298 §2.1";
        /// How the RTO is found.
        estimator: Estimator = Estimator::Rfc6298, "", "RFC 6298; Aron & Druschel 1999 §4";
        /// Least variance term of the RTO. 200 ms covers a receiver's delayed ACK.
        floor: Duration = Duration::from_millis(200), "", "Aron & Druschel 1999 §4; Linux";
        /// Largest RTO after back-off.
        max: Duration = Duration::from_secs(60), "", "RFC 6298 §2.5";
    }
}

group! {
    /// Acknowledgements.
    AckConfig {
        /// How an ACK is delayed: in buckets, by a timer, or until the next tick.
        delay: AckDelay = AckDelay::Buckets, "", "Mansley 2004";
        /// The delay by a timer, or the period of the ticks; below 500 ms.
        timer: Duration = Duration::from_millis(100), "", "RFC 9293 MUST-40";
        /// Least delay in buckets. Where all peers are near, less is better.
        bucket_min: Duration = Duration::from_millis(50), "", "Mansley 2004";
        /// Longest delay in buckets; below 500 ms.
        bucket_max: Duration = Duration::from_millis(150), "", "Mansley 2004";
        /// Segments acknowledged at once at a connection's start, before delaying begins.
        quick: u8 = 16, "segments", "Linux (TCP_MAX_QUICKACKS)";
    }
}

group! {
    /// Keepalive probes, for sockets that ask for them.
    KeepaliveConfig {
        /// Idle time before the first probe.
        idle: Duration = Duration::from_secs(7200), "", "RFC 9293 MUST-28";
        /// Time between probes.
        interval: Duration = Duration::from_secs(75), "", "4.4BSD, Linux";
        /// Unanswered probes after which the connection fails.
        probes: u8 = 9, "probes", "Linux";
    }
}

group! {
    /// How long something may take before we give up.
    TimeoutConfig {
        /// Opening a connection.
        open: Duration = Duration::from_secs(180), "", "RFC 9293 MUST-23";
        /// A SYN that waits for the verdict of its listener's user.
        verdict: Duration = Duration::from_secs(180), "", "RFC 9293 MUST-23 (its sender's)";
        /// Data that stays unacknowledged; a socket may set its own.
        user: Duration = Duration::from_secs(300), "", "RFC 9293 MUST-20, SHLD-11; RFC 5482";
        /// An orphan that waits for the peer's FIN in FIN-WAIT-2.
        fin_wait_2: Duration = Duration::from_secs(60), "", "Linux (tcp_fin_timeout)";
        /// An orphan whose text the peer takes more slowly than stall.rate; as long as any
        /// connection may be silent while its peer does not answer; a quarter of it where memory is
        /// scarce.
        orphan: Duration = Duration::from_secs(30), "", "ours";
    }
}

group! {
    /// Peers that take nothing, or too little.
    StallConfig {
        /// A peer that takes less stalls. No honest one is as slow: GPRS carried 4 kB/s.
        rate: u32 = 1000, "bytes a second", "ours";
        /// Where buffer memory has run out, connections that have stalled for so long may be
        /// reset.
        after: Duration = Duration::from_secs(3), "", "ours";
    }
}

group! {
    /// TIME-WAIT.
    TimeWaitConfig {
        /// How long it lasts, 2·MSL. RFC 9293 says MSL = 2 min; the field uses 30 s.
        length: Duration = Duration::from_secs(60), "", "RFC 9293 MUST-13; Linux";
        /// What is kept of a connection: a record, the whole control block, or, which is unsafe,
        /// nothing. The latter two are to compare with.
        state: TimeWaitState = TimeWaitState::Compact, "", "ours; 4.4BSD; mTCP";
        /// How long it lasts where the peer is on a link of ours; 0s: as all others. What was sent
        /// there is not under way for minutes.
        length_on_link: Duration = Duration::ZERO, "", "NetBSD (MSL truncation)";
        /// How long it lasts where the peer is this host itself; 0s: as all others.
        length_on_host: Duration = Duration::ZERO, "", "NetBSD (MSL truncation)";
        /// Where the peer closes first we take TIME-WAIT over from it, by an RST once our FIN is
        /// acknowledged; a socket may choose for itself. For hosts that are mostly clients.
        close_swap: bool = false, "", "Faber, Touch & Yue 1999 §4.1";
        /// Which end shall hold it, as we ask the peer when a connection is opened: the client, the
        /// server, we, or the peer; off: nothing is asked, and what is asked is not heard. A socket
        /// may choose for itself. Both ends must have it on.
        negotiate: Wish = Wish::Off, "", "Faber, Touch & Yue 1999 §3; RFC 6994";
        /// Connections only with peers that negotiate, and agree; a socket may choose for itself.
        require: bool = false, "", "Faber, Touch & Yue 1999 §3";
        /// What becomes of a connection whose peer chooses the other end: abort or fall-back.
        disagreement: Disagreement = Disagreement::Abort, "", "Faber, Touch & Yue 1999 §3";
        /// Kind of the option by which it is negotiated: 253 or 254.
        option_kind: u8 = 253, "", "RFC 6994; RFC 4727";
        /// Its experiment identifier.
        option_exid: u16 = 0x5457, "", "ours (TW), not registered";
        /// How long a peer is not asked that answered only a SYN without the option.
        ask_again: Duration = Duration::from_secs(3600), "", "ours";
    }
}

group! {
    /// Send and receive buffers of a socket.
    BufferConfig {
        /// Send buffer, at most.
        send: u32 = 1 << 20, "bytes", "ours";
        /// How large it is: round (in flight, and what a round trip may carry), los (what is sent
        /// until the next read of a file), fixed (buffers.send), linux (two windows, grows only).
        send_size: SendRule = SendRule::Round, "", "ours; Cohen & Cohen 2002 §3; Linux";
        /// By the rule linux: no more is taken while so many bytes are unsent; off: no such bound.
        send_lowat: Option<u32> = None, "bytes", "Linux (tcp_notsent_lowat)";
        /// By the rule los: round trips that a read takes, where its time or the RTT is not known.
        send_factor: u8 = 1, "round trips", "Cohen & Cohen 2002 App. A";
        /// Receive window at the start.
        receive: u32 = 64 << 10, "bytes", "Linux (tcp_rmem)";
        /// Largest receive window right-sizing may grow to; decides the scale at the SYN.
        receive_max: u32 = 4 << 20, "bytes", "Linux (tcp_rmem)";
    }
}

group! {
    /// How the memory of send buffers is shared where it is short.
    PoolConfig {
        /// Which connection gets the next page: line and round-robin (first come), naive (each has
        /// its share), priority (the one with least of its need), psc (each has its fair share,
        /// found by scans).
        policy: PoolPolicy = PoolPolicy::Line, "", "ours; Cohen & Cohen 2002 §4, §5";
        /// By the policy priority: a connection that holds pages counts for no more than this, 1 to
        /// 14.
        priority_cap: u8 = 8, "", "ours; Cohen & Cohen 2002 §4 (p)";
        /// By the policy priority: a connection that holds no page counts for one more than the
        /// cap; else for as much as if it held one.
        priority_of_none: bool = true, "", "Cohen & Cohen 2002 §4 (p + 1)";
        /// By the policy psc: time between scans of all connections.
        scan: Duration = Duration::from_millis(50), "", "ours; Semke, Mahdavi & Mathis 1998";
        /// By the policy naive: the connections that share the pages.
        most_connections: u32 = 1024, "connections", "Cohen & Cohen 2002 §4";
        /// Connections that hold no page come before those that hold some, whatever the policy.
        newcomers_first: bool = true, "", "ours";
    }
}

group! {
    /// The two clocks. What is configured finer than the platform's becomes as coarse as they are.
    ClockConfig {
        /// Resolution of the measurement clock, by which RTTs are taken.
        measure_hz: u64 = 1_000_000_000, "Hz", "ours; Aron & Druschel 1999 §3";
        /// The tick of the scheduling clock: timers fire at the first one at or after their
        /// deadline. It and the tick of the measurement clock are the RTO's granularity (RFC 6298's
        /// G).
        tick: Duration = Duration::from_millis(1), "", "ours";
    }
}

group! {
    /// What other systems do and the RFCs do not ask for: to compare with them, and to run scripts
    /// written for them.
    Quirks {
        /// Receive windows are rounded up to whole segments.
        window_in_segments: bool = false, "", "the BSDs have it on";
        /// Our shift count, 14 at most; auto: the smallest that expresses the largest window.
        window_shift: Option<u8> = None, "", "RFC 7323 §2.2";
        /// The order of the options on our SYNs.
        syn_layout: Layout = Layout::ScaleLast, "", "Linux; the BSDs have scale-first";
        /// When a segment with text carries PSH: where it empties the send buffer, or at the end of
        /// a burst that the device cuts as well.
        push: Push = Push::Emptied, "", "RFC 9293 MUST-61; Linux has burst";
        /// What asks a peer for its closed window: the next byte, or nothing at a number that was
        /// acknowledged already.
        window_probe: WindowProbe = WindowProbe::Byte, "", "RFC 9293 §3.8.6.1; Linux has empty";
        /// Segments without a timestamp are taken where timestamps were agreed on.
        missing_timestamps: bool = false, "", "RFC 7323 §3.2; Linux has it on";
        /// The ACK of the peer's FIN repeats ours if that is not acknowledged.
        repeat_fin: bool = false, "", "RFC 9293 §3.10.7.4; the BSDs have it on";
        /// Segments are acceptable up to what the buffer could take, not only up to what was
        /// announced: without scaling, the field says 65,535 at most.
        unannounced_window: bool = false, "", "RFC 9293 §3.10.7.4; the BSDs have it on";
        /// RST is believed anywhere in the window, and not only at RCV.NXT.
        insecure_rst: bool = false, "", "RFC 5961 §3.2; RFC 793 has it on";
        /// SYN inside the window resets the connection, and is not only challenged.
        insecure_syn: bool = false, "", "RFC 5961 §4.2; RFC 793 has it on";
    }
}

/// How large a send buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SendRule {
    /// [`SendSize::Round`].
    #[default]
    Round,
    /// [`SendSize::Los`].
    Los,
    /// [`SendSize::Fixed`], of [`BufferConfig::send`].
    Fixed,
    /// [`SendSize::Linux`], with [`BufferConfig::send_lowat`].
    Linux,
}

/// How large a send buffer is, within
/// [`SocketOptions::send_buffer_bytes`](crate::tcp::SocketOptions::send_buffer_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SendSize {
    /// What is in flight, and as much again as a round trip may carry: the congestion window, or
    /// 128 KiB.
    #[default]
    Round,
    /// What the window carries, and what can be sent until the next read of the source is done:
    /// [`tcp::send::los`](crate::tcp::send::los).
    Los,
    /// A fixed number of bytes.
    Fixed(u32),
    /// Twice the congestion window, 16 KiB at least, and never less than it was.
    Linux {
        /// No more is taken while so many bytes are unsent (TCP_NOTSENT_LOWAT).
        lowat: Option<u32>,
    },
}

impl BufferConfig {
    /// How large a send buffer is.
    pub fn send_size(&self) -> SendSize {
        match self.send_size {
            SendRule::Round => SendSize::Round,
            SendRule::Los => SendSize::Los,
            SendRule::Fixed => SendSize::Fixed(self.send),
            SendRule::Linux => SendSize::Linux { lowat: self.send_lowat },
        }
    }
}

/// Which connection gets the next page where pages are short (Cohen & Cohen 2002 §4, §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PoolPolicy {
    /// The connection that has waited longest gets as much as two windows carry.
    #[default]
    Line,
    /// Each connection may hold as much as any other, whether it needs that or not; one that finds
    /// no page waits in line.
    Naive,
    /// The connection that has waited longest gets one page.
    RoundRobin,
    /// The connection that holds the least part of what its window needs gets one page.
    Priority,
    /// Each may hold as much as max-min fairness gives it, which a scan of all connections finds
    /// from time to time. How long a source takes does not count.
    Psc,
}

/// The pages of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageSize {
    /// Of 1, 4 and 16 KiB.
    #[default]
    Auto,
    /// What is sent lies in pages of 512 bytes, as in Cohen & Cohen 2002 §4: to run that again.
    Segment,
}

impl PageSize {
    /// Bytes in what [`Limits::pages`](crate::config::Limits::pages) counts.
    pub const fn bytes(self) -> usize {
        match self {
            PageSize::Auto => PAGE_BYTES,
            PageSize::Segment => SEGMENT_BYTES,
        }
    }
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

impl Ecn {
    /// True if the SYNs of a connection with that congestion control ask for it.
    pub(crate) fn asks(self, algorithm: Algorithm) -> bool {
        match self {
            Ecn::Off => false,
            Ecn::Passive => algorithm == Algorithm::Dctcp,
            Ecn::Active => true,
        }
    }
}

/// The state of a connection that TIME-WAIT keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeWaitState {
    /// A record of tens of bytes, in a table of its own.
    #[default]
    Compact,
    /// The whole control block, as 4.4BSD, in the structure of the timer scheme: in the lists of
    /// [`Scheme::Scan`] and [`Scheme::OrderedList`], or with a deadline under the other schemes. To
    /// compare with.
    Full,
    /// *Unsafe.* Nothing: old duplicates may be taken for a later connection's data, and the peer
    /// that lost our last ACK is reset. What mTCP and Seastar do; to compare with.
    Skip,
}

/// Which end is to hold TIME-WAIT, as we ask the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wish {
    /// Nothing is asked, and what is asked is not heard.
    #[default]
    Off,
    /// The end that opens.
    Client,
    /// The end that listens.
    Server,
    /// We.
    Ourselves,
    /// The peer.
    Peer,
}

/// The action of an end whose peer chooses another holder of TIME-WAIT than it wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Disagreement {
    /// It resets the connection before that is open.
    #[default]
    Abort,
    /// It opens the connection without an agreement.
    FallBack,
}

/// The contents of a zero-window probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WindowProbe {
    /// The next byte (RFC 9293 §3.8.6.1: at least one octet of new data).
    #[default]
    Byte,
    /// Nothing, at a number that was acknowledged already: the answer tells the window as well, and
    /// a receiver that drops what it has no room for drops nothing. As Linux.
    Empty,
}

impl Scheme {
    /// True if its timers count in the block of each connection, so that every block stays whole.
    fn keeps_blocks_whole(self) -> bool {
        matches!(self, Scheme::Scan | Scheme::OrderedList)
    }
}

/// How the congestion window follows from what arrives and what is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// CUBIC (RFC 9438), with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// NewReno (RFC 5681).
    Reno,
    /// BBR, version 3 (draft-ietf-ccwg-bbr), which models the path and paces.
    Bbr,
    /// DCTCP (RFC 8257), where both ends use it and routers mark early: for networks of one owner.
    Dctcp,
}

impl Algorithm {
    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Algorithm> {
        let mut algorithm = Algorithm::default();
        algorithm.take(name).then_some(algorithm)
    }

    /// Its name, which is that of Linux.
    pub fn name(self) -> String {
        self.show()
    }
}

/// How losses are found, and how fast the window is reduced then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LossDetection {
    /// By time: RACK-TLP (RFC 8985), with proportional rate reduction (RFC 6937).
    #[default]
    Rack,
    /// By how much is sacked beyond a hole (RFC 6675). What was sent again and is lost once more
    /// waits for the timeout.
    Count,
}

/// How timers are looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheme {
    /// Deadlines checked in line, one lazily re-armed wake-up entry per connection.
    #[default]
    Inline,
    /// An eager hierarchical timing wheel, an entry for every timer (Varghese & Lauck 1987).
    Wheel,
    /// 4.4BSD: two ticks that scan every connection and decrement counters.
    Scan,
    /// The ticks of [`Scheme::Scan`] over a list with TIME-WAIT at its end (Aron & Druschel 1999),
    /// if whole blocks stay there.
    OrderedList,
}

/// How the timeout is found (Aron & Druschel 1999, Fig. 12, and today's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Estimator {
    /// RFC 6298 on the measurement clock, with the floor added.
    #[default]
    Rfc6298,
    /// 4.4BSD: ticks of 500 ms, in its integers.
    Bsd,
    /// 4.4BSD's estimator with Brakmo and Peterson's fixes.
    BsdBrakmoPeterson,
    /// The paper's: 4.4BSD's algorithm on the fine clock; the floor bounds the whole.
    Fine,
}

/// How long an ACK is delayed that need not leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AckDelay {
    /// From `ack.bucket_min` to `ack.bucket_max`, by a grid (Mansley 2004).
    #[default]
    Buckets,
    /// `ack.timer`, by a timer per connection, as FreeBSD.
    Timer,
    /// Until the next tick, for all connections the same, of a clock with the period `ack.timer`,
    /// as 4.4BSD (200 ms): an ACK asked for just before a tick is hardly delayed at all.
    Tick,
}

impl TcpConfig {
    /// These settings, but for what `change` changes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// How long TIME-WAIT lasts: where the peer is far, on a link of ours, and this host.
    pub fn time_wait_terms(&self) -> [Duration; 3] {
        let or_usual = |term: Duration| if term.is_zero() { self.time_wait.length } else { term };
        let TimeWaitConfig { length, length_on_link, length_on_host, .. } = self.time_wait;
        [length, or_usual(length_on_link), or_usual(length_on_host)]
    }

    /// How long nothing moves before a connection takes its compact form; `None`: it never does.
    pub fn rest_after(&self) -> Option<Duration> {
        let may_rest = !self.compact_after.is_zero() && !self.timers.keeps_blocks_whole();
        may_rest.then_some(self.compact_after)
    }

    /// Our shift count (RFC 7323 §2.2); 0 if we do not scale.
    pub fn shift(&self) -> u8 {
        if !self.window_scaling {
            return 0;
        }
        let smallest = || shift_for(self.buffers.receive_max);
        self.quirks.window_shift.map_or_else(smallest, |shift| shift.min(14))
    }
}

impl TcpConfig {
    /// For a platform of these resolutions: what is configured finer becomes as coarse as they are.
    pub fn coarsen(&mut self, platform: Resolutions) {
        let tick = Duration::from_nanos(1_000_000_000_u64.div_ceil(platform.schedule_hz.max(1)));
        self.clock.measure_hz = self.clock.measure_hz.min(platform.measure_hz);
        self.clock.tick = self.clock.tick.max(tick);
    }
}
