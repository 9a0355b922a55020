//! The rate of one transfer: by window and loss, compared with a table in the repository, and on a
//! long fat path.

use std::fmt::Write;
use std::time::Duration;

use lightwait_core::config::Algorithm;
use lightwait_netem::{LinkConfig, Loss, QueueLimit, Rate};
use lightwait_sim::Bulk;

const MBIT: u64 = 1_000_000;

/// A path of 100 Mbit/s and 20 ms there and back.
fn path(loss: f64, seed: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::BitsPerSecond(100 * MBIT),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Bytes(250_000),
        loss: if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None },
        seed,
        ..LinkConfig::default()
    }
}

/// Mbit/s that arrive, averaged over `seconds` after the first, and over three seeds.
fn measure(algorithm: Algorithm, buffer_bytes: u32, loss: f64, seconds: usize) -> f64 {
    let rates = [1, 2, 3].map(|seed| {
        let mut bulk = Bulk::new(path(loss, seed), path(0.0, seed), buffer_bytes);
        bulk.tcp.congestion.algorithm = algorithm;
        let marks = bulk.run(seconds + 1, Duration::from_secs(1)).unwrap();
        (marks[seconds] - marks[0]) as f64 * 8.0 / seconds as f64 / MBIT as f64
    });
    rates.iter().sum::<f64>() / 3.0
}

const BUFFERS_KIB: [u32; 5] = [8, 32, 128, 512, 2048];
const LOSSES_PERCENT: [f64; 5] = [0.0, 0.01, 0.1, 1.0, 5.0];

/// Rows of Mbit/s: a row for each buffer, a column for each loss.
fn table(algorithm: Algorithm) -> Vec<Vec<f64>> {
    let rate = |kib, percent: f64| measure(algorithm, kib << 10, percent / 100.0, 10);
    let row = |kib| LOSSES_PERCENT.map(|percent| rate(kib, percent)).to_vec();
    BUFFERS_KIB.map(row).to_vec()
}

fn print(table: &[Vec<f64>]) -> String {
    let mut text = String::from("KiB \\ loss");
    for loss in LOSSES_PERCENT {
        let _ = write!(text, " {:>8}", format!("{loss} %"));
    }
    for (kib, row) in BUFFERS_KIB.iter().zip(table) {
        let _ = write!(text, "\n{kib:>10}");
        for rate in row {
            let _ = write!(text, " {rate:>8.2}");
        }
    }
    text.push('\n');
    text
}

fn parse(text: &str) -> Vec<Vec<f64>> {
    let row = |line: &str| line.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    text.lines().skip(1).map(row).collect()
}

/// The tolerance of a rate against the table: the effect of a change of timing elsewhere. Look into
/// a larger difference, and write the table anew (`LIGHTWAIT_BLESS=1`).
const TOLERANCE: f64 = 0.25;

#[test]
fn throughput_grows_with_the_window_and_falls_with_loss() {
    check(Algorithm::Reno);
}

#[test]
fn so_it_does_by_cubic() {
    check(Algorithm::Cubic);
}

#[test]
fn losses_take_little_of_it_by_bbr() {
    check(Algorithm::Bbr);
}

fn check(algorithm: Algorithm) {
    let measured = table(algorithm);
    let text = print(&measured);
    println!("{text}");
    let name = match algorithm {
        Algorithm::Reno => "throughput",
        Algorithm::Cubic => "throughput-cubic",
        Algorithm::Bbr => "throughput-bbr",
        Algorithm::Dctcp => unreachable!("where nothing is marked it is Reno"),
    };
    let file = format!("{}/tests/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("LIGHTWAIT_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    for (row, wanted) in measured.iter().zip(parse(&std::fs::read_to_string(file).unwrap())) {
        for (rate, wanted) in row.iter().zip(wanted) {
            assert!((rate / wanted - 1.0).abs() < TOLERANCE, "{rate:.2}, not {wanted:.2}\n{text}");
        }
        // Loss grows to the right.
        assert!(row.windows(2).all(|pair| pair[1] < pair[0] * 1.1), "{text}");
    }
    for column in 0..LOSSES_PERCENT.len() {
        let rates: Vec<f64> = measured.iter().map(|row| row[column]).collect();
        // A window beyond what BBR uses only lets it probe further.
        let least = if algorithm == Algorithm::Bbr { 0.8 } else { 0.9 };
        assert!(rates.windows(2).all(|pair| pair[1] > pair[0] * least), "{text}");
    }
    // A window of 8 KiB each 20 ms, and the whole link.
    assert!((2.5..4.0).contains(&measured[0][0]), "{text}");
    assert!(measured[4][0] > 90.0, "{text}");
}

/// Two flows meet in a queue of a quarter of what the path holds, and lose much at first.
#[test]
fn two_flows_by_bbr_fill_a_path_with_a_short_queue() {
    for seed in 1..=3 {
        let delay = Duration::from_millis(20);
        let jitter = Duration::from_micros(500);
        let (rate, queue) = (Rate::BitsPerSecond(50 * MBIT), QueueLimit::Bytes(64 << 10));
        let forth = LinkConfig { rate, delay, jitter, queue, seed, ..LinkConfig::default() };
        let back = LinkConfig { delay, seed, ..LinkConfig::default() };
        let mut bulk = Bulk::new(forth, back, 4 << 20);
        bulk.tcp.congestion.algorithm = Algorithm::Bbr;
        bulk.flows = 2;
        let marks = bulk.run(10, Duration::from_secs(1)).unwrap();
        let mbit = (marks[9] - marks[0]) as f64 * 8.0 / 9.0 / MBIT as f64;
        assert!(mbit > 42.0, "{mbit:.1} of 50 Mbit/s");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seven gigabytes: with --release")]
fn a_long_fat_path_is_filled() {
    fill(Algorithm::Reno);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seven gigabytes: with --release")]
fn a_long_fat_path_is_filled_by_cubic() {
    fill(Algorithm::Cubic);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seven gigabytes: with --release")]
fn a_long_fat_path_is_filled_by_bbr() {
    fill(Algorithm::Bbr);
}

fn fill(algorithm: Algorithm) {
    const BANDWIDTH_DELAY_BYTES: usize = 12_500_000;
    let link = |queue| LinkConfig {
        rate: Rate::BitsPerSecond(1000 * MBIT),
        delay: Duration::from_millis(50),
        queue,
        ..LinkConfig::default()
    };
    let forth = link(QueueLimit::Bytes(BANDWIDTH_DELAY_BYTES));
    let mut bulk = Bulk::new(forth, link(QueueLimit::Unlimited), 64 << 20);
    bulk.tcp.congestion.algorithm = algorithm;
    let marks = bulk.run(60, Duration::from_secs(1)).unwrap();
    let per_second: Vec<u64> =
        marks.windows(2).map(|pair| (pair[1] - pair[0]) * 8 / MBIT).collect();
    let rate = (marks[59] - marks[29]) as f64 * 8.0 / 30.0 / (1000 * MBIT) as f64;
    println!("{:.1} % of the link in the second half: {per_second:?}", rate * 100.0);
    assert!(rate > 0.9, "{per_second:?}");
}

/// A receiver's window of two windows that the path holds: it bounds the sender from the beginning.
#[test]
fn a_receivers_window_does_not_keep_bbr_in_startup() {
    let path = LinkConfig {
        rate: Rate::BitsPerSecond(50 * MBIT),
        delay: Duration::from_millis(20),
        queue: QueueLimit::Bytes(1 << 20),
        ..LinkConfig::default()
    };
    let back = LinkConfig { rate: Rate::Unlimited, ..path.clone() };
    let mut bulk = Bulk::new(path, back, 4 << 20);
    bulk.tcp.congestion.algorithm = Algorithm::Bbr;
    (bulk.tcp.buffers.receive, bulk.tcp.buffers.receive_max) = (480_000, 480_000);
    let info = bulk.sender_after(Duration::from_secs(2)).unwrap();
    let model = info.model.unwrap();
    assert!(!info.delivery.unwrap().is_app_limited, "{info:?}");
    let (pace, rate) = (info.pacing_bytes_per_second, model.bandwidth_bytes_per_second);
    assert!(pace <= rate * 13 / 10, "still in Startup: {info:?}");
    assert!(info.latest_rtt < Duration::from_millis(60), "the queue stands: {info:?}");
}

/// Rate, and segments sent again, of a CUBIC transfer through a queue of that many bytes.
fn by_cubic(queue: usize, pacing: bool) -> (f64, u64) {
    let short = LinkConfig { queue: QueueLimit::Bytes(queue), ..path(0.0, 1) };
    let mut bulk = Bulk::new(short, path(0.0, 1), 4 << 20);
    bulk.tcp.congestion.pacing = pacing;
    let info = bulk.sender_after(Duration::from_secs(10)).unwrap();
    (info.acknowledged_bytes as f64 * 8.0 / 10.0 / MBIT as f64, info.retransmits)
}

#[test]
fn a_paced_window_takes_less_of_a_queue() {
    // 30 packets, where the path holds 165: bursts overflow it long before the window fills both.
    let [(rate, _), (bursty, _)] = [true, false].map(|pacing| by_cubic(45_000, pacing));
    println!("a short queue: {rate:.1} Mbit/s paced, {bursty:.1} not");
    assert!(rate > bursty * 1.08);
    let [(rate, resent), (bursty, bursty_resent)] =
        [true, false].map(|pacing| by_cubic(250_000, pacing));
    println!("a longer one: {rate:.1} Mbit/s, {resent} again, paced; {bursty:.1}, {bursty_resent}");
    assert!(rate > bursty * 0.99 && resent * 4 < bursty_resent);
}
