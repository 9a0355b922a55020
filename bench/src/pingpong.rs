//! Requests on connections that stay: 100 bytes asked, 500 answered, and the next one as soon as
//! the answer is there, on every connection at once.

use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted};
use crate::sample::{Rates, per_operation, tenths};
use crate::stacks::which::{Variant, Which};

/// Requests before the first is measured, at least; and one a connection.
const WARM_UP: usize = 2000;
/// Requests that are counted by callgrind, at most.
const COUNTED: usize = 20_000;
/// What the bench is called, and the section that callgrind counts.
const SECTION: &str = "pingpong";

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Connections, each with a request under way.
    pub connections: usize,
    /// Requests measured, on all of them together.
    pub requests: usize,
    /// How our own engine is configured; others take no notice.
    pub variant: Variant,
}

/// A client and a server of one stack, back to back in memory.
pub trait Pair {
    /// With all connections open.
    fn new(plan: &Plan) -> Self;
    /// Has `count` requests answered.
    fn exchange(&mut self, count: usize);
    /// Packets so far, both ways, if they can be counted.
    fn packets(&self) -> Option<u64>;
    /// Asserts that nothing has happened that does not belong to it.
    fn check(&self);
}

/// What a stack did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Requests a second.
    pub rates: Rates,
    /// Packets of a request, both ways.
    pub packets: Option<f64>,
}

/// Runs the plan on a pair of that kind.
pub fn measure<P: Pair>(plan: &Plan) -> Outcome {
    let mut pair = warm::<P>(plan);
    let packets = pair.packets();
    let rates = Rates::of_whole(plan.connections, plan.requests, |batch| pair.exchange(batch));
    pair.check();
    Outcome { rates, packets: per_operation(packets, pair.packets(), rates.count) }
}

fn warm<P: Pair>(plan: &Plan) -> P {
    let mut pair = P::new(plan);
    pair.exchange(plan.connections.max(WARM_UP));
    pair
}

/// Runs the plan once, for callgrind to count.
pub fn section<P: Pair>(plan: &Plan) {
    let mut pair = warm::<P>(plan);
    instructions::section(SECTION, plan.requests, || pair.exchange(plan.requests));
    pair.check();
}

/// Instructions of a request, both ends.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn count(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    stack.count(SECTION, &told(plan))
}

/// Locked instructions of a request, both ends: atomic operations that write.
///
/// # Errors
/// As [`count`], and if objdump is not there, or fails.
pub fn count_locked(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    stack.count_locked(SECTION, &told(plan))
}

/// The plan, as the program that is counted is told it.
fn told(plan: &Plan) -> [String; 2] {
    [
        format!("--connections={}", plan.connections),
        format!("--requests={}", plan.requests.min(COUNTED)),
    ]
}

impl Plan {
    /// What `stack` makes of it: it has no more connections than it can.
    #[must_use]
    pub fn as_done_by(self, stack: Which) -> Plan {
        Plan { connections: self.connections.min(stack.connections_most()), ..self }
    }
}

impl Outcome {
    /// As a JSON object.
    pub fn json(&self, stack: Which, plan: &Plan) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("stack", json!(stack.name()));
        put("connections", json!(plan.connections));
        put("requests", json!(plan.requests));
        put("requests_per_s", json!(self.rates.median.round()));
        put("mean_requests_per_s", json!(self.rates.mean.round()));
        put("packets_per_request", json!(self.packets.map(tenths)));
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_request_is_one_packet_each_way() {
        for stack in Which::value_variants() {
            for connections in [1, 100, 1000] {
                let variant = stack.variant();
                let plan = Plan { connections, requests: 5000, variant };
                let outcome = stack.pingpong(&plan);
                let packets = outcome.packets.unwrap_or(2.0);
                assert!((packets - 2.0).abs() < 0.1, "{stack:?}, {connections}: {packets}");
                assert!(outcome.rates.median > 0.0);
            }
        }
    }
}
