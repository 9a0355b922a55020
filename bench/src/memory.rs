//! Memory of inactive connections: established and idle, closed by the server alone (FIN-WAIT-2),
//! or in TIME-WAIT, while they enter and while they expire. The bench counts the bytes allocated,
//! and the size of the process.
//!
//! Connections begin by the real handshake and end by the real closing, as in [`connections`].
//! Memory that does not depend on their number does not count. The bench's own application keeps
//! nothing for a connection, except that sockets need a task each, which counts. The program must
//! have [`lightwait_heap::Counting`] as its allocator.

use std::time::Duration;

use lightwait_heap::Heap;
use serde_json::{Map, Value, json};

use crate::connections::{self, Pair};
use crate::sample::tenths;
use crate::stacks::which::{Ip, Variant, Which};

/// Connections that end before counting begins.
const FIRST: usize = 4096;
/// Readings of the memory while it fills.
const LOOKS: usize = 400;
/// From this number of records on, the largest cost of one is reported.
const MANY: usize = 100_000;
/// Bytes of a page of the process.
const PAGE: f64 = 4096.0;

/// The state of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    /// Established, and idle.
    Established,
    /// Closed by the server and not by the client: in FIN-WAIT-2. Only our own engine can do that.
    #[value(name = "fin-wait-2")]
    FinWait2,
    /// Ended, and in TIME-WAIT.
    TimeWait,
}

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The state of the connections.
    pub state: State,
    /// Their number.
    pub count: usize,
    /// The version of IP.
    pub ip: Ip,
    /// The configuration of our own engine.
    pub variant: Variant,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Connections at the end, by which bytes are divided: the planned ones and a few that had
    /// begun with them, or as many as the stack can have.
    pub connections: usize,
    /// Bytes allocated at the server, for each of them.
    pub bytes: f64,
    /// The largest value of `bytes` from 100,000 connections on while their number grew, if
    /// measured.
    pub most: Option<f64>,
    /// The memory after they ended, if measured.
    pub drained: Option<Drained>,
    /// The bytes of `bytes` at the client, if both ends stay.
    pub client_bytes: Option<f64>,
    /// Growth of the process in bytes, for each end that stays; 0 if the system does not report it.
    /// It is too low in a process that had more memory before.
    pub rss: f64,
}

/// Memory while records expire and no others enter.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// The most bytes for each remaining record, down to 100,000 records; `None` if there were
    /// fewer.
    pub most: Option<f64>,
    /// Bytes still allocated after all are gone, in total.
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
    /// True if only our own engine can run it.
    pub(crate) fn is_for_us_alone(&self) -> bool {
        self.state == State::FinWait2 || self.ip == Ip::V6
    }

    /// A pair with `count` connections in that state.
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

/// Bytes of a pair: the server's, both ends' together, and the process's.
fn ends<P: Pair>(plan: &Plan, count: usize) -> (f64, f64, f64) {
    let (heap, before) = (Heap::new(), resident());
    let pair: P = plan.pair(count);
    let (both, grown) = (heap.bytes() as f64, resident() - before);
    let server = pair.into_server();
    let one = heap.bytes() as f64;
    drop(server);
    (one, both, grown)
}

/// Measures connections that exist as soon as the pair does.
fn standing<P: Pair>(plan: &Plan) -> Outcome {
    // One record in TIME-WAIT always exists.
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

/// Measures records that enter one after the other, and then expire.
fn filling<P: Pair>(plan: &Plan) -> Outcome {
    let (first, step) = (FIRST.min(plan.count / 8), plan.count.div_ceil(LOOKS).max(1));
    let conversations = connections::Plan {
        // No record expires before the last has entered; and with this many source addresses no
        // tuple is used twice.
        time_wait: 2 * (plan.count + first),
        at_once: 16,
        ip: plan.ip,
        variant: plan.variant,
        ..connections::Plan::default()
    };
    let mut pair = P::new(&conversations);
    pair.converse(first);
    // Pending conversations end a little later.
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

/// Updates the largest number of bytes for each record.
fn note(most: &mut Option<f64>, records: usize, heap: &Heap) {
    if records >= MANY {
        let bytes = heap.bytes() as f64 / records as f64;
        *most = Some(most.map_or(bytes, |most| most.max(bytes)));
    }
}

/// Lets all records expire, the last after `last`; `None` if the stack's time cannot pass.
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

/// Resident bytes of this process.
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
    /// The result in words.
    pub fn in_words(&self) -> String {
        format!("{}, {:.1} resident", self.heap_in_words(), self.rss)
    }

    /// The allocated bytes in words. Only they are right in a process that has measured before and
    /// still holds pages of it.
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
            // Some KB may be kept for later connections.
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
        // Sixteen are pending at a time.
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
    fn an_orphan_that_awaits_a_fin_takes_little_more_than_a_record() {
        // Two thousand were whole at a time, and their slots stay.
        let bytes = measure(Which::Lightwait, State::FinWait2, 20_000).bytes;
        assert!((24.0..100.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_live_connection_takes_more_than_a_record_and_a_task_adds() {
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
