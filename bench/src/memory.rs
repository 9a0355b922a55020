//! Memory of connections that stand and do nothing: established and idle, left by the server alone
//! (FIN-WAIT-2), or ended and in TIME-WAIT, while they enter and while they expire. What the
//! allocator was asked for, all in, and what the process takes.
//!
//! They begin by the real handshake and end by the real closing, as in [`connections`]. What does
//! not depend on their number does not count; what the bench's own application keeps of each does
//! not exist, but for sockets, whose task is a part of what is asked about. The program must have
//! [`lightwait_heap::Counting`] for its allocator.

use std::time::Duration;

use lightwait_heap::Heap;
use serde_json::{Map, Value, json};

use crate::connections::{self, Pair};
use crate::sample::tenths;
use crate::stacks::which::{Ip, Variant, Which};

/// Connections that end before memory counts.
const FIRST: usize = 4096;
/// Looks at the memory while it fills.
const LOOKS: usize = 400;
/// At this number of records, and above it, the most that one takes is told.
const MANY: usize = 100_000;
/// Bytes of a page of the process.
const PAGE: f64 = 4096.0;

/// In which state connections are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    /// Established, and idle.
    Established,
    /// Left by the server, and not by the client: in FIN-WAIT-2. Of our own engine alone.
    #[value(name = "fin-wait-2")]
    FinWait2,
    /// Ended, and in TIME-WAIT.
    TimeWait,
}

/// What to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where connections are to be.
    pub state: State,
    /// How many.
    pub count: usize,
    /// What they go over.
    pub ip: Ip,
    /// How our own engine is configured.
    pub variant: Variant,
}

/// What it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Connections there were in the end, by which bytes are divided: those that were asked for and
    /// a few that had begun with them, or as many as the stack can have.
    pub connections: usize,
    /// Bytes asked of the allocator at the server, for each of them.
    pub bytes: f64,
    /// The most that this was at any number of them from 100,000 on while they became more, where
    /// that was looked at.
    pub most: Option<f64>,
    /// What became of it when they ended, where that was looked at.
    pub drained: Option<Drained>,
    /// The same as `bytes` at the client, if both ends stay.
    pub client_bytes: Option<f64>,
    /// Bytes by which the process grew, for each end that stays; 0 if the system does not tell. Too
    /// few in a process that has had more before.
    pub rss: f64,
}

/// What is left of memory while records expire and no others enter.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// The most bytes for each of those left, at any number of them down to 100,000; nothing if
    /// there were no more.
    pub most: Option<f64>,
    /// Bytes that are not given back when all are gone, of all of them together.
    pub bytes: f64,
}

/// Fills a pair of that kind.
pub fn measure<P: Pair>(plan: &Plan) -> Outcome {
    match plan.state {
        State::Established | State::FinWait2 => standing::<P>(plan),
        State::TimeWait if P::BEGINS_FULL => standing::<P>(plan),
        State::TimeWait => filling::<P>(plan),
    }
}

impl Plan {
    /// True if no other stack than our own engine can do it.
    pub(crate) fn is_for_us_alone(&self) -> bool {
        self.state == State::FinWait2 || self.ip == Ip::V6
    }

    /// A pair with so many connections in the state.
    fn pair<P: Pair>(&self, count: usize) -> P {
        let (idle, time_wait) = match self.state {
            State::Established | State::FinWait2 => (count, 0),
            State::TimeWait => (0, count),
        };
        P::new(&connections::Plan {
            time_wait,
            idle,
            half_closed: self.state == State::FinWait2,
            ip: self.ip,
            variant: self.variant,
            ..connections::Plan::default()
        })
    }
}

/// Bytes of a pair: of its server, and of both ends.
fn ends<P: Pair>(plan: &Plan, count: usize) -> (f64, f64, f64) {
    let (heap, before) = (Heap::new(), resident());
    let pair: P = plan.pair(count);
    let (both, grown) = (heap.bytes() as f64, resident() - before);
    let server = pair.into_server();
    let one = heap.bytes() as f64;
    drop(server);
    (one, both, grown)
}

/// What connections take that are all there when the pair is.
fn standing<P: Pair>(plan: &Plan) -> Outcome {
    // One in TIME-WAIT is there in any case.
    let none = usize::from(plan.state == State::TimeWait);
    let (empty, empties, _) = ends::<P>(plan, none);
    let (server, both, grown) = ends::<P>(plan, plan.count);
    let each = |bytes: f64| bytes / (plan.count - none) as f64;
    let bytes = each(server - empty);
    let outcome = Outcome { connections: plan.count, bytes, ..Outcome::default() };
    if plan.state == State::TimeWait {
        return Outcome { rss: each(grown), ..outcome };
    }
    let client_bytes = Some(each(both - empties) - bytes);
    Outcome { client_bytes, rss: each(grown) / 2.0, ..outcome }
}

/// What records take that enter one after the other, and then expire.
fn filling<P: Pair>(plan: &Plan) -> Outcome {
    let (first, step) = (FIRST.min(plan.count / 8), plan.count.div_ceil(LOOKS).max(1));
    let conversations = connections::Plan {
        // None expires before the last has entered; and with so many source addresses no tuple
        // comes again.
        time_wait: 2 * (plan.count + first),
        at_once: 16,
        ip: plan.ip,
        variant: plan.variant,
        ..connections::Plan::default()
    };
    let mut pair = P::new(&conversations);
    pair.converse(first);
    // Those under way end a little later.
    pair.pass(2 * conversations.time_wait_lasts());
    let (heap, before, begin) = (Heap::new(), resident(), pair.time_waits());
    let mut outcome = Outcome::default();
    // Some are still closing when their conversation is over, but not as many again.
    for _ in 0..2 * LOOKS {
        if outcome.connections >= plan.count {
            break;
        }
        pair.converse(step.min(plan.count - outcome.connections));
        outcome.connections = pair.time_waits() - begin;
        outcome.bytes = heap.bytes() as f64 / outcome.connections.max(1) as f64;
        note(&mut outcome.most, outcome.connections, &heap);
    }
    outcome.rss = (resident() - before) / outcome.connections.max(1) as f64;
    outcome.drained = drain(&mut pair, &heap, conversations.time_wait_lasts());
    pair.check();
    outcome
}

/// The most that each of so many has taken.
fn note(most: &mut Option<f64>, records: usize, heap: &Heap) {
    if records >= MANY {
        let bytes = heap.bytes() as f64 / records as f64;
        *most = Some(most.map_or(bytes, |most| most.max(bytes)));
    }
}

/// Lets all records expire, the last after `last`; `None` if the stack's time does not pass.
fn drain<P: Pair>(pair: &mut P, heap: &Heap, last: Duration) -> Option<Drained> {
    let mut most = None;
    for _ in 0..2 * LOOKS {
        if !pair.pass(last / LOOKS as u32) {
            return None;
        }
        if pair.time_waits() == 0 {
            return Some(Drained { most, bytes: heap.bytes() as f64 });
        }
        note(&mut most, pair.time_waits(), heap);
    }
    panic!("2·MSL are over for all of them");
}

/// Bytes of this process that are in memory.
pub(crate) fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.map_or(0.0, |pages| pages * PAGE)
}

impl State {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            State::Established => "established",
            State::FinWait2 => "fin-wait-2",
            State::TimeWait => "time-wait",
        }
    }
}

impl Outcome {
    /// In words.
    pub fn in_words(&self) -> String {
        format!("{}, {:.1} resident", self.heap_in_words(), self.rss)
    }

    /// What the allocator was asked for, in words: that alone is told truly by a process that has
    /// measured before, and still holds pages of it.
    pub fn heap_in_words(&self) -> String {
        let told = |value: Option<f64>, what: &str| {
            value.map_or_else(String::new, |bytes| format!(", {bytes:.1} {what}"))
        };
        let drained = self.drained.map_or_else(String::new, |drained| {
            let most = told(drained.most, "at most while draining");
            format!("{most}, {:.0} bytes in all when drained", drained.bytes)
        });
        format!(
            "{:.1} bytes each{}{}{drained}",
            self.bytes,
            told(self.client_bytes, "at the client"),
            told(self.most, "at most while filling"),
        )
    }

    /// As a JSON object.
    pub fn json(&self, stack: Which, plan: &Plan) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("stack", json!(stack.name()));
        put("state", json!(plan.state.name()));
        put("count", json!(plan.count));
        put("connections", json!(self.connections));
        put("ip", json!(plan.ip.version()));
        put("bytes_per_connection", json!(tenths(self.bytes)));
        if let Some(client_bytes) = self.client_bytes {
            put("client_bytes_per_connection", json!(tenths(client_bytes)));
        }
        if let Some(most) = self.most {
            put("most_bytes_per_connection", json!(tenths(most)));
        }
        if let Some(drained) = self.drained {
            put("bytes_after_draining", json!(drained.bytes));
            if let Some(most) = drained.most {
                put("most_bytes_per_connection_draining", json!(tenths(most)));
            }
        }
        put("rss_bytes_per_connection", json!(tenths(self.rss)));
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: lightwait_heap::Counting = lightwait_heap::Counting;

    fn measure(stack: Which, state: State, count: usize) -> Outcome {
        measure_over(Ip::V4, stack, state, count)
    }

    fn measure_over(ip: Ip, stack: Which, state: State, count: usize) -> Outcome {
        let plan = Plan { state, count, ip, variant: stack.variant() };
        let outcome = stack.memory(&plan).unwrap();
        assert_eq!(outcome.connections, count);
        outcome
    }

    #[test]
    fn a_record_takes_tens_of_bytes_and_a_control_block_hundreds() {
        let bytes = |stack| measure(stack, State::TimeWait, 20_000).bytes;
        let (compact, full) = (bytes(Which::Lightwait), bytes(Which::LightwaitFull));
        assert!((24.0..36.0).contains(&compact), "{compact}");
        assert!(full > 6.0 * compact, "{full} and {compact}");
    }

    #[test]
    fn what_records_took_is_given_back_as_they_expire() {
        for (ip, goal) in [(Ip::V4, 32.0), (Ip::V6, 46.0)] {
            let count = 2 * MANY;
            let outcome = measure_over(ip, Which::Lightwait, State::TimeWait, count);
            let most = outcome.most.unwrap();
            assert!(most <= goal && most > 0.9 * goal, "{ip:?}: {outcome:?}");
            let drained = outcome.drained.unwrap();
            assert!(drained.most.unwrap() <= 2.0 * goal, "{ip:?}: {outcome:?}");
            // Some KB may be kept for the next ones.
            assert!(drained.bytes < 20e3, "{ip:?}: {outcome:?}");
            let [filling, draining] = ["filling", "draining"].map(|name| format!("while {name}"));
            let words = outcome.in_words();
            assert!(words.contains(&filling) && words.contains(&draining), "{words}");
        }
    }

    #[test]
    fn the_most_is_told_only_where_it_was_looked_at() {
        let few = measure(Which::Lightwait, State::TimeWait, 20_000);
        assert_eq!((few.most, few.drained.unwrap().most), (None, None));
        let idle = measure(Which::Lightwait, State::Established, 1000);
        assert!(idle.most.is_none() && idle.drained.is_none());
        for outcome in [few, idle] {
            assert!(!outcome.in_words().contains("at most"), "{}", outcome.in_words());
        }
    }

    #[test]
    fn what_was_asked_for_is_told_beside_what_there_was() {
        let plan = Plan {
            state: State::TimeWait,
            count: 1000,
            ip: Ip::V4,
            variant: Which::Lightwait.variant(),
        };
        let outcome = Which::Lightwait.memory(&plan).unwrap();
        // Sixteen are under way at a time.
        assert!((1000..1016).contains(&outcome.connections), "{outcome:?}");
        let object = outcome.json(Which::Lightwait, &plan);
        let told = ["count", "connections"].map(|key| object[key].as_u64());
        assert_eq!(told, [Some(1000), Some(outcome.connections as u64)]);
    }

    #[test]
    fn others_are_measured_over_ipv4_alone() {
        for stack in [Which::Smoltcp, Which::LightwaitSockets] {
            let state = State::TimeWait;
            let plan = Plan { state, count: 1000, ip: Ip::V6, variant: stack.variant() };
            assert!(stack.memory(&plan).is_none());
        }
    }

    #[test]
    fn an_orphan_that_waits_for_a_fin_takes_little_more_than_a_record() {
        // Two thousand were whole at a time, whose slots stay.
        let bytes = measure(Which::Lightwait, State::FinWait2, 20_000).bytes;
        assert!((24.0..100.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn an_established_connection_takes_more_than_a_record_and_a_task_comes_on_top() {
        let [engine, sockets] = [Which::Lightwait, Which::LightwaitSockets]
            .map(|stack| measure(stack, State::Established, 5000));
        for outcome in [engine, sockets] {
            let client = outcome.client_bytes.unwrap();
            assert!((100.0..4000.0).contains(&outcome.bytes), "{outcome:?}");
            assert!((100.0..4000.0).contains(&client), "{outcome:?}");
        }
        assert!(sockets.bytes > engine.bytes, "{engine:?} and {sockets:?}");
    }

    #[test]
    fn smoltcp_keeps_socket_and_buffers_in_either_state() {
        // Two buffers of 1 KiB, and the socket.
        for state in [State::Established, State::TimeWait] {
            let outcome = measure(Which::Smoltcp, state, 1000);
            assert!((2300.0..3500.0).contains(&outcome.bytes), "{state:?}: {outcome:?}");
        }
    }
}
