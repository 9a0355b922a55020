//! Short answers whose last segments are lost: no later segment tells of it (RFC 8985 §7).

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::download::Client;
use super::site::{Links, Site};
use super::tail_loss::{TailLoss, Tails};
use super::{Sender, open_goal};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
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
/// How late a timer may be, and the router: on a machine with nothing else to do.
const TIMER: Duration = Duration::from_millis(10);
const NOT_JUDGED: &str = "no quiet run yet";

/// The answers of one sender, of one length, with so many segments lost.
struct Found {
    sender: Sender,
    length: usize,
    losses: u32,
    /// From the request to the last byte, in ms, sorted.
    took_ms: Vec<f64>,
    /// From the last new segment to the first repeated one, in ms, sorted.
    repaired_ms: Vec<f64>,
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let answers = if is_quick { QUICK_ANSWERS } else { ANSWERS };
    let losses = if is_quick { &QUICK_LOSSES[..] } else { &LOSSES[..] };
    let site = Site::lay(report, &LENGTHS)?;
    let mut all = Vec::new();
    let mut record = fs::File::create(report.path("runs.csv"))?;
    writeln!(record, "sender,bytes,segments lost,ms,repeated after ms")?;
    for length in LENGTHS {
        for losses in losses {
            for sender in Sender::all() {
                let found = measure(&site, sender, (length, *losses), answers, &mut record)?;
                let [median, most] = [0.5, 0.99].map(|part| quantile(&found.took_ms, part));
                report.say(format!(
                    "{}, {length} B, {losses} lost: median {median:.0} ms, p99 {most:.0} ms",
                    sender.name()
                ));
                all.push(found);
            }
        }
    }
    show(report, &all)?;
    judge_beside_linux(report, &all);
    judge_repairs(report, &all);
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
        Box::new(TailLoss { device, losses, least, tails: noted }) as Box<_>
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
            Ok(found.collect::<Result<Vec<_>, String>>()?.concat())
        })
    };
    let (took, _) = site.routed(&links, 1, wrap, body)?;
    let tails = tails.lock().map_err(|_| "the router panicked")?;
    let (mut took_ms, mut repaired_ms) = (Vec::new(), Vec::new());
    for (port, took) in took {
        let tail = tails.get(&port).ok_or("an answer that the router did not see")?;
        if tail.lost != losses {
            return Err(format!("{} segments were lost, not {losses}", tail.lost).into());
        }
        let took = took.as_secs_f64() * 1e3;
        let repaired = tail.repeated_at.zip(tail.sent_at);
        let repaired = repaired.map(|(at, sent)| at.duration_since(sent).as_secs_f64() * 1e3);
        let told = repaired.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        writeln!(record, "\"{}\",{length},{losses},{took:.1},{told}", sender.name())?;
        took_ms.push(took);
        repaired_ms.extend(repaired);
    }
    took_ms.sort_by(f64::total_cmp);
    repaired_ms.sort_by(f64::total_cmp);
    Ok(Found { sender, length, losses, took_ms, repaired_ms })
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
        "repeated after ms, median",
        "repeated after ms, p99",
    ]);
    for Found { sender, length, losses, took_ms, repaired_ms } in all {
        let at = |values, part| format!("{:.1}", quantile(values, part));
        table.row(&[
            &sender.name(),
            length,
            losses,
            &took_ms.len(),
            &at(took_ms, 0.5),
            &at(took_ms, 0.99),
            &at(repaired_ms, 0.5),
            &at(repaired_ms, 0.99),
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
        let [mine, theirs] = [ours, linux].map(|found| quantile(&found.took_ms, 0.99));
        open_goal(
            report,
            NOT_JUDGED,
            &format!(
                "{}: {} bytes without their last {}: p99 is no more than Linux's",
                ours.sender.name(),
                ours.length,
                ours.losses
            ),
            mine <= theirs,
            format!("{mine:.0} against {theirs:.0} ms"),
        );
    }
}

/// A probe leaves within two round trips after the last new segment, and the bound of its timer.
fn judge_repairs(report: &mut Report, all: &[Found]) {
    let most_ms = (2 * RTT + TIMER).as_secs_f64() * 1e3;
    for sender in Sender::all() {
        let its = all.iter().filter(|found| found.sender.name() == sender.name());
        let its = its.filter(|found| found.losses > 0);
        let medians = its.map(|found| quantile(&found.repaired_ms, 0.5));
        let longest = medians.fold(0.0, f64::max);
        let claim = format!(
            "{}: something is sent again within 2 SRTT and {TIMER:?} of the last segment (median)",
            sender.name()
        );
        let found = format!("{longest:.0} ms at most, bound {most_ms:.0} ms");
        match sender.is_ours() {
            true => open_goal(report, NOT_JUDGED, &claim, longest <= most_ms, found),
            false => report.observe(&claim, longest <= most_ms, found),
        }
    }
}
