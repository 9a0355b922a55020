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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::network::Handshake;

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
    /// Times to open a connection, the TLS handshake included.
    pub connect: Latencies,
    /// Full TLS handshakes.
    pub handshake: Latencies,
    /// TLS handshakes that resumed a session.
    pub resumed: Latencies,
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

    /// The 99th percentile of the total latency of all requests, where a missing answer takes
    /// longer than any other. `None` if that is a missing answer, or there was no request.
    pub fn p99_of_all(&self) -> Option<Duration> {
        let (all, missing) = (self.answered + self.failed(), self.faults.sum());
        // The rank of the percentile, from 1; those that are missing are behind the others.
        let rank = (all * 99).div_ceil(100);
        let is_answered = all > 0 && rank <= all - missing;
        // Timeouts are in the histogram, and longer than nearly all answers.
        let percentile = 100.0 * rank as f64 / self.total.len() as f64;
        is_answered.then(|| self.total.percentile(percentile.min(100.0)))
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
        self.handshake.add(&other.handshake);
        self.resumed.add(&other.resumed);
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
    /// The seconds that have not been ended, oldest first: more than one where a busy machine's
    /// timer is late.
    open: VecDeque<OpenSecond>,
}

/// A second that has not been ended.
#[derive(Clone, Debug)]
struct OpenSecond {
    second: Second,
    latencies: Histogram<u64>,
}

impl OpenSecond {
    fn new() -> OpenSecond {
        OpenSecond { second: Second::default(), latencies: of_a_second() }
    }
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
        let (totals, seconds, second_latencies) = Default::default();
        let open = VecDeque::from([OpenSecond::new()]);
        Recorder { recorded, totals, seconds, second_latencies, open }
    }

    /// A request was answered.
    pub fn on_answer(&mut self, answer: &Answered) {
        let is_good = answer.status < 400;
        let latency = answer.ended.saturating_sub(answer.intended);
        let OpenSecond { second, latencies } = self.second_of(answer.ended);
        second.bytes += answer.bytes;
        if is_good {
            second.answered += 1;
        } else {
            second.failed += 1;
        }
        record(latencies, latency);
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
        let open = self.second_of(ended);
        open.second.failed += 1;
        if has_waited {
            record(&mut open.latencies, latency);
        }
        self.totals.ended.failed += u64::from(self.recorded.contains(&ended));
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
        self.second_of(opened).second.connections += 1;
        self.totals.ended.connections += u64::from(self.recorded.contains(&opened));
        if self.recorded.contains(&intended) {
            self.totals.connections += 1;
            self.totals.connect.record(connect);
        }
    }

    /// The TLS handshake of a connection that was opened for a request with that intended start.
    pub fn on_handshake(&mut self, intended: Duration, handshake: Handshake) {
        if self.recorded.contains(&intended) {
            let Handshake { is_resumed, took } = handshake;
            let totals = &mut self.totals;
            let of_kind = if is_resumed { &mut totals.resumed } else { &mut totals.handshake };
            of_kind.record(took);
        }
    }

    /// A second is over. Returns its record.
    pub fn on_second(&mut self, gauges: Gauges) -> Second {
        let Gauges { in_flight, time_wait } = gauges;
        let OpenSecond { second, mut latencies } =
            self.open.pop_front().expect("one is always open");
        let second = complete(&latencies, Second { in_flight, time_wait, ..second });
        self.second_latencies.push(SecondLatencies::new(&latencies));
        self.seconds.push(second);
        if self.open.is_empty() {
            latencies.reset();
            self.open.push_back(OpenSecond { second: Second::default(), latencies });
        }
        second
    }

    /// The second that an event at that time belongs to, or the present one if that has ended.
    fn second_of(&mut self, at: Duration) -> &mut OpenSecond {
        let place = usize::try_from(at.as_secs().saturating_sub(self.seconds())).unwrap_or(0);
        while self.open.len() <= place {
            self.open.push_back(OpenSecond::new());
        }
        &mut self.open[place]
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
mod tests;
