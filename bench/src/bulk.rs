//! Bulk transfer: one connection that carries bytes one way, as fast as it can.

use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted};
use crate::sample::Rates;
use crate::stacks::which::Which;

/// Bytes sent between two readings of the clock.
const MEGABYTE: usize = 1_000_000;
/// Megabytes before measuring begins: until the windows have their full size.
const WARM_UP: usize = 20;
/// Megabytes that are counted by callgrind, at most.
const COUNTED: usize = 20;
/// The name of the bench, and of the section that callgrind counts.
const SECTION: &str = "bulk";

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Bytes to send; whole megabytes, one at least.
    pub bytes: u64,
    /// The hosts compute and verify checksums; else both are left to the device.
    pub checksum: bool,
    /// The host cuts large segments; else the device does. Only our stack can leave them to the
    /// device.
    pub cut: bool,
}

impl Plan {
    /// Adapts the plan to `stack`: lwIP's segments have their own size, and it always sums
    /// checksums.
    #[must_use]
    pub fn as_done_by(self, stack: Which) -> Plan {
        if stack.is_lwip() { Plan { mtu: 1500, checksum: true, cut: true, ..self } } else { self }
    }

    fn megabytes(&self) -> usize {
        usize::try_from(self.bytes / MEGABYTE as u64).unwrap_or(usize::MAX).max(1)
    }
}

/// A sender and a receiver of one stack, back to back in memory.
pub trait Pair {
    /// A pair with the connection open.
    fn new(plan: &Plan) -> Self;
    /// Sends `bytes` further bytes, until the receiver has read them.
    fn send(&mut self, bytes: usize);
    /// Asserts that no unexpected event has happened.
    fn check(&self);
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Megabytes a second.
    pub rates: Rates,
}

/// Runs the plan on a pair of that kind.
pub fn measure<P: Pair>(plan: &Plan) -> Outcome {
    let mut pair = warm::<P>(plan);
    let rates = Rates::of(plan.megabytes(), |batch| pair.send(batch * MEGABYTE));
    pair.check();
    Outcome { rates }
}

fn warm<P: Pair>(plan: &Plan) -> P {
    let mut pair = P::new(plan);
    pair.send(WARM_UP * MEGABYTE);
    pair
}

/// Runs the plan once, for callgrind to count.
pub fn section<P: Pair>(plan: &Plan) {
    let mut pair = warm::<P>(plan);
    let megabytes = plan.megabytes();
    instructions::section(SECTION, megabytes, || pair.send(megabytes * MEGABYTE));
    pair.check();
}

/// Instructions of a megabyte, both ends.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn count(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    stack.count(SECTION, &told(plan))
}

/// Locked instructions of a megabyte, both ends: atomic operations that write.
///
/// # Errors
/// Those of [`count`]; or objdump is missing, or fails.
pub fn count_locked(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    stack.count_locked(SECTION, &told(plan))
}

/// The arguments for the plan, for the program that is counted.
fn told(plan: &Plan) -> Vec<String> {
    let bytes = plan.megabytes().min(COUNTED) * MEGABYTE;
    let mut told = vec![format!("--mtu={}", plan.mtu), format!("--bytes={bytes}")];
    let switches = [("--no-checksum", !plan.checksum), ("--no-cut", !plan.cut)];
    told.extend(switches.iter().filter(|it| it.1).map(|it| it.0.to_owned()));
    told
}

impl Outcome {
    /// Gbit/s.
    pub fn gbit_per_s(&self) -> f64 {
        self.rates.median * (MEGABYTE * 8) as f64 / 1e9
    }

    /// As a JSON object.
    pub fn json(&self, stack: Which, plan: &Plan) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("stack", json!(stack.name()));
        put("bytes", json!(plan.bytes));
        // The loopback device has its own MTU and no checksums.
        if stack != Which::Linux {
            put("mtu", json!(plan.mtu));
            put("checksum", json!(plan.checksum));
        }
        put("gbit_per_s", json!((self.gbit_per_s() * 100.0).round() / 100.0));
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn bytes_arrive_at_either_mtu_with_and_without_checksums() {
        for (mtu, checksum) in [(1500, true), (1500, false), (9000, true), (9000, false)] {
            let plan = Plan { mtu, bytes: 3_000_000, checksum, cut: checksum || mtu > 1500 };
            for stack in Which::value_variants() {
                let rates = stack.bulk(&plan).rates;
                // A batch without work would be much quicker than the rest.
                let ratio = rates.median / rates.mean;
                assert!((0.2..5.0).contains(&ratio), "{stack:?}: {rates:?}");
            }
        }
    }
}
