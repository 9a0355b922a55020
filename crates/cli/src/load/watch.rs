//! Watches a load: a bar on the terminal, and the processor time of the load itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lightwait_load::engine::{Live, Plan, Progress};
use rustix::time::{ClockId, clock_gettime};

/// The bar, and the text beside it.
const TEMPLATE: &str = "{bar:10} {msg}";

/// The processor time of a load, second by second, and its bar. Clones share one watcher.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Invisible if standard error is no terminal.
    bar: ProgressBar,
    warm_up: Duration,
    all: Duration,
    /// The beginning of the load, when idle connections are open.
    began: Cell<Instant>,
    /// Time since the load began, and the process's processor time at that time.
    samples: RefCell<Vec<(Duration, Duration)>>,
}

impl Watcher {
    /// Watches a load that begins now.
    pub(super) fn new(plan: &Plan) -> Watcher {
        let all = plan.warm_up + plan.duration;
        let bar = ProgressBar::with_draw_target(Some(all.as_secs()), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("two fields that exist"));
        let shared = Shared {
            bar,
            warm_up: plan.warm_up,
            all,
            began: Cell::new(Instant::now()),
            samples: RefCell::default(),
        };
        let watcher = Watcher { shared: Rc::new(shared) };
        watcher.sample(Duration::ZERO);
        watcher
    }

    /// A second is over.
    pub(super) fn on_progress(&self, progress: &Progress) {
        let bar = &self.shared.bar;
        match progress {
            Progress::Opening { open, of } => {
                bar.set_length(*of as u64);
                bar.set_position(*open as u64);
                bar.set_message(format!("{open} of {of} idle connections are open"));
                // Processor time counts from the beginning of the load.
                self.shared.began.set(Instant::now());
                self.shared.samples.borrow_mut().clear();
                self.sample(Duration::ZERO);
            }
            Progress::Second(live) => {
                self.sample(live.elapsed);
                bar.set_length(self.shared.all.as_secs());
                bar.set_position(live.elapsed.as_secs());
                bar.set_message(self.line(live));
            }
        }
    }

    /// Prints a line above the bar.
    pub(super) fn say(&self, line: &str) {
        self.shared.bar.suspend(|| eprintln!("{line}"));
    }

    /// The load is over.
    pub(super) fn end(&self) {
        self.sample(self.shared.began.get().elapsed());
        self.shared.bar.finish_and_clear();
    }

    /// The Unix time at which the load began.
    pub(super) fn started_at(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.shared.began.get().elapsed())
    }

    /// The part of a processor that the load used from `warm_up` on.
    pub(super) fn share(&self, warm_up: Duration) -> f64 {
        share(&self.shared.samples.borrow(), warm_up)
    }

    fn sample(&self, elapsed: Duration) {
        self.shared.samples.borrow_mut().push((elapsed, processor_time()));
    }

    fn line(&self, live: &Live) -> String {
        let Shared { warm_up, all, .. } = &*self.shared;
        let second = &live.second;
        let phase = if live.elapsed <= *warm_up { "warming up" } else { "recording" };
        format!(
            "{phase}, {} s left: {}/s, {} failed, {} in flight, {} 4-tuples at rest",
            all.saturating_sub(live.elapsed).as_secs_f64().round(),
            second.answered,
            live.failed,
            second.in_flight,
            second.time_wait,
        )
    }
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Processor time per time, from the last sample at or before `from` to the last one.
fn share(samples: &[(Duration, Duration)], from: Duration) -> f64 {
    let first = samples.iter().rev().find(|(elapsed, _)| *elapsed <= from + SLACK);
    let (Some(first), Some(last)) = (first.or(samples.first()), samples.last()) else {
        return 0.0;
    };
    let time = last.0.saturating_sub(first.0).as_secs_f64();
    let taken = last.1.saturating_sub(first.1).as_secs_f64();
    if time > 0.0 { taken / time } else { 0.0 }
}

/// The most that a second may end late.
const SLACK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_time_behind_the_warm_up() {
        let ms = Duration::from_millis;
        let samples = [(0, 0), (1010, 900), (2005, 1000), (4000, 1500)];
        let samples = samples.map(|(elapsed, taken)| (ms(elapsed), ms(taken)));
        let near = |one: f64, other: f64| (one - other).abs() < 0.001;
        assert!(near(share(&samples, ms(0)), 0.375));
        assert!(near(share(&samples, ms(1000)), 600.0 / 2990.0));
        assert!(near(share(&samples, ms(2000)), 500.0 / 1995.0));
        assert!(near(share(&samples[..1], ms(0)), 0.0) && near(share(&[], ms(0)), 0.0));
    }
}
