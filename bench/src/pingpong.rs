//! Requests on connections that stay: a request of 100 bytes, an answer of 500, and the next
//! request at once, on every connection.

use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted};
use crate::sample::{Rates, per_operation, tenths};
use crate::stacks::which::{Variant, Which};

/// Requests before measuring begins, at least; and one a connection.
const WARM_UP: usize = 2000;
/// Requests that are counted by callgrind, at most.
const COUNTED: usize = 20_000;
/// The name of the bench, and of the section that callgrind counts.
const SECTION: &str = "pingpong";

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Connections, each with a pending request.
    pub connections: usize,
    /// Requests measured, on all connections together.
    pub requests: usize,
    /// The configuration of our own engine; other stacks ignore it.
    pub variant: Variant,
}

/// A client and a server of one stack, back to back in memory.
pub trait Pair {
    /// A pair with all connections open.
    fn new(plan: &Plan) -> Self;
    /// Runs until `count` requests are answered.
    fn exchange(&mut self, count: usize);
    /// Packets so far, both ways, if they can be counted.
    fn packets(&self) -> Option<u64>;
    /// Asserts that no unexpected event has happened.
    fn check(&self);
}

/// The result of a run.
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
/// Those of [`count`]; or objdump is missing, or fails.
pub fn count_locked(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    stack.count_locked(SECTION, &told(plan))
}

/// The arguments for the plan, for the program that is counted.
fn told(plan: &Plan) -> [String; 2] {
    [
        format!("--connections={}", plan.connections),
        format!("--requests={}", plan.requests.min(COUNTED)),
    ]
}

impl Plan {
    /// Adapts the plan to `stack`: no more connections than it can have.
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
                if *stack == Which::LightwaitSend && connections == 1000 {
                    // Five requests a connection are acknowledged at once, before the answers.
                    continue;
                }
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
