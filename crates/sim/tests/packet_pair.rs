//! A sender's estimate of the narrowest link's rate, from the spacing of acknowledgements.

use std::time::Duration;

use lightwait_netem::{LinkConfig, QueueLimit, Rate};
use lightwait_sim::Bulk;

const MBIT: u64 = 1_000_000;
/// Bytes on the wire for each payload byte: Ethernet, IP and TCP headers with timestamps.
const OVERHEAD: f64 = (1448.0 + 66.0) / 1448.0;

fn link(rate: Rate) -> LinkConfig {
    LinkConfig {
        rate,
        delay: Duration::from_millis(5),
        queue: QueueLimit::Bytes(1 << 20),
        ..LinkConfig::default()
    }
}

/// The ratio of the estimate to the truth.
fn measured(rate: u64, change: impl FnOnce(&mut Bulk)) -> Option<f64> {
    let mut bulk = Bulk::new(link(Rate::BitsPerSecond(rate)), link(Rate::Unlimited), 256 << 10);
    change(&mut bulk);
    let info = bulk.sender_after(Duration::from_secs(2)).unwrap();
    let found = info.bottleneck_bytes_per_second? as f64 * 8.0 * OVERHEAD;
    Some(found / rate as f64)
}

#[test]
fn the_estimate_is_within_a_tenth_from_1_mbit_to_10_gbit() {
    for rate in [1, 10, 100, 1000, 10_000] {
        let ratio = measured(rate * MBIT, |_| {}).unwrap();
        println!("{rate:>6} Mbit/s: {ratio:.3}");
        assert!((ratio - 1.0).abs() < 0.1, "{rate} Mbit/s: {ratio:.3}");
    }
}

/// A queue that overflows leaves holes, and their ACKs have a different spacing.
#[test]
fn it_is_as_good_where_a_short_queue_drops() {
    for rate in [1, 10, 100, 1000, 10_000] {
        for delay in [Duration::from_micros(50), Duration::from_millis(5)] {
            let ratio = measured(rate * MBIT, |bulk| {
                (bulk.forth.queue, bulk.forth.delay) = (QueueLimit::Bytes(20 << 10), delay);
                bulk.back.delay = delay;
                bulk.tcp.ack.quick = 0;
            });
            let ratio = ratio.unwrap_or_default();
            assert!((ratio - 1.0).abs() < 0.1, "{rate} Mbit/s, {delay:?}: {ratio:.3}");
        }
    }
}

#[test]
fn a_clock_of_a_millisecond_cannot_tell() {
    for rate in [10, 100, 1000] {
        let ratio = measured(rate * MBIT, |bulk| {
            bulk.tcp.clock.measure_hz = 1000;
            bulk.tcp.mss_max = 512 + 12;
        });
        assert!(ratio.is_none_or(|ratio| (ratio - 1.0).abs() > 0.2), "{rate} Mbit/s: {ratio:?}");
    }
}

/// Just above 4 Mbit/s a segment of 512 bytes takes a tick of the clock. All rates give that
/// estimate, whether each segment is acknowledged or every second one.
#[test]
fn a_clock_of_a_millisecond_confuses_rates_above_4_megabits() {
    const RATES: [u64; 5] = [4_200_000, 4_500_000, 5_000_000, 5_500_000, 6_000_000];
    const WIRE: f64 = (512.0 + 66.0) / 512.0;
    let found = |resolution_hz, quick_acks| {
        RATES.map(|rate| {
            let mut bulk =
                Bulk::new(link(Rate::BitsPerSecond(rate)), link(Rate::Unlimited), 256 << 10);
            bulk.tcp.clock.measure_hz = resolution_hz;
            bulk.tcp.mss_max = 512 + 12;
            bulk.tcp.ack.quick = quick_acks;
            let info = bulk.sender_after(Duration::from_millis(250)).unwrap();
            info.bottleneck_bytes_per_second.unwrap() as f64 * 8.0 * WIRE
        })
    };
    let one_a_tick = 512.0 * 8.0 * WIRE * 1000.0;
    for quick_acks in [0, u8::MAX] {
        for (rate, found) in RATES.into_iter().zip(found(1_000_000_000, quick_acks)) {
            assert!((found / rate as f64 - 1.0).abs() < 0.01, "{rate} bit/s: {found}");
        }
        for (rate, found) in RATES.into_iter().zip(found(1000, quick_acks)) {
            assert!((found / one_a_tick - 1.0).abs() < 0.01, "{rate} bit/s: {found}");
        }
    }
}
