//! Downloads by each sender at each of some points, by turns, and their goodput.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::time::Duration;

use super::Sender;
use super::download::{Download, download};
use super::median::Median;
use super::site::{Links, Site, Source};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

/// Retransmissions that a receiver found needless: D-SACKs that it sent.
const NEEDLESS: [&str; 2] = ["TCPDSACKOldSent", "TCPDSACKOfoSent"];
/// Recoveries and timeouts that Linux undid.
const UNDONE: [&str; 4] = ["TCPFullUndo", "TCPPartialUndo", "TCPDSACKUndo", "TCPLossUndo"];
/// The columns of `runs.csv`.
const RECORDED: &str = "point,sender,seed,Mbit/s,s,complete,lost,sent again,timeouts,needless,\
                        undone,late us p99";
/// Time for the receiver's last D-SACKs to be counted.
const REST: Duration = Duration::from_millis(50);

/// A point of the sweep.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) name: String,
    pub(super) links: Links,
}

/// A file, and the time after which its download is cut. Goodput counts until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) file_bytes: usize,
    pub(super) limit: Duration,
}

/// What one download cost.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) download: Download,
    /// Packets of data that the link lost or dropped.
    pub(super) lost: u64,
    pub(super) sent_again: u64,
    pub(super) timeouts: u64,
    pub(super) needless: u64,
    pub(super) undone: u64,
    /// How late packets left the router, 99th percentile, in µs.
    pub(super) late_us: f64,
}

/// Downloads one file by one sender over these links.
pub(super) fn run_once(
    site: &Site,
    sender: Sender,
    links: &Links,
    seed: u64,
    extent: Extent,
) -> Result<Found, Failure> {
    let mut source = site.start(sender, &[])?;
    let body = || {
        site.greet(&source)?;
        let (receiver, before) = (site.receiver_counts()?, sent_counts(site, &mut source)?);
        let found = download(&site.clients, source.address, extent.file_bytes, extent.limit)?;
        std::thread::sleep(REST);
        let needless = site.receiver_counts()?.since(&receiver, &NEEDLESS);
        let after = sent_counts(site, &mut source)?;
        Ok((found, needless, std::array::from_fn(|n| after[n].saturating_sub(before[n]))))
    };
    let ((download, needless, [sent_again, timeouts, undone]), snapshot) =
        site.routed(links, seed, |device| device, body)?;
    let forth = &snapshot.ways[0];
    let late_us = forth.lateness.percentile(99.0).as_secs_f64() * 1e6;
    let lost = forth.flows.iter().map(|flow| flow.lost).sum();
    Ok(Found { download, lost, sent_again, timeouts, needless, undone, late_us })
}

/// What was sent again, timeouts, and what was undone.
pub(super) fn sent_counts(site: &Site, source: &mut Source) -> Result<[u64; 3], Failure> {
    let ours = source.counters(["retransmits", "timeouts", "recoveries_undone"])?;
    Ok(match ours {
        Some(counts) => counts,
        None => {
            let counts = site.linux_counts()?;
            [&["RetransSegs"][..], &["TCPTimeouts"], &UNDONE].map(|names| counts.sum(names))
        }
    })
}

/// The results of all runs: by point, sender and seed.
pub(super) struct Runs {
    pub(super) points: Vec<Point>,
    pub(super) senders: Vec<Sender>,
    found: Vec<Vec<Vec<Found>>>,
}

impl Runs {
    /// Downloads with each seed at each point by each sender. Each result is written to `runs.csv`
    /// as soon as it is known: a run that is cut leaves all that was measured.
    pub(super) fn measure(
        report: &Report,
        site: &Site,
        (points, senders): (Vec<Point>, Vec<Sender>),
        seeds: Range<u64>,
        extent: Extent,
    ) -> Result<Runs, Failure> {
        let mut found = vec![vec![Vec::new(); senders.len()]; points.len()];
        let mut record = fs::File::create(report.path("runs.csv"))?;
        writeln!(record, "{RECORDED}")?;
        // The senders take turns, since the machine's speed varies.
        for seed in seeds {
            for (at_point, point) in found.iter_mut().zip(&points) {
                for (of_sender, sender) in at_point.iter_mut().zip(&senders) {
                    let one = run_once(site, *sender, &point.links, seed, extent)?;
                    let line = recorded(point, *sender, seed, &one);
                    report.say(&line);
                    writeln!(record, "{line}")?;
                    of_sender.push(one);
                }
            }
        }
        Ok(Runs { points, senders, found })
    }

    fn of(&self, point: usize, sender: Sender) -> Option<&[Found]> {
        let place = self.senders.iter().position(|one| *one == sender)?;
        Some(&self.found[point][place])
    }

    fn values(&self, point: usize, sender: Sender, value: fn(&Found) -> f64) -> Vec<f64> {
        self.of(point, sender).into_iter().flatten().map(value).collect()
    }

    /// Goodput in Mbit/s.
    pub(super) fn mbit(&self, point: usize, sender: Sender) -> Median {
        Median::of(self.values(point, sender, |found| found.download.mbit()))
    }

    /// Goodput of one sender over that of another with the same seeds.
    pub(super) fn ratio(&self, point: usize, ours: Sender, theirs: Sender) -> Median {
        let mbit = |sender| self.values(point, sender, |found| found.download.mbit());
        Median::of_ratios(&mbit(ours), &mbit(theirs))
    }

    /// The point of that name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.points.iter().position(|point| point.name == name)
    }

    /// Ours with its least median ratio to Linux with the same controller: where, and how much.
    pub(super) fn worst(&self, controller: &'static str) -> (&Point, Median) {
        let (ours, theirs) = (Sender::Ours(controller), Sender::Linux(controller));
        let ratios = (0..self.points.len())
            .map(|place| (&self.points[place], self.ratio(place, ours, theirs)));
        ratios.min_by(|a, b| a.1.median.total_cmp(&b.1.median)).expect("there are points")
    }

    /// The least median goodput of a sender at the points from one on, in words.
    pub(super) fn least(&self, sender: Sender, from: usize) -> String {
        let medians = (from..self.points.len()).map(|place| (place, self.mbit(place, sender)));
        let least = medians.min_by(|a, b| a.1.median.total_cmp(&b.1.median));
        least.map_or("no point".to_owned(), |(place, mbit)| {
            format!("{mbit:.1} Mbit/s at {}", self.points[place].name)
        })
    }

    fn all(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().flatten().flatten()
    }

    /// Writes the table, and says how late the router's packets were.
    pub(super) fn show(&self, report: &mut Report) -> Outcome {
        let head =
            ["point", "sender", "Mbit/s", "lost", "sent again", "timeouts", "needless", "undone"];
        let mut table = Table::new(&head);
        for (place, point) in self.points.iter().enumerate() {
            for sender in &self.senders {
                let median = |value| Median::of(self.values(place, *sender, value)).median;
                table.row(&[
                    &point.name,
                    &sender.name(),
                    &format!("{:.1}", self.mbit(place, *sender)),
                    &median(|found| found.lost as f64),
                    &median(|found| found.sent_again as f64),
                    &median(|found| found.timeouts as f64),
                    &median(|found| found.needless as f64),
                    &median(|found| found.undone as f64),
                ]);
            }
        }
        report.table("rates", &table)?;
        let late = Median::of(self.all().map(|found| found.late_us));
        let greatest = self.all().map(|found| found.late_us).fold(0.0, f64::max);
        report.observe(
            "the machine was quiet: packets left the router within 1 ms (p99, median of runs)",
            late.median < 1000.0,
            format!("{:.0} us; {greatest:.0} us in the worst run", late.median),
        );
        Ok(())
    }
}

fn recorded(point: &Point, sender: Sender, seed: u64, found: &Found) -> String {
    let Found { download, lost, sent_again, timeouts, needless, undone, late_us } = found;
    format!(
        "{},\"{}\",{seed},{:.2},{:.2},{},{lost},{sent_again},{timeouts},{needless},{undone},\
         {late_us:.0}",
        point.name,
        sender.name(),
        download.mbit(),
        download.took.as_secs_f64(),
        download.is_complete,
    )
}
