//! Repeated measurements: batches, their rates, and their medians.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

/// The median of `values`; NaN if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The lower quartile of `values`; NaN if there are none.
pub fn lower_quartile(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 4).copied().unwrap_or(f64::NAN)
}

/// The costs of operations, by name, batch by batch.
#[derive(Debug, Default)]
pub struct Samples {
    whole: BTreeMap<&'static str, Vec<f64>>,
    net: BTreeMap<&'static str, Vec<f64>>,
}

impl Samples {
    /// Adds a batch in which an operation cost `value`.
    pub fn add(&mut self, name: &'static str, value: f64) {
        self.whole.entry(name).or_default().push(value);
    }

    /// Adds a batch in which an operation cost `value` more than the surrounding work.
    pub fn add_net(&mut self, name: &'static str, value: f64) {
        self.net.entry(name).or_default().push(value);
    }

    /// The median over all batches of that name.
    pub fn whole(&self, name: &str) -> Option<f64> {
        self.whole.get(name).map(|values| median(&mut values.clone()))
    }

    /// The median of the cost beyond the surrounding work.
    pub fn net(&self, name: &str) -> Option<f64> {
        self.net.get(name).map(|values| median(&mut values.clone()))
    }
}

/// Batches; the median of their rates is the result.
const BATCHES: usize = 50;

/// About the work of a segment: a thousand instructions in registers. It begins with `word`, and
/// its result depends on all of them.
#[inline(never)]
pub fn segment(word: u64) -> u64 {
    let mut word = black_box(word);
    for step in 0..black_box(250) {
        word = word.rotate_left(5) ^ step;
    }
    black_box(word)
}

/// Processor time of this thread, without other programs' time. If the system does not report it,
/// the elapsed time.
pub fn processor_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        ORIGIN.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// Rates a second of this thread's [`processor_time`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// The median of batches: it excludes other programs' effects.
    pub median: f64,
    /// The mean of everything: it includes rare and long events.
    pub mean: f64,
    /// The number of repetitions.
    pub count: usize,
}

impl Rates {
    /// Runs `run` at least `count` times, in batches; each call gets its number of repetitions.
    pub fn of(count: usize, run: impl FnMut(usize)) -> Rates {
        Rates::of_whole(1, count, run)
    }

    /// Runs like [`Rates::of`], in batches that are multiples of `together`.
    pub fn of_whole(together: usize, count: usize, mut run: impl FnMut(usize)) -> Rates {
        let batch = count.div_ceil(BATCHES).next_multiple_of(together.max(1)).max(1);
        let (mut rates, mut all, mut done) = (Vec::new(), Duration::ZERO, 0);
        while done < count {
            let begin = processor_time();
            run(batch);
            let took = processor_time().saturating_sub(begin);
            all += took;
            rates.push(batch as f64 / took.as_secs_f64());
            done += batch;
        }
        Rates { median: median(&mut rates), mean: done as f64 / all.as_secs_f64(), count: done }
    }
}

/// The growth of a total for each of `count` operations, if known.
pub fn per_operation(before: Option<u64>, after: Option<u64>, count: usize) -> Option<f64> {
    Some((after? - before?) as f64 / count as f64)
}

/// Rounds to a tenth, as results are printed.
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0, 4.0]), 3.0);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn a_quarter_is_below_the_lower_quartile() {
        assert_eq!(lower_quartile(&mut [9.0]), 9.0);
        assert_eq!(lower_quartile(&mut [5.0, 9.0, 1.0, 7.0, 3.0]), 3.0);
        assert_eq!(lower_quartile(&mut [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), 3.0);
        assert!(lower_quartile(&mut []).is_nan());
    }

    #[test]
    fn rates_are_of_batches_and_of_everything() {
        let mut done = 0;
        let rates = Rates::of(1001, |batch| {
            done += batch;
            let until =
                processor_time() + Duration::from_micros(if done > 500 { 200 } else { 100 });
            while processor_time() < until {}
        });
        assert_eq!((rates.count, done), (1008, 1008), "48 batches of 21");
        assert!(rates.mean < 1008.0 / 7.2e-3 && rates.median < 21.0 / 100e-6, "{rates:?}");
    }

    #[test]
    fn whole_and_net_are_medians_of_their_own() {
        let mut samples = Samples::default();
        for (whole, net) in [(9.0, 1.0), (5.0, 3.0), (7.0, 2.0)] {
            samples.add("set", whole);
            samples.add_net("set", net);
        }
        assert_eq!((samples.whole("set"), samples.net("set")), (Some(7.0), Some(2.0)));
        assert_eq!((samples.whole("cancel"), samples.net("cancel")), (None, None));
    }
}
