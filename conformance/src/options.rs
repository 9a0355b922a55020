//! Socket options: the values that `setsockopt` keeps and `getsockopt` reports, and their effect on
//! the engine.

mod calls;
mod datagram;
mod tcp;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use libc::c_int;

use crate::address::Family;
use crate::errno::Errno;
use crate::profile::Profile;

pub(crate) use datagram::Reports;
pub use tcp::TcpOptions;

/// Options that the C library names differently, or not at all.
mod number {
    use libc::c_int;
    pub(super) const TCP_TIMESTAMP: c_int = 24;
    pub(super) const SO_ZEROCOPY: c_int = 60;
    pub(super) const TCP_INQ: c_int = 36;
}

/// Level and name of an option.
type Name = (c_int, c_int);

/// Options of a stream that are kept and reported. Most have no effect here.
const KEPT_OF_STREAMS: &[Name] = &[
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

/// The options that sockets of every kind have.
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
    keepalive: bool,
    traffic_class: c_int,
    /// SO_MAX_PACING_RATE; `u64::MAX`: no bound.
    pub(crate) max_pacing_rate: u64,
    /// The options that are kept in `kept`.
    keeps: &'static [Name],
    kept: BTreeMap<Name, c_int>,
    defaults: Defaults,
}

/// The value of an option before it is set.
#[derive(Clone, Copy, Debug)]
struct Defaults {
    receive_buffer: u32,
    send_buffer: u32,
    doubles: bool,
    rounds: bool,
    hop_limit: c_int,
}

impl Options {
    /// Those of a new stream.
    pub fn of_streams(profile: &Profile) -> Options {
        let buffers = [profile.calls.receive_buffer_bytes, profile.calls.send_buffer_bytes];
        Options::new(profile, KEPT_OF_STREAMS, buffers)
    }

    /// Those of a new socket for datagrams.
    pub fn of_datagrams(profile: &Profile) -> Options {
        let udp = &profile.config.udp;
        Options::new(profile, datagram::KEPT, [udp.receive_bytes, udp.send_bytes])
    }

    fn new(profile: &Profile, keeps: &'static [Name], buffers: [u32; 2]) -> Options {
        Options {
            reuse_address: false,
            linger: None,
            receive_timeout: None,
            send_timeout: None,
            receive_buffer: None,
            send_buffer: None,
            keepalive: false,
            traffic_class: 0,
            max_pacing_rate: u64::MAX,
            keeps,
            kept: BTreeMap::new(),
            defaults: Defaults {
                receive_buffer: buffers[0],
                send_buffer: buffers[1],
                doubles: profile.calls.doubles_buffers,
                rounds: profile.calls.rounds_buffers,
                hop_limit: profile.config.hop_limit.into(),
            },
        }
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

    /// True if IP_MTU_DISCOVER or IPV6_MTU_DISCOVER was set to that value.
    fn discovers_path_mtu_by(&self, how: c_int) -> bool {
        let names = [
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
        ];
        names.iter().any(|name| self.kept.get(name) == Some(&how))
    }

    /// SO_RCVLOWAT: bytes that make a stream readable.
    pub(crate) fn receive_low_water(&self) -> usize {
        let set = self.kept.get(&(libc::SOL_SOCKET, libc::SO_RCVLOWAT));
        set.map_or(1, |bytes| (*bytes).max(1) as usize)
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
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address = value != 0,
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keepalive = value != 0,
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
                self.receive_buffer = Some(value.unsigned_abs().min(c_int::MAX as u32 / 2));
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
                self.send_buffer = Some(value.unsigned_abs().min(c_int::MAX as u32 / 2));
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = value & 0xff,
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if family == Family::Inet6 => {
                self.traffic_class = if value == -1 { 0 } else { within(0..=255, value)? };
            }
            kept if self.keeps.contains(&kept) => {
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
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class
            }
            kept if self.keeps.contains(&kept) => {
                self.kept.get(&kept).copied().unwrap_or_else(|| self.kept_default(kept))
            }
            _ => return None,
        })
    }

    fn kept_default(&self, (level, name): Name) -> c_int {
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

/// `value`, if it is in `range`.
fn within(range: std::ops::RangeInclusive<c_int>, value: c_int) -> Result<c_int, Errno> {
    if range.contains(&value) { Ok(value) } else { Err(Errno::EINVAL) }
}

fn seconds(duration: Duration) -> c_int {
    c_int::try_from(duration.as_secs()).unwrap_or(c_int::MAX)
}
