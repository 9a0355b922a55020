//! The rate of one transfer over a path that makes some packets late: by time (RFC 8985) that is
//! told from a loss, by counting (RFC 6675) it is not.

use std::time::Duration;

use lightwait_core::config::{Algorithm, LossDetection};
use lightwait_netem::{LinkConfig, Loss, QueueLimit, Rate};
use lightwait_sim::Bulk;

const MBIT: u64 = 1_000_000;

/// 200 Mbit/s, 20 ms there and back, a queue of a MiB.
fn path(seed: u64) -> LinkConfig {
    LinkConfig {
        rate: Rate::BitsPerSecond(200 * MBIT),
        delay: Duration::from_millis(10),
        queue: QueueLimit::Bytes(1 << 20),
        seed,
        ..LinkConfig::default()
    }
}

/// Mbit/s that arrive in the seconds 2 to 6.
fn rate(detection: LossDetection, forth: LinkConfig) -> f64 {
    let back = path(forth.seed + 1);
    let mut bulk = Bulk::new(forth, back, 4 << 20);
    bulk.tcp.congestion.algorithm = Algorithm::Reno;
    bulk.tcp.congestion.detection = detection;
    let marks = bulk.run(6, Duration::from_secs(1)).unwrap();
    (marks[5] - marks[1]) as f64 * 8.0 / 4.0 / MBIT as f64
}

/// So many of a hundred packets late by so many ms.
fn reordered(percent: f64, late_ms: u64) -> LinkConfig {
    let (reorder, reorder_delay) = (percent / 100.0, Duration::from_millis(late_ms));
    LinkConfig { reorder, reorder_delay, ..path(7) }
}

#[test]
fn by_time_a_reordering_path_is_filled() {
    for (percent, late_ms) in [(0.5, 3), (5.0, 3), (50.0, 3), (5.0, 10), (5.0, 20)] {
        let rates = [LossDetection::Rack, LossDetection::Count]
            .map(|detection| rate(detection, reordered(percent, late_ms)));
        println!("{percent} % late by {late_ms} ms: {:.1} and {:.1} Mbit/s", rates[0], rates[1]);
        assert!(rates[0] >= 180.0 && rates[1] < 20.0, "{percent} %: {rates:?}");
    }
}

/// A retransmission must not have the receiver reject what is late behind it (RFC 7323 §5.3): each
/// loss would bring others, until the window is small.
#[test]
fn a_loss_on_a_reordering_path_brings_no_others() {
    let by_time = |forth| rate(LossDetection::Rack, forth);
    for percent_lost in [0.01, 0.001] {
        let loss = Loss::Uniform(percent_lost / 100.0);
        let in_order = by_time(LinkConfig { loss, ..path(7) });
        for (percent, late_ms) in [(5.0, 3), (20.0, 5), (5.0, 15)] {
            let found = by_time(LinkConfig { loss, ..reordered(percent, late_ms) });
            println!("{percent} % late by {late_ms} ms: {found:.1}, in order {in_order:.1} Mbit/s");
            assert!(found >= in_order, "{percent_lost} % lost, {percent} % late by {late_ms} ms");
        }
    }
}

#[test]
fn by_time_random_losses_cost_no_more_than_by_counting() {
    for percent in [0.01, 0.1, 1.0, 5.0] {
        let link = LinkConfig { loss: Loss::Uniform(percent / 100.0), ..path(7) };
        let rates = [LossDetection::Rack, LossDetection::Count]
            .map(|detection| rate(detection, link.clone()));
        println!("{percent} % lost: {:.1} and {:.1} Mbit/s", rates[0], rates[1]);
        assert!(rates[0] > rates[1] * 0.9, "{percent} %: {rates:?}");
    }
}
