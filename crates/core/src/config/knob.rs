//! Knobs by name: `name=value` from a command line, a plan of experiments or a test's flags.
//!
//! ```text
//!   rto.floor=200ms   ack.quick=0   sack=off   quirks.window_shift=8   limits.time_wait=100000
//! ```

use alloc::vec::Vec;
use core::fmt;

use super::Config;
use super::group::{Group, Knob};
use super::value::Value;
use crate::time::Duration;

/// Why a knob was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobError {
    /// There is none of that name; [`Config::knobs`] lists them.
    Unknown,
    /// The value is none of those that it takes, which are described.
    Malformed(&'static str),
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobError::Unknown => f.write_str("there is no knob of that name"),
            KnobError::Malformed(shape) => write!(f, "the value must be {shape}"),
        }
    }
}

impl core::error::Error for KnobError {}

/// A time as knobs take it: a number and its unit, `40ms`.
pub fn parse_time(text: &str) -> Result<Duration, KnobError> {
    let mut time = Duration::ZERO;
    if time.take(text) { Ok(time) } else { Err(KnobError::Malformed(time.shape())) }
}

/// What the names of [`Limits`](super::Limits) begin with.
const LIMITS: &str = "limits.";

/// What the names of [`UdpConfig`](super::UdpConfig) begin with.
const UDP: &str = "udp.";

impl Config {
    /// All knobs, with the values that they have.
    pub fn knobs(&self) -> Vec<Knob> {
        let mut list = Vec::new();
        self.tcp.list("", &mut list);
        self.udp.list(UDP, &mut list);
        self.limits.list(LIMITS, &mut list);
        list
    }

    /// Sets the knob `name` to what `value` says.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        let knob = match (name.strip_prefix(LIMITS), name.strip_prefix(UDP)) {
            (Some(limit), _) => self.limits.value(limit),
            (None, Some(knob)) => self.udp.value(knob),
            (None, None) => self.tcp.value(name),
        };
        let knob = knob.ok_or(KnobError::Unknown)?;
        if knob.take(value) { Ok(()) } else { Err(KnobError::Malformed(knob.shape())) }
    }
}

#[cfg(test)]
mod tests;
