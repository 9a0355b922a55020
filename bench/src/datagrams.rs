//! Datagrams one way: a burst from one socket, read by the other end, and the next burst.

use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted};
use crate::sample::Rates;
use crate::stacks::which::{Variant, Which};

/// Datagrams that are sent in a turn: as many as a host sends of one socket.
pub const BURST: usize = 64;
/// Datagrams before measuring begins.
const WARM_UP: usize = 64 * 64;
/// Datagrams that are counted by callgrind, at most.
const COUNTED: usize = 64 * 400;
/// The name of the bench, and of the section that callgrind counts.
const SECTION: &str = "datagrams";

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of each datagram.
    pub size: usize,
    /// Datagrams measured.
    pub datagrams: usize,
    /// A burst is one call at either end, where the stack has such calls: ours does.
    pub batched: bool,
    /// The configuration of our own engine; other stacks ignore it.
    pub variant: Variant,
}

/// A sender and a receiver of one stack, back to back in memory.
pub trait Pair {
    /// A pair with both sockets bound.
    fn new(plan: &Plan) -> Self;
    /// Runs until `count` more datagrams have been read, a multiple of [`BURST`].
    fn pass(&mut self, count: usize);
    /// Asserts that nothing was lost.
    fn check(&self);
}

/// Runs the plan on a pair of that kind. Returns datagrams a second.
pub fn measure<P: Pair>(plan: &Plan) -> Rates {
    let mut pair = P::new(plan);
    pair.pass(WARM_UP);
    let rates = Rates::of_whole(BURST, plan.datagrams, |batch| pair.pass(batch));
    pair.check();
    rates
}

/// Runs the plan once, for callgrind to count.
pub fn section<P: Pair>(plan: &Plan) {
    let mut pair = P::new(plan);
    pair.pass(WARM_UP);
    instructions::section(SECTION, plan.datagrams, || pair.pass(plan.datagrams));
    pair.check();
}

/// Instructions of a datagram, both ends.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn count(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    let mut told = vec![
        format!("--size={}", plan.size),
        format!("--datagrams={}", plan.datagrams.min(COUNTED) / BURST * BURST),
    ];
    told.extend(plan.batched.then(|| "--batched".to_owned()));
    stack.count(SECTION, &told)
}

/// The result as a JSON object.
pub fn json(rates: &Rates, stack: Which, plan: &Plan) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("stack", json!(stack.name()));
    put("size_bytes", json!(plan.size));
    put("datagrams", json!(plan.datagrams));
    put("batched", json!(plan.batched));
    put("datagrams_per_s", json!(rates.median.round()));
    put("mean_datagrams_per_s", json!(rates.mean.round()));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datagram_arrives() {
        for stack in [Which::Lightwait, Which::Smoltcp] {
            for (size, batched) in [(1, false), (100, false), (1400, false), (1, true), (999, true)]
            {
                let plan = Plan { size, datagrams: 6400, batched, variant: stack.variant() };
                assert!(stack.datagrams(&plan).unwrap().median > 0.0, "{stack:?}");
            }
        }
        let (size, datagrams, variant) = (1, 64, Variant::Default);
        let plan = Plan { size, datagrams, batched: false, variant };
        assert!(Which::LightwaitSockets.datagrams(&plan).is_none());
    }
}
