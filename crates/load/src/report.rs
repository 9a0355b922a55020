//! The report of a load, as a table for people, as JSON for programs, as CSV by the second, and as
//! a page.

mod csv;
mod html;
mod json;
mod merge;
mod parse;
mod table;

use std::time::Duration;

use crate::engine::{Close, Outcome};
use crate::recorder::Fault;
use crate::share::Share;

/// The percentiles in reports.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// The part of a processor above which the load itself may be the bottleneck.
const BUSY: f64 = 0.8;

/// The delay of a start from which a load is late.
const LATE: Duration = Duration::from_millis(1);

/// The part of unfinished requests from which the report warns.
const UNFINISHED: f64 = 0.01;

/// A load and its result.
#[derive(Clone, Debug)]
pub struct Report {
    /// The plan of the load.
    pub setup: Setup,
    /// The result.
    pub outcome: Outcome,
    /// The part of one processor that the load itself used while it was recorded, from 0 to 1 for
    /// each thread.
    pub cpu_share: f64,
}

/// The plan of a load, as its report shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The server's URL.
    pub url: String,
    /// The method of the requests.
    pub method: String,
    /// The name of the requests' mix or log; `None` if there is a single request.
    pub mix: Option<String>,
    /// A description of the stack that the load ran on.
    pub stack: String,
    /// The highest rate of requests a second; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Connections at a time, at most.
    pub connections: u64,
    /// Requests of a connection; `None` if there is no limit.
    pub requests_per_connection: Option<u32>,
    /// Requests sent at once.
    pub pipeline: u32,
    /// The end that closes first.
    pub close: Close,
    /// Source addresses.
    pub addresses: u64,
    /// Ports of each address.
    pub ports: u32,
    /// The time for which a 4-tuple rests.
    pub rest: Duration,
    /// The warm-up after which a load of new connections is in its steady state.
    pub steady_after: Duration,
    /// The shares of the load in this report, in the order in which they were added; empty if the
    /// load has only one.
    pub shares: Vec<Share>,
}

impl Report {
    /// Requests answered a second, over the recorded part.
    pub fn rate(&self) -> f64 {
        self.per_second(self.outcome.totals.answered)
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.outcome.recorded.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Processor time of the load for a request. `None` without requests, or if several processes
    /// shared the load: the share is then the busiest one's.
    pub fn cpu_per_request(&self) -> Option<Duration> {
        let totals = &self.outcome.totals;
        let requests = totals.answered + totals.failed();
        let is_one = requests > 0 && self.setup.shares.len() < 2;
        is_one.then(|| self.outcome.recorded.mul_f64(self.cpu_share.max(0.0) / requests as f64))
    }

    /// True if the load was warm: TIME-WAITs began and ended at the same rate throughout.
    pub fn is_steady(&self) -> bool {
        self.outcome.warm_up >= self.setup.steady_after
    }

    /// Warnings about an open loop that did not reach its rate, or started requests late.
    fn lateness(&self) -> Vec<String> {
        let Report { setup, outcome, .. } = self;
        let totals = &outcome.totals;
        let (mut warnings, requests) = (Vec::new(), totals.answered + totals.failed());
        if setup.rate.is_none() || requests == 0 {
            return warnings;
        }
        if outcome.recorded.is_zero() {
            return warnings;
        }
        let [delay, total] = [&totals.delay, &totals.total].map(|all| all.percentile(99.0));
        if delay > LATE && delay * 10 > total {
            warnings.push(format!(
                "requests began late: 1 % of them {:.1} ms or more, and their latency counts that; \
                 no connection was free (--connections), or others took the load's processor",
                delay.as_secs_f64() * 1e3,
            ));
        }
        let unfinished = totals.faults.of(Fault::Unfinished);
        if unfinished as f64 > requests as f64 * UNFINISHED {
            warnings.push(format!(
                "the rate was not reached: {unfinished} of {requests} requests were not answered \
                 when the load had ended",
            ));
        }
        warnings
    }

    /// Warnings that cast doubt on the numbers, a line each.
    pub fn warnings(&self) -> Vec<String> {
        let Report { setup, outcome, cpu_share } = self;
        let mut warnings = Vec::new();
        if outcome.recorded.is_zero() {
            warnings.push("nothing was recorded: the load ended in its warm-up".to_owned());
        }
        if !self.is_steady() {
            warnings.push(format!(
                "not the steady state: recorded after {:.1} s, where TIME-WAIT takes {:.0} s to \
                 fill (--warm-up)",
                outcome.warm_up.as_secs_f64(),
                setup.steady_after.as_secs_f64(),
            ));
        }
        if setup.rest.is_zero() && setup.requests_per_connection.is_some() {
            let text = "4-tuples did not rest: where one came again, a new SYN ended its TIME-WAIT \
                        before the time (--time-wait)";
            warnings.push(text.to_owned());
        }
        if *cpu_share > BUSY {
            warnings.push(format!(
                "the load itself took {:.0} % of a processor: it may be the bottleneck",
                cpu_share * 100.0,
            ));
        }
        warnings.extend(self.lateness());
        let notes = &outcome.notes;
        if notes.tuple_waits > 0 {
            let allowed = setup.addresses as f64 * f64::from(setup.ports);
            warnings.push(format!(
                "{} connections waited for a 4-tuple that had rested: {} addresses allow {:.0} \
                 connections/s (--source)",
                notes.tuple_waits,
                setup.addresses,
                allowed / setup.rest.as_secs_f64(),
            ));
        }
        if notes.tuples_taken > 0 {
            let text = "4-tuples were in use: by other connections of this machine, or by the \
                        TIME-WAITs of a load before";
            warnings.push(format!("{} {text}", notes.tuples_taken));
        }
        let idle = &outcome.idle;
        if idle.held() < idle.asked {
            warnings.push(format!(
                "of {} idle connections {} were held: {} could not be opened, the server ended {}",
                idle.asked,
                idle.held(),
                idle.asked - idle.opened,
                idle.lost,
            ));
        }
        let missing = merge::missing(setup);
        if setup.shares.len() > 1 && !missing.is_empty() {
            warnings.push(format!("the load is not whole: of its parts {missing} are missing"));
        }
        warnings
    }
}

#[cfg(test)]
mod tests;
