//! §1.4: on a busy one-way stream every second segment is acknowledged at once, so that a delayed
//! acknowledgement should never be sent. Yet 4.4BSD's tick sends one whenever an odd number of
//! segments came since the last, which is about every other tick. The shorter the tick, the more
//! often it does. §3.2.1: buckets send none, at any period.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use lightwait::local::{TcpListener, TcpStream};
use lightwait::rt::sleep;
use lightwait_core::Instant;
use lightwait_core::config::{AckDelay, TcpConfig};
use lightwait_core::rng::Rng;
use lightwait_core::time::Duration;
use lightwait_core::wire::tcp::{Flags, Segment};
use lightwait_netem::LinkConfig;
use lightwait_sim::{Passage, Side};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::network::{server, shared, watched};
use crate::plan::{Failure, Outcome};
use crate::plans::newreno;
use crate::report::{Report, Table};

/// Periods of the tick, in ms: 4.4BSD's, and shorter ones for faster networks.
const PERIODS_MS: [u64; 5] = [200, 100, 50, 20, 10];
/// Mean times between segments, in µs: 500 to 1000 segments a second, up to 12 Mbit/s. They come at
/// random (exponentially). In step with a tick, a stream could keep the right parity for ever.
const MEANS_US: [f64; 3] = [1000.0, 1500.0, 2000.0];
const SEGMENT_BYTES: usize = 1448;
/// The time from which ACKs count: after slow start, and after the quick ACKs of a connection's
/// start.
const BEGIN: Duration = Duration::from_secs(5);
const LENGTH: Duration = Duration::from_secs(60);

const NO_TICK: Ablation =
    Ablation { name: "no-tick", instead: "each connection has a timer of its own, and no tick" };
const NO_BUCKETS: Ablation =
    Ablation { name: "no-buckets", instead: "the buckets are 4.4BSD's tick" };

/// The receiver's ACKs.
#[derive(Clone, Copy, Debug, Default)]
struct Acks {
    /// ACKs without payload.
    pure: u64,
    /// Those that acknowledge only one segment.
    needless: u64,
}

/// Watches the receiver's ACKs.
#[derive(Debug, Default)]
struct Watcher {
    from: Option<Instant>,
    mss: u32,
    last: BTreeMap<u16, lightwait_core::tcp::Seq>,
    acks: Acks,
}

impl Watcher {
    fn on_passage(&mut self, passage: Passage, segment: &Segment<'_>) {
        let Passage { now, side, arrives, .. } = passage;
        if arrives {
            return;
        }
        if side == Side::A {
            self.mss = self.mss.max(segment.payload.len() as u32);
            return;
        }
        if !segment.payload.is_empty() || segment.flags.contains(Flags::SYN) {
            return;
        }
        let last = self.last.insert(segment.destination_port, segment.ack);
        let acked = last.map_or(0, |last| segment.ack.since(last));
        if self.from.is_some_and(|from| now >= from) {
            self.acks.pure += 1;
            self.acks.needless += u64::from(acked > 0 && acked <= self.mss);
        }
    }
}

/// Runs a stream with that mean time between segments, and a receiver with that configuration.
fn seed(mean_us: f64) -> u64 {
    mean_us as u64
}

/// The seeds of the gaps between segments.
pub(crate) fn seeds() -> Vec<u64> {
    MEANS_US.map(seed).into()
}

fn stream(mean_us: f64, receiver: &TcpConfig) -> Result<Acks, Failure> {
    let link = |seed| LinkConfig { delay: Duration::from_millis(5), seed, ..LinkConfig::default() };
    let watcher: Rc<RefCell<Watcher>> = shared(Watcher::default());
    let seen = watcher.clone();
    let small = |tcp: TcpConfig| tcp.with(|tcp| tcp.buffers.receive_max = 1 << 18);
    let (sender, receiver) = (small(newreno()), small(receiver.clone()));
    let links = [link(1), link(2)];
    let mut world = watched(links, &[sender, receiver], move |passage, segment| {
        seen.borrow_mut().on_passage(passage, segment);
    })?;
    let listener = TcpListener::bind_on(&world.handle(Side::B), server())?;
    world.spawn(Side::B, async move {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let mut buffer = vec![0; 1 << 16];
        while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    });
    world.spawn(Side::A, async move {
        let Ok(mut stream) = TcpStream::connect(server()).await else { return };
        let (mut rng, segment) = (Rng::from_seed(seed(mean_us)), [0; SEGMENT_BYTES]);
        while stream.write_all(&segment).await.is_ok() {
            let us = -(1.0 - rng.unit()).ln() * mean_us;
            sleep(Duration::from_nanos((us * 1000.0) as u64)).await;
        }
    });
    watcher.borrow_mut().from = Some(world.now() + BEGIN);
    world.run_for(BEGIN + LENGTH)?;
    let acks = watcher.borrow().acks;
    Ok(acks)
}

/// Runs all streams. Returns their ACKs, and the time in seconds.
fn all_streams(receiver: &TcpConfig) -> Result<(Acks, f64), Failure> {
    let mut all = Acks::default();
    for mean_us in MEANS_US {
        let acks = stream(mean_us, receiver)?;
        all.pure += acks.pure;
        all.needless += acks.needless;
    }
    Ok((all, LENGTH.as_secs_f64() * MEANS_US.len() as f64))
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut table = Table::new(&[
        "delayed ACKs",
        "period ms",
        "ACKs/s",
        "needless/s",
        "needless a tick",
        "paper, a tick",
    ]);
    let tick = if report.is_ablated(&NO_TICK) { AckDelay::Timer } else { AckDelay::Tick };
    let mut points = Vec::new();
    for period_ms in PERIODS_MS {
        let receiver = newreno().with(|tcp| {
            tcp.ack.delay = tick;
            tcp.ack.timer = Duration::from_millis(period_ms);
        });
        let (acks, seconds) = all_streams(&receiver)?;
        let (rate, ticks) = (acks.needless as f64 / seconds, seconds * 1000.0 / period_ms as f64);
        let a_tick = acks.needless as f64 / ticks;
        let per_second = |count: u64| format!("{:.2}", count as f64 / seconds);
        table.row(&[
            &"tick",
            &period_ms,
            &per_second(acks.pure),
            &per_second(acks.needless),
            &format!("{a_tick:.2}"),
            &0.5,
        ]);
        points.push((period_ms as f64, rate, a_tick));
    }
    let mut needless = Vec::new();
    let no_buckets = report.is_ablated(&NO_BUCKETS);
    let buckets = if no_buckets { AckDelay::Tick } else { AckDelay::Buckets };
    for (name, delay) in [("timer", AckDelay::Timer), ("buckets", buckets)] {
        let receiver = newreno().with(|tcp| tcp.ack.delay = delay);
        let (acks, seconds) = all_streams(&receiver)?;
        let per_second = |count: u64| format!("{:.2}", count as f64 / seconds);
        let (pure, wasted) = (per_second(acks.pure), per_second(acks.needless));
        table.row(&[&name, &"–", &pure, &wasted, &"–", &if name == "buckets" { "0" } else { "–" }]);
        needless.push(acks.needless);
    }
    report.table("needless", &table)?;
    let range = points.iter().map(|(_, _, a_tick)| *a_tick);
    let (least, most) = (range.clone().fold(1.0, f64::min), range.fold(0.0, f64::max));
    report.claim(
        "a tick sends a needless ACK about every other time",
        &NO_TICK,
        least > 0.4 && most < 0.6,
        format!("{least:.2} to {most:.2} a tick"),
    );
    let rises = points.windows(2).all(|pair| pair[0].1 < pair[1].1);
    let rates: Vec<String> = points.iter().map(|(_, rate, _)| format!("{rate:.1}")).collect();
    report.claim(
        "the shorter the tick, the more of them",
        &NO_TICK,
        rises,
        rates.join(", ") + " a second",
    );
    report.claim("buckets send none", &NO_BUCKETS, needless[1] == 0, needless[1]);
    let mut chart = Chart::new("Needless ACKs of a busy one-way stream", "period, ms", "a second")
        .scales(Scale::Logarithmic, Scale::Linear);
    let line = |of: fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| (p.0, of(p))).collect();
    chart.draw("tick", Mark::Line, line(|point| point.1));
    chart.draw("every other tick", Mark::Dashed, line(|point| 500.0 / point.0));
    chart.draw("buckets", Mark::Line, line(|_| 0.0));
    report.picture("needless", &chart)
}
