//! Makes a failing input smaller, as long as it fails at the same place.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which the smallest input so far is good enough.
const PATIENCE: Duration = Duration::from_secs(30);

/// The place where `run` panics on an input, if it does. Prints nothing.
fn failure(run: &dyn Fn(&[u8]), input: &[u8]) -> Option<String> {
    let place = Arc::new(Mutex::new(None));
    let noted = place.clone();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let location = info.location().map(ToString::to_string);
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = location;
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(|| run(input)));
    panic::set_hook(hook);
    result.err()?;
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    Some(place.take().unwrap_or_default())
}

/// The smallest input found that makes `run` panic where `input` does; `None` if `input` does not.
pub(crate) fn shrink(run: &dyn Fn(&[u8]), input: &[u8]) -> Option<Vec<u8>> {
    let place = failure(run, input)?;
    let fails = |candidate: &[u8]| failure(run, candidate).as_ref() == Some(&place);
    let (begin, mut best) = (Instant::now(), input.to_vec());
    loop {
        let before = best.clone();
        let mut size = best.len().div_ceil(2);
        while size > 0 && begin.elapsed() < PATIENCE {
            remove_pieces(&fails, &mut best, size);
            size /= 2;
        }
        for at in 0..best.len() {
            let mut candidate = best.clone();
            candidate[at] = 0;
            if begin.elapsed() < PATIENCE && candidate != best && fails(&candidate) {
                best = candidate;
            }
        }
        if best == before || begin.elapsed() >= PATIENCE {
            return Some(best);
        }
    }
}

fn remove_pieces(fails: &dyn Fn(&[u8]) -> bool, best: &mut Vec<u8>, size: usize) {
    let mut start = 0;
    while start < best.len() {
        let end = best.len().min(start + size);
        let candidate = [&best[..start], &best[end..]].concat();
        if fails(&candidate) {
            *best = candidate;
        } else {
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_part_in_a_failure_is_removed() {
        let run = |input: &[u8]| {
            let place = input.iter().position(|byte| *byte == 7);
            assert!(!place.is_some_and(|place| input[place..].contains(&9)), "7 before 9");
        };
        let input: Vec<u8> = (0..100).collect();
        assert_eq!(shrink(&run, &input), Some(vec![7, 9]));
        assert_eq!(shrink(&run, &[9, 7]), None);
    }
}
