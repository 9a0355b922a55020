//! Short answers whose last segments are lost: no later segment tells of it (RFC 8985 §7).
//!
//! ```text
//!   sender    data data data ·· ACK ·························· again
//!                               └─ silence: 2 SRTT, and 60 ms where a lone segment is out ─┘
//! ```
//!
//! The sender's silence is measured from what it sent or heard last: RFC 8985 §7.2 has new data and
//! an acknowledgement that advances start the probe's timer anew, at 2 SRTT, and has a sender add
//! what a receiver may delay its ACK by where one segment is out. Ours adds 60 ms.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::download::Client;
use super::median::Median;
use super::site::{Links, Site};
use super::tail_loss::{TailLoss, Tails};
use super::{COUNTED, COUNTING, Sender};
use crate::ablation::Ablation;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use crate::routed::AnyDevice;
use crate::statistics::quantile;

const RTT: Duration = Duration::from_millis(40);
/// Bytes of answers.
const LENGTHS: [usize; 2] = [10_000, 100_000];
/// Segments lost at the end.
const LOSSES: [u32; 4] = [0, 1, 2, 5];
const QUICK_LOSSES: [u32; 2] = [1, 2];
/// Clients at a time, and answers for each.
const CLIENTS: usize = 5;
const ANSWERS: usize = 200;
const QUICK_ANSWERS: usize = 6;
const LIMIT: Duration = Duration::from_secs(20);
/// What an answer's own segments add to the round trip: forty of them pass in this time at the
/// link's rate.
const QUEUE: Duration = Duration::from_millis(5);
/// How late a timer may be, and the router: on a machine with nothing else to do.
const TIMER: Duration = Duration::from_millis(10);
/// What ours adds where the ACK of a lone segment may be delayed.
const LATE_ACK: Duration = Duration::from_millis(60);

const PATIENT: Ablation = Ablation {
    name: "patient",
    instead: "ours probes for nothing, and its timeout is a second and the round trip",
};
const WAITING: &[&str] = &["--set", "congestion.detection=count", "--set", "rto.floor=1s"];

/// The answers of one sender, of one length, with so many segments lost.
struct Found {
    sender: Sender,
    length: usize,
    losses: u32,
    /// From the request to the last byte, in ms, sorted: those of each client.
    took_ms: Vec<Vec<f64>>,
    /// How long the sender was silent before it sent something again, in ms.
    silent_ms: Vec<f64>,
}

impl Found {
    /// A quantile of the answers' times: the median over the clients, with their least and their
    /// greatest.
    fn took(&self, part: f64) -> Median {
        Median::of(self.took_ms.iter().map(|of_client| quantile(of_client, part)))
    }

    /// How long a sender like ours may be silent: a probe leaves after 2 SRTT, and for a lone
    /// segment after what its ACK may be late as well.
    fn most_silence_ms(&self) -> f64 {
        let srtt = RTT + QUEUE;
        let late = if self.losses == 1 { LATE_ACK } else { Duration::ZERO };
        (2 * srtt + late + TIMER).as_secs_f64() * 1e3
    }

    fn name(&self) -> String {
        format!("{}: {} bytes without their last {}", self.sender.name(), self.length, self.losses)
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let losses = if is_quick { &QUICK_LOSSES[..] } else { &LOSSES[..] };
    let mut site = Site::lay(report, &LENGTHS)?;
    let instead = [(&COUNTED, COUNTING), (&PATIENT, WAITING)];
    let ablated = instead.into_iter().find(|(ablation, _)| report.is_ablated(ablation));
    site.flags = ablated.map_or(&[], |(_, flags)| flags);
    let answers = if is_quick || ablated.is_some() { QUICK_ANSWERS } else { ANSWERS };
    let mut all = Vec::new();
    let mut record = fs::File::create(report.path("runs.csv"))?;
    writeln!(record, "sender,bytes,segments lost,ms,silent ms")?;
    for length in LENGTHS {
        for losses in losses {
            for sender in Sender::all() {
                let found = measure(&site, sender, (length, *losses), answers, &mut record)?;
                let [median, most] = [0.5, 0.99].map(|part| found.took(part));
                let name = found.name();
                report.say(format!("{name}: median {median:.0} ms, p99 {most:.0} ms"));
                all.push(found);
            }
        }
    }
    show(report, &all)?;
    judge_beside_linux(report, &all);
    judge_silence(report, &all);
    Ok(())
}

fn measure(
    site: &Site,
    sender: Sender,
    (length, losses): (usize, u32),
    answers: usize,
    record: &mut fs::File,
) -> Result<Found, Failure> {
    let source = site.start(sender, &[])?;
    let tails: Tails = Arc::new(Mutex::new(HashMap::new()));
    let links = Links::new(RTT.as_millis() as u32, "100Mbit", "1MiB", "");
    let noted = tails.clone();
    let wrap = move |device| {
        let least = LENGTHS[0] as u32;
        Box::new(TailLoss { device, losses, least, tails: noted.clone() }) as AnyDevice
    };
    let body = || {
        site.greet(&source)?;
        thread::scope(|scope| {
            let one = || ask(site, source.address, length, answers).map_err(|why| why.to_string());
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
            let found = clients.into_iter().map(|client| {
                let found = client.join().map_err(|_| "a client panicked".to_owned());
                found.and_then(|found| found)
            });
            Ok(found.collect::<Result<Vec<_>, String>>()?)
        })
    };
    let (took, _) = site.routed(&links, 1, wrap, body)?;
    let tails = tails.lock().map_err(|_| "the router panicked")?;
    let (mut took_ms, mut silent_ms) = (Vec::new(), Vec::new());
    for of_client in took {
        let mut its_ms = Vec::new();
        for (port, took) in of_client {
            let tail = tails.get(&port).ok_or("an answer that the router did not see")?;
            if tail.lost != losses {
                return Err(format!("{} segments were lost, not {losses}", tail.lost).into());
            }
            let took = took.as_secs_f64() * 1e3;
            let silent = tail.silence().map(|silence| silence.as_secs_f64() * 1e3);
            let told = silent.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
            writeln!(record, "\"{}\",{length},{losses},{took:.1},{told}", sender.name())?;
            its_ms.push(took);
            silent_ms.extend(silent);
        }
        its_ms.sort_by(f64::total_cmp);
        took_ms.push(its_ms);
    }
    Ok(Found { sender, length, losses, took_ms, silent_ms })
}

/// Requests one answer after another, each on a connection of its own. Returns the client's ports
/// with the times from the request on.
fn ask(
    site: &Site,
    server: std::net::SocketAddr,
    length: usize,
    answers: usize,
) -> Result<Vec<(u16, Duration)>, Failure> {
    let mut found = Vec::with_capacity(answers);
    for _ in 0..answers {
        let mut client = Client::open(&site.clients, server, LIMIT)?;
        let begun = Instant::now();
        let download = client.get(length, begun, LIMIT)?;
        if !download.is_complete {
            return Err(format!("an answer is not complete within {LIMIT:?}").into());
        }
        found.push((client.port()?, download.took));
    }
    Ok(found)
}

fn show(report: &mut Report, all: &[Found]) -> Outcome {
    let mut table = Table::new(&[
        "sender",
        "bytes",
        "segments lost",
        "answers",
        "median ms",
        "p99 ms",
        "silent ms, median",
    ]);
    for found in all {
        let Found { sender, length, losses, took_ms, silent_ms } = found;
        table.row(&[
            &sender.name(),
            length,
            losses,
            &took_ms.iter().map(Vec::len).sum::<usize>(),
            &format!("{:.1}", found.took(0.5)),
            &format!("{:.1}", found.took(0.99)),
            &format!("{:.1}", Median::of(silent_ms.iter().copied())),
        ]);
    }
    report.table("tails", &table)
}

fn judge_beside_linux(report: &mut Report, all: &[Found]) {
    for ours in all.iter().filter(|found| found.sender.is_ours() && found.losses > 0) {
        let is_its = |found: &&Found| {
            !found.sender.is_ours()
                && found.sender.controller() == ours.sender.controller()
                && (found.length, found.losses) == (ours.length, ours.losses)
        };
        let Some(linux) = all.iter().find(is_its) else { continue };
        let [mine, theirs] = [ours, linux].map(|found| found.took(0.99));
        report.claim(
            &format!("{}: p99 of a client, in the median, is Linux's or less", ours.name()),
            &PATIENT,
            mine.median <= theirs.median,
            format!("{mine:.0} against {theirs:.0} ms"),
        );
    }
}

/// What is lost is sent again within 2 SRTT of silence, and a lone segment within 60 ms more.
fn judge_silence(report: &mut Report, all: &[Found]) {
    for found in all.iter().filter(|found| found.losses > 0) {
        let (silent, most) = (Median::of(found.silent_ms.iter().copied()), found.most_silence_ms());
        let within = if found.losses == 1 { "2 SRTT and 60 ms" } else { "2 SRTT" };
        let claim = format!("{}: silent for no longer than {within} (median)", found.name());
        let (holds, told) = (silent.most <= most, format!("{silent:.0} ms, bound {most:.0} ms"));
        match found.sender.is_ours() {
            true => report.claim(&claim, &COUNTED, holds, told),
            false => report.observe(&claim, holds, told),
        }
    }
}
