//! The options of streams alone, and those of the engine that they stand for.

use std::time::Duration;

use libc::c_int;
use lightwait_core::config::Algorithm;
use lightwait_core::tcp::{Keepalive, SocketOptions};

use super::{Options, seconds, within};
use crate::errno::Errno;
use crate::profile::Profile;

/// FreeBSD's name of Reno.
const NEWRENO: &str = "newreno";

/// The longest keepalive times that Linux accepts, in seconds, and the most probes.
const KEEPALIVE_SECONDS_MAX: c_int = 32_767;
const KEEPALIVE_PROBES_MAX: c_int = 127;

/// The range of MSS that Linux accepts (`TCP_MIN_MSS`, `MAX_TCP_WINDOW`).
const MSS_RANGE: std::ops::RangeInclusive<c_int> = 88..=32_767;

/// The options that streams have beside [`Options`].
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// TCP_MAXSEG.
    pub mss: u16,
    nodelay: bool,
    cork: bool,
    pub(super) quick_ack: Option<bool>,
    keepalive_idle_s: c_int,
    keepalive_interval_s: c_int,
    keepalive_probes: c_int,
    syn_retries: Option<c_int>,
    /// TCP_LINGER2, seconds; negative: do not wait.
    linger2_s: Option<c_int>,
    user_timeout_ms: c_int,
    congestion: Algorithm,
    defaults: Defaults,
}

/// What holds before an option is set.
#[derive(Clone, Copy, Debug)]
struct Defaults {
    reset_breaks_pipe: bool,
    linger2_s: c_int,
    initial_rto: Duration,
    rto_max: Duration,
    engine: SocketOptions,
}

impl TcpOptions {
    /// Those of a new stream.
    pub fn new(profile: &Profile) -> TcpOptions {
        let tcp = &profile.config.tcp;
        TcpOptions {
            mss: 0,
            nodelay: !tcp.nagle,
            cork: false,
            quick_ack: None,
            keepalive_idle_s: seconds(tcp.keepalive.idle),
            keepalive_interval_s: seconds(tcp.keepalive.interval),
            keepalive_probes: tcp.keepalive.probes.into(),
            syn_retries: None,
            linger2_s: None,
            user_timeout_ms: 0,
            congestion: tcp.congestion.algorithm,
            defaults: Defaults {
                reset_breaks_pipe: profile.calls.reset_after_fin_breaks_pipe,
                linger2_s: seconds(tcp.timeout.fin_wait_2),
                initial_rto: tcp.rto.initial,
                rto_max: tcp.rto.max,
                engine: SocketOptions::new(tcp),
            },
        }
    }

    /// The options of the engine that they and `shared` stand for.
    pub fn engine(&self, shared: &Options) -> SocketOptions {
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
            max_pacing_rate: shared.max_pacing_rate(),
            keepalive: shared.keepalive.then_some(keepalive),
            open_timeout: self.open_timeout(),
            user_timeout: match self.user_timeout_ms {
                0 => defaults.user_timeout,
                ms => Duration::from_millis(ms as u64),
            },
            // A positive one concerns `close`, which waits for it.
            linger: shared.linger.filter(Duration::is_zero),
            traffic_class: shared.traffic_class as u8,
            send_buffer_bytes: shared.send_buffer.unwrap_or(defaults.send_buffer_bytes),
            send_size: defaults.send_size,
            receive_buffer_bytes: shared.receive_buffer,
            mss_max: self.mss,
            fin_wait_2_timeout: match self.linger2_s {
                None => defaults.fin_wait_2_timeout,
                Some(seconds) => Duration::from_secs(seconds.max(0) as u64),
            },
            path_mtu_discovery: !shared.discovers_path_mtu_by(libc::IP_PMTUDISC_DONT),
            hop_limit: shared.hop_limit(),
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

    /// A reset after the peer's FIN is a broken pipe.
    pub(crate) fn reset_breaks_pipe(&self) -> bool {
        self.defaults.reset_breaks_pipe
    }

    /// TCP_CONGESTION.
    pub(super) fn congestion(&self) -> Algorithm {
        self.congestion
    }

    /// Sets TCP_CONGESTION to the name that `value` begins with.
    pub(super) fn set_congestion(&mut self, value: &[u8]) -> Result<(), Errno> {
        let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let name = if name == NEWRENO { "reno" } else { name };
        self.congestion = Algorithm::named(name).ok_or(Errno::ENOENT)?;
        Ok(())
    }

    /// Sets an option of a plain number. False if it is none of these.
    pub(super) fn set(&mut self, name: c_int, value: c_int) -> Result<bool, Errno> {
        match name {
            libc::TCP_NODELAY => self.nodelay = value != 0,
            libc::TCP_CORK => self.cork = value != 0,
            libc::TCP_QUICKACK => self.quick_ack = Some(value != 0),
            libc::TCP_MAXSEG => {
                self.mss = if value == 0 { 0 } else { within(MSS_RANGE, value)? as u16 };
            }
            libc::TCP_KEEPIDLE => {
                self.keepalive_idle_s = within(1..=KEEPALIVE_SECONDS_MAX, value)?;
            }
            libc::TCP_KEEPINTVL => {
                self.keepalive_interval_s = within(1..=KEEPALIVE_SECONDS_MAX, value)?;
            }
            libc::TCP_KEEPCNT => {
                self.keepalive_probes = within(1..=KEEPALIVE_PROBES_MAX, value)?;
            }
            libc::TCP_SYNCNT => self.syn_retries = Some(within(1..=127, value)?),
            libc::TCP_LINGER2 => self.linger2_s = Some(value.max(-1)),
            libc::TCP_USER_TIMEOUT => self.user_timeout_ms = within(0..=c_int::MAX, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The value of an option that is a plain number; `None` if it is none of these.
    pub(super) fn value(&self, name: c_int) -> Option<c_int> {
        Some(match name {
            libc::TCP_NODELAY => self.nodelay.into(),
            libc::TCP_CORK => self.cork.into(),
            libc::TCP_QUICKACK => self.quick_ack.unwrap_or(true).into(),
            libc::TCP_KEEPIDLE => self.keepalive_idle_s,
            libc::TCP_KEEPINTVL => self.keepalive_interval_s,
            libc::TCP_KEEPCNT => self.keepalive_probes,
            libc::TCP_SYNCNT => self.syn_retries.unwrap_or(6),
            libc::TCP_LINGER2 => self.linger2_s.unwrap_or(self.defaults.linger2_s),
            libc::TCP_USER_TIMEOUT => self.user_timeout_ms,
            _ => return None,
        })
    }
}
