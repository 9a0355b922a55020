//! The lateness of in-line timers under load. §3.3 of the paper: timers of active connections have
//! a lower priority than data, so that their time is not guaranteed; it gives no numbers. A turn of
//! our shard receives a limited number of frames before it runs its timers: data goes first, but
//! not for ever.
//!
//! One shard with sockets and tasks runs in a time of its own. That time is the processor time of
//! its turns, and leaps to the next event while the shard is idle. The shard thus has a processor
//! to itself and wakes without delay. The timers are delayed ACKs of 100 ms. They are due at the
//! first tick at or after that, and late by as much as the ACK leaves later.

mod traffic;

use std::cell::RefCell;
use std::rc::Rc;

use lightwait::local::TcpListener;
use lightwait::shard::{Budgets, Shard};
use lightwait_core::address::Cidr;
use lightwait_core::config::AckDelay;
use lightwait_core::time::Duration;
use lightwait_core::{Capabilities, Config, Instant, Medium};
use tokio::io::AsyncReadExt;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use traffic::{CONNECTIONS, DELAY, Line, Load, PORT, SERVER, TICK, Traffic};

/// The time for which timers are watched, in the shard's own time.
const LENGTH: Duration = Duration::from_secs(5);
/// Frames that a shard receives before it runs its timers: the default, and others.
const BUDGETS: [usize; 4] = [64, 256, 1024, 4096];
const PERCENTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

const NO_LOAD: Ablation = Ablation { name: "no-load", instead: "no data comes before timers" };
const COARSE: Ablation = Ablation { name: "coarse", instead: "a tick lasts 50 ms, not 1 ms" };

/// The results of one run.
struct Measured {
    name: String,
    /// The lateness of each timer, in µs, in order.
    late_us: Vec<f64>,
    requests: u64,
    frames_per_second: f64,
    /// The longest two turns in a row.
    two_turns_us: f64,
}

impl Measured {
    fn percentile(&self, part: f64) -> f64 {
        let last = self.late_us.len() - 1;
        self.late_us[((last as f64 * part).round() as usize).min(last)]
    }

    fn most(&self) -> f64 {
        self.percentile(1.0)
    }
}

/// A shard whose tasks read all data.
fn shard(line: Line, receive_frames: usize, tick: Duration) -> Result<Shard, Failure> {
    let capabilities = Capabilities::plain(Medium::Ip, 1500);
    let mut config = Config::new(capabilities, Cidr::new(SERVER, 24).ok_or("24 bits")?, [1; 32]);
    config.tcp.ack.delay = AckDelay::Timer;
    config.tcp.ack.timer = DELAY;
    config.tcp.clock.tick = tick;
    config.tcp.ack.quick = 0;
    let budgets = Budgets { receive_frames, ..Budgets::default() };
    let shard = Shard::with_budgets(config, Box::new(line), budgets)?;
    let handle = shard.handle();
    let listener = TcpListener::bind_with_backlog(&handle, (SERVER, PORT), CONNECTIONS)?;
    handle.clone().spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            handle.spawn_local(async move {
                let mut buffer = vec![0; 1 << 14];
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
            });
        }
    });
    Ok(shard)
}

/// Watches timers under `load`.
fn measure(
    report: &Report,
    name: &str,
    load: Load,
    receive_frames: usize,
) -> Result<Measured, Failure> {
    let load = if report.is_ablated(&NO_LOAD) { Load::Nothing } else { load };
    let tick = if report.is_ablated(&COARSE) { 50 * TICK } else { TICK };
    let traffic = Rc::new(RefCell::new(Traffic::new()));
    let mut shard = shard(Line(traffic.clone()), receive_frames, tick)?;
    let mut now = Instant::from_millis(1_000);
    for _ in 0..CONNECTIONS {
        shard.turn(now);
    }
    if !traffic.borrow().all_are_open() {
        return Err("not every connection was accepted".into());
    }
    now = now + Duration::from_secs(1);
    traffic.borrow_mut().begin(load, now);
    let (begun, end) = (now, now + LENGTH);
    let (mut before, mut two_turns) = (Duration::ZERO, Duration::ZERO);
    while now < end {
        traffic.borrow_mut().begin_turn();
        let next = shard.turn(now);
        let turn = traffic.borrow().spent();
        two_turns = two_turns.max(before + turn);
        before = turn;
        now = (now + turn).max(next.unwrap_or(end));
    }
    let mut traffic = traffic.borrow_mut();
    let mut late_us = std::mem::take(&mut traffic.late_us);
    late_us.sort_by(f64::total_cmp);
    Ok(Measured {
        name: name.to_owned(),
        late_us,
        requests: traffic.requests,
        frames_per_second: traffic.carried() as f64 / now.since(begun).as_secs_f64(),
        two_turns_us: two_turns.as_secs_f64() * 1e6,
    })
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let default = Budgets::default().receive_frames;
    let mut saturated = Vec::new();
    for frames in BUDGETS {
        let name = format!("saturated, {frames} frames first");
        saturated.push(measure(report, &name, Load::Saturated, frames)?);
    }
    let capacity = saturated[1].frames_per_second;
    let mut all = vec![measure(report, "no load", Load::Nothing, default)?];
    for percent in [50.0, 90.0] {
        let load = Load::Rate(capacity * percent / 100.0);
        all.push(measure(report, &format!("{percent} % of what saturates it"), load, default)?);
    }
    all.extend(saturated);
    let mut table = Table::new(&[
        "load",
        "frames/s",
        "timers",
        "median µs",
        "90 %",
        "99 %",
        "99.9 %",
        "latest µs",
        "two turns µs",
    ]);
    for one in &all {
        let late = PERCENTILES.map(|part| format!("{:.1}", one.percentile(part)));
        let [half, most, nearly, hardly] = &late;
        table.row(&[
            &one.name,
            &format!("{:.0}", one.frames_per_second),
            &one.late_us.len(),
            half,
            most,
            nearly,
            hardly,
            &format!("{:.1}", one.most()),
            &format!("{:.1}", one.two_turns_us),
        ]);
    }
    report.say("How late timers fired (paper: at lower priority than data, no numbers):");
    report.table("lateness", &table)?;
    claims(report, &all);
    picture(report, &all)
}

fn claims(report: &mut Report, all: &[Measured]) {
    let (idle, busy) = (&all[0], &all[4]);
    report.claim(
        "data goes first: timers are later under load",
        &NO_LOAD,
        busy.percentile(0.5) > idle.percentile(0.5),
        format!("{:.1} against {:.1} µs, medians", busy.percentile(0.5), idle.percentile(0.5)),
    );
    // Those requested in the last 100 ms are not due yet.
    let due = |one: &Measured| one.requests - (DELAY + TICK).as_micros() as u64 / 500;
    report.check(
        "but not for ever: every timer fired",
        all.iter().all(|one| one.late_us.len() as u64 + 20 >= due(one)),
        format!("{} in all", all.iter().map(|one| one.late_us.len()).sum::<usize>()),
    );
    let worst = all.iter().map(|one| one.most() / one.two_turns_us).fold(0.0, f64::max);
    report.claim(
        "and none later than two turns of its shard",
        &COARSE,
        worst <= 1.0,
        format!("{worst:.2} of it at most"),
    );
    let late: Vec<f64> = all[3..].iter().map(|one| one.percentile(0.9)).collect();
    let found: Vec<String> = late.iter().map(|us| format!("{us:.0}")).collect();
    report.claim(
        "the fewer frames come first, the earlier",
        &NO_LOAD,
        late.windows(2).all(|pair| pair[0] < pair[1]),
        found.join(", ") + " µs, 90 %",
    );
}

/// Draws the part of the timers that were later than each value.
fn picture(report: &Report, all: &[Measured]) -> Outcome {
    let mut chart = Chart::new("How late timers fire", "late by more than, µs", "part of all")
        .scales(Scale::Logarithmic, Scale::Logarithmic);
    for one in all {
        let count = one.late_us.len();
        let step = (count / 400).max(1);
        let tail = count.saturating_sub(200);
        let points = one.late_us.iter().enumerate();
        let shown = points.filter(|(number, _)| number % step == 0 || *number >= tail);
        let part = |number: usize| (count - number) as f64 / count as f64;
        let points = shown.map(|(number, us)| (us.max(0.1), part(number))).collect();
        chart.draw(&one.name, Mark::Line, points);
    }
    report.picture("lateness", &chart)
}
