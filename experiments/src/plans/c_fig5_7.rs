//! Figs. 5 to 7: persistent connections, 10 requests in two bursts of 5, the files of Table 2, and
//! an increasing number of clients on two workstations, at one of two [scales](Scale).
//!
//! *The paper's*, in virtual time: TIME-WAIT of 60 s, and a processor of the time, with the costs
//! that Table 2 gives (`c-table2`). *Ours*, in memory and at true rate: the server's clock advances
//! by the processor time that it uses, and TIME-WAIT lasts half a second. With 60 s a list at
//! today's rates never ends.
//!
//! The server looks for connections in one list, as SunOS did, and any number of clients saturates
//! it. Two lines of our scale have no list: they are our engine with its records, with and without
//! negotiation.

use std::time::Duration;

use lightwait_netem::LinkConfig;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::busy::System;
use crate::plans::busy::lan::{Speed, Time};
use crate::plans::busy::web::Plan;
use crate::plans::busy::webstone::{Keeping, Run, Seen, cell, stat};
use crate::plans::c_table2::{FILES, HALF, NO_SEARCH, NOT_MOVED, PAPER_SPEED};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const RUNS: u64 = 10;
const HOSTS: usize = 2;
/// Clients on each host.
const CLIENTS: [usize; 4] = [4, 16, 32, 64];
const REQUESTS: u32 = 10;
const BURST: u32 = 5;
/// More blocks than a run needs.
const BLOCKS: usize = 50_000;

/// The speed of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Paper,
    Ours,
}

impl Scale {
    fn time_wait(self) -> Duration {
        match self {
            Scale::Paper => Duration::from_secs(60),
            Scale::Ours => Duration::from_millis(500),
        }
    }

    /// The lines of the figures. Where searches cost what we say, ours would cost nothing.
    fn lines(self) -> &'static [Line] {
        match self {
            Scale::Paper => &LINES[..LISTS],
            Scale::Ours => &LINES,
        }
    }
}

/// Its name, the end that holds TIME-WAIT, and how the server looks for connections.
type Line = (&'static str, System, Keeping);

const LINES: [Line; 6] = [
    ("unmodified", System::Unmodified, Keeping::List(BLOCKS)),
    ("TCP (swap)", System::Swapped, Keeping::List(BLOCKS)),
    ("negotiated", System::Negotiated, Keeping::List(BLOCKS)),
    ("HTTP (client closes)", System::ClientCloses, Keeping::List(BLOCKS)),
    ("ours, negotiated", System::Negotiated, Keeping::Records(1 << 20)),
    ("ours, unmodified", System::Unmodified, Keeping::Records(1 << 20)),
];
/// The number of lines with a list.
const LISTS: usize = 4;
/// The lines whose servers hold TIME-WAIT, and the line to compare ours with.
const UNMODIFIED: usize = 0;
const OURS_NEGOTIATED: usize = 4;
const OURS: usize = 5;

const IN_A_LIST: Ablation = Ablation { name: "in-a-list", instead: "ours looks in one list, too" };

fn run_of(report: &Report, scale: Scale, line: Line, clients: usize, seed: u64) -> Run {
    let (_, system, keeping) = line;
    let is_listed = report.is_ablated(&IN_A_LIST);
    let block = if report.is_ablated(&NO_SEARCH) { Duration::ZERO } else { PAPER_SPEED.block };
    let part = if report.is_ablated(&HALF) { 2 } else { 1 };
    let time_wait = scale.time_wait();
    Run {
        system: if report.is_ablated(&NOT_MOVED) { System::Unmodified } else { system },
        keeping: if is_listed { Keeping::List(BLOCKS) } else { keeping },
        time: match scale {
            Scale::Paper => Time::Slow(Speed { block, ..PAPER_SPEED }),
            Scale::Ours => Time::True,
        },
        time_wait: time_wait / part,
        link: LinkConfig::default(),
        plan: Plan {
            hosts: HOSTS,
            clients,
            files: FILES.into(),
            requests: REQUESTS,
            burst: BURST,
            addresses: 16,
            seed,
            ..Plan::default()
        },
        warm_up: time_wait * 3 / 2,
        measured: time_wait,
    }
}

/// The results, by line and number of clients.
type Found = Vec<Vec<Vec<Seen>>>;

fn measure(report: &mut Report, scale: Scale) -> Result<Found, Failure> {
    let (seeds, lines) = (report.seeds(RUNS), scale.lines());
    let mut runs = Vec::new();
    // The lines take turns, so that a change on the machine affects all of them.
    for seed in seeds {
        for (at, &clients) in CLIENTS.iter().enumerate() {
            for (number, line) in lines.iter().enumerate() {
                runs.push((number, at, run_of(report, scale, *line, clients, seed)));
            }
        }
    }
    let seen = match scale {
        Scale::Paper => parallel::map(runs.len(), |number| Ok(runs[number].2.see()))?,
        Scale::Ours => runs.iter().map(|(.., run)| run.see()).collect(),
    };
    let mut found = vec![vec![Vec::new(); CLIENTS.len()]; lines.len()];
    for ((number, at, _), seen) in runs.into_iter().zip(seen) {
        found[number][at].push(seen);
    }
    Ok(found)
}

/// Runs the experiment at the paper's scale.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let found = measure(report, Scale::Paper)?;
    show(report, Scale::Paper, &found)?;
    claims_of_rate(report, Scale::Paper, &found);
    claims(report, &found, LISTS);
    Ok(())
}

/// Runs the experiment at this machine's rate.
pub(crate) fn run_at_rate(report: &mut Report) -> Outcome {
    let found = measure(report, Scale::Ours)?;
    show(report, Scale::Ours, &found)?;
    claims_of_rate(report, Scale::Ours, &found);
    claims(report, &found, OURS);
    claim_of_ours(report, &found);
    Ok(())
}

/// Writes the table and the figures.
fn show(report: &mut Report, scale: Scale, found: &Found) -> Outcome {
    let head =
        ["system", "clients", "Mb/s each", "blocks", "TIME-WAIT", "conn/s", "blocks a packet"];
    let mut table = Table::new(&head);
    let pictures = [
        ("fig5", "Throughput of a connection", "Mb/s"),
        ("fig6", "Control blocks in use", "blocks"),
        ("fig7", "Connections", "conn/s"),
    ];
    let mut charts = pictures.map(|(_, title, y)| Chart::new(title, "clients", y));
    for ((name, ..), found) in scale.lines().iter().zip(found) {
        let mut points = [Vec::new(), Vec::new(), Vec::new()];
        for (clients, seen) in CLIENTS.iter().zip(found) {
            let clients = HOSTS * clients;
            let each = stat(seen, |seen| seen.rate_of_one * 8.0 / 1e6);
            let (blocks, rate) = (stat(seen, |s| s.blocks), stat(seen, |s| s.connections));
            table.row(&[
                name,
                &clients,
                &cell(each, 1),
                &cell(blocks, 1),
                &cell(stat(seen, |seen| seen.waiting), 1),
                &cell(rate, 0),
                &cell(stat(seen, |seen| seen.searched), 1),
            ]);
            for (points, value) in points.iter_mut().zip([each, blocks, rate]) {
                points.push((clients as f64, value.0));
            }
        }
        for (chart, points) in charts.iter_mut().zip(points) {
            chart.draw(name, Mark::Line, points);
        }
    }
    report.table("persistent", &table)?;
    for ((name, ..), chart) in pictures.iter().zip(&charts) {
        report.picture(name, chart)?;
    }
    Ok(())
}

/// The ratio of a line's value to the unmodified system's, seed by seed.
fn ratio(found: &Found, line: usize, at: usize, of: fn(&Seen) -> f64) -> Mean {
    Mean::of_pairs(&found[line][at], &found[UNMODIFIED][at], |line, plain| of(line) / of(plain))
}

fn cells(values: impl Iterator<Item = Mean>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}

/// The connection rate. It falls with load in each system, since live connections lengthen the list
/// as well. What is TIME-WAIT's doing is the distance between the systems at one load, and that it
/// grows.
fn claims_of_rate(report: &mut Report, scale: Scale, found: &Found) {
    let last = CLIENTS.len() - 1;
    for (line, (name, ..)) in LINES.iter().enumerate().take(LISTS).skip(1) {
        let all = || (0..=last).map(|at| ratio(found, line, at, |seen| seen.bits));
        report.claim(
            &format!("Fig. 7: {name} carries more than the unmodified system at each load"),
            &NOT_MOVED,
            all().all(|ratio| ratio.least() > 1.0),
            format!("{} times its bytes", cells(all())),
        );
        let [few, many] = [0, last].map(|at| all().nth(at).unwrap_or_default());
        let grows = many.least() > few.most();
        let claim = format!("Fig. 7: TIME-WAIT costs more with load: {name} gains more");
        let found = format!("{few} times with the fewest clients, {many} with the most");
        match scale {
            Scale::Paper => report.claim(&claim, &NO_SEARCH, grows, found),
            Scale::Ours => report.observe(&claim, grows, found),
        }
    }
    let falls = found.iter().map(|line| {
        Mean::of_pairs(&line[last], &line[0], |last, first| last.connections / first.connections)
    });
    let falls: Vec<Mean> = falls.collect();
    report.observe(
        "Fig. 7: unmodified, the connection rate falls with load",
        falls[UNMODIFIED].most() < 1.0,
        format!("{} times what it is with the fewest clients", falls[UNMODIFIED]),
    );
    report.observe(
        "Fig. 7: with the modifications it does not",
        falls[1..LISTS].iter().all(|fall| fall.least() > 0.9),
        format!("{} times", cells(falls[1..].iter().copied())),
    );
}

/// The blocks in use, and the throughput of a connection. The lines before `end` look in lists.
fn claims(report: &mut Report, found: &Found, end: usize) {
    // The blocks in use are the active connections, and those that ended within TIME-WAIT.
    for line in [UNMODIFIED, OURS] {
        let Some(found) = found.get(line) else { continue };
        let left = found.iter().map(|seen| stat(seen, |seen| seen.left).0);
        let strays = left.map(|left| (left - 1.0).abs()).fold(0.0, f64::max);
        report.claim(
            &format!("Fig. 6: {}, memory in TIME-WAIT is what the rate makes it", LINES[line].0),
            &HALF,
            strays < 0.02,
            format!("as many blocks as ended in 2·MSL, but for {:.2} %", strays * 100.0),
        );
    }
    for (number, (system, ..)) in LINES.iter().enumerate().take(end).skip(1) {
        let blocks = |line: usize, at: usize| stat(&found[line][at], |seen| seen.blocks).0;
        let each = |at: usize| blocks(number, at) / (HOSTS * CLIENTS[at]) as f64;
        let all = (0..CLIENTS.len()).map(each);
        let (least, most) =
            all.fold((f64::MAX, 0.0), |(least, most): (f64, f64), x| (least.min(x), most.max(x)));
        report.claim(
            &format!("Fig. 6: {system}, blocks grow linearly with clients alone"),
            &NOT_MOVED,
            most <= 2.0 && most / least <= 1.3,
            format!("{least:.2} to {most:.2} for a client"),
        );
        let all = || (0..CLIENTS.len()).map(|at| ratio(found, number, at, |seen| seen.blocks));
        report.claim(
            &format!("Fig. 6: {system}, fewer blocks than unmodified at any load"),
            &NOT_MOVED,
            all().all(|ratio| ratio.most() < 1.0),
            format!("{} times its blocks", cells(all())),
        );
        let each = |at: usize| ratio(found, number, at, |seen| seen.rate_of_one);
        report.observe(
            &format!("Fig. 5: {system}, a connection's throughput is above the unmodified one's"),
            (0..CLIENTS.len()).all(|at| each(at).least() > 1.0),
            format!("{} times", cells((0..CLIENTS.len()).map(each))),
        );
    }
}

/// The cost of TIME-WAIT for our engine, which holds it.
fn claim_of_ours(report: &mut Report, found: &Found) {
    let share = |at: usize| {
        Mean::of_pairs(&found[OURS][at], &found[OURS_NEGOTIATED][at], |with, without| {
            with.connections / without.connections
        })
    };
    let all = || (0..CLIENTS.len()).map(share);
    report.claim(
        "Fig. 7: ours, unmodified, carries nine tenths and more of ours, negotiated, at any load",
        &IN_A_LIST,
        all().all(|share| share.mean >= 0.9),
        format!("{} times as much", cells(all())),
    );
}
