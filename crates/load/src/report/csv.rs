//! The report as CSV, with a line for each second.

use std::fmt::Write;
use std::time::Duration;

use super::Report;
use crate::recorder::Second;

const HEADER: &str = "second,phase,answered,failed,connections,bytes,in_flight,time_wait,\
                      median_us,p99_us,longest_us\n";

impl Report {
    /// Every second of the load, the warm-up included, with a header.
    pub fn csv(&self) -> String {
        let mut text = HEADER.to_owned();
        for (number, second) in self.outcome.seconds.iter().enumerate() {
            let is_warm_up = Duration::from_secs(number as u64) < self.outcome.warm_up;
            let phase = if is_warm_up { "warm_up" } else { "recorded" };
            let Second { answered, failed, connections, bytes, in_flight, time_wait, .. } = second;
            let [median, p99, longest] =
                [second.median, second.p99, second.longest].map(|latency| latency.as_micros());
            writeln!(
                text,
                "{},{phase},{answered},{failed},{connections},{bytes},{in_flight},{time_wait},\
                 {median},{p99},{longest}",
                number + 1,
            )
            .expect("a string takes all");
        }
        text
    }
}
