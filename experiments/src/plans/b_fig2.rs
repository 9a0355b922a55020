//! The real delay of acknowledgements with buckets, with a timer of the connection and with
//! 4.4BSD's tick. The kernel's TCP sends lone segments to a stack of ours. Packet sockets at both
//! ends of the cable see the arrival of each segment, and of its acknowledgement.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lightwait::Stack;
use lightwait::clock::Clock;
use lightwait::device::{AfPacket, Device};
use lightwait::local::TcpListener;
use lightwait::shard::Handle;
use lightwait_core::config::AckDelay;
use lightwait_core::rng::Rng;
use lightwait_core::wire::ethernet;
use lightwait_core::wire::ip::{Packet, protocol};
use lightwait_core::wire::tcp::{Flags, Segment};
use lightwait_core::{Instant, RxFrame, time};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::routed::{self, ip, lay_cables, run_before_others};
use crate::statistics::quantile;

/// The scheme, its name, and its period in milliseconds.
const WAYS: [(AckDelay, &str, u64); 3] = [
    (AckDelay::Buckets, "buckets", 0),
    (AckDelay::Timer, "timer, 100 ms", 100),
    (AckDelay::Tick, "4.4BSD's tick, 200 ms", 200),
];
const CONNECTIONS: usize = 50;
/// Segments in all. A connection sends again after half a second: its last segment is acknowledged
/// by then, and the next one is a lone segment.
const SEGMENTS: usize = 2500;
/// The seed of the gaps.
pub(crate) const SEED: u64 = 1;
const MEAN_GAP_US: u32 = 10_000;
/// The interval at which the watcher polls.
const LOOK: Duration = Duration::from_micros(50);
/// A tick of the scheduling clock.
const TICK_MS: f64 = 1.0;
/// The lateness that such ticks, and a machine with other work, may add.
const SLACK_MS: f64 = 5.0;
const BIN_MS: f64 = 10.0;

const TICK: Ablation = Ablation { name: "tick", instead: "4.4BSD's tick delays all ACKs" };
const BUCKETS: Ablation = Ablation { name: "buckets", instead: "buckets delay all ACKs" };

/// Segments that wait for their acknowledgement, by the sender's port: the number that acknowledges
/// each, and its arrival.
type Waiting = HashMap<u16, (u32, Instant)>;

/// The watcher's measurements.
#[derive(Default)]
struct Seen {
    waiting: Waiting,
    delays_ms: Vec<f64>,
    /// Segments sent again, or followed by another, before they were acknowledged.
    crowded: usize,
}

impl Seen {
    fn on_frame(&mut self, now: Instant, frame: &RxFrame<'_>) {
        let Ok(frame) = ethernet::Frame::parse(frame.bytes) else { return };
        let Ok(packet) = Packet::parse(frame.payload) else { return };
        let is_tcp = packet.protocol == protocol::TCP;
        let Some(segment) = is_tcp.then(|| Segment::parse(packet.payload).ok()).flatten() else {
            return;
        };
        if segment.flags.contains(Flags::SYN) {
            return;
        }
        if segment.payload.is_empty() {
            let waited = self.waiting.get(&segment.destination_port).copied();
            if let Some((_, came)) = waited.filter(|(ack, _)| *ack == segment.ack.0) {
                self.waiting.remove(&segment.destination_port);
                self.delays_ms.push(now.nanos_since(came) as f64 / 1e6);
            }
            return;
        }
        let end = (segment.seq + segment.payload.len() as u32).0;
        if self.waiting.insert(segment.source_port, (end, now)).is_some() {
            // The next acknowledgement is not of a lone segment.
            self.waiting.remove(&segment.source_port);
            self.crowded += 1;
        }
    }
}

/// Measures, in a namespace.
pub(crate) fn measure() -> Result<Value, Failure> {
    run_before_others();
    lay_cables()?;
    ip("addr add 10.9.0.2/24 dev lw0")?;
    let found: Result<Vec<Value>, Failure> = WAYS.into_iter().map(delays).collect();
    Ok(json!(found?))
}

fn delays((delay, _, period_ms): (AckDelay, &str, u64)) -> Result<Value, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = || {
        let stop = stop.clone();
        move || stop.load(Ordering::Relaxed)
    };
    let (of_receiver, of_watcher) = (is_over(), is_over());
    let receiver = thread::spawn(move || receive(delay, period_ms, of_receiver));
    let watcher = thread::spawn(move || watch(of_watcher));
    let sent = send();
    stop.store(true, Ordering::Relaxed);
    let seen = watcher.join().map_err(|_| "the watcher panicked")??;
    receiver.join().map_err(|_| "the receiver panicked")??;
    sent?;
    Ok(json!({ "delays_ms": seen.delays_ms, "crowded": seen.crowded }))
}

/// A stack of ours that reads all data.
fn receive(
    delay: AckDelay,
    period_ms: u64,
    is_over: impl Fn() -> bool + 'static,
) -> Result<(), String> {
    let run = || -> Result<(), Failure> {
        // The kernel leaves checksums of local packets to their receiver.
        let device = AfPacket::open("lw1", true)?;
        let stack = Stack::on(Box::new(device), "10.9.0.1/24".parse()?, |config| {
            // The kernel remembers the hardware address of the earlier stack.
            config.hardware = [2, 0, 0, 0, 0, 1];
            (config.tcp.ack.delay, config.tcp.ack.quick) = (delay, 0);
            if period_ms > 0 {
                config.tcp.ack.timer = time::Duration::from_millis(period_ms);
            }
        })?;
        lightwait::run([stack], async move {
            let listener = TcpListener::bind("10.9.0.1:80").await?;
            Handle::current().spawn_local(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    Handle::current().spawn_local(async move {
                        while stream.read(&mut [0; 64]).await.is_ok_and(|len| len > 0) {}
                    });
                }
            });
            while !is_over() {
                lightwait::rt::sleep(Duration::from_millis(20)).await;
            }
            Ok::<_, std::io::Error>(())
        })??;
        Ok(())
    };
    run().map_err(|error| error.to_string())
}

/// Watches segments that leave the cable at our stack's end, and acknowledgements at the kernel's.
fn watch(is_over: impl Fn() -> bool) -> Result<Seen, String> {
    let run = || -> Result<Seen, Failure> {
        let mut ends = [AfPacket::open("lw1", true)?, AfPacket::open("lw0", true)?];
        let (clock, seen) = (Clock::new(), RefCell::new(Seen::default()));
        while !is_over() {
            for end in &mut ends {
                let now = clock.now();
                end.receive(now, 64, &mut |frames| {
                    for frame in frames {
                        // The kernel's receive time; the watcher may have polled later.
                        let arrived = frame.arrived;
                        let at = if arrived == Instant::FAR_FUTURE { now } else { arrived };
                        seen.borrow_mut().on_frame(at, frame);
                    }
                })?;
            }
            thread::sleep(LOOK);
        }
        Ok(seen.into_inner())
    };
    run().map_err(|error| error.to_string())
}

/// Sends lone segments over the kernel's sockets.
fn send() -> Outcome {
    let mut rng = Rng::from_seed(SEED);
    let open = |_| -> Result<TcpStream, Failure> {
        // The stack may not listen yet.
        for _ in 0..100 {
            if let Ok(stream) = TcpStream::connect("10.9.0.1:80") {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err("nobody listens at 10.9.0.1:80".into())
    };
    let mut streams = (0..CONNECTIONS).map(open).collect::<Result<Vec<_>, _>>()?;
    for number in 0..SEGMENTS {
        streams[number % CONNECTIONS].write_all(b"s")?;
        thread::sleep(Duration::from_micros(u64::from(MEAN_GAP_US / 2 + rng.below(MEAN_GAP_US))));
    }
    thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// The results of one scheme.
struct Delays {
    sorted: Vec<f64>,
}

impl Delays {
    fn of(value: &Value) -> Delays {
        let all = value["delays_ms"].as_array().into_iter().flatten();
        let mut sorted: Vec<f64> = all.filter_map(Value::as_f64).collect();
        sorted.sort_by(f64::total_cmp);
        Delays { sorted }
    }

    fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    fn quantile(&self, part: f64) -> f64 {
        quantile(&self.sorted, part)
    }

    /// True if nearly all lie within; delays beyond are the machine's.
    fn lie_within(&self, from: f64, to: f64) -> bool {
        self.sorted.len() >= SEGMENTS * 9 / 10
            && self.quantile(0.0) >= from - TICK_MS
            && self.quantile(0.99) <= to + SLACK_MS
    }

    /// The share in each bin, in percent, at the bin's middle.
    fn histogram(&self) -> Vec<(f64, f64)> {
        let share = |bin: usize| {
            let inside = |ms: &&f64| (**ms / BIN_MS) as usize == bin;
            self.sorted.iter().filter(inside).count() as f64 * 100.0 / self.sorted.len() as f64
        };
        (0..22).map(|bin| ((bin as f64 + 0.5) * BIN_MS, share(bin))).collect()
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let measured = routed::measured("b-fig2", None)?;
    let mut table =
        Table::new(&["delayed ACKs", "segments", "least ms", "mean", "p99", "most", "crowded"]);
    let found: Vec<Delays> = (0..WAYS.len()).map(|way| Delays::of(&measured[way])).collect();
    let mut chart = Chart::new("Delay of acknowledgements on the wire", "ms", "% of segments");
    for (number, ((_, name, _), delays)) in WAYS.iter().zip(&found).enumerate() {
        let ms = |value: f64| format!("{value:.1}");
        table.row(&[
            name,
            &delays.sorted.len(),
            &ms(delays.quantile(0.0)),
            &ms(delays.mean()),
            &ms(delays.quantile(0.99)),
            &ms(delays.quantile(1.0)),
            &measured[number]["crowded"],
        ]);
        chart.draw(name, Mark::Steps, delays.histogram());
    }
    report.table("delays", &table)?;
    report.say("Crowded: sent again, or followed by the next, before it was acknowledged.");
    let spread = |delays: &Delays| {
        let (least, most) = (delays.quantile(0.0), delays.quantile(0.99));
        format!("{least:.1} to {most:.1} ms, {:.1} on average", delays.mean())
    };
    let [buckets, timer, tick] = &found[..] else { return Err("a way is missing".into()) };
    // Without a way, the measurement of another one stands in.
    let [buckets, timer, tick] = match (report.is_ablated(&TICK), report.is_ablated(&BUCKETS)) {
        (true, _) => [tick; 3],
        (_, true) => [buckets; 3],
        _ => [buckets, timer, tick],
    };
    let is_about = |delays: &Delays, mean: f64| (delays.mean() - mean).abs() < 5.0;
    report.claim(
        "in buckets 50 to 150 ms, 100 on average",
        &TICK,
        buckets.lie_within(50.0, 150.0) && is_about(buckets, 100.0),
        spread(buckets),
    );
    let is_set = timer.lie_within(100.0, 100.0);
    report.claim("by a timer 100 ms, as set", &TICK, is_set, spread(timer));
    report.claim(
        "by 4.4BSD's tick anything to 200 ms, 100 on average",
        &BUCKETS,
        tick.lie_within(0.0, 200.0) && is_about(tick, 100.0) && tick.quantile(0.05) < 20.0,
        spread(tick),
    );
    report.picture("delays", &chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_seen() {
        let sorted = vec![60.0; SEGMENTS];
        assert!(Delays { sorted: sorted.clone() }.lie_within(50.0, 150.0));
        assert!(!Delays { sorted: sorted.clone() }.lie_within(61.5, 150.0));
        assert!(!Delays { sorted: sorted.clone() }.lie_within(0.0, 54.0));
        assert!(!Delays { sorted: sorted[..10].to_vec() }.lie_within(50.0, 150.0), "too few");
        assert_eq!(Delays { sorted }.histogram()[6], (65.0, 100.0));
    }
}
