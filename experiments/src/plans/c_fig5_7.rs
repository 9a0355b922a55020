//! Figs. 5 to 7: persistent connections, 10 requests in two bursts of 5, the files of Table 2, and
//! an increasing number of clients on two workstations. It runs in memory, at true rate. The server
//! looks for connections in one list, as SunOS did, and any number of clients saturates it; its
//! clock advances by the processor time that it uses. TIME-WAIT lasts half a second, where Table 2
//! has one second: with 60 s a list at today's rates never ends. The last two lines have no list:
//! they are our engine with its records, with and without negotiation.

use std::ops::Range;
use std::time::Duration;

use lightwait_netem::LinkConfig;

use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::plans::busy::System;
use crate::plans::busy::lan::Time;
use crate::plans::busy::web::Plan;
use crate::plans::busy::webstone::{Keeping, Run, Seen, cell, stat};
use crate::plans::c_table2::FILES;
use crate::report::{Report, Table};

const RUNS: u64 = 10;
const HOSTS: usize = 2;
/// Clients on each host.
const CLIENTS: [usize; 4] = [4, 16, 32, 64];
const REQUESTS: u32 = 10;
const BURST: u32 = 5;
const TIME_WAIT: Duration = Duration::from_millis(500);
/// More blocks than a run needs.
const BLOCKS: usize = 50_000;

/// The lines of the figures: which end holds TIME-WAIT, and how the server looks for connections.
const LINES: [(&str, System, Keeping); 6] = [
    ("unmodified", System::Unmodified, Keeping::List(BLOCKS)),
    ("TCP (swap)", System::Swapped, Keeping::List(BLOCKS)),
    ("negotiated", System::Negotiated, Keeping::List(BLOCKS)),
    ("HTTP (client closes)", System::ClientCloses, Keeping::List(BLOCKS)),
    ("ours, negotiated", System::Negotiated, Keeping::Records(1 << 20)),
    ("ours, unmodified", System::Unmodified, Keeping::Records(1 << 20)),
];
/// The lines whose servers hold TIME-WAIT, and the line to compare ours with.
const UNMODIFIED: usize = 0;
const OURS_NEGOTIATED: usize = 4;
const OURS: usize = 5;

fn run_of(system: System, keeping: Keeping, clients: usize, seed: u64) -> Run {
    let plan = Plan {
        hosts: HOSTS,
        clients,
        files: FILES.into(),
        requests: REQUESTS,
        burst: BURST,
        addresses: 16,
        seed,
        ..Plan::default()
    };
    Run {
        system,
        keeping,
        time: Time::True,
        time_wait: TIME_WAIT,
        link: LinkConfig::default(),
        plan,
        warm_up: TIME_WAIT * 3 / 2,
        measured: TIME_WAIT,
    }
}

/// The results, by line and number of clients.
type Found = Vec<Vec<Vec<Seen>>>;

fn measure(seeds: Range<u64>) -> Found {
    let mut found = vec![vec![Vec::new(); CLIENTS.len()]; LINES.len()];
    // The lines take turns, so that a change on the machine affects all of them.
    for seed in seeds {
        for (at, &clients) in CLIENTS.iter().enumerate() {
            for ((_, system, keeping), found) in LINES.iter().zip(&mut found) {
                found[at].push(run_of(*system, *keeping, clients, seed).see());
            }
        }
    }
    found
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let found = measure(report.seeds(RUNS));
    let head =
        ["system", "clients", "Mb/s each", "blocks", "TIME-WAIT", "conn/s", "blocks a packet"];
    let mut table = Table::new(&head);
    let pictures = [
        ("fig5", "Throughput of a connection", "Mb/s"),
        ("fig6", "Control blocks in use", "blocks"),
        ("fig7", "Connections", "conn/s"),
    ];
    let mut charts = pictures.map(|(_, title, y)| Chart::new(title, "clients", y));
    for ((name, ..), found) in LINES.iter().zip(&found) {
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
    claims(report, &found);
    Ok(())
}

fn claims(report: &mut Report, found: &Found) {
    let (first, last) = (0, CLIENTS.len() - 1);
    let rate = |system: usize, at: usize| stat(&found[system][at], |seen| seen.connections).0;
    report.claim_alone(
        "Fig. 7: unmodified, the connection rate falls with load",
        rate(0, last) < 0.9 * rate(0, first),
        format!("{:.0} → {:.0} a second", rate(0, first), rate(0, last)),
    );
    let carried = [1, 2, 3].map(|system| rate(system, last).round());
    report.claim_alone(
        "Fig. 7: at the highest load each modification carries more than the unmodified system",
        carried.iter().all(|carried| *carried > 1.1 * rate(0, last)),
        format!("{carried:?} a second against {:.0}", rate(0, last)),
    );
    let falls =
        [1, 2, 3, OURS_NEGOTIATED].map(|line| (1.0 - rate(line, last) / rate(line, first)) * 100.0);
    report.observe(
        "Fig. 7: with the modifications it does not",
        falls[..3].iter().all(|fall| *fall < 10.0),
        format!(
            "it falls by {:.0}, {:.0} and {:.0} %, and with our table, which has no list, by \
             {:.0} %: it is not TIME-WAIT's doing",
            falls[0], falls[1], falls[2], falls[3]
        ),
    );
    // The blocks in use are the active connections, and those that ended within TIME-WAIT.
    for line in [UNMODIFIED, OURS] {
        let strays = found[line].iter().flatten().map(|seen| (seen.left - 1.0).abs());
        let strays = strays.fold(0.0, f64::max);
        report.claim_alone(
            &format!(
                "Fig. 6: {}, the memory of TIME-WAIT is what the rate makes it",
                LINES[line].0
            ),
            strays < 0.02,
            format!("as many blocks as ended in 2·MSL, but for {:.2} % at most", strays * 100.0),
        );
    }
    claims_of_ours(report, found);
    claims_of_modified(report, found);
}

/// The cost of TIME-WAIT for our engine, which holds it.
fn claims_of_ours(report: &mut Report, found: &Found) {
    let rate = |line: usize, at: usize| stat(&found[line][at], |seen| seen.connections).0;
    let (first, last) = (0, CLIENTS.len() - 1);
    let shares = (first..=last).map(|at| rate(OURS, at) / rate(OURS_NEGOTIATED, at) * 100.0);
    let shares: Vec<f64> = shares.collect();
    let said = shares.iter().map(|share| format!("{share:.0}")).collect::<Vec<_>>().join(", ");
    report.claim_alone(
        "Fig. 7: ours, unmodified, carries nine tenths and more of ours, negotiated, at any load",
        shares.iter().all(|share| *share >= 90.0),
        format!("{said} %"),
    );
    let fall = (1.0 - rate(OURS, last) / rate(OURS, first)) * 100.0;
    report.observe(
        "Fig. 7: ours, unmodified, does not fall with load",
        fall < 10.0,
        format!(
            "it falls by {fall:.0} %, {:.0} → {:.0} a second",
            rate(OURS, first),
            rate(OURS, last)
        ),
    );
}

/// The blocks in use, and the throughput of a connection, where clients hold TIME-WAIT.
fn claims_of_modified(report: &mut Report, found: &Found) {
    let (first, last) = (0, CLIENTS.len() - 1);
    for (number, (system, ..)) in LINES.iter().enumerate().skip(1).take(OURS_NEGOTIATED) {
        let each = |at: usize| {
            stat(&found[number][at], |seen| seen.blocks).0 / (HOSTS * CLIENTS[at]) as f64
        };
        let all = (0..CLIENTS.len()).map(each);
        let (least, most) =
            all.fold((f64::MAX, 0.0), |(least, most): (f64, f64), x| (least.min(x), most.max(x)));
        report.claim_alone(
            &format!("Fig. 6: {system}, blocks grow linearly with clients alone"),
            most <= 2.0 && most / least <= 1.3,
            format!("{least:.2} to {most:.2} for a client"),
        );
        let blocks = |system: usize, at: usize| stat(&found[system][at], |seen| seen.blocks).0;
        report.claim_alone(
            &format!("Fig. 6: {system}, far fewer than unmodified at any load"),
            (first..=last).all(|at| blocks(number, at) * 3.0 < blocks(0, at)),
            format!(
                "{:.0} against {:.0} with {} clients",
                blocks(number, last),
                blocks(0, last),
                HOSTS * CLIENTS[last]
            ),
        );
        let gains = (first..=last).map(|at| {
            let each = |system: usize| stat(&found[system][at], |seen| seen.rate_of_one).0;
            (each(number) / each(0) - 1.0) * 100.0
        });
        let gains: Vec<f64> = gains.collect();
        report.observe(
            &format!("Fig. 5: {system}, a connection's throughput is above the unmodified one's"),
            gains.iter().all(|gain| *gain > 0.0),
            format!(
                "{} %",
                gains.iter().map(|g| format!("{g:+.0}")).collect::<Vec<_>>().join(", ")
            ),
        );
    }
}
