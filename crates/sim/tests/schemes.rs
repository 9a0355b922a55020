//! Timer schemes that count in the same ticks are the same to the network: the same bytes at the
//! same times in every world of the swarm.

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
