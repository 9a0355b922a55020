//! The measured stacks, and the interface that each implements.

#[cfg(target_os = "linux")]
pub mod linux;
#[cfg(lwip)]
pub mod lwip;
pub mod raw;
pub mod send;
pub mod smoltcp;
pub mod sockets;
pub mod watch;
pub mod which;

/// Bytes of a client's request.
pub const REQUEST: usize = 100;
/// Bytes of a server's answer.
pub const RESPONSE: usize = 500;

use clap::ValueEnum;

use crate::instructions::{self, Uncounted};
use crate::sample::Rates;
use crate::{bulk, connections, datagrams, memory, pingpong};
pub use which::{Ip, Variant, Which};

/// Expands to `$body`, in which `$stack` is the module of the chosen stack.
macro_rules! on_stack {
    ($which:expr, $stack:ident => $body:expr) => {
        match $which {
            Which::Lightwait
            | Which::LightwaitFull
            | Which::LightwaitSkip
            | Which::LightwaitScan => {
                use self::raw as $stack;
                $body
            }
            Which::LightwaitSockets => {
                use self::sockets as $stack;
                $body
            }
            Which::LightwaitSend => {
                use self::send as $stack;
                $body
            }
            Which::Smoltcp => {
                use self::smoltcp as $stack;
                $body
            }
            #[cfg(lwip)]
            Which::Lwip => {
                use self::lwip as $stack;
                $body
            }
            #[cfg(target_os = "linux")]
            Which::Linux => {
                use self::linux as $stack;
                $body
            }
        }
    };
}

impl Which {
    /// The configuration of our engine in this stack.
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

    /// True for our engine alone.
    fn is_our_engine(self) -> bool {
        use Which::{Lightwait, LightwaitFull, LightwaitScan, LightwaitSkip};
        matches!(self, Lightwait | LightwaitFull | LightwaitSkip | LightwaitScan)
    }

    /// True for our engine, alone or through sockets.
    pub fn is_ours(self) -> bool {
        self.is_our_engine() || matches!(self, Which::LightwaitSockets | Which::LightwaitSend)
    }

    /// True for lwIP.
    pub fn is_lwip(self) -> bool {
        #[cfg(lwip)]
        if self == Which::Lwip {
            return true;
        }
        false
    }

    /// The most connections that it can have at a time.
    pub fn connections_most(self) -> usize {
        #[cfg(target_os = "linux")]
        if self == Which::Linux {
            return linux::CONNECTIONS;
        }
        usize::MAX
    }

    /// True if callgrind can count its work: not the kernel's.
    pub fn is_countable(self) -> bool {
        #[cfg(target_os = "linux")]
        if self == Which::Linux {
            return false;
        }
        true
    }

    /// Instructions of an operation of the bench of that name with these arguments; `None` if they
    /// cannot be counted.
    ///
    /// # Errors
    /// If callgrind is not there, or fails.
    pub fn count(self, bench: &str, told: &[String]) -> Result<Option<f64>, Uncounted> {
        if !self.is_countable() {
            return Ok(None);
        }
        let stack = [format!("--stack={}", self.name()), format!("--section={bench}")];
        instructions::count(&[&[bench.to_owned()][..], &stack, told].concat())
    }

    /// Locked instructions among those of [`Which::count`].
    ///
    /// # Errors
    /// Those of [`Which::count`]; or objdump is missing, or fails.
    pub fn count_locked(self, bench: &str, told: &[String]) -> Result<Option<f64>, Uncounted> {
        if !self.is_countable() {
            return Ok(None);
        }
        let stack = [format!("--stack={}", self.name()), format!("--section={bench}")];
        instructions::locked::count(&[&[bench.to_owned()][..], &stack, told].concat())
    }

    /// Measures short connections.
    pub fn connections(self, plan: &connections::Plan) -> connections::Outcome {
        let plan = &plan.as_done_by(self);
        on_stack!(self, stack => connections::measure::<stack::Short>(plan))
    }

    /// Measures short connections of our engine alone, under several plans that take turns. Returns
    /// the rates of each plan, build by build, over `turns` turns.
    pub fn take_turns(plans: &[connections::Plan], builds: usize, turns: usize) -> Vec<Vec<f64>> {
        connections::take_turns::<raw::Short>(plans, builds, turns)
    }

    /// Runs short connections for callgrind to count.
    pub fn count_connections(self, plan: &connections::Plan) {
        on_stack!(self, stack => connections::section::<stack::Short>(plan));
    }

    /// Measures the memory of connections; `None` if nothing is kept, or it cannot be measured.
    pub fn memory(self, plan: &memory::Plan) -> Option<memory::Outcome> {
        match self {
            Which::LightwaitSkip if plan.state == memory::State::TimeWait => None,
            _ if plan.is_for_us_alone() && !self.is_our_engine() => None,
            #[cfg(target_os = "linux")]
            Which::Linux => linux::memory(plan),
            #[cfg(lwip)]
            Which::Lwip => lwip::memory(plan),
            _ => on_stack!(self, stack => Some(memory::measure::<stack::Short>(plan))),
        }
    }

    /// Measures requests on connections that stay.
    pub fn pingpong(self, plan: &pingpong::Plan) -> pingpong::Outcome {
        let plan = &plan.as_done_by(self);
        on_stack!(self, stack => pingpong::measure::<stack::PingPong>(plan))
    }

    /// Runs requests for callgrind to count.
    pub fn count_pingpong(self, plan: &pingpong::Plan) {
        on_stack!(self, stack => pingpong::section::<stack::PingPong>(plan));
    }

    /// Measures datagrams, in datagrams a second; `None` of a stack that they are not measured of.
    pub fn datagrams(self, plan: &datagrams::Plan) -> Option<Rates> {
        match self {
            Which::Smoltcp => Some(datagrams::measure::<smoltcp::Datagrams>(plan)),
            _ if self.is_our_engine() => Some(datagrams::measure::<raw::Datagrams>(plan)),
            _ => None,
        }
    }

    /// Runs datagrams for callgrind to count. False of a stack that they are not measured of.
    pub fn count_datagrams(self, plan: &datagrams::Plan) -> bool {
        match self {
            Which::Smoltcp => datagrams::section::<smoltcp::Datagrams>(plan),
            _ if self.is_our_engine() => datagrams::section::<raw::Datagrams>(plan),
            _ => return false,
        }
        true
    }

    /// Measures a long transfer.
    pub fn bulk(self, plan: &bulk::Plan) -> bulk::Outcome {
        on_stack!(self, stack => bulk::measure::<stack::Bulk>(plan))
    }

    /// Runs a long transfer for callgrind to count.
    pub fn count_bulk(self, plan: &bulk::Plan) {
        on_stack!(self, stack => bulk::section::<stack::Bulk>(plan));
    }
}
