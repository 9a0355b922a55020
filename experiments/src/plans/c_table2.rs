//! Table 2: WebSTONE's clients, 20 on each of 2 workstations, request files of 9 KB to 5 MB, in
//! virtual time. TIME-WAIT lasts 60 s, as the paper's, and a server of the paper's speed fills it:
//! its clock goes on by what a [processor of the time](PAPER_SPEED) takes for packets and searches.
//! It looks for connections in one list, like SunOS, and the clients saturate it.
//!
//! The two costs are fitted to the paper's throughput, unmodified and with TCP's modification. The
//! memory, the other systems' rates, and Figs. 5 to 7 with the same costs (`c-fig5-7`) are results.
//! The paper does not give the frequency of each file. The weights yield
//! its mean of 53 KB, throughput by connections. Requests and answers of all rows are the
//! experiment's own and as long as HTTP's. With CLIENT_CLOSE the client's last request is followed
//! by another that needs no answer, and by its FIN.

use std::time::Duration;

use lightwait_netem::LinkConfig;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::Outcome;
use crate::plans::busy::lan::{Speed, Time};
use crate::plans::busy::web::Plan;
use crate::plans::busy::webstone::{Keeping, Run, Seen, cell, stat};
use crate::plans::busy::{PAPER_BLOCK_BYTES, System};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const RUNS: u64 = 10;
const HOSTS: usize = 2;
const CLIENTS: usize = 20;
/// Bytes, and requests of a thousand.
pub(super) const FILES: [(u32, u32); 4] =
    [(9_000, 640), (50_000, 325), (500_000, 32), (5_000_000, 3)];
const TIME_WAIT: Duration = Duration::from_secs(60);
/// More blocks than any run needs.
const BLOCKS: usize = 10_000;

/// A SPARCstation 20/71 under SunOS 4.1.3, fitted to the paper's throughput with TCP's modification
/// and without it.
pub(super) const PAPER_SPEED: Speed =
    Speed { packet: Duration::from_micros(248), block: Duration::from_nanos(1050) };

/// A row of the paper's: Mb/s, connections a second, KB.
struct Row {
    system: System,
    paper: Option<[f64; 3]>,
}

/// The paper has not built the negotiation.
const ROWS: [Row; 4] = [
    Row { system: System::Unmodified, paper: Some([20.97, 49.09, 722.7]) },
    Row { system: System::Swapped, paper: Some([26.40, 62.02, 23.1]) },
    Row { system: System::Negotiated, paper: None },
    Row { system: System::ClientCloses, paper: Some([31.73, 74.70, 23.4]) },
];

pub(super) const NOT_MOVED: Ablation =
    Ablation { name: "not-moved", instead: "TIME-WAIT stays at the server in every system" };
pub(super) const HALF: Ablation =
    Ablation { name: "half-wait", instead: "TIME-WAIT lasts for half of 2·MSL" };
pub(super) const NO_SEARCH: Ablation =
    Ablation { name: "no-search", instead: "a block takes no time to look at" };

/// The paper's load.
pub(super) fn load(seed: u64) -> Plan {
    Plan {
        hosts: HOSTS,
        clients: CLIENTS,
        files: FILES.into(),
        seed,
        addresses: 16,
        ..Plan::default()
    }
}

fn run_of(report: &Report, system: System, seed: u64) -> Run {
    let is_moved = !report.is_ablated(&NOT_MOVED);
    let block = if report.is_ablated(&NO_SEARCH) { Duration::ZERO } else { PAPER_SPEED.block };
    let part = if report.is_ablated(&HALF) { 2 } else { 1 };
    Run {
        system: if is_moved { system } else { System::Unmodified },
        keeping: Keeping::List(BLOCKS),
        time: Time::Slow(Speed { block, ..PAPER_SPEED }),
        time_wait: TIME_WAIT / part,
        link: LinkConfig::default(),
        plan: load(seed),
        warm_up: TIME_WAIT * 2,
        measured: TIME_WAIT,
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let seeds = report.seeds(RUNS);
    let runs: Vec<Run> = ROWS
        .iter()
        .flat_map(|row| seeds.clone().map(|seed| run_of(report, row.system, seed)))
        .collect();
    let seen = parallel::map(runs.len(), |number| Ok(runs[number].see()))?;
    let found: Vec<&[Seen]> = seen.chunks(runs.len() / ROWS.len()).collect();
    let head = ["system", "Mb/s", "conn/s", "blocks", "KB of 256 B", "blocks a packet", "paper's"];
    let mut table = Table::new(&head);
    for (row, seen) in ROWS.iter().zip(&found) {
        let paper = row.paper.map_or("not implemented".to_owned(), |[bits, rate, kilobytes]| {
            format!("{bits} Mb/s, {rate} conn/s, {kilobytes} KB")
        });
        table.row(&[
            &row.system.name(),
            &cell(stat(seen, |seen| seen.bits / 1e6), 2),
            &cell(stat(seen, |seen| seen.connections), 2),
            &cell(stat(seen, |seen| seen.blocks), 1),
            &cell(stat(seen, Seen::block_kilobytes), 1),
            &cell(stat(seen, |seen| seen.searched), 1),
            &paper,
        ]);
    }
    report.table("webstone", &table)?;
    picture(report, &found)?;
    checks(report, &found);
    claims(report, &found);
    Ok(())
}

fn picture(report: &Report, found: &[&[Seen]]) -> Outcome {
    let names: Vec<&str> = ROWS.iter().map(|row| row.system.name()).collect();
    let mut chart =
        Chart::of_categories("WebSTONE, saturated, TIME-WAIT of 60 s", &names, "conn/s");
    let rates = (0..).map(f64::from).zip(found.iter().map(|seen| stat(seen, |s| s.connections).0));
    chart.draw("connections a second", Mark::Bars, rates.collect());
    let paper = (0..).map(f64::from).zip(&ROWS);
    let paper = paper.filter_map(|(at, row)| Some((at, row.paper?[1])));
    chart.draw("paper's", Mark::Points, paper.collect());
    report.picture("webstone", &chart)
}

/// Checks the fit, which is no result, and the paper's own memory.
fn checks(report: &mut Report, found: &[&[Seen]]) {
    for (row, seen) in ROWS.iter().zip(found).take(2) {
        let Some([paper, ..]) = row.paper else { continue };
        let bits = stat(seen, |seen| seen.bits / 1e6);
        let found = format!("{} Mb/s, the paper's {paper}", cell(bits, 2));
        let is_near = (bits.0 / paper - 1.0).abs() < 0.03;
        let text = format!("fitted: {}, the paper's throughput", row.system.name());
        report.check(&text, is_near, found);
    }
    let Row { paper: Some([_, rate, kilobytes]), .. } = ROWS[0] else { return };
    let each = kilobytes * 1e3 / (rate * TIME_WAIT.as_secs_f64());
    report.check(
        "the paper's memory is two mbufs of 128 bytes for each connection of 60 s",
        (each / PAPER_BLOCK_BYTES - 1.0).abs() < 0.05,
        format!("{kilobytes} KB for {rate} a second: {each:.0} bytes each"),
    );
}

fn claims(report: &mut Report, found: &[&[Seen]]) {
    let gain = |at: usize, of: fn(&Seen) -> f64| {
        Mean::of_pairs(found[at], found[0], |of_it, plain| of(of_it) / of(plain))
    };
    for (at, Row { system, .. }) in ROWS.iter().enumerate().skip(1) {
        let name = system.name();
        let [rate, bits] = [gain(at, |seen| seen.connections), gain(at, |seen| seen.bits)];
        let (rate, found) = (format!("{rate}"), format!("{bits} times as many bytes"));
        report.claim(
            &format!("{name} serves a fifth more bytes than unmodified"),
            &NO_SEARCH,
            bits.least() >= 1.2,
            format!("{found}, and {rate} connections (paper: TCP 1.26, HTTP 1.51 and 1.52)"),
        );
        let memory = gain(at, |seen| seen.blocks);
        report.claim(
            &format!("{name} takes less than a thirtieth of the memory"),
            &NOT_MOVED,
            memory.most() <= 1.0 / 30.0,
            format!("{:.0} times less (paper: 31 for TCP and HTTP)", 1.0 / memory.mean),
        );
    }
    let left = Mean::of(found[0].iter().map(|seen| seen.left));
    report.claim(
        "server memory = bytes · rate · 2·MSL",
        &HALF,
        (left.mean - 1.0).abs() < 0.01,
        format!("{left} times as many blocks in TIME-WAIT as ended in 2·MSL"),
    );
    let [tcp, http] = [gain(1, |seen| seen.bits), gain(3, |seen| seen.bits)];
    report.observe(
        "HTTP's modification gains twice as much as TCP's (paper: 1.51 and 1.26)",
        http.mean - 1.0 > 1.5 * (tcp.mean - 1.0),
        format!("{http} and {tcp}"),
    );
}
