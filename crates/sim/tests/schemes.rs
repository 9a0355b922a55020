//! The effect of timer schemes on the frames. Schemes with the same ticks send the same frames;
//! schemes with coarse ticks of their own change only the times. The state kept in TIME-WAIT
//! changes nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use lightwait_core::config::{Scheme, TimeWaitState};
use lightwait_sim::scenario::{Ending, Scenario, Summary};
use lightwait_sim::swarm;

/// The whole swarm in a release build.
const WORLDS: u64 = if cfg!(debug_assertions) { 100 } else { 10_000 };

/// The world of that seed, in which all hosts have this scheme and this TIME-WAIT.
fn run(seed: u64, scheme: Scheme, state: TimeWaitState) -> Result<Summary, String> {
    let mut scenario = Scenario::from_seed(seed);
    for tcp in &mut scenario.tcp {
        (tcp.timers, tcp.time_wait.state) = (scheme, state);
    }
    scenario.run(false).map_err(|why| format!("{scheme:?}, {state:?}: {why}"))
}

/// The world of that seed with this scheme, and with the seed's TIME-WAIT.
fn run_under(seed: u64, scheme: Scheme) -> Result<Summary, String> {
    run(seed, scheme, Scenario::from_seed(seed).tcp[0].time_wait.state)
}

/// What was sent and came of it. How often limits move between shards is left out: a wheel wakes
/// hosts at ticks at which nothing is due, and their shards settle then.
fn sent(summary: Summary) -> Summary {
    Summary { limits_moved: 0, ..summary }
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, one: &T, other: &T) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("{what}: {one:?} and {other:?}")) }
}

fn all_well(worlds: u64, world: impl Fn(u64) -> Result<(), String> + Sync) {
    let failures = swarm::run(0..worlds, world);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn inline_and_the_eager_wheel_send_the_same_bytes_at_one_time() {
    all_well(WORLDS, |seed| {
        let [inline, wheel] = [Scheme::Inline, Scheme::Wheel].map(|scheme| run_under(seed, scheme));
        check("inline and wheel", &sent(inline?), &sent(wheel?))
    });
}

/// The data of the conversations, and the end that held TIME-WAIT.
#[derive(Debug, PartialEq)]
struct End {
    /// Bytes that each conversation delivered to its client and its server; `None` if it was cut.
    delivered: Vec<Option<(u64, u64)>>,
    /// `None` unless each conversation fixes the end that closes first, independent of time.
    time_waits: Option<[u64; 2]>,
}

impl End {
    fn of(seed: u64, summary: &Summary) -> End {
        let heard = summary
            .outcomes
            .iter()
            .map(|outcome| (!outcome.is_cut).then_some((outcome.down_bytes, outcome.up_bytes)));
        let settled = Scenario::from_seed(seed).conversations.iter().all(|conversation| {
            matches!(conversation.ending, Ending::ServerFirst | Ending::ClientFirst)
        });
        End { delivered: heard.collect(), time_waits: settled.then_some(summary.time_waits) }
    }
}

#[test]
fn the_scans_deliver_the_streams_and_end_states_of_inline() {
    all_well(WORLDS, |seed| {
        let inline = run_under(seed, Scheme::Inline)?;
        let scan = run_under(seed, Scheme::Scan)?;
        let list = run_under(seed, Scheme::OrderedList)?;
        check("scan and list, which tick alike", &scan, &list)?;
        check("inline and scan", &End::of(seed, &inline), &End::of(seed, &scan))
    });
}

/// With a single conversation even the bytes and times are the same. With more, blocks that stay
/// give later connections other slots, and connections due at the same tick send in the order of
/// slots.
#[test]
fn compact_records_and_whole_control_blocks_deliver_the_same() {
    // Blocks end at ticks of one clock, and records at another's.
    let until_closed = |summary: &Summary| Summary { end: summary.conversed, ..summary.clone() };
    let (worlds, alone) = (WORLDS / 4, AtomicU64::new(0));
    all_well(worlds, |seed| {
        let [compact, full] = [TimeWaitState::Compact, TimeWaitState::Full]
            .map(|state| run(seed, Scheme::Inline, state));
        let (compact, full) = (compact?, full?);
        if compact.outcomes.len() > 1 {
            return check("streams", &End::of(seed, &compact), &End::of(seed, &full));
        }
        alone.fetch_add(1, Ordering::Relaxed);
        check("a record and a block", &until_closed(&compact), &until_closed(&full))
    });
    assert!(alone.into_inner() >= worlds / 50);
}

#[test]
fn whole_control_blocks_in_the_scans_lists_end_as_they_should() {
    all_well(WORLDS / 4, |seed| {
        let [scan, list] = [Scheme::Scan, Scheme::OrderedList]
            .map(|scheme| run(seed, scheme, TimeWaitState::Full));
        check("scan and list", &scan?, &list?)
    });
}
