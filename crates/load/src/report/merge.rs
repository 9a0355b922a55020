//! Merges the reports of several processes that shared a load.

use std::time::Duration;

use super::{Report, Setup};
use crate::engine::Outcome;
use crate::recorder::{Second, SecondLatencies};

/// The longest time between the starts of two parts: more is a wrong clock, or another load.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Report {
    /// Merges the reports of one load's parts into one, as if one process had run all of it. Counts
    /// and histograms are added up, seconds by the clock. Rates are over the time from the first
    /// part's beginning to the last one's end. The share of a processor is the busiest part's.
    ///
    /// # Errors
    /// A line that says which key differs, or which share or report comes twice.
    pub fn merge(mut reports: Vec<Report>) -> Result<Report, String> {
        for (number, report) in reports.iter().enumerate() {
            let is_same =
                |other: &Report| (&other.setup, &other.outcome) == (&report.setup, &report.outcome);
            // Reports of shares are compared by the shares' numbers.
            if report.setup.shares.is_empty() && reports[..number].iter().any(is_same) {
                return Err("one report comes twice".to_owned());
            }
        }
        let span = Span::align(&mut reports)?;
        let mut reports = reports.into_iter();
        let mut sum = reports.next().ok_or("there is no report")?;
        for report in reports {
            sum.setup.add(&report.setup)?;
            if sum.outcome.warm_up != report.outcome.warm_up {
                return Err("warm_up_s differs".to_owned());
            }
            sum.outcome.add(&report.outcome);
            sum.cpu_share = sum.cpu_share.max(report.cpu_share);
            sum.threads = sum.threads.max(report.threads);
        }
        if let Some(Span { started_at, recorded, together }) = span {
            sum.started_at = Some(started_at);
            sum.outcome.recorded = recorded;
            sum.together = Some(together);
        }
        Ok(sum)
    }
}

/// The time of several parts.
struct Span {
    /// The start of the first part.
    started_at: Duration,
    /// From the first part's beginning of recording to the last one's end.
    recorded: Duration,
    /// The time for which all recorded.
    together: Duration,
}

impl Span {
    /// The span of several reports, whose seconds then count from the first one's start. `None` for
    /// one report, or if an older one tells no start.
    ///
    /// # Errors
    /// If two started more than a day apart.
    fn align(reports: &mut [Report]) -> Result<Option<Span>, String> {
        let starts: Option<Vec<Duration>> = reports.iter().map(|one| one.started_at).collect();
        let Some(starts) = starts.filter(|starts| starts.len() > 1) else { return Ok(None) };
        let first = starts.iter().min().copied().expect("there are two");
        let late = |start: &Duration| *start - first;
        if starts.iter().any(|start| late(start) > DAY) {
            return Err("started_at differs by more than a day".to_owned());
        }
        let ends =
            starts.iter().zip(&*reports).map(|(start, one)| late(start) + one.outcome.recorded);
        let (earliest, latest) = (ends.clone().min(), ends.max().unwrap_or_default());
        let last = starts.iter().map(late).max().unwrap_or_default();
        let mut together = earliest.unwrap_or_default().saturating_sub(last);
        for (start, one) in starts.iter().zip(reports) {
            together = one.together.unwrap_or(together).min(together);
            one.outcome.delay(late(start).as_secs_f64().round() as usize);
        }
        Ok(Some(Span { started_at: first, recorded: latest, together }))
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
            ("http2_streams", self.http2_streams == other.http2_streams),
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
        if self.shares.is_empty() != other.shares.is_empty() {
            return Err("one is a part of a load, another is a whole load".to_owned());
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
    /// Lets all seconds be that much later.
    fn delay(&mut self, seconds: usize) {
        let nothing = std::iter::repeat_n(Second::default(), seconds);
        self.seconds.splice(..0, nothing);
        let nothing = std::iter::repeat_n(SecondLatencies::default(), seconds);
        self.second_latencies.splice(..0, nothing);
    }

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
