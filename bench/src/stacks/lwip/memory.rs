//! lwIP's memory of a connection: the bytes that `malloc` reports as in use, with its own headers.

use lightwait_lwip::Purpose;

use super::{Ends, Short};
use crate::connections::{self, Pair};
use crate::memory::{Outcome, Plan, State, resident};

/// Idle connections, at most: opening one walks past all others, and each takes the same memory.
const IDLE: usize = 10_000;

/// Measures. Both ends of an idle connection are alike, and count together.
pub fn memory(plan: &Plan) -> Option<Outcome> {
    let (idle, time_wait) = match plan.state {
        State::Established | State::FinWait2 => (plan.count.min(IDLE), 0),
        State::TimeWait => (0, plan.count),
    };
    let of = |idle, time_wait| connections::Plan {
        time_wait,
        idle,
        variant: plan.variant,
        ..connections::Plan::default()
    };
    // The first connection of all allocates what later ones share.
    drop(Short::new(&of(1, 1)));
    let (empty, before) = (heap_bytes(&Ends::new(Purpose::Idle)), resident());
    let short = Short::new(&of(idle, time_wait));
    let (connections, ends) = if idle > 0 { (idle, 2 * idle) } else { (time_wait, time_wait) };
    let each = |bytes: f64| bytes / ends.max(1) as f64;
    let bytes = each(heap_bytes(&short.ends) - empty);
    let client_bytes = (idle > 0).then_some(bytes);
    let rss = each(resident() - before);
    Some(Outcome { connections, bytes, client_bytes, rss, ..Outcome::default() })
}

fn heap_bytes(ends: &Ends) -> f64 {
    ends.lwip.heap_bytes() as f64
}
