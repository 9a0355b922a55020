//! Short connections: open, a request of 100 bytes, an answer of 500, and the server closes first.
//! Others can be in TIME-WAIT or idle meanwhile.
//!
//! Each conversation takes a fixed part of the stack's time ([`CONVERSATION`], unless the plan says
//! otherwise), and TIME-WAIT lasts as long as N of them. There are then N records, and each turn as
//! many end as begin. With a million records TIME-WAIT lasts 60 s of the stack's time, 2·MSL; with
//! fewer it is accordingly shorter. Measuring begins after two such periods.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::instructions::{self, Uncounted};
use crate::sample::{Rates, lower_quartile, per_operation, processor_time, tenths};
use crate::stacks::raw::sources::Sources;
use crate::stacks::which::{Ip, Variant, Which};

/// The default for the stack's time of a conversation.
pub const CONVERSATION: Duration = Duration::from_micros(60);

/// Conversations before measuring begins, at least.
const WARM_UP: usize = 2000;
/// Conversations that are counted by callgrind, at most.
const COUNTED: usize = 20_000;
/// The stack's time of a turn: each turn has as many periodic events as any other.
const TURN: Duration = Duration::from_secs(1);
/// Conversations in a slice of a turn, at most: some 30 ms.
const SLICE: usize = 1 << 14;
/// The name of the bench, and of the section that callgrind counts.
const SECTION: &str = "connections";

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Other records in TIME-WAIT.
    pub time_wait: usize,
    /// Other idle connections.
    pub idle: usize,
    /// The server has closed the idle connections, and the clients have not. Only our own engine
    /// can do that.
    pub half_closed: bool,
    /// Conversations measured.
    pub count: usize,
    /// Conversations at a time.
    pub at_once: usize,
    /// Source addresses used in turn, at least; other stacks than ours have one.
    pub addresses: usize,
    /// The version of IP, for our own engine alone.
    pub ip: Ip,
    /// The configuration of our own engine; other stacks ignore it.
    pub variant: Variant,
    /// The approximate time limit; beyond it fewer conversations are measured.
    pub limit: Option<Duration>,
    /// The stack's time of a conversation; the kernel ignores it.
    pub conversation: Duration,
}

impl Default for Plan {
    /// One conversation at a time, none measured, and no other connections.
    fn default() -> Plan {
        Plan {
            time_wait: 0,
            idle: 0,
            half_closed: false,
            count: 0,
            at_once: 1,
            addresses: 1,
            ip: Ip::V4,
            variant: Variant::Default,
            limit: None,
            conversation: CONVERSATION,
        }
    }
}

impl Plan {
    /// Adapts the plan to `stack`: no more idle connections than it can have, and one address if it
    /// is not ours.
    #[must_use]
    pub fn as_done_by(self, stack: Which) -> Plan {
        let addresses = if stack.is_ours() { self.addresses } else { 1 };
        Plan { idle: self.idle.min(stack.connections_most()), addresses, ..self }
    }

    /// Source addresses of our own stacks' conversations.
    fn addresses_used(&self) -> u32 {
        Sources::new(0, self.residents()).at_least(self.addresses).count()
    }

    /// TIME-WAIT records at a time, including those of the measured conversations.
    pub fn residents(&self) -> usize {
        self.time_wait.max(self.at_once)
    }

    /// The length of TIME-WAIT: the time of as many conversations as there are records.
    pub fn time_wait_lasts(&self) -> Duration {
        self.conversation * u32::try_from(self.residents()).unwrap_or(u32::MAX)
    }

    /// Conversations of a turn.
    fn turn(&self) -> usize {
        TURN.as_nanos().div_ceil(self.conversation.as_nanos().max(1)) as usize
    }

    fn count_within_limit<P: Pair>(&self, pair: &mut P) -> usize {
        let Some(limit) = self.limit else { return self.count };
        let few = 4 * self.at_once;
        let begin = processor_time();
        pair.converse(few);
        let possible = few as f64 * limit.as_secs_f64() / (processor_time() - begin).as_secs_f64();
        self.count.min(possible as usize).max(few)
    }
}

/// A client and a server of one stack, back to back in memory.
pub trait Pair {
    /// A pair with the idle connections of the plan, and the plan's length of TIME-WAIT.
    fn new(plan: &Plan) -> Self;
    /// Conversations until the pair is in its steady state.
    fn warm_up(plan: &Plan) -> usize {
        (2 * plan.time_wait).max(WARM_UP)
    }
    /// True if a new pair has all its TIME-WAIT records; else the conversations make them.
    const BEGINS_FULL: bool = false;
    /// Drops the client: the server, its application and their wire remain.
    fn into_server(self) -> impl Sized;
    /// Runs `count` conversations to their end.
    fn converse(&mut self, count: usize);
    /// Lets that much of the stack's time pass without a new conversation. Returns false if it
    /// cannot.
    fn pass(&mut self, _time: Duration) -> bool {
        false
    }
    /// Starts or stops separate timing of client and server. Returns ns of each since the last
    /// call.
    fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]>;
    /// Packets so far, both ways, if they can be counted.
    fn packets(&self) -> Option<u64>;
    /// TIME-WAIT records at present.
    fn time_waits(&self) -> usize;
    /// Asserts that no unexpected event has happened.
    fn check(&self);
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Conversations a second.
    pub rates: Rates,
    /// Packets of a conversation, both ways.
    pub packets: Option<f64>,
    /// ns of a conversation at the client and at the server, if both were timed separately.
    pub ns: Option<[f64; 2]>,
    /// TIME-WAIT records at the end.
    pub time_waits: usize,
}

/// Runs the plan on a pair of that kind.
pub fn measure<P: Pair>(plan: &Plan) -> Outcome {
    let mut pair = warm::<P>(plan);
    let count = plan.count_within_limit(&mut pair);
    let packets = pair.packets();
    let rates = Rates::of_whole(plan.at_once, count, |batch| pair.converse(batch));
    let packets = per_operation(packets, pair.packets(), rates.count);
    pair.time_apart(true);
    let apart = rates.count.div_ceil(4);
    pair.converse(apart);
    let ns = pair.time_apart(false);
    pair.check();
    Outcome {
        rates,
        packets,
        ns: ns.map(|ends| ends.map(|ns| ns as f64 / apart as f64)),
        time_waits: pair.time_waits(),
    }
}

/// Measures conversations a second under each of the plans, build by build. All pairs exist at once
/// and take turns, slice by slice. Changes on the machine thus affect all of them, and the ratios
/// within a build tell more than ratios of means. Everything is built several times, since a pair's
/// place in memory changes its rate by some percent.
pub fn take_turns<P: Pair>(plans: &[Plan], builds: usize, turns: usize) -> Vec<Vec<f64>> {
    let mut rates = vec![Vec::new(); plans.len()];
    for _ in 0..builds {
        for (rates, rate) in rates.iter_mut().zip(rates_of_build::<P>(plans, turns)) {
            rates.push(rate);
        }
    }
    rates
}

/// Measures the rates of new pairs in `turns` turns, after one that does not count.
///
/// Other programs on the machine only ever lengthen a slice, and mostly for a while. Each slice
/// therefore counts by its lower quartile over all turns. Every slice counts, and so does what
/// happens only once a turn.
/// happens but once a turn.
fn rates_of_build<P: Pair>(plans: &[Plan], turns: usize) -> Vec<f64> {
    let mut pairs: Vec<P> = plans.iter().map(warm::<P>).collect();
    let slices = plans.iter().map(|plan| plan.turn().div_ceil(SLICE)).max().unwrap_or(0);
    let mut took = vec![Vec::with_capacity(turns); slices * plans.len()];
    for turn in 0..=turns {
        for slice in 0..slices {
            for offset in 0..plans.len() {
                let number = (slice + offset) % plans.len();
                let until = |slice| plans[number].turn() * slice / slices;
                let begin = processor_time();
                pairs[number].converse(until(slice + 1) - until(slice));
                let time = processor_time().saturating_sub(begin);
                if turn > 0 {
                    took[number * slices + slice].push(time.as_secs_f64());
                }
            }
        }
    }
    pairs.iter().for_each(P::check);
    let turn = |took: &mut [Vec<f64>]| took.iter_mut().map(|took| lower_quartile(took)).sum();
    let turns = took.chunks_mut(slices.max(1)).map(turn);
    plans.iter().zip(turns).map(|(plan, took): (_, f64)| plan.turn() as f64 / took).collect()
}

/// Makes a pair, and runs twice as many conversations as there will be records.
fn warm<P: Pair>(plan: &Plan) -> P {
    let mut pair = P::new(plan);
    pair.converse(P::warm_up(plan));
    pair
}

/// Runs the plan once, for callgrind to count.
pub fn section<P: Pair>(plan: &Plan) {
    let mut pair = warm::<P>(plan);
    instructions::section(SECTION, plan.count, || pair.converse(plan.count));
    pair.check();
}

/// Instructions of a conversation, both ends.
///
/// # Errors
/// If callgrind is not there, or fails.
pub fn count(stack: Which, plan: &Plan) -> Result<Option<f64>, Uncounted> {
    let told = [
        format!("--time-wait={}", plan.time_wait),
        format!("--idle={}", plan.idle),
        format!("--count={}", plan.count.min(COUNTED)),
        format!("--at-once={}", plan.at_once),
        format!("--addresses={}", plan.addresses),
    ];
    stack.count(SECTION, &told)
}

impl Outcome {
    /// The number of TIME-WAIT periods during the measured conversations, if the plan has records.
    /// A period is the time of as many conversations as records; the kernel's is always 60 s.
    pub fn time_wait_periods(&self, stack: Which, plan: &Plan) -> Option<f64> {
        let is_known = plan.time_wait > 0 && stack != Which::Linux;
        is_known.then(|| self.rates.count as f64 / plan.residents() as f64)
    }

    /// As a JSON object.
    pub fn json(&self, stack: Which, plan: &Plan) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("stack", json!(stack.name()));
        put("time_wait", json!(plan.time_wait));
        put("idle", json!(plan.idle));
        put("count", json!(self.rates.count));
        put("at_once", json!(plan.at_once));
        if stack.is_ours() {
            put("addresses", json!(plan.addresses_used()));
        }
        put("connections_per_s", json!(self.rates.median.round()));
        put("mean_connections_per_s", json!(self.rates.mean.round()));
        put("packets_per_connection", json!(self.packets.map(tenths)));
        if let Some([client, server]) = self.ns {
            put("client_ns_per_connection", json!(tenths(client)));
            put("server_ns_per_connection", json!(tenths(server)));
        }
        put("time_wait_records", json!(self.time_waits));
        if let Some(periods) = self.time_wait_periods(stack, plan) {
            put("time_wait_periods", json!(tenths(periods)));
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn plan(time_wait: usize, idle: usize, at_once: usize) -> Plan {
        Plan { time_wait, idle, count: 300, at_once, ..Plan::default() }
    }

    #[test]
    fn the_records_asked_for_stand_and_no_frame_is_wasted() {
        for (time_wait, at_once) in [(0, 1), (0, 16), (3000, 1), (3000, 16)] {
            let plan = plan(time_wait, 0, at_once);
            let outcome = Which::Lightwait.connections(&plan);
            // Records that ended in the same turn, or between two ticks of 1 ms, are uncertain.
            let records = outcome.time_waits;
            let wanted = plan.residents();
            assert!(records.abs_diff(wanted) <= 32, "{records} records, not {wanted}");
            assert!(outcome.packets.is_some_and(|count| (count - 6.0).abs() < 0.1), "{outcome:?}");
            assert!(outcome.rates.median > 0.0 && outcome.ns.is_some());
        }
    }

    #[test]
    fn every_stack_has_conversations_with_others_about() {
        for stack in Which::value_variants() {
            for at_once in [1, 16] {
                let plan = Plan { variant: stack.variant(), ..plan(500, 100, at_once) };
                let outcome = stack.connections(&plan);
                assert!(outcome.packets.is_none_or(|count| count >= 6.0), "{stack:?}: {outcome:?}");
                let records = outcome.time_waits;
                match stack {
                    Which::LightwaitSkip => assert_eq!(records, 0),
                    // The kernel counts the whole system's records; 4.4BSD's ticks are of 500 ms.
                    _ if !stack.is_countable() || *stack == Which::LightwaitScan => {
                        assert!(records >= 468, "{stack:?}: {records}");
                    }
                    _ => assert!(records.abs_diff(500) <= 40, "{stack:?}: {records}"),
                }
            }
        }
    }

    #[test]
    fn periods_of_time_wait_are_told_where_they_are_known() {
        let outcome =
            Outcome { rates: Rates { count: 500, ..Rates::default() }, ..Outcome::default() };
        let periods = |stack, time_wait| {
            let object = outcome.json(stack, &plan(time_wait, 0, 16));
            object.get("time_wait_periods").and_then(Value::as_f64)
        };
        assert_eq!(periods(Which::Lightwait, 200), Some(2.5));
        assert_eq!(periods(Which::Smoltcp, 5000), Some(0.1));
        assert_eq!((periods(Which::Lightwait, 0), periods(Which::Linux, 200)), (None, None));
    }

    #[test]
    fn idle_connections_stay() {
        let mut pair = crate::stacks::raw::Short::new(&plan(0, 700, 16));
        pair.converse(100);
        // Pending and closing connections count as well.
        assert!(pair.connections().into_iter().all(|count| (700..=732).contains(&count)));
        pair.check();
    }
}
