//! Watches a load: a line on the terminal each second, and what the load itself takes.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use lightwait_load::engine::{Live, Plan};
use rustix::time::{ClockId, clock_gettime};

/// What a load takes of the processor, second by second, and its line. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    is_terminal: bool,
    warm_up: Duration,
    all: Duration,
    began: Instant,
    /// Time since the load began, and processor time of the process at it.
    samples: RefCell<Vec<(Duration, Duration)>>,
}

impl Watcher {
    /// Watches a load that begins now.
    pub(super) fn new(plan: &Plan) -> Watcher {
        let shared = Shared {
            is_terminal: io::stderr().is_terminal(),
            warm_up: plan.warm_up,
            all: plan.warm_up + plan.duration,
            began: Instant::now(),
            samples: RefCell::default(),
        };
        let watcher = Watcher { shared: Rc::new(shared) };
        watcher.sample(Duration::ZERO);
        watcher
    }

    /// A second is over.
    pub(super) fn on_second(&self, live: &Live) {
        self.sample(live.elapsed);
        if self.shared.is_terminal {
            let line = self.line(live);
            // A terminal that is closed shows nothing, and that is no failure.
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
        }
    }

    /// The load is over.
    pub(super) fn end(&self) {
        self.sample(self.shared.began.elapsed());
        if self.shared.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// The part of a processor that was taken from `warm_up` on.
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
            "{phase}  {} answered/s  {} failed/s  {} in flight  {} in TIME-WAIT  {} failed  \
             {} s left",
            second.answered,
            second.failed,
            second.in_flight,
            second.time_wait,
            live.failed,
            all.saturating_sub(live.elapsed).as_secs_f64().round(),
        )
    }
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Processor time per time, from the last sample that is not after `from` to the last of all.
fn share(samples: &[(Duration, Duration)], from: Duration) -> f64 {
    let first = samples.iter().rev().find(|(elapsed, _)| *elapsed <= from + SLACK);
    let (Some(first), Some(last)) = (first.or(samples.first()), samples.last()) else {
        return 0.0;
    };
    let time = last.0.saturating_sub(first.0).as_secs_f64();
    let taken = last.1.saturating_sub(first.1).as_secs_f64();
    if time > 0.0 { taken / time } else { 0.0 }
}

/// How late a second's end may be.
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
