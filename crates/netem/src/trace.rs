//! The times at which a recorded link could send, in mahimahi's format of traces.
//!
//! A line is a time in whole milliseconds, at which the link can send one packet's worth of bytes.
//! Lines do not go back in time, and a time may occur several times. The last line is the trace's
//! length: after it the trace starts again. Unused parts of an opportunity are lost.

use alloc::vec::Vec;
use core::fmt;

/// Opportunities to send, repeated for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Times in ms, ascending; the last is above zero.
    at_ms: Vec<u32>,
    opportunity_bytes: usize,
}

/// The error of a text that is no trace: the line, from 1, and the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTraceError {
    line: usize,
    why: &'static str,
}

impl fmt::Display for ParseTraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl core::error::Error for ParseTraceError {}

impl Trace {
    /// Reads a trace in which each opportunity carries `opportunity_bytes` (at least one).
    pub fn parse(text: &str, opportunity_bytes: usize) -> Result<Trace, ParseTraceError> {
        let mut at_ms: Vec<u32> = Vec::new();
        let mut line = 0;
        for number in text.lines() {
            line += 1;
            let error = |why| ParseTraceError { line, why };
            let number: u32 =
                number.trim().parse().map_err(|_| error("expected a time in whole ms"))?;
            if at_ms.last().is_some_and(|last| *last > number) {
                return Err(error("the time goes back"));
            }
            at_ms.push(number);
        }
        match at_ms.last() {
            Some(1..) => Ok(Trace { at_ms, opportunity_bytes: opportunity_bytes.max(1) }),
            Some(0) => Err(ParseTraceError { line, why: "the last time must be above 0 ms" }),
            None => Err(ParseTraceError { line: 1, why: "expected a time in whole ms" }),
        }
    }

    /// Its mean rate, in bits per second.
    pub fn bits_per_second(&self) -> f64 {
        let bits = self.at_ms.len() as f64 * self.opportunity_bytes as f64 * 8.0;
        bits * 1000.0 / f64::from(self.period_ms())
    }

    /// Bytes that an opportunity carries.
    pub(crate) fn opportunity_bytes(&self) -> usize {
        self.opportunity_bytes
    }

    fn period_ms(&self) -> u32 {
        self.at_ms.last().copied().unwrap_or(1)
    }

    /// The first opportunity at or after `ns` from the trace's beginning.
    pub(crate) fn first_at(&self, ns: u64) -> u64 {
        let period_ns = u64::from(self.period_ms()) * 1_000_000;
        // The end of one round is the beginning of the next; the end comes first.
        let (mut round, mut rest_ns) = (ns / period_ns, ns % period_ns);
        if rest_ns == 0 && round > 0 {
            (round, rest_ns) = (round - 1, period_ns);
        }
        let place = self.at_ms.partition_point(|ms| u64::from(*ms) * 1_000_000 < rest_ns);
        round * self.at_ms.len() as u64 + place as u64
    }

    /// The time of that opportunity, in ns from the trace's beginning.
    pub(crate) fn time_ns(&self, opportunity: u64) -> u64 {
        let len = self.at_ms.len() as u64;
        let (round, place) = (opportunity / len, opportunity % len);
        (round * u64::from(self.period_ms()) + u64::from(self.at_ms[place as usize])) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};

    #[test]
    fn a_text_that_is_no_trace_is_refused_with_its_line() {
        let error = |text: &str| Trace::parse(text, 1500).unwrap_err().to_string();
        assert_eq!(error("1\nx\n"), "line 2: expected a time in whole ms");
        assert_eq!(error("1\n3\n2\n"), "line 3: the time goes back");
        assert_eq!(error(""), "line 1: expected a time in whole ms");
        assert_eq!(error("0\n0\n"), "line 2: the last time must be above 0 ms");
        assert_eq!(error("-1"), "line 1: expected a time in whole ms");
    }

    #[test]
    fn the_mean_rate_is_what_the_opportunities_carry() {
        assert_eq!(Trace::parse("1", 1500).unwrap().bits_per_second(), 12_000_000.0);
        assert_eq!(Trace::parse("0\n0\n4\n", 1500).unwrap().bits_per_second(), 9_000_000.0);
    }

    proptest! {
        #[test]
        fn the_first_opportunity_is_the_first_that_is_not_before(
            mut at in prop::collection::vec(0u32..20, 1..8),
            ns in 0u64..100_000_000,
        ) {
            at.sort_unstable();
            *at.last_mut().unwrap() += 1;
            let lines: String = at.iter().map(|ms| ms.to_string() + "\n").collect();
            let trace = Trace::parse(&lines, 1500).unwrap();
            let first = trace.first_at(ns);
            let by_search = (0..).find(|k| trace.time_ns(*k) >= ns).unwrap();
            prop_assert_eq!(first, by_search);
        }
    }
}
