//! The report of a load, as a table for people, as JSON for programs, as CSV by the second, and as
//! a page.

mod csv;
mod html;
mod json;
mod merge;
mod parse;
mod table;
mod warnings;

use std::time::Duration;

use crate::engine::{Close, Outcome};
use crate::share::Share;
use crate::sources::Rule;

/// The percentiles in reports.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

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
    /// The threads that put it on; of several parts, the most that one had.
    pub threads: u16,
    /// The Unix time at which the load began; `None` in reports of before.
    pub started_at: Option<Duration>,
    /// The time for which all of several parts recorded; `None` for one part.
    pub together: Option<Duration>,
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
    /// Requests at a time on each connection of HTTP/2; `None` over HTTP/1.1.
    pub http2_streams: Option<u32>,
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
    /// Requests answered a second, in the recorded part: those that ended there.
    pub fn rate(&self) -> f64 {
        self.per_second(self.outcome.totals.ended.answered)
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.outcome.recorded.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Processor time of the load for a request. `None` without requests, or if several processes
    /// shared the load: the share is then the busiest one's.
    pub fn cpu_per_request(&self) -> Option<Duration> {
        let ended = &self.outcome.totals.ended;
        let requests = ended.answered + ended.failed;
        let is_one = requests > 0 && self.setup.shares.len() < 2;
        is_one.then(|| self.outcome.recorded.mul_f64(self.cpu_share.max(0.0) / requests as f64))
    }

    /// True if the load was warm: TIME-WAITs began and ended at the same rate throughout.
    pub fn is_steady(&self) -> bool {
        self.outcome.warm_up >= self.steady_after() && self.outcome.notes.kernel_overflow == 0
    }

    /// The warm-up after which the load is in its steady state. Connections that were to be kept,
    /// and were not, leave TIME-WAITs, too.
    fn steady_after(&self) -> Duration {
        let Setup { steady_after, rest, .. } = self.setup;
        if self.has_lost_connections() { rest.max(steady_after) } else { steady_after }
    }

    /// True if connections were to be kept, and a tenth of the requests and more opened one.
    fn has_lost_connections(&self) -> bool {
        let ended = &self.outcome.totals.ended;
        let is_more = ended.connections > self.setup.connections;
        let is_kept = self.setup.requests_per_connection.is_none();
        is_kept && is_more && ended.connections * 10 >= ended.answered + ended.failed
    }

    /// Source addresses that the recorded part's rate of connections needs, beside those that are
    /// held. `None` if 4-tuples do not rest, or nothing was recorded.
    fn addresses_needed(&self) -> Option<u64> {
        let Report { setup, outcome, .. } = self;
        if setup.rest.is_zero() || outcome.recorded.is_zero() {
            return None;
        }
        let rate = self.per_second(outcome.totals.ended.connections);
        let rule =
            Rule { rest: setup.rest, life: Duration::ZERO, ports: setup.ports, random: None };
        let held = setup.connections + outcome.idle.asked;
        Some(((rule.tuples(rate) + held as f64) / f64::from(setup.ports)).ceil() as u64)
    }
}

#[cfg(test)]
mod tests;
