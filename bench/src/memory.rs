//! Memory of a connection that has ended and is in TIME-WAIT: what the allocator was asked for, all
//! in, and what the process takes.
//!
//! The records enter by the real close path, from short connections as in
//! [`connections`]; memory counts from the end of the first few of them, so
//! that what does not depend on the number of records does not count. The program must have
//! [`lightwait_heap::Counting`] for its allocator.

use lightwait_heap::Heap;
use serde_json::{Map, Value, json};

use crate::connections::{self, Pair};
use crate::sample::tenths;
use crate::stacks::{Variant, Which};

/// Connections that end before memory counts.
const FIRST: usize = 4096;
/// Looks at the memory while it fills.
const LOOKS: usize = 400;
/// From so many records on the most that one takes is told.
const MANY: usize = 100_000;
/// Bytes of a page of the process.
const PAGE: f64 = 4096.0;

/// What to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Connections that are to be in TIME-WAIT.
    pub count: usize,
    /// How our own engine is configured.
    pub variant: Variant,
}

/// What it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Records there were in the end.
    pub records: usize,
    /// Bytes asked of the allocator, for each of them.
    pub bytes: f64,
    /// The most that was at any number of them from 100,000 on; without so many, in the end.
    pub most: f64,
    /// Bytes by which the process grew, for each of them; 0 if the system does not tell.
    pub rss: f64,
}

/// Fills TIME-WAIT of a pair of that kind.
pub fn measure<P: Pair>(plan: &Plan) -> Outcome {
    let (first, step) = (FIRST.min(plan.count / 8), plan.count.div_ceil(LOOKS).max(1));
    let mut pair = P::new(&connections::Plan {
        // None expires before the last has entered; and with so many source addresses no tuple
        // comes again.
        time_wait: 2 * (plan.count + first),
        idle: 0,
        count: 0,
        at_once: 16,
        variant: plan.variant,
        limit: None,
    });
    pair.converse(first);
    let (heap, before, begin) = (Heap::new(), resident(), pair.time_waits());
    let mut outcome = Outcome::default();
    // Some are still closing when their conversation is over, but not as many again.
    for _ in 0..2 * LOOKS {
        if outcome.records >= plan.count {
            break;
        }
        pair.converse(step.min(plan.count - outcome.records));
        outcome.records = pair.time_waits() - begin;
        outcome.bytes = heap.bytes() as f64 / outcome.records.max(1) as f64;
        if outcome.records >= MANY {
            outcome.most = outcome.most.max(outcome.bytes);
        }
    }
    outcome.most = outcome.most.max(outcome.bytes);
    outcome.rss = (resident() - before) / outcome.records.max(1) as f64;
    pair.check();
    outcome
}

/// Bytes of this process that are in memory.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.map_or(0.0, |pages| pages * PAGE)
}

impl Outcome {
    /// As a JSON object.
    pub fn json(&self, stack: Which) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("stack", json!(stack.name()));
        put("state", json!("time-wait"));
        put("count", json!(self.records));
        put("bytes_per_connection", json!(tenths(self.bytes)));
        put("most_bytes_per_connection", json!(tenths(self.most)));
        put("rss_bytes_per_connection", json!(tenths(self.rss)));
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

    #[test]
    fn a_record_takes_tens_of_bytes_and_a_control_block_hundreds() {
        let measure = |stack: Which| {
            let plan = Plan { count: 20_000, variant: stack.variant() };
            let outcome = stack.memory(&plan).unwrap();
            assert_eq!(outcome.records, 20_000);
            outcome.bytes
        };
        let (compact, full) = (measure(Which::Lightwait), measure(Which::LightwaitFull));
        assert!((24.0..36.0).contains(&compact), "{compact}");
        assert!(full > 6.0 * compact, "{full} and {compact}");
    }
}
