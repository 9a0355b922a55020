//! The choice of a stack, and the variants of our own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;

use lightwait_core::config::{Scheme, TimeWaitState};

/// A version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Ip {
    /// IPv4.
    #[default]
    #[value(name = "4")]
    V4,
    /// IPv6, only in our engine.
    #[value(name = "6")]
    V6,
}

impl Ip {
    /// 4 or 6.
    pub fn version(self) -> u8 {
        if self == Ip::V4 { 4 } else { 6 }
    }

    /// The address of a host: from 10.0.0.0, or from fd00::.
    pub fn host(self, number: u32) -> IpAddr {
        match self {
            Ip::V4 => Ipv4Addr::from_bits((10 << 24) + number).into(),
            Ip::V6 => Ipv6Addr::from_bits((0xfd << 120) + u128::from(number)).into(),
        }
    }
}

/// A stack to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum Which {
    /// Our engine, driven as a shard drives it.
    Lightwait,
    /// Our engine with the whole control block kept in TIME-WAIT.
    LightwaitFull,
    /// Our engine with nothing kept in TIME-WAIT: unsafe, like mTCP and Seastar.
    LightwaitSkip,
    /// Our engine with 4.4BSD's timers: ticks that scan every connection, also in TIME-WAIT.
    LightwaitScan,
    /// Our sockets, with their executor.
    LightwaitSockets,
    /// Our sockets for any thread, in tokio's runtime; without the system's part of a wake.
    LightwaitSend,
    /// smoltcp.
    Smoltcp,
    /// lwIP, if its header files were present at build time.
    #[cfg(lwip)]
    Lwip,
    /// The kernel's stack, over the loopback device.
    #[cfg(target_os = "linux")]
    Linux,
}

/// The configuration of our own engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The default.
    Default,
    /// With the whole control block kept in TIME-WAIT.
    Full,
    /// With nothing kept in TIME-WAIT.
    Skip,
    /// With 4.4BSD's timers, and the whole control block kept in TIME-WAIT.
    Scan,
    /// With these timers, and this state kept in TIME-WAIT.
    Keeping(Scheme, TimeWaitState),
}
