//! The abstract's claim: overly conservative timeouts cause poor response time, low utilisation and
//! throughput loss; and tighter ones must not be bought with needless retransmissions. Short HTTP
//! transfers, each on a connection of its own, by our server over a path of 60 ms that loses; only
//! the server's estimator and its scheduling clock differ.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use lightwait::net::{TcpListener, TcpStream};
use lightwait::rt::Timer;
use lightwait::shard::Handle;
use lightwait_bench::sample::median;
use lightwait_core::config::TcpConfig;
use lightwait_core::tcp::send::rtt::Estimator;
use lightwait_core::tcp::timers::Scheme;
use lightwait_core::time::Duration;
use lightwait_http::{Clock, Files, FilesConfig, Server, ServerConfig};
use lightwait_netem::{LinkConfig, Loss, QueueLimit};
use lightwait_sim::disk::Disk;
use lightwait_sim::{Side, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::repeats::Repeats;
use crate::chart::{Chart, Mark};
use crate::network::{server, shared, watched};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

/// The paper's file: 6 KB, cached.
const FILE_BYTES: u64 = 6 * 1024;
/// One way.
const DELAY: Duration = Duration::from_millis(30);
/// Half the round trip's worth of queue, so that the RTT varies with the load.
const RATE_BITS: u64 = 4_000_000;
const QUEUE_BYTES: usize = 15_000;
/// Clients that ask again as soon as they are answered.
const CLIENTS: usize = 8;
const LOSSES_PERCENT: [f64; 4] = [1.0, 2.0, 3.0, 5.0];
const SEEDS: u64 = 5;
const LENGTH: Duration = Duration::from_secs(60);

/// A server's clocks and estimator.
struct Setting {
    name: &'static str,
    change: fn(&mut TcpConfig),
}

const SETTINGS: [Setting; 6] = [
    Setting { name: "bsd", change: |tcp| scanned(tcp, Estimator::Bsd) },
    Setting {
        name: "bsd_brakmo_peterson",
        change: |tcp| scanned(tcp, Estimator::BsdBrakmoPeterson),
    },
    Setting {
        name: "fine, 500 ms ticks",
        change: |tcp| (tcp.rto_estimator, tcp.tick) = (Estimator::Fine, Duration::from_millis(500)),
    },
    Setting { name: "fine", change: |tcp| tcp.rto_estimator = Estimator::Fine },
    Setting { name: "rfc6298", change: |_| {} },
    Setting { name: "rfc6298, 1 ms clock", change: |tcp| tcp.measure_resolution_hz = 1000 },
];

/// What is sent again so late was sent by the timer.
const TIMED_OUT_MS: f64 = 150.0;

/// 4.4BSD's timers.
fn scanned(tcp: &mut TcpConfig, estimator: Estimator) {
    (tcp.timers, tcp.rto_estimator) = (Scheme::Scan, estimator);
}

/// What was found, over all seeds.
#[derive(Clone, Debug, Default)]
struct Found {
    response_ms: Vec<f64>,
    timeouts: u64,
    /// How long segments waited that the timer sent again.
    timeout_ms: Vec<f64>,
    /// Segments sent again although the client had all of it.
    repeated: u64,
    /// Those of them of which the acknowledgement was not lost either, and came.
    spurious: u64,
    retransmits: u64,
    /// Bits on the server's link, of those that it could have carried.
    carried: f64,
    seconds: f64,
}

impl Found {
    fn median_ms(&self) -> f64 {
        median(&mut self.response_ms.clone())
    }

    fn median_timeout_ms(&self) -> f64 {
        median(&mut self.timeout_ms.clone())
    }

    fn mean_ms(&self) -> f64 {
        self.response_ms.iter().sum::<f64>() / self.response_ms.len().max(1) as f64
    }

    fn quantile_ms(&self, part: f64) -> f64 {
        let mut sorted = self.response_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() as f64 * part) as usize;
        sorted.get(place).copied().unwrap_or(f64::NAN)
    }

    fn throughput_kbits(&self) -> f64 {
        self.response_ms.len() as f64 * FILE_BYTES as f64 * 8.0 / self.seconds / 1000.0
    }

    fn per_thousand(&self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.response_ms.len().max(1) as f64
    }

    fn utilisation_percent(&self) -> f64 {
        self.carried * 100.0 / (self.seconds * RATE_BITS as f64)
    }
}

/// One world: the server at B, the clients at A.
fn run_world(setting: &Setting, loss: f64, seed: u64, found: &mut Found) -> Result<(), Failure> {
    let link = |seed| LinkConfig {
        rate_bits_per_second: Some(RATE_BITS),
        delay: DELAY,
        queue: QueueLimit::Bytes(QUEUE_BYTES),
        loss: Loss::Uniform(loss),
        seed,
        ..LinkConfig::default()
    };
    let mut tcp = [TcpConfig::default(), TcpConfig::default()];
    (setting.change)(&mut tcp[Side::B.index()]);
    let repeats = shared(Repeats::new(DELAY * 2));
    let seen = repeats.clone();
    let links = [link(seed * 2 + 1), link(seed * 2 + 2)];
    let mut world = watched(links, &tcp, move |passage, segment| {
        seen.borrow_mut().on_passage(passage, segment);
    })?;
    serve(&world)?;
    let times = shared(Vec::new());
    for _ in 0..CLIENTS {
        world.spawn(Side::A, client(times.clone()));
    }
    world.run_for(LENGTH)?;
    found.response_ms.append(&mut times.borrow_mut());
    found.seconds += LENGTH.as_secs_f64();
    found.carried += world.cable().link_from(Side::B).counters().pushed_bytes as f64 * 8.0;
    let server = world.host(Side::B, |host| *host.counters());
    found.timeouts += server.timeouts;
    found.retransmits += server.retransmits;
    let repeats = repeats.borrow();
    found.repeated += repeats.repeated;
    found.spurious += repeats.spurious;
    found.timeout_ms.extend(repeats.sent_again_ms.iter().filter(|ms| **ms > TIMED_OUT_MS));
    Ok(())
}

/// Our HTTP server, unmodified; its disk takes no time.
fn serve(world: &World) -> Result<(), Failure> {
    let at = world.handle(Side::B);
    let wall = move || UNIX_EPOCH + Duration::from_nanos(at.now().as_nanos());
    let clock = Clock { timer: Rc::new(Timer), wall: Rc::new(wall) };
    let disk = Disk::new(&[("file", FILE_BYTES, 1)], Duration::ZERO, u64::MAX);
    let files = Files::new(disk, FilesConfig::default(), clock.clone());
    let files = Rc::new(Server::new(files, ServerConfig::default(), clock));
    let listener = TcpListener::bind_on(&world.handle(Side::B), server())?;
    world.spawn(Side::B, async move {
        while let Ok((stream, peer)) = listener.accept().await {
            Handle::current().spawn_local(files.clone().serve(stream, peer));
        }
    });
    Ok(())
}

/// Asks, waits for the whole answer, and asks again.
async fn client(times: Rc<RefCell<Vec<f64>>>) {
    loop {
        let begin = Handle::current().now();
        if get().await.is_ok_and(|bytes| bytes > FILE_BYTES) {
            let took = Handle::current().now().since(begin);
            times.borrow_mut().push(took.as_secs_f64() * 1000.0);
        }
    }
}

/// One transfer; the bytes of the answer, head and body.
async fn get() -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(server()).await?;
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.len() as u64)
}

/// Runs it.
pub(crate) fn run(report: &mut Report) -> Outcome {
    report.say(format!(
        "{CLIENTS} clients, {FILE_BYTES} B an answer, 60 ms, {} Mbit/s, {SEEDS} seeds of {} s\n",
        RATE_BITS / 1_000_000,
        LENGTH.as_secs()
    ));
    let mut table = Table::new(&[
        "loss %",
        "estimator",
        "answers",
        "mean ms",
        "median ms",
        "p95 ms",
        "p99 ms",
        "kbit/s",
        "link %",
        "timeouts ‰",
        "RTO ms",
        "retransmitted ‰",
        "repeated ‰",
        "spurious ‰",
    ]);
    let mut all: Vec<Vec<Found>> = Vec::new();
    for loss in LOSSES_PERCENT {
        let mut row = Vec::new();
        for setting in &SETTINGS {
            let mut found = Found::default();
            for seed in 0..SEEDS {
                run_world(setting, loss / 100.0, seed, &mut found)?;
            }
            table.row(&[
                &loss,
                &setting.name,
                &found.response_ms.len(),
                &format!("{:.1}", found.mean_ms()),
                &format!("{:.1}", found.median_ms()),
                &format!("{:.0}", found.quantile_ms(0.95)),
                &format!("{:.0}", found.quantile_ms(0.99)),
                &format!("{:.0}", found.throughput_kbits()),
                &format!("{:.1}", found.utilisation_percent()),
                &format!("{:.1}", found.per_thousand(found.timeouts)),
                &format!("{:.0}", found.median_timeout_ms()),
                &format!("{:.1}", found.per_thousand(found.retransmits)),
                &format!("{:.1}", found.per_thousand(found.repeated)),
                &format!("{:.1}", found.per_thousand(found.spurious)),
            ]);
            row.push(found);
        }
        all.push(row);
    }
    report.say("‰: of the answers. RTO: median wait of what the timer sent again.");
    report.say(" Repeated: sent again although the client had all of it.");
    report.say("Spurious: those whose acknowledgement was not lost, but on its way.");
    report.table("response", &table)?;
    claims(report, &all);
    let mut chart = Chart::new("Mean response time of 6 KB over 60 ms", "loss, %", "ms");
    for (number, setting) in SETTINGS.iter().enumerate() {
        let line =
            LOSSES_PERCENT.iter().zip(&all).map(|(loss, row)| (*loss, row[number].mean_ms()));
        chart.draw(setting.name, Mark::Line, line.collect());
    }
    report.picture("response", &chart)
}

/// Each kind of claim over all losses, tighter estimators against `bsd`.
fn claims(report: &mut Report, all: &[Vec<Found>]) {
    // The fixes for `bsd` change little here: its ticks remain.
    let tighter = 2..SETTINGS.len();
    let compare = |better: fn(&Found, &Found) -> bool| {
        all.iter().all(|row| tighter.clone().all(|number| better(&row[number], &row[0])))
    };
    let spread = |of: fn(&Found) -> f64| {
        let last = &all[all.len() - 1];
        format!(
            "at 5 % loss {:.1} with bsd, {:.1} with fine, {:.1} with rfc6298",
            of(&last[0]),
            of(&last[3]),
            of(&last[4])
        )
    };
    report.claim(
        "tighter timeouts shorten response times (mean, ms)",
        compare(|ours, bsd| ours.mean_ms() < bsd.mean_ms()),
        spread(Found::mean_ms),
    );
    let last = &all[0];
    let factor = |number: usize| last[0].median_timeout_ms() / last[number].median_timeout_ms();
    report.value("factor_bsd_to_fine", factor(3));
    report.value("factor_bsd_to_rfc6298", factor(4));
    report.claim(
        "a lost segment is sent again sooner",
        compare(|ours, bsd| ours.median_timeout_ms() < bsd.median_timeout_ms()),
        format!(
            "at 1 % loss after {:.0} ms with bsd, {:.0} with fine ({:.1}x), {:.0} with rfc6298 \
             ({:.1}x)",
            last[0].median_timeout_ms(),
            last[3].median_timeout_ms(),
            factor(3),
            last[4].median_timeout_ms(),
            factor(4),
        ),
    );
    report.claim(
        "they raise throughput (kbit/s)",
        compare(|ours, bsd| ours.throughput_kbits() > bsd.throughput_kbits()),
        spread(Found::throughput_kbits),
    );
    report.claim(
        "and the link's utilisation (%)",
        compare(|ours, bsd| ours.utilisation_percent() > bsd.utilisation_percent()),
        spread(Found::utilisation_percent),
    );
    report.claim(
        "without more spurious retransmissions (of a thousand answers)",
        compare(|ours, bsd| {
            ours.per_thousand(ours.spurious) <= bsd.per_thousand(bsd.spurious) * 1.1 + 1.0
        }),
        spread(|found| found.per_thousand(found.spurious)),
    );
}
