//! Table 2's clients and files (see `c_table2`) at this machine's rate, in memory. The server looks
//! for connections in one list, like SunOS, and the clients saturate it; its clock goes on by its
//! processor time. A processor of today serves a thousand times as many connections a second as the
//! paper's. TIME-WAIT therefore lasts a second, in which as many gather as a list can bear; with
//! 60 s the list loses more. So the gain is not the paper's, and is no claim about its size.

use std::time::Duration;

use lightwait_netem::LinkConfig;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::plans::busy::System;
use crate::plans::busy::lan::Time;
use crate::plans::busy::webstone::{Keeping, Run, Seen, cell, stat};
use crate::plans::c_table2::{NOT_MOVED, load};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const RUNS: u64 = 10;
const TIME_WAIT: Duration = Duration::from_secs(1);
/// More blocks than any run needs.
const BLOCKS: usize = 100_000;

/// Its name, the end that holds TIME-WAIT, and how the server looks for connections.
type Mode = (&'static str, System, Keeping);

const MODES: [Mode; 6] = [
    ("linear, unmodified", System::Unmodified, Keeping::List(BLOCKS)),
    ("linear, TCP (swap)", System::Swapped, Keeping::List(BLOCKS)),
    ("linear, negotiated", System::Negotiated, Keeping::List(BLOCKS)),
    ("linear, HTTP (client closes)", System::ClientCloses, Keeping::List(BLOCKS)),
    ("ours, unmodified", System::Unmodified, Keeping::Records(1 << 20)),
    ("ours, negotiated", System::Negotiated, Keeping::Records(1 << 20)),
];
const UNMODIFIED: usize = 0;
const LISTS: usize = 4;
const OURS: usize = 4;
const OURS_NEGOTIATED: usize = 5;

const IN_A_LIST: Ablation = Ablation { name: "in-a-list", instead: "ours looks in one list, too" };

fn run_of(report: &Report, (_, system, keeping): Mode, seed: u64) -> Run {
    let is_listed = report.is_ablated(&IN_A_LIST);
    Run {
        system: if report.is_ablated(&NOT_MOVED) { System::Unmodified } else { system },
        keeping: if is_listed { Keeping::List(BLOCKS) } else { keeping },
        time: Time::True,
        time_wait: TIME_WAIT,
        link: LinkConfig::default(),
        plan: load(seed),
        warm_up: TIME_WAIT * 2,
        measured: TIME_WAIT,
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut found = vec![Vec::new(); MODES.len()];
    // They take turns, so that changes on the machine affect all of them.
    for seed in report.seeds(RUNS) {
        for (mode, found) in MODES.iter().zip(&mut found) {
            found.push(run_of(report, *mode, seed).see());
        }
    }
    let head = ["system", "conn/s", "Mb/s", "blocks", "blocks a packet"];
    let mut table = Table::new(&head);
    let mut rates = Vec::new();
    for (at, ((name, ..), seen)) in MODES.iter().zip(&found).enumerate() {
        table.row(&[
            name,
            &cell(stat(seen, |seen| seen.connections), 0),
            &cell(stat(seen, |seen| seen.bits / 1e6), 0),
            &cell(stat(seen, |seen| seen.blocks), 0),
            &cell(stat(seen, |seen| seen.searched), 1),
        ]);
        rates.push((at as f64, stat(seen, |seen| seen.connections).0));
    }
    report.table("speed", &table)?;
    let names = MODES.map(|(name, ..)| name);
    let mut chart = Chart::of_categories("WebSTONE, saturated, TIME-WAIT of 1 s", &names, "conn/s");
    chart.draw("connections a second", Mark::Bars, rates);
    report.picture("speed", &chart)?;
    claims(report, &found);
    Ok(())
}

fn claims(report: &mut Report, found: &[Vec<Seen>]) {
    let ratio = |of: usize, to: usize, value: fn(&Seen) -> f64| {
        Mean::of_pairs(&found[of], &found[to], |of, to| value(of) / value(to))
    };
    for (at, (name, ..)) in MODES.iter().enumerate().take(LISTS).skip(1) {
        let rate = ratio(at, UNMODIFIED, |seen| seen.connections);
        let bits = ratio(at, UNMODIFIED, |seen| seen.bits);
        report.claim(
            &format!("{name}: more than twice the connections and throughput of unmodified"),
            &NOT_MOVED,
            rate.least() > 2.0 && bits.least() > 2.0,
            format!("{rate:.1} and {bits:.1} times as many (of 60 s and the paper's speed: 1.26)"),
        );
    }
    let ours = ratio(OURS, OURS_NEGOTIATED, |seen| seen.connections);
    report.claim(
        "ours serves nine tenths and more of its rate whoever holds TIME-WAIT",
        &IN_A_LIST,
        ours.mean >= 0.9,
        format!("{ours} times as many with it as without"),
    );
}
