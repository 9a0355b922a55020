//! Merges the reports of several processes that shared a load.

use super::{Report, Setup};
use crate::engine::Outcome;
use crate::recorder::{Second, SecondLatencies};

impl Report {
    /// Merges the reports of one load's parts into one, as if one process had run all of it. Counts
    /// and histograms are added up. Rates refer to the longest part, and the share of a processor
    /// is the busiest part's.
    ///
    /// # Errors
    /// A line that says which key differs, or which share or report comes twice.
    pub fn merge(reports: Vec<Report>) -> Result<Report, String> {
        for (number, report) in reports.iter().enumerate() {
            let is_same =
                |other: &Report| (&other.setup, &other.outcome) == (&report.setup, &report.outcome);
            // Reports of shares are compared by the shares' numbers.
            if report.setup.shares.is_empty() && reports[..number].iter().any(is_same) {
                return Err("one report comes twice".to_owned());
            }
        }
        let mut reports = reports.into_iter();
        let mut sum = reports.next().ok_or("there is no report")?;
        for report in reports {
            sum.setup.add(&report.setup)?;
            if sum.outcome.warm_up != report.outcome.warm_up {
                return Err("warm_up_s differs".to_owned());
            }
            sum.outcome.add(&report.outcome);
            sum.cpu_share = sum.cpu_share.max(report.cpu_share);
        }
        Ok(sum)
    }
}

impl Setup {
    fn add(&mut self, other: &Setup) -> Result<(), String> {
        for (key, is_same) in [
            ("url", self.url == other.url),
            ("method", self.method == other.method),
            ("mix", self.mix == other.mix),
            ("mode", self.rate.is_some() == other.rate.is_some()),
            (
                "requests_per_connection",
                self.requests_per_connection == other.requests_per_connection,
            ),
            ("pipeline", self.pipeline == other.pipeline),
            ("close", self.close == other.close),
            ("sources.rest_s", self.rest == other.rest),
            ("steady_after_s", self.steady_after == other.steady_after),
        ] {
            if !is_same {
                return Err(format!("{key} differs"));
            }
        }
        for share in &other.shares {
            if self.shares.contains(share) {
                return Err(format!("part {}/{} comes twice", share.number() + 1, share.of()));
            }
            if self.shares.iter().any(|ours| ours.of() != share.of()) {
                return Err("parts are of different numbers of parts".to_owned());
            }
        }
        self.shares.extend(&other.shares);
        self.rate = self.rate.zip(other.rate).map(|(ours, theirs)| ours + theirs);
        self.connections += other.connections;
        self.addresses += other.addresses;
        self.ports = self.ports.max(other.ports);
        if self.stack != other.stack {
            self.stack = "several stacks".to_owned();
        }
        Ok(())
    }
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.recorded = self.recorded.max(other.recorded);
        self.totals.add(&other.totals);
        self.notes.add(&other.notes);
        self.idle.add(&other.idle);
        let len = self.seconds.len().max(other.seconds.len());
        self.seconds.resize(len, Second::default());
        self.second_latencies.resize(len, SecondLatencies::default());
        let theirs = other.seconds.iter().zip(&other.second_latencies);
        let ours = self.seconds.iter_mut().zip(&mut self.second_latencies);
        for ((second, latencies), (other, more)) in ours.zip(theirs) {
            latencies.add(more);
            *second = latencies.complete(Second {
                answered: second.answered + other.answered,
                failed: second.failed + other.failed,
                connections: second.connections + other.connections,
                bytes: second.bytes + other.bytes,
                in_flight: second.in_flight + other.in_flight,
                time_wait: second.time_wait + other.time_wait,
                ..Second::default()
            });
        }
    }
}

/// The shares that are missing, as `2/4, 3/4`; empty if none is.
pub(super) fn missing(setup: &Setup) -> String {
    let Some(of) = setup.shares.first().map(crate::share::Share::of) else { return String::new() };
    let is_there = |number: &u32| setup.shares.iter().any(|share| share.number() == *number);
    let missing = (0..of).filter(|number| !is_there(number));
    missing.map(|number| format!("{}/{of}", number + 1)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
