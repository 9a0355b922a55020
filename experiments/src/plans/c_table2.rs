//! Table 2: WebSTONE's clients, 20 on each of 2 workstations, request files of 9 KB to 5 MB.
//!
//! *Memory* is measured in virtual time, with 2·MSL = 60 s. The links carry 21 Mb/s, the rate of
//! the paper's unmodified server, so that clients without rest have about as many connections.
//!
//! *Speed* is measured in memory, at true rate. The server looks for connections in one list, like
//! SunOS, and the same clients saturate it; its clock goes on by its processor time. A processor of
//! today serves a thousand times as many connections a second as the paper's. TIME-WAIT therefore
//! lasts a second, in which as many gather as a list can bear; with 60 s the list loses more.
//!
//! The paper does not give the frequency of each file. The weights yield its mean of 53 KB,
//! throughput by connections. Requests and answers of all rows are the experiment's own and as long
//! as HTTP's. With CLIENT_CLOSE the client's last request is followed by another that needs no
//! answer, and by its FIN.

use std::ops::Range;
use std::time::Duration;

use lightwait_netem::{LinkConfig, Rate};

use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::plans::busy::lan::Time;
use crate::plans::busy::web::Plan;
use crate::plans::busy::webstone::{Keeping, Run, Seen, cell, stat};
use crate::plans::busy::{PAPER_BLOCK_BYTES, System};
use crate::report::{Report, Table};

const RUNS: u64 = 10;
const HOSTS: usize = 2;
const CLIENTS: usize = 20;
/// Bytes, and requests of a thousand.
pub(super) const FILES: [(u32, u32); 4] =
    [(9_000, 640), (50_000, 325), (500_000, 32), (5_000_000, 3)];
const TIME_WAIT: Duration = Duration::from_secs(60);
/// TIME-WAIT in the run at true rate.
const SHORT_TIME_WAIT: Duration = Duration::from_secs(1);
/// The rate of the paper's unmodified server, in bits a second, and its connections a second.
const PAPER_BITS: u64 = 20_970_000;
const PAPER_CONNECTIONS: f64 = 49.09;
const PAPER_KILOBYTES: f64 = 722.7;
/// More blocks than any run needs.
const BLOCKS: usize = 100_000;

/// The paper's rows: Mb/s, connections a second, KB.
const PAPER: [(System, &str); 4] = [
    (System::Unmodified, "20.97, 49.09, 722.7"),
    (System::Swapped, "26.40, 62.02, 23.1"),
    (System::Negotiated, "not implemented"),
    (System::ClientCloses, "31.73, 74.70, 23.4"),
];

fn plan(seed: u64) -> Plan {
    Plan {
        hosts: HOSTS,
        clients: CLIENTS,
        files: FILES.into(),
        seed,
        addresses: 16,
        ..Plan::default()
    }
}

/// A run in virtual time, at the paper's rate.
fn made(system: System, seed: u64) -> Run {
    Run {
        system,
        keeping: Keeping::List(BLOCKS),
        time: Time::Made,
        time_wait: TIME_WAIT,
        link: LinkConfig {
            rate: Rate::BitsPerSecond(PAPER_BITS / HOSTS as u64),
            delay: Duration::from_millis(1),
            ..LinkConfig::default()
        },
        plan: plan(seed),
        warm_up: TIME_WAIT + Duration::from_secs(1),
        measured: TIME_WAIT,
    }
}

/// A run at true rate.
fn timed(system: System, keeping: Keeping, seed: u64) -> Run {
    Run {
        system,
        keeping,
        time: Time::True,
        time_wait: SHORT_TIME_WAIT,
        link: LinkConfig::default(),
        plan: plan(seed),
        warm_up: SHORT_TIME_WAIT * 2,
        measured: SHORT_TIME_WAIT,
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let seeds = report.seeds(RUNS);
    memory(report, &seeds)?;
    speed(report, seeds)
}

fn memory(report: &mut Report, seeds: &Range<u64>) -> Outcome {
    report.say("Memory, in virtual time, at the paper's unmodified rate; 2·MSL = 60 s");
    let head = ["system", "Mb/s", "conn/s", "blocks", "KB of 256 B", "paper: Mb/s, conn/s, KB"];
    let mut table = Table::new(&head);
    let mut found = Vec::new();
    for (system, paper) in PAPER {
        let seen: Vec<Seen> = seeds.clone().map(|seed| made(system, seed).see()).collect();
        table.row(&[
            &system.name(),
            &cell(stat(&seen, |seen| seen.bits / 1e6), 2),
            &cell(stat(&seen, |seen| seen.connections), 1),
            &cell(stat(&seen, |seen| seen.blocks), 1),
            &cell(stat(&seen, Seen::block_kilobytes), 1),
            &paper,
        ]);
        found.push(seen);
    }
    report.table("memory", &table)?;
    let bytes = |seen: &[Seen]| stat(seen, Seen::block_kilobytes).0;
    for ((system, _), seen) in PAPER.iter().zip(&found).skip(1) {
        let system = system.name();
        let factor = bytes(&found[0]) / bytes(seen);
        report.claim_alone(
            &format!("{system} takes less than a thirtieth of the memory"),
            factor >= 30.0,
            format!("{factor:.0} times less (paper: 31 for TCP and HTTP)"),
        );
    }
    let ratio = stat(&found[0], |seen| seen.left);
    report.claim_alone(
        "server memory = bytes · rate · 2·MSL",
        (ratio.0 - 1.0).abs() < 0.01,
        format!("{} times as many blocks in TIME-WAIT as ended in 2·MSL", cell(ratio, 4)),
    );
    let each = PAPER_KILOBYTES * 1e3 / (PAPER_CONNECTIONS * TIME_WAIT.as_secs_f64());
    report.claim_alone(
        "so does the paper's own memory: two mbufs of 128 bytes for a connection",
        (each / PAPER_BLOCK_BYTES - 1.0).abs() < 0.05,
        format!("{PAPER_KILOBYTES} KB for {PAPER_CONNECTIONS} a second: {each:.0} bytes each"),
    );
    Ok(())
}

/// The modes at true rate.
const MODES: [(&str, System, Keeping); 6] = [
    ("linear, unmodified", System::Unmodified, Keeping::List(BLOCKS)),
    ("linear, TCP (swap)", System::Swapped, Keeping::List(BLOCKS)),
    ("linear, negotiated", System::Negotiated, Keeping::List(BLOCKS)),
    ("linear, HTTP (client closes)", System::ClientCloses, Keeping::List(BLOCKS)),
    ("ours, unmodified", System::Unmodified, Keeping::Records(1 << 20)),
    ("ours, negotiated", System::Negotiated, Keeping::Records(1 << 20)),
];

fn speed(report: &mut Report, seeds: Range<u64>) -> Outcome {
    report.say("Speed, saturated, at this machine's rate; TIME-WAIT of 1 s");
    let mut found = vec![Vec::new(); MODES.len()];
    // They take turns, so that changes on the machine affect all of them.
    for seed in seeds {
        for ((_, system, keeping), found) in MODES.iter().zip(&mut found) {
            found.push(timed(*system, *keeping, seed).see());
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
    let gain = |of: usize, to: usize, value: fn(&Seen) -> f64| {
        let ratios: Vec<Seen> = found[of].clone();
        let pairs = ratios.iter().zip(&found[to]).map(|(of, to)| value(of) / value(to));
        crate::statistics::mean_and_deviation(&pairs.collect::<Vec<f64>>())
    };
    for (name, of) in [("TCP (swap)", 1), ("negotiated", 2), ("HTTP (client closes)", 3)] {
        let rate = gain(of, 0, |seen| seen.connections);
        let bits = gain(of, 0, |seen| seen.bits);
        report.claim_alone(
            &format!("linear, {name}: a quarter more connections and throughput, at least"),
            rate.0 >= 1.25 && bits.0 >= 1.25,
            format!(
                "{} and {} times as many (paper: 1.26 and 1.26 for TCP, 1.52 and 1.51 for HTTP)",
                cell(rate, 1),
                cell(bits, 1)
            ),
        );
    }
    let ours = gain(4, 5, |seen| seen.connections);
    report.observe(
        "ours serves as many whoever holds TIME-WAIT",
        (ours.0 - 1.0).abs() < 0.1,
        format!("{} times as many with it as without", cell(ours, 2)),
    );
    Ok(())
}
