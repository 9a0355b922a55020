//! Rates: how much has changed between two samples, a second. Nothing else divides by a time.

use std::time::Duration;

/// How much a number has grown a second. One that was begun anew has grown from nothing.
pub(crate) fn per_second(before: u64, after: u64, over: Duration) -> f64 {
    let grown = if after < before { after } else { after - before };
    let seconds = over.as_secs_f64();
    if seconds > 0.0 { grown as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_was_added_by_the_time() {
        let second = Duration::from_secs(1);
        for (before, after, over, rate) in [
            (10, 30, second * 2, 10.0),
            (10, 10, second, 0.0),
            (10, 4, second, 4.0),
            (0, 5, Duration::ZERO, 0.0),
            (0, 1, Duration::from_millis(250), 4.0),
        ] {
            assert_eq!(per_second(before, after, over).to_bits(), f64::to_bits(rate));
        }
    }
}
