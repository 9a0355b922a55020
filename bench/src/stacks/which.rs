//! Which stack is measured, and how our own is configured.

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
    /// IPv6. Our engine alone.
    #[value(name = "6")]
    V6,
}

impl Ip {
    /// 4 or 6.
    pub fn version(self) -> u8 {
        if self == Ip::V4 { 4 } else { 6 }
    }

    /// The address of a host: 10.0.0.0 and on, or fd00:: and on.
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
    /// The same with the whole control block kept in TIME-WAIT.
    LightwaitFull,
    /// The same with nothing kept in TIME-WAIT: unsafe, what mTCP and Seastar do.
    LightwaitSkip,
    /// The same as 4.4BSD did it: ticks that scan every connection, those in TIME-WAIT as well.
    LightwaitScan,
    /// Our sockets, with their executor.
    LightwaitSockets,
    /// smoltcp.
    Smoltcp,
    /// lwIP, where its header files were when this was built.
    #[cfg(lwip)]
    Lwip,
    /// The kernel's, over the loopback device.
    #[cfg(target_os = "linux")]
    Linux,
}

/// How our own engine is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As by default.
    Default,
    /// With the whole control block kept in TIME-WAIT.
    Full,
    /// With nothing kept in TIME-WAIT.
    Skip,
    /// With 4.4BSD's timers, and the whole control block kept in TIME-WAIT.
    Scan,
    /// With these timers, and so much kept in TIME-WAIT.
    Keeping(Scheme, TimeWaitState),
}
