//! Watches a load: a bar on the terminal, or a line now and then where there is none, and the
//! processor time of the load itself.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lightwait_load::engine::{Live, Plan, Progress};
use rustix::time::{ClockId, clock_gettime};

/// The bar, and the text beside it.
const TEMPLATE: &str = "{bar:10} {msg}";

/// The processor time of a load's recorded part, and its bar. Clones share one watcher.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    shared: Rc<Shared>,
}

/// Seconds between two lines where there is no terminal.
const LINE_EACH_S: u64 = 10;

#[derive(Debug)]
struct Shared {
    /// Invisible if standard error is no terminal.
    bar: ProgressBar,
    /// What the load begins with, in words.
    about: String,
    warm_up: Duration,
    all: Duration,
    /// The beginning of the load, when idle connections are open.
    began: Cell<Instant>,
    /// The beginning and the end of the recorded part.
    recorded: Cell<[Sample; 2]>,
    is_silent: Cell<bool>,
    /// The threads that share the load.
    threads: Cell<u16>,
}

/// A time since the load began, and the process's processor time at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    elapsed: Duration,
    taken: Duration,
}

impl Sample {
    fn now(elapsed: Duration) -> Sample {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let (seconds, nanos) = (time.tv_sec.try_into(), time.tv_nsec.try_into());
        let taken = Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0));
        Sample { elapsed, taken }
    }
}

impl Watcher {
    /// Watches a load that begins now.
    pub(super) fn new(plan: &Plan, about: &str) -> Watcher {
        let all = plan.warm_up + plan.duration;
        let bar = ProgressBar::with_draw_target(Some(all.as_secs()), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("two fields that exist"));
        let shared = Shared {
            bar,
            about: about.to_owned(),
            warm_up: plan.warm_up,
            all,
            began: Cell::new(Instant::now()),
            recorded: Cell::default(),
            is_silent: Cell::default(),
            threads: Cell::new(1),
        };
        Watcher { shared: Rc::new(shared) }
    }

    /// One of a load's several threads, which shows nothing: the first one shows how it goes.
    pub(super) fn silent(self) -> Watcher {
        self.shared.is_silent.set(true);
        self.shared.bar.set_draw_target(ProgressDrawTarget::hidden());
        self
    }

    /// The first of so many threads: what it shows is its own part.
    pub(super) fn of(self, threads: u16) -> Watcher {
        self.shared.threads.set(threads);
        self
    }

    /// The server answers: says what the load begins with, and how long it takes.
    pub(super) fn begin(&self) {
        let Shared { about, warm_up, all, .. } = &*self.shared;
        let all = all.as_secs_f64();
        let parts = match warm_up.as_secs_f64() {
            0.0 => String::new(),
            warm_up => format!(", {warm_up} s of them before it is recorded"),
        };
        self.say(&format!("{about}. The load takes {all} s{parts}."));
    }

    /// Takes note of a load's progress.
    pub(super) fn on_progress(&self, progress: &Progress) {
        let bar = &self.shared.bar;
        match progress {
            Progress::Opening { open, of } => {
                bar.set_length(*of as u64);
                bar.set_position(*open as u64);
                bar.set_message(format!("{open} of {of} idle connections are open"));
                self.shared.began.set(Instant::now());
            }
            Progress::Recording(elapsed) => {
                self.shared.recorded.set([Sample::now(*elapsed); 2]);
            }
            Progress::Recorded(elapsed) => {
                let [begin, _] = self.shared.recorded.get();
                self.shared.recorded.set([begin, Sample::now(*elapsed)]);
            }
            Progress::Second(live) => {
                bar.set_length(self.shared.all.as_secs());
                bar.set_position(live.elapsed.as_secs());
                bar.set_message(self.line(live));
                let seconds = live.elapsed.as_secs();
                let is_silent = self.shared.is_silent.get();
                if bar.is_hidden() && !is_silent && seconds.is_multiple_of(LINE_EACH_S) {
                    eprintln!("{}", self.line(live));
                }
            }
        }
    }

    /// Prints a line above the bar.
    pub(super) fn say(&self, line: &str) {
        if !self.shared.is_silent.get() {
            self.shared.bar.suspend(|| eprintln!("{line}"));
        }
    }

    /// The load is over.
    pub(super) fn end(&self) {
        self.shared.bar.finish_and_clear();
    }

    /// The Unix time at which the load began.
    pub(super) fn started_at(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.shared.began.get().elapsed())
    }

    /// The part of a processor that the load used in its recorded part: without the warm-up
    /// before and the grace behind it.
    pub(super) fn share(&self) -> f64 {
        share(self.shared.recorded.get())
    }

    fn line(&self, live: &Live) -> String {
        let Shared { warm_up, all, .. } = &*self.shared;
        let second = &live.second;
        let seconds = |time: Duration| time.as_secs_f64().round();
        let phase = if live.elapsed <= *warm_up {
            let left = seconds(*warm_up - live.elapsed);
            format!(
                "warming up for {left} s more, then recording for {} s",
                seconds(*all - *warm_up)
            )
        } else {
            format!("recording, {} s left", seconds(all.saturating_sub(live.elapsed)))
        };
        let part = match self.shared.threads.get() {
            1 => String::new(),
            threads => format!(" (the first of {threads} threads)"),
        };
        format!(
            "{phase}{part}: {}/s, {} failed, {} in flight, {} 4-tuples at rest",
            second.answered, live.failed, second.in_flight, second.time_wait,
        )
    }
}

/// Processor time per time, between two samples.
fn share([begin, end]: [Sample; 2]) -> f64 {
    let time = end.elapsed.saturating_sub(begin.elapsed).as_secs_f64();
    let taken = end.taken.saturating_sub(begin.taken).as_secs_f64();
    if time > 0.0 { taken / time } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use lightwait_load::recorder::Second;

    use super::*;

    #[test]
    fn the_share_is_of_the_recorded_part_alone() {
        let sample = |elapsed: f64, taken: f64| Sample {
            elapsed: Duration::from_secs_f64(elapsed),
            taken: Duration::from_secs_f64(taken),
        };
        assert_eq!(share([sample(1.5, 1.0), sample(3.5, 2.5)]), 0.75);
        assert_eq!(share([sample(1.5, 1.0); 2]), 0.0);
    }

    /// A watcher of a load that is not shown.
    fn watcher(warm_up: Duration, all: Duration) -> Watcher {
        let bar = ProgressBar::hidden();
        let (recorded, began) = (Cell::default(), Cell::new(Instant::now()));
        Watcher {
            shared: Rc::new(Shared {
                bar,
                about: String::new(),
                warm_up,
                all,
                began,
                recorded,
                is_silent: Cell::default(),
                threads: Cell::new(1),
            }),
        }
    }

    #[test]
    fn a_line_says_how_long_the_present_part_still_takes() {
        let second = Duration::from_secs;
        let watcher = watcher(second(65), second(75));
        for (elapsed, begin) in [
            (10, "warming up for 55 s more, then recording for 10 s: 0/s, "),
            (65, "warming up for 0 s more, then recording for 10 s: "),
            (66, "recording, 9 s left: 0/s, "),
            (80, "recording, 0 s left: "),
        ] {
            let live = Live { elapsed: second(elapsed), second: Second::default(), failed: 0 };
            let line = watcher.line(&live);
            assert!(line.starts_with(begin), "{line}");
        }
    }

    #[test]
    fn what_is_done_in_the_warm_up_and_the_grace_is_left_out() {
        let watcher = watcher(Duration::from_secs(1), Duration::from_secs(2));
        let ms = Duration::from_millis;
        let second = |elapsed| {
            let second = Second::default();
            watcher.on_progress(&Progress::Second(Live { elapsed, second, failed: 0 }));
        };
        second(ms(1000));
        watcher.on_progress(&Progress::Recording(ms(1500)));
        second(ms(2000));
        watcher.on_progress(&Progress::Recorded(ms(2500)));
        let recorded = watcher.shared.recorded.get();
        second(ms(3000));
        watcher.end();
        assert_eq!(watcher.shared.recorded.get(), recorded);
        assert_eq!(recorded.map(|sample| sample.elapsed), [ms(1500), ms(2500)]);
        assert!(recorded[0].taken <= recorded[1].taken && recorded[1].taken > Duration::ZERO);
    }
}
