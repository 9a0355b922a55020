//! The record of a load: histograms of the recorded part, and a line for every second of the load,
//! the warm-up included.
//!
//! A request is recorded if its *intended* start lies in the recorded part, however late it ends. A
//! server that stalls delays the start of other requests; measured from the actual start, these
//! would look quick ("coordinated omission"; Tene 2013).
//!
//! Rates count what *ended* in the recorded part. A server that is too slow works off its backlog
//! behind it: divided by the recorded time, those answers would give a rate that it never had.

mod fault;
mod latencies;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;

pub use fault::{Fault, Faults};
pub use latencies::{Latencies, SecondLatencies};
use latencies::{complete, of_a_second, record};

/// An answered request. Times count from the beginning of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The time at which it was to start.
    pub intended: Duration,
    /// The time of its actual start.
    pub started: Duration,
    /// The time at which the answer was complete.
    pub ended: Duration,
    /// The time from the written request to the first byte of the answer.
    pub first_byte: Duration,
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the answer, its head included.
    pub bytes: u64,
}

/// One second of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Requests answered with a status below 400 in this second.
    pub answered: u64,
    /// Requests that failed in this second, including answers with 400 or more.
    pub failed: u64,
    /// Connections opened.
    pub connections: u64,
    /// Bytes of answers in this second.
    pub bytes: u64,
    /// Pending requests at its end.
    pub in_flight: u64,
    /// 4-tuples at rest at its end: their connections ended less than a TIME-WAIT before.
    pub time_wait: u64,
    /// The median latency of the requests answered in this second.
    pub median: Duration,
    /// Their 99th percentile.
    pub p99: Duration,
    /// Their longest latency.
    pub longest: Duration,
}

/// Events of the recorded part, whenever their requests were to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Requests answered with a status below 400.
    pub answered: u64,
    /// Requests that failed, including answers with 400 or more.
    pub failed: u64,
    /// Connections opened.
    pub connections: u64,
    /// Bytes of answers.
    pub bytes: u64,
}

impl Ended {
    fn add(&mut self, other: &Ended) {
        let Ended { answered, failed, connections, bytes } = other;
        self.answered += answered;
        self.failed += failed;
        self.connections += connections;
        self.bytes += bytes;
    }
}

/// The counters of the recorded part: of requests whose intended start lies in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The events of that part, for rates.
    pub ended: Ended,
    /// Requests answered with a status below 400.
    pub answered: u64,
    /// Bytes of all answers.
    pub bytes: u64,
    /// Connections opened for them.
    pub connections: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests that got no answer.
    pub faults: Faults,
    /// Times to open a connection.
    pub connect: Latencies,
    /// From the written request to the first byte of its answer.
    pub first_byte: Latencies,
    /// From the intended start to the end of the answer.
    pub total: Latencies,
    /// From the intended start to the actual one.
    pub delay: Latencies,
}

impl Totals {
    /// Requests that failed: without an answer, or with a status of 400 or more.
    pub fn failed(&self) -> u64 {
        let refused: u64 = self.statuses.range(400..).map(|(_, count)| count).sum();
        self.faults.sum() + refused
    }

    /// The part of all requests that failed, from 0 to 1.
    pub fn failure_rate(&self) -> f64 {
        let all = self.answered + self.failed();
        if all == 0 { 0.0 } else { self.failed() as f64 / all as f64 }
    }

    /// Adds the counters of another load.
    pub fn add(&mut self, other: &Totals) {
        let Totals { answered, bytes, connections, statuses, faults, .. } = other;
        self.ended.add(&other.ended);
        self.answered += answered;
        self.bytes += bytes;
        self.connections += connections;
        for (status, count) in statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.faults.add(faults);
        self.connect.add(&other.connect);
        self.first_byte.add(&other.first_byte);
        self.total.add(&other.total);
        self.delay.add(&other.delay);
    }
}

/// Records the events of a load.
#[derive(Clone, Debug)]
pub struct Recorder {
    recorded: Range<Duration>,
    totals: Totals,
    seconds: Vec<Second>,
    second_latencies: Vec<SecondLatencies>,
    /// The present second, and its latencies.
    second: Second,
    latencies: Histogram<u64>,
}

/// The gauges that a recorder reads at the end of each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Pending requests.
    pub in_flight: u64,
    /// 4-tuples at rest.
    pub time_wait: u64,
}

impl Recorder {
    /// Records requests whose intended start lies in that part of the load.
    pub fn new(recorded: Range<Duration>) -> Recorder {
        let (totals, seconds, second_latencies, second) = Default::default();
        let latencies = of_a_second();
        Recorder { recorded, totals, seconds, second_latencies, second, latencies }
    }

    /// A request was answered.
    pub fn on_answer(&mut self, answer: &Answered) {
        let is_good = answer.status < 400;
        let latency = answer.ended.saturating_sub(answer.intended);
        self.second.bytes += answer.bytes;
        if is_good {
            self.second.answered += 1;
        } else {
            self.second.failed += 1;
        }
        record(&mut self.latencies, latency);
        let totals = &mut self.totals;
        if self.recorded.contains(&answer.ended) {
            totals.ended.answered += u64::from(is_good);
            totals.ended.failed += u64::from(!is_good);
            totals.ended.bytes += answer.bytes;
        }
        if !self.recorded.contains(&answer.intended) {
            return;
        }
        totals.answered += u64::from(is_good);
        totals.bytes += answer.bytes;
        *totals.statuses.entry(answer.status).or_default() += 1;
        totals.first_byte.record(answer.first_byte);
        totals.total.record(latency);
        totals.delay.record(answer.started.saturating_sub(answer.intended));
    }

    /// A request with that intended start had got no answer when it `ended`. If it was not answered
    /// in time, it has waited until then and counts among the latencies: a server that stalls for
    /// longer than the timeout would look fast otherwise. A refused request does not count there.
    pub fn on_fault(&mut self, intended: Duration, ended: Duration, fault: Fault) {
        let latency = ended.saturating_sub(intended);
        let has_waited = matches!(fault, Fault::Timeout | Fault::Unfinished);
        self.second.failed += 1;
        self.totals.ended.failed += u64::from(self.recorded.contains(&ended));
        if has_waited {
            record(&mut self.latencies, latency);
        }
        if self.recorded.contains(&intended) {
            self.totals.faults.count(fault, 1);
            if has_waited {
                self.totals.total.record(latency);
            }
        }
    }

    /// A connection was opened at `opened`, for a request with that intended start. It took
    /// `connect`.
    pub fn on_connection(&mut self, intended: Duration, opened: Duration, connect: Duration) {
        self.second.connections += 1;
        self.totals.ended.connections += u64::from(self.recorded.contains(&opened));
        if self.recorded.contains(&intended) {
            self.totals.connections += 1;
            self.totals.connect.record(connect);
        }
    }

    /// A second is over. Returns its record.
    pub fn on_second(&mut self, gauges: Gauges) -> Second {
        let Gauges { in_flight, time_wait } = gauges;
        let second = complete(&self.latencies, Second { in_flight, time_wait, ..self.second });
        self.second_latencies.push(SecondLatencies::new(&self.latencies));
        self.seconds.push(second);
        self.second = Second::default();
        self.latencies.reset();
        second
    }

    /// The number of complete seconds.
    pub fn seconds(&self) -> u64 {
        self.seconds.len() as u64
    }

    /// Ends the recorded part at `end`, earlier than planned.
    pub fn cut(&mut self, end: Duration) {
        self.recorded.end = self.recorded.end.min(end);
    }

    /// The part that is recorded.
    pub fn recorded(&self) -> &Range<Duration> {
        &self.recorded
    }

    /// The counters so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The counters, the seconds, and the latencies of each second.
    pub fn into_parts(self) -> (Totals, Vec<Second>, Vec<SecondLatencies>) {
        (self.totals, self.seconds, self.second_latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn answer(intended_ms: u32, latency_ms: u32) -> Answered {
        let intended = MS * intended_ms;
        Answered {
            intended,
            started: intended + MS * latency_ms / 4,
            ended: intended + MS * latency_ms,
            first_byte: MS * latency_ms / 2,
            status: 200,
            bytes: 100,
        }
    }

    fn is_near(latency: Duration, ms: u32) -> bool {
        latency.abs_diff(MS * ms) <= MS * ms / 1000
    }

    #[test]
    fn requests_due_outside_the_record_count_in_their_second_alone() {
        let mut recorder = Recorder::new(MS * 1000..MS * 2000);
        for intended in [999, 1000, 1999, 2000] {
            recorder.on_answer(&answer(intended, 5));
            recorder.on_fault(MS * intended, MS * 5000, Fault::Reset);
        }
        let second = recorder.on_second(Gauges { in_flight: 7, time_wait: 9 });
        assert_eq!((second.answered, second.failed, second.bytes), (4, 4, 400));
        assert_eq!((second.in_flight, second.time_wait), (7, 9));
        let totals = recorder.totals();
        assert_eq!((totals.answered, totals.failed(), totals.bytes), (2, 2, 200));
        assert_eq!(totals.total.len(), 2);
    }

    #[test]
    fn rates_count_what_ended_in_the_recorded_part() {
        let mut recorder = Recorder::new(MS * 1000..MS * 2000);
        // Carried over from the warm-up, in the midst, and carried out of the recorded part.
        for (intended, latency) in [(900, 99), (900, 100), (1500, 5), (1990, 9), (1990, 10)] {
            recorder.on_connection(MS * intended, MS * (intended + latency), MS);
            recorder.on_answer(&answer(intended, latency));
            recorder.on_fault(MS * intended, MS * (intended + latency), Fault::Reset);
        }
        recorder.on_answer(&Answered { status: 404, ..answer(1500, 5) });
        let totals = recorder.totals();
        let ended = Ended { answered: 3, failed: 4, connections: 3, bytes: 400 };
        assert_eq!((totals.ended, totals.answered, totals.connections), (ended, 3, 3));
        recorder.cut(MS * 1995);
        recorder.on_answer(&answer(1990, 5));
        recorder.on_answer(&answer(1990, 4));
        assert_eq!(recorder.totals().ended.answered, 4);
    }

    #[test]
    fn latency_counts_from_the_intended_start_and_delay_is_apart() {
        let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
        recorder.on_connection(MS * 10, MS * 13, MS * 3);
        recorder.on_connection(MS * 9000, MS * 9004, MS * 4);
        recorder.on_answer(&answer(10, 4000));
        let totals = recorder.totals();
        assert!(is_near(totals.total.percentile(100.0), 4000));
        assert!(is_near(totals.delay.percentile(50.0), 1000));
        assert!(is_near(totals.first_byte.percentile(50.0), 2000));
        assert!(is_near(totals.connect.percentile(50.0), 3) && totals.connect.len() == 1);
        assert_eq!(totals.connections, 1);
        assert_eq!(recorder.on_second(Gauges::default()).connections, 2);
    }

    #[test]
    fn a_status_of_400_or_more_is_a_failure_with_a_latency() {
        let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
        for status in [200, 304, 399, 400, 503] {
            recorder.on_answer(&Answered { status, ..answer(10, 4) });
        }
        let totals = recorder.totals();
        assert_eq!((totals.answered, totals.failed(), totals.total.len()), (3, 2, 5));
        assert_eq!(totals.failure_rate(), 0.4);
        assert_eq!(Totals::default().failure_rate(), 0.0);
    }

    #[test]
    fn a_request_that_got_no_answer_in_time_has_waited_so_long() {
        let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
        (0..98).for_each(|_| recorder.on_answer(&answer(10, 4)));
        recorder.on_fault(MS * 10, MS * 2010, Fault::Timeout);
        recorder.on_fault(MS * 10, MS * 5010, Fault::Unfinished);
        recorder.on_fault(MS * 10, MS * 11, Fault::Refused);
        let totals = recorder.totals();
        assert_eq!((totals.answered, totals.failed(), totals.total.len()), (98, 3, 100));
        assert!(is_near(totals.total.percentile(98.0), 4));
        assert!(is_near(totals.total.percentile(99.0), 2000));
        assert!(is_near(totals.total.percentile(100.0), 5000));
        let longest = recorder.on_second(Gauges::default()).longest;
        assert!(longest > MS * 4900, "{longest:?}");
    }

    #[test]
    fn each_second_has_the_latencies_of_its_own() {
        let mut recorder = Recorder::new(Duration::ZERO..MS * 9000);
        (1..=100).for_each(|ms| recorder.on_answer(&answer(0, ms)));
        let first = recorder.on_second(Gauges::default());
        recorder.on_answer(&answer(0, 7));
        let other = recorder.on_second(Gauges::default());
        let near = |latency: Duration, ms: u32| latency.abs_diff(MS * ms) <= MS * ms / 100;
        assert!(near(first.median, 50) && near(first.p99, 99) && near(first.longest, 100));
        assert!(near(other.median, 7) && near(other.longest, 7));
        let empty = recorder.on_second(Gauges::default());
        assert_eq!(empty, Second::default());
    }

    #[test]
    fn a_load_cut_short_records_up_to_the_cut() {
        let mut recorder = Recorder::new(MS * 1000..MS * 9000);
        recorder.cut(MS * 5000);
        recorder.on_answer(&answer(4999, 1));
        recorder.on_answer(&answer(5000, 1));
        recorder.cut(MS * 7000);
        assert_eq!((recorder.totals().answered, recorder.recorded().end), (1, MS * 5000));
    }

    #[test]
    fn the_sum_of_two_loads_is_as_if_one_recorder_had_seen_both() {
        let new = || Recorder::new(Duration::ZERO..MS * 9000);
        let (mut one, mut other, mut both) = (new(), new(), new());
        for ms in 1..500 {
            let answer =
                Answered { status: if ms % 7 == 0 { 503 } else { 200 }, ..answer(ms, ms * 3) };
            let part = if ms % 2 == 0 { &mut one } else { &mut other };
            part.on_answer(&answer);
            part.on_connection(MS * ms, MS * ms * 3, MS * ms * 2);
            both.on_connection(MS * ms, MS * ms * 3, MS * ms * 2);
            part.on_fault(MS * ms, MS * ms * 4, Fault::Timeout);
            both.on_answer(&answer);
            both.on_fault(MS * ms, MS * ms * 4, Fault::Timeout);
        }
        let mut sum = one.totals().clone();
        sum.add(other.totals());
        assert_eq!(&sum, both.totals());
    }
}
