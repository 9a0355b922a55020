//! §VI: the sender's estimate of the bottleneck by packet pair, which needs a fine measurement
//! clock. With segments of 512 bytes a clock of 1 ms cannot distinguish rates above 4 Mbit/s (after
//! Paxson 1997).

use lightwait_core::time::Duration;
use lightwait_netem::{LinkConfig, QueueLimit, Rate};
use lightwait_sim::Bulk;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

const MBIT: f64 = 1e6;
const RATES_MBIT: [u64; 12] = [1, 2, 4, 5, 10, 20, 50, 100, 500, 1000, 5000, 10_000];
/// Headers of Ethernet, IP and TCP with timestamps, in bytes.
const HEADERS: f64 = 66.0;
/// The paper's limit for a clock of 1 ms: 512 bytes take a tick there.
const LIMIT_MBIT: u64 = 4;
/// The column of a clock of 1 ms and small segments.
const COARSE_SMALL: usize = 3;
/// Sizes of segments, in bytes: Ethernet's, and the paper's.
const FULL: u16 = 1448;
const SMALL: u16 = 512;

const FINE: Ablation = Ablation { name: "fine-clock", instead: "the clock of 1 ms is one of 1 ns" };
const COARSE: Ablation =
    Ablation { name: "coarse-clock", instead: "each clock ticks once in 100 ms" };

/// The sender's estimate, in Mbit/s on the wire; the receiver delays its ACKs.
fn estimate(rate_mbit: u64, segment: u16, resolution_hz: u64) -> Result<Option<f64>, Failure> {
    let link = |rate| LinkConfig {
        rate,
        delay: Duration::from_millis(5),
        queue: QueueLimit::Bytes(1 << 20),
        ..LinkConfig::default()
    };
    let mut bulk = Bulk::new(
        link(Rate::BitsPerSecond(rate_mbit * 1_000_000)),
        link(Rate::Unlimited),
        256 << 10,
    );
    bulk.tcp.clock.measure_hz = resolution_hz;
    // Timestamps take 12 bytes of a segment.
    bulk.tcp.mss_max = segment + 12;
    let info = bulk.sender_after(Duration::from_secs(2))?;
    let wire = (f64::from(segment) + HEADERS) / f64::from(segment);
    let bits = info.bottleneck_bytes_per_second.map(|bytes| bytes as f64 * 8.0 * wire);
    Ok(bits.map(|bits| bits / MBIT))
}

/// Claims about a clock of 1 ms and segments of 512 bytes: below the limit the estimate is right;
/// above it there is one, but it does not identify the rate. No estimate at all would show neither.
fn claim_coarse(report: &mut Report, found: &[Vec<Option<f64>>]) {
    let said = |above: bool| {
        let all = found.iter().zip(RATES_MBIT).map(|(row, rate)| (rate, row[COARSE_SMALL]));
        all.filter(move |(rate, _)| (*rate >= LIMIT_MBIT) == above)
    };
    let below: Vec<(u64, Option<f64>)> = said(false).collect();
    let right = |(rate, value): &(u64, Option<f64>)| {
        value.is_some_and(|value| (value / *rate as f64 - 1.0).abs() < 0.1)
    };
    report.claim(
        "a clock of 1 ms is right below 4 Mbit/s with 512-byte segments",
        &COARSE,
        !below.is_empty() && below.iter().all(right),
        format!("{below:.2?}"),
    );
    let above: Vec<(u64, f64)> =
        said(true).filter_map(|(rate, value)| Some((rate, value?))).collect();
    let alike = |value: f64| above.iter().filter(|(_, other)| *other == value).count();
    let alone: Vec<u64> =
        above.iter().filter(|(_, value)| alike(*value) == 1).map(|(rate, _)| *rate).collect();
    let silent = said(true).count() - above.len();
    report.claim(
        "from there on it says the same of rates that are not the same",
        &FINE,
        above.len() > silent && alone.is_empty(),
        format!(
            "of {} rates it says something, {alone:?} of them told from all others; of {silent} \
             it says nothing, which shows nothing",
            above.len()
        ),
    );
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let [fine_hz, coarse_hz] = match (report.is_ablated(&FINE), report.is_ablated(&COARSE)) {
        (true, _) => [1_000_000_000; 2],
        (_, true) => [10; 2],
        _ => [1_000_000_000, 1000],
    };
    let columns = [
        ("fine, 1448 B", FULL, fine_hz),
        ("fine, 512 B", SMALL, fine_hz),
        ("1 ms, 1448 B", FULL, coarse_hz),
        ("1 ms, 512 B", SMALL, coarse_hz),
    ];
    let mut head = vec!["true Mbit/s"];
    head.extend(columns.map(|(name, ..)| name));
    head.push("paper: 1 ms, 512 B");
    let mut table = Table::new(&head);
    let mut found: Vec<Vec<Option<f64>>> = Vec::new();
    for rate in RATES_MBIT {
        let mut row = Vec::new();
        for (_, segment, resolution_hz) in columns {
            row.push(estimate(rate, segment, resolution_hz)?);
        }
        let cell = |value: &Option<f64>| {
            value.map_or_else(|| "none".to_owned(), |value| format!("{value:.2}"))
        };
        let cells: Vec<String> = row.iter().map(cell).collect();
        let paper = if rate > LIMIT_MBIT { "cannot tell" } else { "can" };
        table.row(&[&rate, &cells[0], &cells[1], &cells[2], &cells[3], &paper]);
        found.push(row);
    }
    report.say("What the sender believes, in Mbit/s on the wire:");
    report.table("estimates", &table)?;
    let error = |row: &[Option<f64>], column: usize, rate: u64| {
        row[column].map_or(f64::INFINITY, |value| (value / rate as f64 - 1.0).abs())
    };
    let worst = |column: usize| {
        let errors = found.iter().zip(RATES_MBIT).map(|(row, rate)| error(row, column, rate));
        errors.fold(0.0, f64::max)
    };
    let fine = worst(0).max(worst(1));
    report.claim(
        "the fine clock is right from 1 Mbit/s to 10 Gbit/s",
        &COARSE,
        fine < 0.01,
        format!("to {:.2} %", fine * 100.0),
    );
    claim_coarse(report, &found);
    let mut chart = Chart::new("The bottleneck as the sender sees it", "true, Mbit/s", "estimate")
        .scales(Scale::Logarithmic, Scale::Logarithmic);
    for (number, (name, ..)) in columns.into_iter().enumerate() {
        let points = RATES_MBIT.iter().zip(&found);
        let points = points.filter_map(|(rate, row)| Some((*rate as f64, row[number]?)));
        chart.draw(name, Mark::Points, points.collect());
    }
    chart.draw("true", Mark::Dashed, RATES_MBIT.map(|rate| (rate as f64, rate as f64)).to_vec());
    report.picture("estimates", &chart)
}
