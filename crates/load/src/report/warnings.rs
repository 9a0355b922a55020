//! Warnings that cast doubt on a report's numbers.

use std::time::Duration;

use super::{Report, merge};
use crate::recorder::Fault;

/// The part of a processor above which the load itself may be the bottleneck.
const BUSY: f64 = 0.8;

/// The delay of a start from which a load is late.
const LATE: Duration = Duration::from_millis(1);

/// The part of requests that may fail before the report warns.
const FAILED: f64 = 0.05;

/// The part of requests that may fall behind before the report warns.
const BEHIND: f64 = 0.01;

/// The part of the recorded time for which the parts of a load must have run together.
const TOGETHER: f64 = 0.95;

impl Report {
    /// Warnings that cast doubt on the numbers, a line each.
    pub fn warnings(&self) -> Vec<String> {
        let Report { outcome, cpu_share, threads, .. } = self;
        let mut warnings = Vec::new();
        if outcome.recorded.is_zero() {
            warnings.push("nothing was recorded: the load ended in its warm-up".to_owned());
        }
        warnings.extend(self.unsteadiness());
        let each = cpu_share / f64::from(*threads);
        if each > BUSY {
            let of = if *threads == 1 { "a processor" } else { "a processor in each thread" };
            warnings.push(format!(
                "the load itself took {:.0} % of {of}: it may be the bottleneck",
                each * 100.0,
            ));
        }
        let totals = &outcome.totals;
        if totals.failure_rate() > FAILED {
            warnings.push(format!(
                "{} of {} requests failed: see statuses and errors",
                totals.failed(),
                totals.answered + totals.failed(),
            ));
        }
        warnings.extend(self.lateness());
        warnings.extend(self.shortage());
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
        warnings.extend(self.distance());
        warnings
    }

    /// A load that never was in its steady state.
    fn unsteadiness(&self) -> Vec<String> {
        let Report { setup, outcome, .. } = self;
        let notes = &outcome.notes;
        let mut warnings = Vec::new();
        if notes.kernel_overflow > 0 {
            warnings.push(format!(
                "not the steady state: Linux ended {} TIME-WAITs of this machine at once, as it \
                 had as many as it keeps (sysctl net.ipv4.tcp_max_tw_buckets)",
                notes.kernel_overflow,
            ));
        }
        if outcome.warm_up < self.steady_after() {
            warnings.push(format!(
                "not the steady state: recorded after {:.1} s, where TIME-WAIT takes {:.0} s to \
                 fill (--warm-up)",
                outcome.warm_up.as_secs_f64(),
                self.steady_after().as_secs_f64(),
            ));
        }
        if setup.rest.is_zero() && setup.requests_per_connection.is_some() {
            let text = "4-tuples did not rest: where one came again, a new SYN ended its TIME-WAIT \
                        before the time (--time-wait)";
            warnings.push(text.to_owned());
        }
        warnings
    }

    /// Requests that are pending at a time when the server keeps up: the rate times the latency
    /// (Little's law), by the quickest second. Latencies of a backlog may fill all of the record.
    fn usual_pending(&self) -> f64 {
        let seconds = self.outcome.seconds.iter().filter(|second| second.answered > 0);
        let quickest = seconds.map(|second| second.median).min().unwrap_or_default();
        self.setup.rate.unwrap_or(0.0) * quickest.as_secs_f64()
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
                 no connection or 4-tuple was free, others took the load's processor, or timers \
                 were as coarse",
                delay.as_secs_f64() * 1e3,
            ));
        }
        let ended = totals.ended.answered + totals.ended.failed;
        let behind = requests.saturating_sub(ended) as f64;
        if behind > requests as f64 * BEHIND + self.usual_pending() {
            let unfinished = totals.faults.of(Fault::Unfinished);
            warnings.push(format!(
                "the rate was not reached: {requests} requests were to start in the recorded part, \
                 and {ended} ended in it; {unfinished} had no answer at the end",
            ));
        }
        warnings
    }

    /// Too few 4-tuples.
    fn shortage(&self) -> Vec<String> {
        let Report { setup, outcome, .. } = self;
        let notes = &outcome.notes;
        let mut warnings = Vec::new();
        if self.has_lost_connections() {
            let ended = &outcome.totals.ended;
            let need = self.addresses_needed().map_or(String::new(), |need| {
                format!(
                    "; that rate needs {need} source addresses, of which there were {}",
                    setup.addresses
                )
            });
            warnings.push(format!(
                "connections were not kept: {} were opened for {} requests{need} (without \
                 --keep-alive a load takes as many as it needs)",
                ended.connections,
                ended.answered + ended.failed,
            ));
        }
        if notes.tuple_waits > 0 {
            let allowed = setup.addresses as f64 * f64::from(setup.ports);
            warnings.push(format!(
                "waits of connections for a 4-tuple that had rested: {}; the source addresses ({}) \
                 allow {:.0} connections/s, if those take no time (--source)",
                notes.tuple_waits,
                setup.addresses,
                allowed / setup.rest.as_secs_f64(),
            ));
        }
        if notes.tuples_taken > 0 {
            warnings.push(format!(
                "4-tuples that were in use: {}, by other connections of this machine, or by the \
                 TIME-WAITs of a load before",
                notes.tuples_taken,
            ));
        }
        warnings
    }

    /// Parts that are missing, or ran at other times.
    fn distance(&self) -> Vec<String> {
        let Report { setup, outcome, .. } = self;
        let mut warnings = Vec::new();
        if let Some(together) = self.together
            && together < outcome.recorded.mul_f64(TOGETHER)
        {
            warnings.push(format!(
                "the parts did not run together: all of them for {:.1} s of {:.1} s, over which \
                 the rates are",
                together.as_secs_f64(),
                outcome.recorded.as_secs_f64(),
            ));
        }
        let missing = merge::missing(setup);
        if setup.shares.len() > 1 && !missing.is_empty() {
            warnings.push(format!("the load is not whole: of its parts {missing} are missing"));
        }
        warnings
    }
}
