//! The report as a self-contained page: no script, no style sheet, no network. It is also
//! well-formed XML.

mod chart;

use std::fmt::Write;

use super::Report;
use crate::engine::Outcome;
use chart::{Axis, Chart, Line};

/// Quantiles for each halving of the share above: the distribution goes to 99.999 %.
const OCTAVE_STEPS: u32 = 4;
const OCTAVES: u32 = 17;

const STYLE: &str = "body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
    pre{background:#f4f4f4;padding:1em;white-space:pre-wrap}\
    svg{width:100%;height:auto}text{font:11px sans-serif;fill:#444}\
    .axis{stroke:#888;fill:none}.grid{stroke:#ddd}.warm{fill:#f6efe0}";

impl Report {
    /// The report as a page: the contents of the table, throughput by the second with the start-up,
    /// 4-tuples at rest by the second, and the distribution of latency.
    pub fn html(&self) -> String {
        let title = escaped(&format!("{} {}", self.setup.method, self.setup.url));
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
             <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n\
             <pre>{}</pre>\n",
            escaped(&self.table()),
        );
        for (heading, chart) in [
            ("Throughput: shaded where it is not recorded", self.throughput()),
            ("4-tuples at rest after their connections", self.time_wait()),
            ("Latency, by the share of requests that took no longer", self.distribution()),
        ] {
            write!(page, "<h2>{heading}</h2>\n{}\n", chart.svg()).expect("a string takes all");
        }
        page.push_str("</body></html>\n");
        page
    }

    fn throughput(&self) -> Chart {
        let answered = self.by_second(|second| second.answered);
        let failed = self.by_second(|second| second.failed);
        let lines = vec![
            Line { name: "answered/s", colour: "#1565c0", points: answered },
            Line { name: "failed/s", colour: "#c62828", points: failed },
        ];
        self.chart_over_time(lines)
    }

    fn time_wait(&self) -> Chart {
        let points = self.by_second(|second| second.time_wait);
        self.chart_over_time(vec![Line { name: "at rest", colour: "#2e7d32", points }])
    }

    fn by_second(&self, value: impl Fn(&crate::recorder::Second) -> u64) -> Vec<(f64, f64)> {
        let seconds = self.outcome.seconds.iter().enumerate();
        seconds.map(|(number, second)| ((number + 1) as f64, value(second) as f64)).collect()
    }

    fn chart_over_time(&self, lines: Vec<Line>) -> Chart {
        let Outcome { warm_up, recorded, .. } = self.outcome;
        let warm_up = warm_up.as_secs_f64();
        let end = self.outcome.seconds.len().max(1) as f64;
        let highest = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let highest = highest.fold(1.0, f64::max);
        Chart {
            x: Axis::linear(end, "s"),
            y: Axis::linear(highest, ""),
            shaded: [(0.0, warm_up), (warm_up + recorded.as_secs_f64(), end)],
            lines,
        }
    }

    /// The share of requests is the x axis; each further nine gets as much room as the one before.
    fn distribution(&self) -> Chart {
        let totals = &self.outcome.totals;
        let points = |latencies: &crate::recorder::Latencies| -> Vec<(f64, f64)> {
            if latencies.is_empty() {
                return Vec::new();
            }
            let at = |step: u32| {
                let above = 0.5f64.powf(f64::from(step) / f64::from(OCTAVE_STEPS));
                let micros = latencies.percentile((1.0 - above) * 100.0).as_secs_f64() * 1e6;
                (1.0 / above, micros.max(1.0))
            };
            (0..=OCTAVES * OCTAVE_STEPS).map(at).collect()
        };
        let lines = vec![
            Line { name: "total", colour: "#1565c0", points: points(&totals.total) },
            Line { name: "first byte", colour: "#ef6c00", points: points(&totals.first_byte) },
            Line { name: "connect", colour: "#2e7d32", points: points(&totals.connect) },
        ];
        let highest = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let highest = highest.fold(10.0, f64::max);
        Chart { x: Axis::nines(), y: Axis::micros(highest), shaded: [(0.0, 0.0); 2], lines }
    }
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
