//! Many small worlds, each from its own seed. A failing seed prints the one command that replays
//! it, with a line for each frame. The digests of all worlds can be written to a file: two builds
//! that send the same frames at the same times write equal files.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lightwait_sim::scenario::{Scenario, Summary};
use lightwait_sim::swarm;

/// Worlds in a run, unless LIGHTWAIT_SWARM sets their number: fewer in a debug build.
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

/// A line for each world, in the order of seeds: the seed and the digest of its frames.
fn lines(mut digests: Vec<(u64, u64)>) -> String {
    digests.sort_unstable();
    digests.iter().fold(String::new(), |mut text, (seed, digest)| {
        _ = writeln!(text, "{seed} {digest:016x}");
        text
    })
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
    let [segments, handed_over, limits_moved] = [const { AtomicU64::new(0) }; 3];
    let [sent, read, narrowed] = [const { AtomicU64::new(0) }; 3];
    let digests = Mutex::new(Vec::new());
    let failures = swarm::run(first..first + worlds, |seed| {
        let summary = Scenario::from_seed(seed).run(false)?;
        segments.fetch_add(summary.segments, Ordering::Relaxed);
        handed_over.fetch_add(summary.handed_over, Ordering::Relaxed);
        limits_moved.fetch_add(summary.limits_moved, Ordering::Relaxed);
        sent.fetch_add(summary.datagrams.0, Ordering::Relaxed);
        read.fetch_add(summary.datagrams.1, Ordering::Relaxed);
        narrowed.fetch_add(summary.path_mtu_lowered, Ordering::Relaxed);
        digests.lock().expect("nobody panics").push((seed, summary.digest));
        Ok(())
    });
    if let Some(path) = std::env::var_os("LIGHTWAIT_SWARM_DIGESTS") {
        std::fs::write(path, lines(digests.into_inner().expect("nobody panics"))).unwrap();
    }
    let [segments, handed_over, moved] =
        [segments, handed_over, limits_moved].map(AtomicU64::into_inner);
    let [sent, read, narrowed] = [sent, read, narrowed].map(AtomicU64::into_inner);
    println!(
        "{worlds} worlds, {segments} segments, {handed_over} handed over, {moved} limits moved, \
         {sent} datagrams, {read} read, {narrowed} paths narrowed"
    );
    for swarm::Failure { seed, why } in &failures {
        println!("seed {seed}: {why}\n  replay: LIGHTWAIT_SEED={seed} {REPLAY}");
    }
    assert!(failures.is_empty(), "{} worlds went wrong", failures.len());
    assert!(segments > worlds * 10, "the oracle saw hardly anything: {segments} segments");
    assert!(handed_over > worlds, "hardly a frame came to a wrong shard: {handed_over}");
    assert!(moved > worlds / 10, "hardly a limit moved: {moved}");
    assert!(sent > worlds * 5 && read > sent / 2, "{read} of {sent} datagrams were read");
    assert!(narrowed > worlds / 50, "hardly a path was narrowed: {narrowed}");
}

#[test]
fn a_world_replays_from_its_seed() {
    for seed in 0..20 {
        let (first, second) = (run(seed, false).unwrap(), run(seed, false).unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
    assert_ne!(run(1, false).unwrap().digest, run(2, false).unwrap().digest);
}
