//! Runs many worlds, on all processors at once, and collects those that fail.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Failures after which the swarm stops.
const FAILURES: usize = 5;

/// A world that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The reason, in a line.
    pub why: String,
}

/// Runs `world` with every seed. Returns the failed worlds, a few at most. A panic is a failure
/// like any other.
pub fn run(seeds: Range<u64>, world: impl Fn(u64) -> Result<(), String> + Sync) -> Vec<Failure> {
    let (next, failures) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failures.lock().expect("nobody panics").len() >= FAILURES {
                return;
            }
            if let Err(why) = catching(|| world(seed)) {
                failures.lock().expect("nobody panics").push(Failure { seed, why });
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    failures.into_inner().expect("nobody panics")
}

/// The result of `world`; a panic in it is an error.
pub fn catching<T>(world: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|cause| Err(describe(&*cause)))
}

fn describe(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("of an unknown kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_once_and_those_that_go_wrong_are_told() {
        let sum = AtomicU64::new(0);
        let mut failures = run(10..20, |seed| {
            sum.fetch_add(seed, Ordering::Relaxed);
            assert_ne!(seed, 17, "not this one");
            if seed == 12 { Err("nor this".to_owned()) } else { Ok(()) }
        });
        failures.sort_by_key(|failure| failure.seed);
        assert_eq!(sum.into_inner(), (10..20).sum::<u64>());
        assert_eq!(failures[0], Failure { seed: 12, why: "nor this".to_owned() });
        assert_eq!(failures[1].seed, 17);
        assert!(failures[1].why.contains("not this one"));
        assert_eq!(failures.len(), 2);
    }
}
