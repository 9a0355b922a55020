//! Many small worlds, each from its own seed. A failing seed prints the one command that replays
//! it, a line for each frame.

use std::sync::atomic::{AtomicU64, Ordering};

use lightwait_sim::scenario::{Scenario, Summary};
use lightwait_sim::swarm;

/// Worlds in a run, unless LIGHTWAIT_SWARM says otherwise: fewer where the code is slow.
const WORLDS: u64 = if cfg!(debug_assertions) { 300 } else { 10_000 };
/// The command that runs one world again.
const REPLAY: &str = "cargo test -p lightwait-sim --release swarm -- --nocapture";

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn run(seed: u64, trace: bool) -> Result<Summary, String> {
    swarm::catching(|| Scenario::from_seed(seed).run(trace))
}

#[test]
fn swarm() {
    if let Some(seed) = number("LIGHTWAIT_SEED") {
        println!("{:#?}", Scenario::from_seed(seed));
        let outcome = run(seed, true);
        println!("{outcome:#?}");
        assert!(outcome.is_ok());
        return;
    }
    let worlds = number("LIGHTWAIT_SWARM").unwrap_or(WORLDS);
    let first = number("LIGHTWAIT_SWARM_FIRST").unwrap_or(0);
    let segments = AtomicU64::new(0);
    let failures = swarm::run(first..first + worlds, |seed| {
        let summary = Scenario::from_seed(seed).run(false)?;
        segments.fetch_add(summary.segments, Ordering::Relaxed);
        Ok(())
    });
    let segments = segments.into_inner();
    println!("{worlds} worlds, {segments} segments");
    for swarm::Failure { seed, why } in &failures {
        println!("seed {seed}: {why}\n  replay: LIGHTWAIT_SEED={seed} {REPLAY}");
    }
    assert!(failures.is_empty(), "{} worlds went wrong", failures.len());
    assert!(segments > worlds * 10, "the oracle saw hardly anything: {segments} segments");
}

#[test]
fn a_world_replays_from_its_seed() {
    for seed in 0..20 {
        let (first, second) = (run(seed, false).unwrap(), run(seed, false).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
    assert_ne!(run(1, false).unwrap().digest, run(2, false).unwrap().digest);
}
