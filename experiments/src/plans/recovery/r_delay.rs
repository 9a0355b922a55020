//! How long packets of one long download wait in the link's queue, by what manages the queue.

use std::fs;
use std::io::Write;
use std::time::Duration;

use super::download::download;
use super::median::Median;
use super::site::{Links, Site};
use super::{NO_MODEL, Sender};
use crate::ablation::Ablation;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 2;
const RTT_MS: u32 = 40;
const FILE_BYTES: usize = 250_000_000;
const LENGTH: Duration = Duration::from_secs(20);
const QUICK_LENGTH: Duration = Duration::from_secs(4);
/// What manages a queue of 1 MiB: its name, the link's keys, and whether both ends use ECN.
const QUEUES: [(&str, &str, bool); 4] = [
    ("FIFO", "", false),
    ("CoDel", "codel=5ms:100ms", false),
    ("FQ-CoDel", "fq=1024,codel=5ms:100ms", false),
    // RFC 8257 §3.1 and its §4.1: a step.
    ("step mark", "mark=5ms", true),
];
const FIFO: usize = 0;
const CODEL: usize = 1;
/// How many times as long packets wait where a claim says that they wait longer: ten in virtual
/// time, behind the first two seconds.
const LONGER: f64 = 2.0;

const TAIL_DROP: Ablation =
    Ablation { name: "tail-drop", instead: "CoDel's queue drops where it is full, as FIFO" };

/// One run.
#[derive(Clone, Copy, Debug)]
struct Found {
    mbit: f64,
    /// Waits in ms: the median and the 99th percentile.
    wait_ms: [f64; 2],
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let seeds = report.seeds(if is_quick { QUICK_SEEDS } else { SEEDS });
    let length = if is_quick { QUICK_LENGTH } else { LENGTH };
    let mut site = Site::lay(report, &[FILE_BYTES])?;
    let mut queues = QUEUES;
    let compared = || vec![Sender::Ours("cubic"), Sender::Ours("bbr")];
    let senders = match (report.is_ablated(&NO_MODEL), report.is_ablated(&TAIL_DROP)) {
        (true, _) => {
            site.model = "cubic";
            compared()
        }
        (_, true) => {
            queues[CODEL].1 = queues[FIFO].1;
            compared()
        }
        _ => Sender::all(),
    };
    let mut found = vec![vec![Vec::new(); senders.len()]; queues.len()];
    let mut record = fs::File::create(report.path("runs.csv"))?;
    writeln!(record, "queue,sender,seed,Mbit/s,median ms,p99 ms")?;
    for seed in seeds {
        for (queue, at_queue) in queues.iter().zip(&mut found) {
            for (sender, of_sender) in senders.iter().zip(at_queue) {
                let one = run_once(&site, *sender, queue, seed, length)?;
                let Found { mbit, wait_ms: [median, most] } = one;
                let name = sender.name();
                let line = format!("{},\"{name}\",{seed},{mbit:.2},{median:.2},{most:.2}", queue.0);
                report.say(&line);
                writeln!(record, "{line}")?;
                of_sender.push(one);
            }
        }
    }
    show(report, &senders, &found)?;
    judge_waits(report, &senders, &found);
    judge(report, &senders, &found);
    Ok(())
}

fn run_once(
    site: &Site,
    sender: Sender,
    (_, keys, has_ecn): &(&str, &str, bool),
    seed: u64,
    length: Duration,
) -> Result<Found, Failure> {
    site.use_ecn(*has_ecn)?;
    let flags: &[&str] = if *has_ecn { &["--set", "ecn=passive"] } else { &["--set", "ecn=off"] };
    let source = site.start(sender, flags)?;
    let links = Links::new(RTT_MS, "50Mbit", "1MiB", keys);
    let body = || {
        site.greet(&source)?;
        download(&site.clients, source.address, FILE_BYTES, length)
    };
    let (download, snapshot) = site.routed(&links, seed, |device| device, body)?;
    let flow = snapshot.ways[0].flows.first().ok_or("no flow passed")?;
    let [median, most, _] = flow.delay.ok_or("no packet passed")?;
    let passage = Duration::from_micros(u64::from(RTT_MS) * 500);
    let wait_ms = [median, most].map(|delay| delay.saturating_sub(passage).as_secs_f64() * 1e3);
    Ok(Found { mbit: download.mbit(), wait_ms })
}

/// The medians over seeds of the 99th percentile of waits.
fn most_ms(found: &[Found]) -> Median {
    Median::of(found.iter().map(|one| one.wait_ms[1]))
}

fn show(report: &mut Report, senders: &[Sender], found: &[Vec<Vec<Found>>]) -> Outcome {
    let mut table = Table::new(&["queue", "sender", "Mbit/s", "wait ms, median", "wait ms, p99"]);
    for ((name, ..), at_queue) in QUEUES.iter().zip(found) {
        for (sender, found) in senders.iter().zip(at_queue) {
            let median = Median::of(found.iter().map(|one| one.wait_ms[0]));
            let mbit = Median::of(found.iter().map(|one| one.mbit));
            table.row(&[
                name,
                &sender.name(),
                &format!("{mbit:.1}"),
                &format!("{median:.1}"),
                &format!("{:.1}", most_ms(found)),
            ]);
        }
    }
    report.table("waits", &table)
}

/// Ours: what a managed queue takes from CUBIC's waits, and what BBR does by itself.
fn judge_waits(report: &mut Report, senders: &[Sender], found: &[Vec<Vec<Found>>]) {
    let of = |controller, queue: usize| {
        let place = senders.iter().position(|one| *one == Sender::Ours(controller));
        let found = place.map_or(&[][..], |place| &found[queue][place]);
        Median::of(found.iter().map(|one| one.wait_ms[0]))
    };
    let [cubic, bbr, by_codel] = [of("cubic", FIFO), of("bbr", FIFO), of("cubic", CODEL)];
    report.claim(
        "ours, cubic: behind CoDel packets wait half as long as behind FIFO, or less (median)",
        &TAIL_DROP,
        LONGER * by_codel.most <= cubic.least,
        format!("{by_codel:.1} against {cubic:.1} ms"),
    );
    report.claim(
        "ours: behind FIFO packets wait half as long by BBR as by CUBIC, or less (median)",
        &NO_MODEL,
        LONGER * bbr.most <= cubic.least,
        format!("{bbr:.1} against {cubic:.1} ms"),
    );
}

fn judge(report: &mut Report, senders: &[Sender], found: &[Vec<Vec<Found>>]) {
    for (place, sender) in senders.iter().enumerate() {
        let [fifo, codel] = [FIFO, CODEL].map(|queue| most_ms(&found[queue][place]));
        report.observe(
            &format!("{}: behind CoDel packets wait less than behind FIFO (p99)", sender.name()),
            codel.median < fifo.median,
            format!("{codel:.1} against {fifo:.1} ms"),
        );
        let Sender::Ours(controller) = *sender else { continue };
        let its = Sender::Linux(controller);
        let Some(linux) = senders.iter().position(|one| *one == its) else { continue };
        for ((queue, ..), at_queue) in QUEUES.iter().zip(found) {
            let [ours, linux] = [place, linux].map(|place| most_ms(&at_queue[place]));
            report.observe(
                &format!("{}: behind {queue} p99 is within a tenth of Linux's", sender.name()),
                ours.median <= 1.1 * linux.median,
                format!("{ours:.1} against {linux:.1} ms"),
            );
        }
    }
}
