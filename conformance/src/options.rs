//! Socket options: the values that `setsockopt` keeps and `getsockopt` reports, and their effect on
//! the engine.

mod calls;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use libc::c_int;
use lightwait_core::config::Algorithm;
use lightwait_core::tcp::{Keepalive, SocketOptions};
use lightwait_core::{ConnectionId, Host, Instant};

use crate::address::Family;
use crate::errno::Errno;
use crate::profile::Profile;

/// Options that the C library names differently, or not at all.
mod number {
    use libc::c_int;
    pub(super) const TCP_TIMESTAMP: c_int = 24;
    pub(super) const SO_ZEROCOPY: c_int = 60;
    pub(super) const TCP_INQ: c_int = 36;
}

/// FreeBSD's name of Reno.
const NEWRENO: &str = "newreno";

/// The longest keepalive times that Linux accepts, in seconds, and the most probes.
const KEEPALIVE_SECONDS_MAX: c_int = 32_767;
const KEEPALIVE_PROBES_MAX: c_int = 127;

/// The range of MSS that Linux accepts (`TCP_MIN_MSS`, `MAX_TCP_WINDOW`).
const MSS_RANGE: std::ops::RangeInclusive<c_int> = 88..=32_767;

/// Options that are kept and reported, and have no effect here.
const KEPT: &[(c_int, c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_DEBUG),
    (libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, number::SO_ZEROCOPY),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_THIN_DUPACK),
    (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, number::TCP_INQ),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// The options of a socket.
#[derive(Clone, Debug)]
pub struct Options {
    /// SO_REUSEADDR.
    pub reuse_address: bool,
    /// SO_LINGER.
    pub linger: Option<Duration>,
    /// SO_RCVTIMEO; `None`: for ever.
    pub receive_timeout: Option<Duration>,
    /// SO_SNDTIMEO; `None`: for ever.
    pub send_timeout: Option<Duration>,
    /// SO_RCVBUF, as the caller set it.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF, as the caller set it.
    pub send_buffer: Option<u32>,
    /// TCP_MAXSEG.
    pub mss: u16,
    nodelay: bool,
    cork: bool,
    quick_ack: Option<bool>,
    keepalive: bool,
    keepalive_idle_s: c_int,
    keepalive_interval_s: c_int,
    keepalive_probes: c_int,
    syn_retries: Option<c_int>,
    /// TCP_LINGER2, seconds; negative: do not wait.
    linger2_s: Option<c_int>,
    user_timeout_ms: c_int,
    traffic_class: c_int,
    congestion: Algorithm,
    /// SO_MAX_PACING_RATE; `u64::MAX`: no bound.
    pub(crate) max_pacing_rate: u64,
    kept: BTreeMap<(c_int, c_int), c_int>,
    defaults: Defaults,
}

/// The value of an option before it is set.
#[derive(Clone, Copy, Debug)]
struct Defaults {
    receive_buffer: u32,
    send_buffer: u32,
    doubles: bool,
    rounds: bool,
    reset_breaks_pipe: bool,
    linger2_s: c_int,
    hop_limit: c_int,
    initial_rto: Duration,
    rto_max: Duration,
    engine: SocketOptions,
}

impl Options {
    /// Those of a new socket.
    pub fn new(profile: &Profile) -> Options {
        let (tcp, calls) = (&profile.config.tcp, &profile.calls);
        Options {
            reuse_address: false,
            linger: None,
            receive_timeout: None,
            send_timeout: None,
            receive_buffer: None,
            send_buffer: None,
            mss: 0,
            nodelay: !tcp.nagle,
            cork: false,
            quick_ack: None,
            keepalive: false,
            keepalive_idle_s: seconds(tcp.keepalive.idle),
            keepalive_interval_s: seconds(tcp.keepalive.interval),
            keepalive_probes: tcp.keepalive.probes.into(),
            syn_retries: None,
            linger2_s: None,
            user_timeout_ms: 0,
            traffic_class: 0,
            congestion: tcp.congestion.algorithm,
            max_pacing_rate: u64::MAX,
            kept: BTreeMap::new(),
            defaults: Defaults {
                receive_buffer: calls.receive_buffer_bytes,
                send_buffer: calls.send_buffer_bytes,
                doubles: calls.doubles_buffers,
                rounds: calls.rounds_buffers,
                reset_breaks_pipe: calls.reset_after_fin_breaks_pipe,
                linger2_s: seconds(tcp.timeout.fin_wait_2),
                hop_limit: profile.config.hop_limit.into(),
                initial_rto: tcp.rto.initial,
                rto_max: tcp.rto.max,
                engine: SocketOptions::new(tcp),
            },
        }
    }

    /// The options of the engine that they stand for.
    pub fn engine(&self) -> SocketOptions {
        let keepalive = Keepalive {
            idle: Duration::from_secs(self.keepalive_idle_s as u64),
            interval: Duration::from_secs(self.keepalive_interval_s as u64),
            probes: self.keepalive_probes as u8,
        };
        let defaults = &self.defaults.engine;
        SocketOptions {
            nodelay: self.nodelay,
            cork: self.cork,
            congestion: self.congestion,
            pacing: defaults.pacing,
            max_pacing_rate: self.max_pacing_rate(),
            keepalive: self.keepalive.then_some(keepalive),
            open_timeout: self.open_timeout(),
            user_timeout: match self.user_timeout_ms {
                0 => defaults.user_timeout,
                ms => Duration::from_millis(ms as u64),
            },
            // A positive one concerns `close`, which waits for it.
            linger: self.linger.filter(Duration::is_zero),
            traffic_class: self.traffic_class as u8,
            send_buffer_bytes: self.send_buffer.unwrap_or(defaults.send_buffer_bytes),
            send_size: defaults.send_size,
            receive_buffer_bytes: self.receive_buffer,
            mss_max: self.mss,
            fin_wait_2_timeout: match self.linger2_s {
                None => defaults.fin_wait_2_timeout,
                Some(seconds) => Duration::from_secs(seconds.max(0) as u64),
            },
            path_mtu_discovery: self.path_mtu_discovery(),
            hop_limit: self.hop_limit(),
            close_swap: defaults.close_swap,
            negotiate: defaults.negotiate,
            require_agreement: defaults.require_agreement,
            accounting: true,
        }
    }

    /// TCP_SYNCNT: SYNs sent again, each after twice as long as the one before, and then no more.
    fn open_timeout(&self) -> Duration {
        let Some(retries) = self.syn_retries else { return self.defaults.engine.open_timeout };
        let waits = (0..=retries.unsigned_abs()).map(|n| {
            let wait = self.defaults.initial_rto.saturating_mul(1 << n.min(16));
            wait.min(self.defaults.rto_max)
        });
        waits.sum()
    }

    /// Linux does not pace at a rate of 0, either.
    fn max_pacing_rate(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.max_pacing_rate).filter(|rate| *rate != NonZeroU64::MAX)
    }

    /// IP_TTL or IPV6_UNICAST_HOPS, where one was set; -1 is the default again.
    fn hop_limit(&self) -> Option<u8> {
        let names =
            [(libc::IPPROTO_IP, libc::IP_TTL), (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)];
        let set = names.iter().find_map(|name| self.kept.get(name));
        set.and_then(|value| u8::try_from(*value).ok())
    }

    fn path_mtu_discovery(&self) -> bool {
        let [inet, inet6] = [
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        ];
        let is_off = |name| self.kept.get(&name) == Some(&libc::IP_PMTUDISC_DONT);
        !is_off(inet) && !is_off(inet6)
    }

    /// SO_RCVLOWAT: bytes that make a socket readable.
    pub(crate) fn receive_low_water(&self) -> usize {
        let set = self.kept.get(&(libc::SOL_SOCKET, libc::SO_RCVLOWAT));
        set.map_or(1, |bytes| (*bytes).max(1) as usize)
    }

    /// A reset after the peer's FIN is a broken pipe.
    pub(crate) fn reset_breaks_pipe(&self) -> bool {
        self.defaults.reset_breaks_pipe
    }

    /// MSG_MORE: corks until the write after it.
    pub fn hold_back(&self, host: &mut Host, now: Instant, id: ConnectionId) {
        let corked = SocketOptions { cork: true, ..self.engine() };
        // A connection that is gone has no options.
        let _gone = host.set_options(now, id, corked);
    }

    /// The values of SO_RCVBUF and SO_SNDBUF, for a connection with that MSS, or 0 for none.
    pub(crate) fn buffer_sizes(&self, mss: u32) -> [c_int; 2] {
        let defaults = &self.defaults;
        let size = |set: Option<u32>, default: u32| match set {
            Some(bytes) if defaults.doubles => bytes.saturating_mul(2),
            Some(bytes) => bytes,
            None if defaults.rounds && mss > 0 => default.next_multiple_of(mss),
            None => default,
        };
        let receive = size(self.receive_buffer, defaults.receive_buffer);
        let send = size(self.send_buffer, defaults.send_buffer);
        [receive, send].map(|bytes| bytes as c_int)
    }

    /// Sets an option of a plain number.
    fn set(
        &mut self,
        family: Family,
        level: c_int,
        name: c_int,
        value: c_int,
    ) -> Result<(), Errno> {
        let within = |range: std::ops::RangeInclusive<c_int>| {
            if range.contains(&value) { Ok(value) } else { Err(Errno::EINVAL) }
        };
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address = value != 0,
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keepalive = value != 0,
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
                self.receive_buffer = Some(value.unsigned_abs().min(c_int::MAX as u32 / 2));
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
                self.send_buffer = Some(value.unsigned_abs().min(c_int::MAX as u32 / 2));
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.nodelay = value != 0,
            (libc::IPPROTO_TCP, libc::TCP_CORK) => self.cork = value != 0,
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => self.quick_ack = Some(value != 0),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                self.mss = if value == 0 { 0 } else { within(MSS_RANGE)? as u16 };
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                self.keepalive_idle_s = within(1..=KEEPALIVE_SECONDS_MAX)?;
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => {
                self.keepalive_interval_s = within(1..=KEEPALIVE_SECONDS_MAX)?;
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => {
                self.keepalive_probes = within(1..=KEEPALIVE_PROBES_MAX)?;
            }
            (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => self.syn_retries = Some(within(1..=127)?),
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => self.linger2_s = Some(value.max(-1)),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                self.user_timeout_ms = within(0..=c_int::MAX)?;
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = value & 0xff,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if family == Family::Inet6 => {
                self.traffic_class = if value == -1 { 0 } else { within(0..=255)? };
            }
            kept if KEPT.contains(&kept) => {
                self.kept.insert(kept, value);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// The value of an option that is a plain number; `None` if it is none of them.
    fn value(&self, level: c_int, name: c_int) -> Option<c_int> {
        Some(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address.into(),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keepalive.into(),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.nodelay.into(),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => self.cork.into(),
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => self.quick_ack.unwrap_or(true).into(),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keepalive_idle_s,
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => self.keepalive_interval_s,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => self.keepalive_probes,
            (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => self.syn_retries.unwrap_or(6),
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
                self.linger2_s.unwrap_or(self.defaults.linger2_s)
            }
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => self.user_timeout_ms,
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class
            }
            kept if KEPT.contains(&kept) => {
                self.kept.get(&kept).copied().unwrap_or_else(|| self.kept_default(kept))
            }
            _ => return None,
        })
    }

    fn kept_default(&self, (level, name): (c_int, c_int)) -> c_int {
        match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TTL) => self.defaults.hop_limit,
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => self.defaults.hop_limit,
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => libc::IP_PMTUDISC_WANT,
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) => libc::IP_PMTUDISC_WANT,
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => 1,
            _ => 0,
        }
    }
}

fn seconds(duration: Duration) -> c_int {
    c_int::try_from(duration.as_secs()).unwrap_or(c_int::MAX)
}
