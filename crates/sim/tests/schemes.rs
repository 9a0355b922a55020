//! What timer schemes may change of what is sent: those that count in the same ticks nothing, those
//! with coarse ticks of their own no more than the times. And what TIME-WAIT keeps changes nothing.

use lightwait_core::config::TimeWaitState;
use lightwait_core::tcp::timers::Scheme;
use lightwait_sim::scenario::{Scenario, Summary};

/// Worlds that are compared.
const WORLDS: u64 = if cfg!(debug_assertions) { 100 } else { 3_000 };

fn run(seed: u64, scheme: Scheme) -> Summary {
    run_keeping(seed, scheme, TimeWaitState::Compact)
}

fn run_keeping(seed: u64, scheme: Scheme, state: TimeWaitState) -> Summary {
    let mut scenario = Scenario::from_seed(seed);
    for tcp in &mut scenario.tcp {
        (tcp.timers, tcp.time_wait_state) = (scheme, state);
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

/// Every stream is delivered, as `run` checks. With a single conversation even the bytes and times
/// are the same; with more, blocks that stay have other slots for those that come later, and who
/// is due at the same tick speaks in the order of slots.
#[test]
fn a_record_in_tens_of_bytes_and_the_whole_control_block_deliver_the_same() {
    let mut alone = 0;
    for seed in 0..WORLDS {
        let [compact, full] = [TimeWaitState::Compact, TimeWaitState::Full]
            .map(|state| run_keeping(seed, Scheme::Inline, state));
        if Scenario::from_seed(seed).conversations.len() == 1 {
            alone += 1;
            assert_eq!(
                (compact.digest, compact.time_waits),
                (full.digest, full.time_waits),
                "seed {seed}"
            );
        }
    }
    assert!(alone >= WORLDS / 50, "{alone}");
}

#[test]
fn whole_control_blocks_in_the_lists_of_the_scans_end_as_they_should() {
    for seed in 0..WORLDS / 4 {
        let [scan, list] = [Scheme::Scan, Scheme::OrderedList]
            .map(|scheme| run_keeping(seed, scheme, TimeWaitState::Full));
        assert_eq!(scan.digest, list.digest, "seed {seed}");
    }
}
