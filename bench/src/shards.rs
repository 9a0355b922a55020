//! How one host of several shards scales: new connections, requests on kept connections, and kept
//! megabytes, by the number of shards.
//!
//! ```text
//!   memory   core 0   client ═ wire ═ shard 0
//!            core 1   client ═ wire ═ shard 1
//!
//!   TAP      threads of clients ─ kernel ─┐         ┌─ shard 0   core 0
//!            threads of clients ─ kernel ─┴── TAP ──┴─ shard 1   core 1
//! ```
//!
//! In [`memory`] both ends share each core. Over a [`tap`] the clients are threads on the kernel's
//! TCP, and the processor time of the shards' threads is measured apart. Clients open connections
//! only from addresses and ports that [`Steering`] gives to their own shard. Every shard thus has
//! as many connections as the others, and a frame that is handed over is a fault.
//!
//! A run measures every number of shards once, on a new host. The runs take turns, so that changes
//! on the machine affect all numbers.

pub mod memory;
mod server;
mod sources;
pub mod storm;
pub mod tap;

use std::time::Duration;

#[cfg(doc)]
use lightwait_core::flow::Steering;
use lightwait_core::{Capabilities, Config, Host};

use crate::live::Failure;
use crate::sample::median;

/// Bytes of a request.
const REQUEST_LEN: usize = 100;
/// The length of TIME-WAIT, and thus the age from which a 4-tuple may be used again. It is short,
/// so that the number of records is steady after the warm-up.
const TIME_WAIT: Duration = Duration::from_millis(100);
/// TIME-WAIT records of a shard, at most: those of 1.3 million connections a second.
const TIME_WAITS: usize = 1 << 17;
/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the clients of a shard do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Open, 100 bytes, an answer of 500, and the server closes.
    Connections,
    /// Requests of 100 bytes and answers of 500 on connections that stay.
    Requests,
    /// The same with answers of a megabyte.
    Megabytes,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 3] = [Workload::Connections, Workload::Requests, Workload::Megabytes];

    /// Its name in tables, with the unit of its rate.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Connections => "new connections/s",
            Workload::Requests => "kept requests/s",
            Workload::Megabytes => "kept megabytes, GB/s",
        }
    }

    /// A rate of this workload as text.
    pub fn text(self, rate: f64) -> String {
        let decimals = if self == Workload::Megabytes { 3 } else { 0 };
        format!("{rate:.decimals$}")
    }

    /// Busy connections of each shard.
    pub fn connections(self) -> usize {
        match self {
            Workload::Connections | Workload::Requests => 64,
            Workload::Megabytes => 4,
        }
    }

    /// Bytes of an answer.
    pub fn answer_len(self) -> usize {
        match self {
            Workload::Connections | Workload::Requests => 500,
            Workload::Megabytes => 1_000_000,
        }
    }

    /// True if the server closes after an answer.
    fn closes(self) -> bool {
        self == Workload::Connections
    }

    /// The work done in a window, in the unit of the rate.
    fn work(self, window: &Window) -> f64 {
        match self {
            Workload::Connections | Workload::Requests => window.answers as f64,
            Workload::Megabytes => window.bytes as f64 / 1e9,
        }
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Shards of the server.
    pub shards: u16,
    /// What the clients do.
    pub workload: Workload,
    /// Threads over which the clients of a shard are spread; in memory there is none.
    pub threads: u16,
    /// The time before the window begins.
    pub warm_up: Duration,
    /// The time that is measured.
    pub window: Duration,
}

/// What a shard served in the time that was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// Answers.
    pub answers: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// The time that passed.
    pub elapsed: Duration,
    /// Processor time of the shard's thread.
    pub processor: Duration,
}

/// The result of a shard and its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Requests that the clients have sent, from beginning to end.
    pub asked: u64,
    /// Answers that they have received as a whole.
    pub answered: u64,
    /// The measured part of it.
    pub window: Window,
    /// Frames that came to this shard and belonged to another.
    pub handed_over: u64,
    /// Messages to other shards that were lost.
    pub messages_lost: u64,
    /// Frames that this shard took in during its life.
    pub frames: u64,
}

impl Part {
    /// The part of a server's shard; its clients' counts are zero.
    fn of(window: Window, host: &Host) -> Part {
        let counters = host.counters();
        let (handed_over, messages_lost) = (counters.handed_over, counters.messages_lost);
        let frames = counters.frames_in;
        Part { asked: 0, answered: 0, window, handed_over, messages_lost, frames }
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// A part for each shard.
    pub parts: Vec<Part>,
}

impl Outcome {
    /// The rate of all shards together.
    pub fn rate(&self, workload: Workload) -> f64 {
        let windows = self.parts.iter().map(|part| &part.window);
        windows.map(|window| workload.work(window) / window.elapsed.as_secs_f64()).sum()
    }

    /// The work in a second of the processor time of the shards' threads.
    pub fn rate_of_core(&self, workload: Workload) -> f64 {
        let windows = || self.parts.iter().map(|part| &part.window);
        let work: f64 = windows().map(|window| workload.work(window)).sum();
        work / windows().map(|window| window.processor).sum::<Duration>().as_secs_f64()
    }

    fn sum(&self, count: impl Fn(&Part) -> u64) -> u64 {
        self.parts.iter().map(count).sum()
    }

    /// Frames that came to another shard than their own.
    pub fn handed_over(&self) -> u64 {
        self.sum(|part| part.handed_over)
    }

    /// Requests without an answer, and messages between shards that were lost.
    pub fn lost(&self) -> u64 {
        self.sum(|part| part.asked.abs_diff(part.answered) + part.messages_lost)
    }
}

/// All runs of a workload with one number of shards.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the clients do.
    pub workload: Workload,
    /// The number of shards.
    pub shards: u16,
    /// The rate of each run.
    pub rates: Vec<f64>,
    /// The rate of each run beside the first number of shards in the same run.
    pub ratios: Vec<f64>,
    /// The work of each run in a second of the processor time of the shards' threads.
    pub rates_of_core: Vec<f64>,
    /// Frames that came to another shard than their own, in all runs.
    pub handed_over: u64,
    /// Requests without an answer, and lost messages between shards, in all runs.
    pub lost: u64,
}

impl Row {
    fn new(workload: Workload, shards: u16) -> Row {
        let (rates, ratios, rates_of_core) = (Vec::new(), Vec::new(), Vec::new());
        Row { workload, shards, rates, ratios, rates_of_core, handed_over: 0, lost: 0 }
    }

    fn add(&mut self, outcome: &Outcome) {
        self.rates.push(outcome.rate(self.workload));
        self.rates_of_core.push(outcome.rate_of_core(self.workload));
        self.handed_over += outcome.handed_over();
        self.lost += outcome.lost();
    }

    /// True if every request was answered by the shard that it came to.
    pub fn is_right(&self) -> bool {
        self.handed_over == 0 && self.lost == 0
    }

    /// The cores that the shards' threads were busy on, as a median of the runs. It is below the
    /// number of shards if they slept, or if other programs had their cores.
    pub fn busy_cores(&self) -> f64 {
        let both = self.rates.iter().zip(&self.rates_of_core);
        median(&mut both.map(|(rate, of_core)| rate / of_core).collect::<Vec<_>>())
    }

    /// The median, the lowest and the highest rate.
    pub fn spread(&self) -> [f64; 3] {
        let lowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        [median(&mut self.rates.clone()), lowest, highest]
    }
}

/// The runs of a series.
#[derive(Clone, Debug)]
pub struct Series {
    /// The numbers of shards, one after another; the ratios are to the first.
    pub shards: Vec<u16>,
    /// See [`Plan::threads`].
    pub threads: u16,
    /// Measurements of each number.
    pub runs: u32,
    /// The time that is measured of each number and workload, all runs together.
    pub measured: Duration,
}

impl Series {
    /// Measures all by `measure`, and returns a row for each workload and number of shards.
    ///
    /// # Errors
    /// Those of `measure`.
    pub fn run(
        &self,
        measure: impl Fn(&Plan) -> Result<Outcome, Failure>,
    ) -> Result<Vec<Row>, Failure> {
        let (warm_up, window) = (2 * TIME_WAIT, self.measured / self.runs);
        let mut rows: Vec<Row> = Vec::new();
        for workload in Workload::ALL {
            rows.extend(self.shards.iter().map(|shards| Row::new(workload, *shards)));
        }
        for _ in 0..self.runs {
            for rows in rows.chunks_mut(self.shards.len().max(1)) {
                let mut first = None;
                for row in rows {
                    let (shards, workload) = (row.shards, row.workload);
                    let threads = self.threads;
                    row.add(&measure(&Plan { shards, workload, threads, warm_up, window })?);
                    let rate = row.rates.last().copied().unwrap_or(f64::NAN);
                    row.ratios.push(rate / *first.get_or_insert(rate));
                }
            }
        }
        Ok(rows)
    }
}

/// The configuration of the server's host, apart from its network.
fn host(device: Capabilities, shards: u16, secret: [u8; 32]) -> Config {
    let mut host = Config::new(device, sources::server_on_link(), secret);
    host.tcp.time_wait.length = TIME_WAIT;
    host.limits.time_wait = TIME_WAITS * usize::from(shards);
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(answers: u64, millis: u64, processor_millis: u64) -> Window {
        Window {
            answers,
            bytes: answers * 1_000_000,
            elapsed: Duration::from_millis(millis),
            processor: Duration::from_millis(processor_millis),
        }
    }

    fn outcome(windows: &[Window]) -> Outcome {
        let part = |window: &Window| Part { window: *window, ..Part::default() };
        Outcome { parts: windows.iter().map(part).collect() }
    }

    #[test]
    fn rates_of_shards_add_up_and_their_processor_time_too() {
        let outcome = outcome(&[window(100, 500, 250), window(300, 1000, 750)]);
        assert_eq!(outcome.rate(Workload::Requests), 500.0);
        assert_eq!(outcome.rate_of_core(Workload::Requests), 400.0);
        assert_eq!(outcome.rate(Workload::Megabytes), 0.5);
    }

    #[test]
    fn ratios_are_to_the_first_number_of_the_same_run() {
        let series =
            Series { shards: vec![2, 4], threads: 1, runs: 2, measured: Duration::from_secs(4) };
        let rows = series.run(|plan| {
            assert_eq!(plan.window, Duration::from_secs(2));
            Ok(outcome(&[window(u64::from(plan.shards) * 3, 1000, 1000)]))
        });
        let rows = rows.unwrap();
        assert_eq!(rows.len(), 6);
        let four = &rows[3];
        assert_eq!((four.workload, four.shards), (Workload::Requests, 4));
        assert_eq!((&*four.rates, &*four.ratios), (&[12.0, 12.0][..], &[2.0, 2.0][..]));
        assert!(four.is_right() && four.busy_cores() == 1.0);
        assert_eq!(four.spread(), [12.0, 12.0, 12.0]);
    }

    #[test]
    fn a_lost_answer_or_message_and_a_frame_handed_over_are_wrong() {
        let whole = Part { asked: 3, answered: 3, ..Part::default() };
        let is_right = |part: Part| {
            let mut row = Row::new(Workload::Requests, 1);
            row.add(&Outcome { parts: vec![whole, part] });
            row.is_right()
        };
        assert!(is_right(whole));
        assert!(!is_right(Part { answered: 2, ..whole }));
        assert!(!is_right(Part { messages_lost: 1, ..whole }));
        assert!(!is_right(Part { handed_over: 1, ..whole }));
    }
}
