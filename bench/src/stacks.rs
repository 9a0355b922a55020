//! The stacks that are measured, and what each must be able to do.

#[cfg(target_os = "linux")]
pub mod linux;
pub mod raw;
pub mod smoltcp;
pub mod sockets;
pub mod watch;

/// Bytes that a client asks with.
pub const REQUEST: usize = 100;
/// Bytes that a server answers with.
pub const RESPONSE: usize = 500;

use clap::ValueEnum;

use lightwait_core::config::TimeWaitState;
use lightwait_core::tcp::timers::Scheme;

use crate::{bulk, connections, memory, pingpong};

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

impl Which {
    /// What is special about our engine there.
    pub fn variant(self) -> Variant {
        match self {
            Which::LightwaitFull => Variant::Full,
            Which::LightwaitSkip => Variant::Skip,
            Which::LightwaitScan => Variant::Scan,
            _ => Variant::Default,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// True if what it does can be counted by callgrind: not what the kernel does.
    pub fn is_countable(self) -> bool {
        #[cfg(target_os = "linux")]
        if self == Which::Linux {
            return false;
        }
        true
    }

    /// Measures short connections.
    pub fn connections(self, plan: &connections::Plan) -> connections::Outcome {
        match self {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => connections::measure::<raw::Short>(plan),
            Which::LightwaitSockets => connections::measure::<sockets::Short>(plan),
            Which::Smoltcp => connections::measure::<smoltcp::Short>(plan),
            #[cfg(target_os = "linux")]
            Which::Linux => connections::measure::<linux::Short>(plan),
        }
    }

    /// Measures short connections of our engine alone under several plans that take turns.
    pub fn take_turns(plans: &[connections::Plan]) -> Vec<f64> {
        connections::take_turns::<raw::Short>(plans)
    }

    /// Runs short connections for callgrind to count.
    pub fn count_connections(self, plan: &connections::Plan) {
        match self {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => connections::section::<raw::Short>(plan),
            Which::LightwaitSockets => connections::section::<sockets::Short>(plan),
            Which::Smoltcp => connections::section::<smoltcp::Short>(plan),
            #[cfg(target_os = "linux")]
            Which::Linux => connections::section::<linux::Short>(plan),
        }
    }

    /// Measures the memory of TIME-WAIT; `None` where nothing is kept, or it cannot be told.
    pub fn memory(self, plan: &memory::Plan) -> Option<memory::Outcome> {
        Some(match self {
            Which::Lightwait | Which::LightwaitFull | Which::LightwaitScan => {
                memory::measure::<raw::Short>(plan)
            }
            Which::LightwaitSockets => memory::measure::<sockets::Short>(plan),
            Which::LightwaitSkip | Which::Smoltcp => return None,
            #[cfg(target_os = "linux")]
            Which::Linux => return None,
        })
    }

    /// Measures requests on connections that stay.
    pub fn pingpong(self, plan: &pingpong::Plan) -> pingpong::Outcome {
        match self {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => pingpong::measure::<raw::PingPong>(plan),
            Which::LightwaitSockets => pingpong::measure::<sockets::PingPong>(plan),
            Which::Smoltcp => pingpong::measure::<smoltcp::PingPong>(plan),
            #[cfg(target_os = "linux")]
            Which::Linux => pingpong::measure::<linux::PingPong>(plan),
        }
    }

    /// Runs requests for callgrind to count.
    pub fn count_pingpong(self, plan: &pingpong::Plan) {
        match self {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => pingpong::section::<raw::PingPong>(plan),
            Which::LightwaitSockets => pingpong::section::<sockets::PingPong>(plan),
            Which::Smoltcp => pingpong::section::<smoltcp::PingPong>(plan),
            #[cfg(target_os = "linux")]
            Which::Linux => pingpong::section::<linux::PingPong>(plan),
        }
    }

    /// Measures a long transfer.
    pub fn bulk(self, plan: &bulk::Plan) -> bulk::Outcome {
        match self {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => bulk::measure::<raw::Bulk>(plan),
            Which::LightwaitSockets => bulk::measure::<sockets::Bulk>(plan),
            Which::Smoltcp => bulk::measure::<smoltcp::Bulk>(plan),
            #[cfg(target_os = "linux")]
            Which::Linux => bulk::measure::<linux::Bulk>(plan),
        }
    }

    /// Runs a long transfer for callgrind to count.
    pub fn count_bulk(self, plan: &bulk::Plan) {
        match self {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => bulk::section::<raw::Bulk>(plan),
            Which::LightwaitSockets => bulk::section::<sockets::Bulk>(plan),
            Which::Smoltcp => bulk::section::<smoltcp::Bulk>(plan),
            #[cfg(target_os = "linux")]
            Which::Linux => bulk::section::<linux::Bulk>(plan),
        }
    }
}
