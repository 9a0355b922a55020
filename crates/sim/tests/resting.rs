//! Connections that rest whenever there is no traffic return from rest unchanged: on the network
//! they look like connections that never rest.

use core::time::Duration;

use lightwait_sim::scenario::{Scenario, Summary};

/// Worlds that are compared.
const WORLDS: u64 = if cfg!(debug_assertions) { 100 } else { 3_000 };

fn run(seed: u64, rest_after: Duration) -> Summary {
    let mut scenario = Scenario::from_seed(seed);
    for tcp in &mut scenario.tcp {
        tcp.compact_after = rest_after;
    }
    scenario.run(false).unwrap_or_else(|why| panic!("seed {seed}, {rest_after:?}: {why}"))
}

#[test]
fn resting_changes_neither_a_byte_nor_its_time() {
    let mut rests = 0;
    for seed in 0..WORLDS {
        let never = run(seed, Duration::ZERO);
        let at_once = run(seed, Duration::from_nanos(1));
        assert_eq!(never.digest, at_once.digest, "seed {seed}");
        assert_eq!(never.segments, at_once.segments, "seed {seed}");
        assert_eq!(never.rests, 0, "seed {seed}");
        rests += at_once.rests;
    }
    assert!(rests > WORLDS, "they do rest: {rests} times in {WORLDS} worlds");
}
