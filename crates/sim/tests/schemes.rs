//! What timer schemes may change of what is sent: those that count in the same ticks nothing, those
//! with coarse ticks of their own no more than the times.

use lightwait_core::tcp::timers::Scheme;
use lightwait_sim::scenario::{Scenario, Summary};

/// Worlds that are compared.
const WORLDS: u64 = if cfg!(debug_assertions) { 100 } else { 3_000 };

fn run(seed: u64, scheme: Scheme) -> Summary {
    let mut scenario = Scenario::from_seed(seed);
    for tcp in &mut scenario.tcp {
        tcp.timers = scheme;
    }
    scenario.run(false).unwrap_or_else(|why| panic!("seed {seed}, {scheme:?}: {why}"))
}

#[test]
fn inline_and_the_eager_wheel_send_the_same_bytes_at_the_same_times() {
    for seed in 0..WORLDS {
        let inline = run(seed, Scheme::Inline);
        let wheel = run(seed, Scheme::Wheel);
        assert_eq!(inline.digest, wheel.digest, "seed {seed}");
        assert_eq!(
            (inline.segments, inline.time_waits),
            (wheel.segments, wheel.time_waits),
            "seed {seed}"
        );
    }
}

/// Every stream is delivered, every oracle content, all closed and nothing left, as `run` checks;
/// and the two scans, which tick alike, are alike to the network.
#[test]
fn the_scans_deliver_the_same_streams_and_end_in_the_same_states() {
    for seed in 0..WORLDS / 4 {
        let scan = run(seed, Scheme::Scan);
        let list = run(seed, Scheme::OrderedList);
        assert_eq!(scan.digest, list.digest, "seed {seed}");
    }
}
