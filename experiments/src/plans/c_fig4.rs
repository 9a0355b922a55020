//! Fig. 4: two bulk transfers into a server with N connections in TIME-WAIT, in memory, by the
//! paper's procedure:
//!
//! 1. Two client machines connect, so that their blocks are the oldest in the server's list.
//! 2. A third machine opens and closes connections as fast as it can, until N are in TIME-WAIT.
//! 3. The two transfers are timed. A switch lets their packets through in turn, so that a cache of
//!    one block never helps.
//! 4. The server is left alone until no TIME-WAIT is left; then the next of ten runs begins.
//!
//! Time is true: the hosts' clock goes on by the processor time of the server's turns, and the
//! server is saturated. The clients are machines of their own and take no time.
//!
//! Our engine is the server in every line. For the other systems each packet is also looked up in
//! their list, before our engine receives it; the list holds the server's connections. Every line
//! thus includes our own look-up as well, some tens of nanoseconds. While the server is loaded, the
//! lists are only kept in step and not searched: loading a linear list with many would take too
//! long.

use std::time::Duration;

use lightwait_core::config::TimeWaitState;
use lightwait_core::{ConnectionId, Event, Host, Instant, Readiness};
use lightwait_netem::LinkConfig;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::Outcome;
use crate::plans::busy::System;
use crate::plans::busy::blocks::{Blocks, Search, Work};
use crate::plans::busy::lan::{
    Application, Lan, Time, client, client_config, server, server_config,
};
use crate::plans::busy::web::{self, Web};
use crate::report::{Report, Table};
use crate::statistics::mean_and_deviation;

/// Connections in TIME-WAIT.
const LOADS: [usize; 8] = [0, 100, 300, 1000, 3000, 10_000, 100_000, 1_000_000];
/// The most connections of a linear list: with more, a packet would take a tenth of a second. A
/// server whose clients leave it no TIME-WAIT is not loaded with more either.
const LINEAR_MOST: usize = 100_000;
const RUNS: usize = 10;
/// The seed of the order of blocks in memory.
const SEED: u64 = 4;
/// The least time of the server's processor that is timed in each line and run.
const TIMED: Duration = Duration::from_millis(40);
/// The port of the two transfers.
const SINK: u16 = 9;
const TRANSFERS: usize = 2;
const CHUNK: usize = 64 << 10;
/// 2·MSL, and the pause between runs.
const REST: Duration = Duration::from_secs(62);

/// A line of the figure: the state kept in TIME-WAIT, and the list in which packets are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    name: &'static str,
    state: TimeWaitState,
    search: Option<Search>,
}

const MODES: [Mode; 5] = [
    Mode { name: "linear", state: TimeWaitState::Full, search: Some(Search::Linear) },
    Mode { name: "hashed", state: TimeWaitState::Full, search: Some(Search::Hashed) },
    Mode { name: "BSDI", state: TimeWaitState::Full, search: Some(Search::Terminated) },
    Mode { name: "ours, full blocks", state: TimeWaitState::Full, search: None },
    Mode { name: "ours", state: TimeWaitState::Compact, search: None },
];
const LINEAR: usize = 0;
const HASHED: usize = 1;
const BSDI: usize = 2;
const OURS: usize = 4;

const NOT_LOADED: Ablation =
    Ablation { name: "not-loaded", instead: "the third machine opens no connection" };
const NOT_MOVED: Ablation =
    Ablation { name: "not-moved", instead: "TIME-WAIT stays at the server in every system" };
const ANYWHERE: Ablation =
    Ablation { name: "anywhere", instead: "BSDI's list keeps TIME-WAIT where it was, as SunOS's" };
const CHAINS: Ablation = Ablation { name: "chains", instead: "ours looks in 512 chains, too" };

const SYSTEMS: [System; 2] = [System::Unmodified, System::Swapped];

/// The two transfers, and the machine that loads the server.
struct Traffic {
    loader: Web,
    data: Vec<u8>,
    buffer: Vec<u8>,
    senders: [Option<ConnectionId>; TRANSFERS],
    /// True if they send.
    go: bool,
    /// The server's ends of the transfers.
    sinks: Vec<ConnectionId>,
    received: u64,
}

impl Traffic {
    fn fill(&self, host: &mut Host, now: Instant, id: ConnectionId) {
        while self.go && host.write(now, id, &self.data).is_ok_and(|len| len == self.data.len()) {}
    }
}

impl Application for Traffic {
    fn on_server(&mut self, host: &mut Host, now: Instant, event: Event) {
        match event {
            Event::Acceptable(listener)
                if host.listener_address(listener).is_ok_and(|at| at.port() == SINK) =>
            {
                while let Ok(id) = host.accept(now, listener) {
                    self.sinks.push(id);
                }
            }
            Event::Ready(id, _) if self.sinks.contains(&id) => loop {
                match host.read(now, id, &mut self.buffer) {
                    Ok(len @ 1..) => self.received += len as u64,
                    Ok(_) => {
                        host.close(now, id);
                        self.sinks.retain(|sink| *sink != id);
                        break;
                    }
                    Err(_) => break,
                }
            },
            _ => self.loader.on_server(host, now, event),
        }
    }

    fn on_client(&mut self, number: usize, host: &mut Host, now: Instant, event: Event) {
        match event {
            Event::Ready(id, readiness) if number < TRANSFERS => {
                if readiness.contains(Readiness::WRITABLE) && self.senders[number] == Some(id) {
                    self.fill(host, now, id);
                }
            }
            // The third host belongs to the loader.
            _ => self.loader.on_client(number.saturating_sub(TRANSFERS), host, now, event),
        }
    }

    fn before_client(&mut self, number: usize, host: &mut Host, now: Instant) -> Option<Instant> {
        if number < TRANSFERS { None } else { self.loader.before_client(0, host, now) }
    }
}

/// A server in one system that keeps one kind of state, with the lists of its lines.
struct Bench {
    lan: Lan,
    traffic: Traffic,
    modes: Vec<(usize, Mode)>,
}

impl Bench {
    fn new(of: &[Mode], system: System, state: TimeWaitState, most: usize) -> Bench {
        let modes = of.iter().copied().enumerate().filter(|(_, mode)| mode.state == state);
        let modes: Vec<(usize, Mode)> = modes.collect();
        let mut server = server_config();
        // The loader's host has the third number, with its addresses.
        let mut clients: Vec<_> = (0..=TRANSFERS).map(client_config).collect();
        system.apply(&mut server, &mut clients, state);
        for config in clients.iter_mut().chain([&mut server]) {
            config.limits.time_wait = 2 * most + 1000;
        }
        let link = LinkConfig::default();
        let mut lan = Lan::new(Time::True, server, &[SINK, web::PORT], clients, &link);
        for search in modes.iter().filter_map(|(_, mode)| mode.search) {
            lan.keep(Blocks::new(search, most + 1000, SEED), &[SINK, web::PORT], false);
        }
        let plan = web::Plan {
            clients: 16,
            addresses: 64,
            count: 0,
            first: TRANSFERS,
            ..web::Plan::default()
        };
        let traffic = Traffic {
            loader: Web::new(plan, lan.now),
            data: vec![b'd'; CHUNK],
            buffer: vec![0; CHUNK],
            senders: [None; TRANSFERS],
            go: false,
            sinks: Vec::new(),
            received: 0,
        };
        Bench { lan, traffic, modes }
    }

    /// Runs the procedure once, with each line timed for at least `timed`. Returns the rate of a
    /// transfer in bytes a second and the work of the searches, line by line.
    fn run(&mut self, load: usize, timed: Duration) -> Vec<(usize, f64, Work)> {
        let Bench { lan, traffic, modes } = self;
        traffic.go = false;
        for number in 0..TRANSFERS {
            let (host, now) = lan.client_mut(number);
            let local = std::net::SocketAddr::new(client(number, 1), 0);
            traffic.senders[number] = host.connect(now, local, server(SINK)).ok();
        }
        let both = |_: &Lan, traffic: &Traffic| traffic.sinks.len() == TRANSFERS;
        assert!(lan.run_until(traffic, Duration::from_secs(5), both), "two connections");
        traffic.loader.go_on(load as u64, lan.now);
        lan.wake(TRANSFERS);
        let loaded = |lan: &Lan, traffic: &Traffic| {
            traffic.loader.is_over() && lan.server().connections() == TRANSFERS
        };
        assert!(
            lan.run_until(traffic, Duration::from_secs(40), loaded),
            "{:?}",
            traffic.loader.done
        );
        lan.assert_in_step();
        traffic.go = true;
        for number in 0..TRANSFERS {
            let Some(id) = traffic.senders[number] else { continue };
            let (host, now) = lan.client_mut(number);
            traffic.fill(host, now, id);
        }
        let mut found = Vec::new();
        for &(number, mode) in modes.iter() {
            if number == LINEAR && load > LINEAR_MOST {
                continue;
            }
            for lookup in lan.lookups() {
                lookup.is_searched = mode.search == Some(lookup.blocks.search());
                lookup.blocks.work = Work::default();
            }
            // Work that began in another line is completed.
            for _ in 0..4 {
                lan.turn(traffic);
            }
            let (begin, bytes, taken) = (lan.now, traffic.received, lan.taken);
            while lan.taken - taken < timed {
                lan.turn(traffic);
            }
            let rate = (traffic.received - bytes) as f64
                / lan.now.since(begin).as_secs_f64()
                / TRANSFERS as f64;
            let work = lan.lookups().iter().find(|lookup| lookup.is_searched);
            found.push((number, rate, work.map(|lookup| lookup.blocks.work).unwrap_or_default()));
        }
        self.leave_alone();
        found
    }

    /// Ends the transfers, and everything else.
    fn leave_alone(&mut self) {
        let Bench { lan, traffic, .. } = self;
        lan.lookups().iter_mut().for_each(|lookup| lookup.is_searched = false);
        traffic.go = false;
        for number in 0..TRANSFERS {
            let Some(id) = traffic.senders[number].take() else { continue };
            let (host, now) = lan.client_mut(number);
            host.close(now, id);
        }
        lan.rest(traffic, REST);
        assert_eq!(lan.server().time_wait_len() + lan.server().connections(), 0, "all is over");
        lan.assert_in_step();
    }
}

/// The results of a line at a load: the rates of the runs, in Mb/s, and the blocks looked at in a
/// search.
#[derive(Clone, Debug, Default)]
struct Point {
    rates: Vec<f64>,
    blocks: Vec<f64>,
}

impl Point {
    /// The part of its rate that it loses to another, in %, run by run: mean and standard
    /// deviation.
    fn lost_to(&self, other: &Point) -> (f64, f64) {
        let lost = self.rates.iter().zip(&other.rates).map(|(rate, of)| (1.0 - rate / of) * 100.0);
        mean_and_deviation(&lost.collect::<Vec<f64>>())
    }
}

/// Points by system, line and load.
type Points = Vec<Vec<Vec<Point>>>;

/// All servers exist at once and take turns, run by run, so that changes on the machine affect all
/// of them.
fn measure(report: &Report) -> Points {
    let mut benches = Vec::new();
    let mut modes = MODES;
    if report.is_ablated(&ANYWHERE) {
        modes[BSDI].search = Some(Search::Linear);
    }
    if report.is_ablated(&CHAINS) {
        modes[OURS].search = Some(Search::Hashed);
    }
    let (is_loaded, is_moved) = (!report.is_ablated(&NOT_LOADED), !report.is_ablated(&NOT_MOVED));
    for (at, &load) in LOADS.iter().enumerate() {
        for (number, &system) in SYSTEMS.iter().enumerate() {
            if system == System::Swapped && load > LINEAR_MOST {
                continue;
            }
            let system = if is_moved { system } else { System::Unmodified };
            for state in [TimeWaitState::Full, TimeWaitState::Compact] {
                benches.push((at, number, Bench::new(&modes, system, state, load)));
            }
        }
    }
    let none = vec![vec![vec![Point::default(); LOADS.len()]; MODES.len()]; SYSTEMS.len()];
    let mut points: Points = none;
    for run in 0..=RUNS {
        for (at, number, bench) in &mut benches {
            for (mode, rate, work) in bench.run(if is_loaded { LOADS[*at] } else { 0 }, TIMED) {
                // The first run uses memory that no run has touched.
                if run > 0 {
                    let point = &mut points[*number][mode][*at];
                    point.rates.push(rate * 8.0 / 1e6);
                    point.blocks.push(work.each());
                }
            }
        }
        report.say(format!("run {run} of {RUNS} is over"));
    }
    points
}

/// The seeds of the blocks and of the loader.
pub(crate) fn seeds() -> Vec<u64> {
    vec![SEED, web::SEED]
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let points = measure(report);
    let mut chart = Chart::new("A bulk transfer, two at a time", "TIME-WAIT", "Mb/s")
        .scales(Scale::Logarithmic, Scale::Logarithmic);
    let head = ["line", "TIME-WAIT", "Mb/s", "± Mb/s", "lost %", "blocks a packet", "± blocks"];
    for (system, points) in SYSTEMS.iter().zip(&points) {
        let mut table = Table::new(&head);
        for (mode, points) in MODES.iter().zip(points) {
            let mut drawn = Vec::new();
            for (load, point) in LOADS.iter().zip(points).filter(|(_, p)| !p.rates.is_empty()) {
                let (mean, deviation) = mean_and_deviation(&point.rates);
                let (blocks, blocks_deviation) = mean_and_deviation(&point.blocks);
                table.row(&[
                    &mode.name,
                    load,
                    &format!("{mean:.1}"),
                    &format!("{deviation:.1}"),
                    &format!("{:.1}", point.lost_to(&points[0]).0),
                    &format!("{blocks:.1}"),
                    &format!("{blocks_deviation:.1}"),
                ]);
                drawn.push((*load as f64, mean));
            }
            let kind = if *system == System::Unmodified { Mark::Line } else { Mark::Dashed };
            chart.draw(&format!("{}, {}", mode.name, system.name()), kind, drawn);
        }
        report.say(format!("{}, mean and standard deviation of {RUNS} runs", system.name()));
        report
            .table(if *system == System::Unmodified { "unmodified" } else { "swapped" }, &table)?;
    }
    report.picture("throughput", &chart)?;
    claims(report, &points);
    claims_of_time(report, &points[0]);
    Ok(())
}

/// The part of its rate without TIME-WAIT that a line loses at a load, in %.
fn lost(points: &[Vec<Point>], mode: usize, at: usize) -> f64 {
    points[mode][at].lost_to(&points[mode][0]).0
}

fn claims(report: &mut Report, points: &Points) {
    let [unmodified, swapped] = [&points[0], &points[1]];
    let last_linear = LOADS.iter().rposition(|load| *load <= LINEAR_MOST).unwrap_or(0);
    let many = LOADS.len() - 1;
    let half = (0..=last_linear).find(|at| lost(unmodified, LINEAR, *at) >= 50.0);
    report.claim(
        "a linear search loses half the throughput, and more with more in TIME-WAIT",
        &NOT_LOADED,
        half.is_some_and(|half| {
            (half..=last_linear).all(|at| lost(unmodified, LINEAR, at) >= 50.0)
        }),
        format!(
            "50 % lost at {} in TIME-WAIT, {:.1} % at {} (paper: as much as 50 %)",
            half.map_or("none".to_owned(), |at| LOADS[at].to_string()),
            lost(unmodified, LINEAR, last_linear),
            LOADS[last_linear]
        ),
    );
    report.claim(
        "with the modification it loses far less",
        &NOT_MOVED,
        lost(swapped, LINEAR, last_linear) < 10.0,
        format!(
            "{:.1} % after {} connections",
            lost(swapped, LINEAR, last_linear),
            LOADS[last_linear]
        ),
    );
    let blocks = |points: &[Vec<Point>], mode: usize, at: usize| {
        mean_and_deviation(&points[mode][at].blocks).0
    };
    let linear = blocks(unmodified, LINEAR, last_linear);
    let swapped_blocks = blocks(swapped, LINEAR, last_linear);
    report.claim(
        "counted: a linear search looks at all of TIME-WAIT, and at none with the modification",
        &NOT_MOVED,
        linear >= 0.95 * LOADS[last_linear] as f64 && swapped_blocks <= 4.0,
        format!(
            "{linear:.0} blocks a packet among {}, and {swapped_blocks:.1}",
            LOADS[last_linear]
        ),
    );
    let bsdi = blocks(unmodified, BSDI, many);
    report.claim(
        "counted: TIME-WAIT at the end of the list is not looked at",
        &ANYWHERE,
        bsdi <= 4.0,
        format!("{bsdi:.1} blocks a packet among {}", LOADS[many]),
    );
    let hashed = blocks(unmodified, HASHED, many);
    report.claim(
        "counted: a hash of 512 chains, which paper and field call a remedy, looks at a chain",
        &NOT_LOADED,
        hashed > 100.0 && hashed < LOADS[many] as f64 / 100.0,
        format!("{hashed:.0} blocks a packet among {}", LOADS[many]),
    );
}

/// The cost of a million in TIME-WAIT, in time.
fn claims_of_time(report: &mut Report, unmodified: &[Vec<Point>]) {
    let many = LOADS.len() - 1;
    let (ours, deviation) = unmodified[OURS][many].lost_to(&unmodified[OURS][0]);
    let found = format!("{ours:.1} % ± {deviation:.1} %");
    let claim = "ours loses less than a tenth among a million";
    report.claim(claim, &CHAINS, ours < 10.0, &found);
    report.observe(
        "ours loses nothing that can be measured",
        ours <= 2.0 * deviation / f64::sqrt(RUNS as f64),
        &found,
    );
    report.observe(
        "BSDI's list loses nothing, and the hash of 512 chains more than half, among a million",
        lost(unmodified, BSDI, many) <= 10.0 && lost(unmodified, HASHED, many) >= 50.0,
        format!(
            "{:.1} % and {:.1} %",
            lost(unmodified, BSDI, many),
            lost(unmodified, HASHED, many)
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_loads_the_server_anew_and_fills_its_lists() {
        for (system, most) in [(System::Unmodified, 102.0), (System::Swapped, 2.0)] {
            let mut bench = Bench::new(&MODES, system, TimeWaitState::Full, 100);
            for _ in 0..2 {
                for (mode, rate, work) in bench.run(100, Duration::from_millis(1)) {
                    assert!(rate > 0.0, "{mode}");
                    let looked_at = work.each();
                    match mode {
                        // The two transfers alternate, so that the cache never helps.
                        LINEAR => assert!((most - 1.0..=most).contains(&looked_at), "{looked_at}"),
                        BSDI | HASHED => assert!((1.0..=3.0).contains(&looked_at), "{looked_at}"),
                        _ => assert_eq!(work, Work::default()),
                    }
                }
            }
        }
    }
}
