//! Many seeds of one test, and the seed of the one that fails.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The seed to run alone.
const SEED: &str = "LIGHTWAIT_SEED";

/// Runs a test with every seed. If it panics with one of them, prints that seed and the variable
/// that runs it alone, and the panic goes on.
///
/// # Panics
/// If the test does; or if `LIGHTWAIT_SEED` is no number.
pub fn each_seed(seeds: Range<u64>, test: impl Fn(u64)) {
    let alone = std::env::var(SEED).ok().map(|text| {
        let seed: u64 = text.parse().unwrap_or_else(|_| panic!("{SEED}={text}: no number"));
        seed..seed + 1
    });
    for seed in alone.unwrap_or(seeds) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("seed {seed} fails; {SEED}={seed} runs it alone");
            resume_unwind(panic);
        }
    }
}
