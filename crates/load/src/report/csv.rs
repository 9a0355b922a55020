//! The report as CSV, with a line for each second.

use std::fmt::Write;
use std::time::Duration;

use super::Report;
use crate::engine::Outcome;
use crate::recorder::Second;

const HEADER: &str = "second,phase,answered,failed,connections,bytes,in_flight,time_wait,\
                      median_us,p99_us,longest_us\n";

impl Report {
    /// Every second of the load, the warm-up included, with a header.
    pub fn csv(&self) -> String {
        let mut text = HEADER.to_owned();
        for (number, second) in self.outcome.seconds.iter().enumerate() {
            let phase = self.phase(Duration::from_secs(number as u64));
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

    /// The phase of a second that began at that time. Behind the recorded part pending requests get
    /// some time of grace.
    fn phase(&self, begin: Duration) -> &'static str {
        let Outcome { warm_up, recorded, .. } = self.outcome;
        match begin {
            _ if begin < warm_up => "warm_up",
            _ if begin < warm_up + recorded => "recorded",
            _ => "grace",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::HEADER;

    #[test]
    fn every_column_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load-report.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (_, columns) = text.split_once("`--csv` writes").unwrap();
        for column in HEADER.trim_end().split(',') {
            assert!(columns.contains(&format!("`{column}`")), "{column}");
        }
    }
}
