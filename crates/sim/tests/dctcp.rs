//! DCTCP (RFC 8257) on a link that marks early: the queue stays short, and the link busy.

use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::config::{Algorithm, Ecn};
use lightwait_netem::{LinkConfig, MarkFrom, QueueLimit, Rate};
use lightwait_sim::Bulk;

const RATE: u64 = 100_000_000;
const PACKET_BYTES: f64 = 1514.0;
/// Marks begin here. The path holds 83 packets, and DCTCP asks for a seventh of it (RFC 8257 §3.1).
const STEP: usize = 15;
/// From here on is measured: slow start is over.
const FROM: Instant = Instant::from_millis(1_000);
const TIME: Duration = Duration::from_secs(5);

/// A share of the link's rate, and packets in its queue.
#[derive(Debug)]
struct Measured {
    goodput: f64,
    queue_mean: f64,
    queue_99th: f64,
}

/// One transfer over 100 Mbit/s and 10 ms there and back.
fn measure(algorithm: Algorithm, ecn: Ecn) -> Measured {
    let forth = LinkConfig {
        rate: Rate::BitsPerSecond(RATE),
        delay: Duration::from_millis(5),
        queue: QueueLimit::Packets(250),
        mark: Some(MarkFrom::Packets(STEP)),
        ..LinkConfig::default()
    };
    let back = LinkConfig { delay: Duration::from_millis(5), ..LinkConfig::default() };
    let mut bulk = Bulk::new(forth, back, 2 << 20);
    (bulk.tcp.congestion.algorithm, bulk.tcp.ecn) = (algorithm, ecn);
    // Congestion alone holds the sender back.
    bulk.tcp.buffers.receive = bulk.tcp.buffers.receive_max;
    let mut seen = bulk.sender_during(TIME).unwrap();
    seen.retain(|info| info.last_heard >= FROM);
    let (first, last) = (seen[0], seen[seen.len() - 1]);
    let bits = (last.acknowledged_bytes - first.acknowledged_bytes) as f64 * 8.0;
    let goodput = bits / last.last_heard.since(first.last_heard).as_secs_f64() / RATE as f64;
    let mut queue: Vec<f64> = seen
        .iter()
        .map(|info| (info.latest_rtt - info.min_rtt).as_secs_f64() * RATE as f64 / 8.0)
        .map(|bytes| bytes / PACKET_BYTES)
        .collect();
    queue.sort_by(f64::total_cmp);
    let queue_mean = queue.iter().sum::<f64>() / queue.len() as f64;
    let queue_99th = queue[queue.len() * 99 / 100];
    let measured = Measured { goodput, queue_mean, queue_99th };
    println!("{algorithm:?}, ECN {ecn:?}: {measured:.3?}, {} samples", queue.len());
    measured
}

/// What a busy link carries of text.
const PAYLOAD: f64 = 1448.0 / PACKET_BYTES;

#[test]
fn the_queue_stays_at_the_mark_and_the_link_busy() {
    let dctcp = measure(Algorithm::Dctcp, Ecn::Passive);
    assert!(dctcp.goodput > 0.99 * PAYLOAD, "{dctcp:?}");
    assert!(dctcp.queue_mean < STEP as f64, "{dctcp:?}");
    assert!(dctcp.queue_99th < 2.0 * STEP as f64, "{dctcp:?}");
}

/// The ablation: by the same marks as of RFC 3168, and without any.
#[test]
fn others_leave_the_link_idle_or_have_a_longer_queue() {
    for (algorithm, most) in [(Algorithm::Reno, 0.88), (Algorithm::Cubic, 0.96)] {
        let by_marks = measure(algorithm, Ecn::Active);
        assert!(by_marks.goodput < most * PAYLOAD, "{by_marks:?}");
    }
    for algorithm in [Algorithm::Cubic, Algorithm::Dctcp] {
        let by_loss = measure(algorithm, Ecn::Off);
        assert!(by_loss.queue_mean > 8.0 * STEP as f64, "{by_loss:?}");
    }
}
