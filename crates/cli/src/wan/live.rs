//! Shows a running router: both queues on a terminal, and only problems elsewhere.
//!
//! A thread of its own draws, since the router must not wait for a terminal.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use lightwait_netem::QueueLimit;
use lightwait_wan::{Live, Release, Way};

use super::plan::WanPlan;

/// The time between two drawings.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// A packet that leaves later than this, while the router polls, is reported; once in [`QUIET`].
const LATE: Duration = Duration::from_millis(5);
const QUIET: Duration = Duration::from_secs(10);

/// The length of a bar without a limit.
const UNKNOWN: u64 = 1;

/// The view of a running router.
pub(super) struct View {
    states: Option<SyncSender<(Way, Live)>>,
    drawing: Option<JoinHandle<()>>,
    teller: Teller,
}

impl View {
    /// The view of that plan's router.
    pub(super) fn new(plan: &WanPlan) -> View {
        let (states, received) = sync_channel(4);
        let teller = Teller { all: MultiProgress::new() };
        let [a, b] = [0, 1].map(|n| plan.devices[n].interface().to_owned());
        let bars = [format!("{a} → {b}"), format!("{b} → {a}")].map(|name| bar(&teller.all, name));
        let drawer = Drawer {
            teller: teller.clone(),
            bars,
            release: plan.release,
            told: None,
            last: [None; 2],
        };
        let drawing = thread::Builder::new().name("view".to_owned());
        let drawing = drawing.spawn(move || drawer.run(&received)).ok();
        View { states: Some(states), drawing, teller }
    }

    /// Shows the state of a direction, unless the terminal is too slow.
    pub(super) fn show(&self, way: Way, live: Live) {
        if let Some(states) = &self.states {
            // If the channel is full, a later state follows.
            let _ = states.try_send((way, live));
        }
    }

    /// Prints lines while the view is shown.
    pub(super) fn teller(&self) -> &Teller {
        &self.teller
    }

    /// Removes the view.
    pub(super) fn end(mut self) {
        self.states = None;
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.join();
        }
        let _ = self.teller.all.clear();
    }
}

/// Prints lines for users, above the view.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    all: MultiProgress,
}

impl Teller {
    /// Prints a line.
    pub(super) fn say(&self, line: &str) {
        self.all.suspend(|| eprintln!("lightwait: {line}"));
    }
}

fn bar(all: &MultiProgress, name: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:<20} queue [{bar:20}] {msg}");
    let bar = all.add(ProgressBar::new(UNKNOWN));
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_prefix(name)
}

/// Draws the view.
struct Drawer {
    teller: Teller,
    bars: [ProgressBar; 2],
    release: Release,
    /// The time of the last line.
    told: Option<Instant>,
    /// The last state of each direction, and its time.
    last: [Option<(Instant, Live)>; 2],
}

impl Drawer {
    fn run(mut self, states: &Receiver<(Way, Live)>) {
        for (way, live) in states {
            let (now, latest) = (Instant::now(), live.latest);
            let may_tell = self.told.is_none_or(|told| now - told >= QUIET);
            if self.release == Release::Polling && latest >= LATE && may_tell {
                self.told = Some(now);
                let text = format!(
                    "a packet left {latest:.1?} late: this machine does not keep up, or others use \
                     its processor"
                );
                self.teller.say(&text);
            }
            let last = self.last[way as usize].replace((now, live));
            self.draw(way, &live, last.map(|(at, before)| (now - at, before)));
        }
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
    }

    fn draw(&self, way: Way, live: &Live, before: Option<(Duration, Live)>) {
        let bar = &self.bars[way as usize];
        let (queued, limit) = match live.queue {
            QueueLimit::Packets(limit) => (live.queued.packets as u64, limit as u64),
            QueueLimit::Bytes(limit) => (live.queued.bytes as u64, limit as u64),
            QueueLimit::Unlimited => {
                (live.queued.bytes as u64, live.counters.most_queued_bytes.max(UNKNOWN))
            }
        };
        bar.set_length(limit);
        bar.set_position(queued.min(limit));
        bar.set_message(message(live, before));
        bar.tick();
    }
}

/// The numbers of one direction, in a line.
fn message(live: &Live, before: Option<(Duration, Live)>) -> String {
    let counters = &live.counters;
    let (mut packets, mut mbit) = (0.0, 0.0);
    if let Some((time, before)) = before.filter(|(time, _)| !time.is_zero()) {
        let seconds = time.as_secs_f64();
        packets = (counters.delivered - before.counters.delivered) as f64 / seconds;
        let bytes = counters.delivered_bytes - before.counters.delivered_bytes;
        mbit = bytes as f64 * 8e-6 / seconds;
    }
    let dropped = counters.overflowed
        + counters.codel_dropped
        + counters.in_flight_overflowed
        + counters.too_long;
    format!(
        "{} packets, {} B; {packets:.0} packets/s, {mbit:.1} Mbit/s; {dropped} dropped, {} lost; \
         late by {:.1?} at most",
        live.queued.packets, live.queued.bytes, counters.lost, live.latest
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_netem::{Counters, Queued};

    #[test]
    fn rates_are_of_what_came_since_the_last_time() {
        let live = |delivered, delivered_bytes| Live {
            counters: Counters {
                delivered,
                delivered_bytes,
                lost: 3,
                too_long: 2,
                ..Counters::default()
            },
            queue: QueueLimit::Unlimited,
            queued: Queued { packets: 2, bytes: 3000 },
            in_flight: 2,
            latest: Duration::from_micros(12),
        };
        let before = (Duration::from_millis(500), live(100, 100_000));
        let text = message(&live(600, 725_000), Some(before));
        assert!(text.starts_with("2 packets, 3000 B; 1000 packets/s, 10.0 Mbit/s;"), "{text}");
        assert!(text.ends_with("2 dropped, 3 lost; late by 12.0µs at most"), "{text}");
        assert!(message(&live(600, 725_000), None).contains("; 0 packets/s"));
    }
}
