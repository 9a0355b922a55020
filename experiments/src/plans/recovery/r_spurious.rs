//! Delay spikes without loss: a retransmission timeout in one is spurious, and what it took from
//! the window should be given back (RFC 5682, RFC 4015).
//!
//! The round trip is 200 ms, and the queue holds one: there half of a window leaves half of the
//! link unused for long. At 40 ms a window that was not given back has grown again 2 s later. BBR's
//! rate does not follow from its window: of BBR only what was sent again is claimed.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::download::download;
use super::median::Median;
use super::rates::sent_counts;
use super::site::{Links, Site};
use super::{COUNTED, COUNTING, Sender};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 1;
const RTT_MS: u32 = 200;
/// A queue of one round trip: Reno keeps the link full, and what a spike takes shows.
const QUEUE: &str = "1250KB";
const FILE_BYTES: usize = 200_000_000;
/// Ours holds more than the path and its queue; the kernel's buffers grow as far.
const BUFFERS: &[&str] = &["--set", "buffers.send=8388608"];
/// When the download begins and the spike comes, after the router's start, and how long packets
/// that come then are late by more. None overtakes: the later ones wait behind them.
const BEGINS: Duration = Duration::from_secs(2);
const SPIKE_AT: Duration = Duration::from_secs(7);
const SPIKE_ENDS_AFTER_MS: u32 = 10;
/// Goodput is compared from so long after the spike's end on, and for so long.
const AFTER: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(3);
/// What of the goodput without a spike there should be.
const FULL: f64 = 0.95;
/// Timeouts and what is sent again count from so long before a spike until so long after it.
const AROUND: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// Segments sent again for a spike, at most: one for each timeout, and as many again. In virtual
/// time there are one or two, and 40 to 60 where all counts as lost that is on its way.
const SENT_AGAIN: f64 = 10.0;
/// Lengths of the spike in ms. 0 is no spike.
const SPIKES_MS: [u64; 5] = [0, 300, 600, 1000, 2000];
const QUICK_SPIKES_MS: [u64; 2] = [0, 1000];

/// One run: goodput in each interval, from the download's beginning.
#[derive(Clone, Debug)]
struct Found {
    spike_ms: u64,
    sender: Sender,
    download: super::download::Download,
    timeouts: u64,
    sent_again: u64,
}

impl Found {
    /// Goodput in Mbit/s in the time that counts after a spike of that length.
    fn after(&self, spike_ms: u64) -> f64 {
        let end = SPIKE_AT - BEGINS + Duration::from_millis(spike_ms) + AFTER;
        self.download.mbit_between(end, end + MEASURED)
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let is_quick = report.is_quick();
    let seeds = report.seeds(if is_quick { QUICK_SEEDS } else { SEEDS });
    let spikes = if is_quick { &QUICK_SPIKES_MS[..] } else { &SPIKES_MS[..] };
    let mut site = Site::lay(report, &[FILE_BYTES])?;
    let senders = match report.is_ablated(&COUNTED) {
        true => {
            site.flags = COUNTING;
            Sender::ours()
        }
        false => Sender::all(),
    };
    let mut record = fs::File::create(report.path("runs.csv"))?;
    writeln!(record, "spike ms,sender,seed,timeouts,sent again,bytes in each 100 ms")?;
    let mut all = Vec::new();
    for seed in seeds {
        for spike_ms in spikes {
            let steps = report.path(&format!("spike-{spike_ms}.toml"));
            fs::write(&steps, steps_text(*spike_ms))?;
            let mut links = Links::new(RTT_MS, "50Mbit", QUEUE, "");
            links.steps = Some(steps);
            for sender in &senders {
                let found = run_once(&site, *sender, &links, (*spike_ms, spikes), seed)?;
                let marks: Vec<String> =
                    found.download.marks.iter().map(ToString::to_string).collect();
                let Found { timeouts, sent_again, .. } = found;
                let (name, marks) = (sender.name(), marks.join(" "));
                writeln!(record, "{spike_ms},\"{name}\",{seed},{timeouts},{sent_again},{marks}")?;
                let after = found.after(*spike_ms);
                let told = format!("{sent_again} sent again, {after:.1} Mbit/s later");
                report.say(format!("{spike_ms} ms, {name}, {seed}: {told}"));
                all.push(found);
            }
        }
    }
    judge(report, &all, spikes, &senders)
}

/// The steps of the router for a spike; none for 0 ms.
fn steps_text(spike_ms: u64) -> String {
    if spike_ms == 0 {
        return String::new();
    }
    let (usual, at) = (u64::from(RTT_MS) * 500, SPIKE_AT.as_millis());
    let late = usual + spike_ms * 1000;
    let end = at + u128::from(SPIKE_ENDS_AFTER_MS);
    format!(
        "[[step]]\nat = \"{at}ms\"\na-to-b = \"delay={late}us\"\n\
         [[step]]\nat = \"{end}ms\"\na-to-b = \"delay={usual}us\"\n"
    )
}

fn run_once(
    site: &Site,
    sender: Sender,
    links: &Links,
    (spike_ms, spikes): (u64, &[u64]),
    seed: u64,
) -> Result<Found, Failure> {
    // The run without a spike lasts as long as any: it is compared with each.
    let longest = if spike_ms == 0 { spikes.iter().copied().max().unwrap_or(0) } else { spike_ms };
    let limit = SPIKE_AT - BEGINS + Duration::from_millis(longest) + AFTER + MEASURED;
    let mut source = site.start(sender, BUFFERS)?;
    let body = || {
        let began = Instant::now();
        site.greet(&source)?;
        let wait = BEGINS.checked_sub(began.elapsed()).ok_or("the first request took too long")?;
        thread::sleep(wait);
        let address = source.address;
        thread::scope(|scope| {
            let download = || download(&site.clients, address, FILE_BYTES, limit);
            let client = scope.spawn(move || download().map_err(|why| why.to_string()));
            let ends = SPIKE_AT + Duration::from_millis(spike_ms);
            let mut counts = [[0; 3]; 2];
            for (counts, at) in counts.iter_mut().zip([SPIKE_AT - AROUND[0], ends + AROUND[1]]) {
                thread::sleep(at.saturating_sub(began.elapsed()));
                *counts = sent_counts(site, &mut source)?;
            }
            let found = client.join().map_err(|_| "a client panicked")??;
            let [before, after] = counts;
            Ok((found, [0, 1].map(|count: usize| after[count].saturating_sub(before[count]))))
        })
    };
    let ((download, [sent_again, timeouts]), _) =
        site.routed(links, seed, |device| device, body)?;
    Ok(Found { spike_ms, sender, download, timeouts, sent_again })
}

fn judge(report: &mut Report, all: &[Found], spikes: &[u64], senders: &[Sender]) -> Outcome {
    let head = ["spike ms", "sender", "Mbit/s after", "of those without", "timeouts", "sent again"];
    let mut table = Table::new(&head);
    let mut all_of = Vec::new();
    for sender in senders {
        let of = |spike_ms: u64| -> Vec<&Found> {
            let is_its =
                |found: &&Found| found.sender.name() == sender.name() && found.spike_ms == spike_ms;
            all.iter().filter(is_its).collect()
        };
        for spike_ms in spikes.iter().copied().filter(|spike_ms| *spike_ms > 0) {
            let after = |found: Vec<&Found>| -> Vec<f64> {
                found.iter().map(|found| found.after(spike_ms)).collect()
            };
            let (with, without) = (after(of(spike_ms)), after(of(0)));
            let ratio = Median::of_ratios(&with, &without);
            let timeouts = Median::of(of(spike_ms).iter().map(|found| found.timeouts as f64));
            let repeats = Median::of(of(spike_ms).iter().map(|found| found.sent_again as f64));
            table.row(&[
                &spike_ms,
                &sender.name(),
                &format!("{:.1}", Median::of(with)),
                &ratio,
                &timeouts.median,
                &format!("{repeats:.0}"),
            ]);
            all_of.push((*sender, spike_ms, ratio, repeats));
        }
    }
    report.table("spikes", &table)?;
    for sender in senders {
        let its = || all_of.iter().filter(|(one, ..)| one.name() == sender.name());
        let most = its().max_by(|a, b| a.3.most.total_cmp(&b.3.most));
        let least = its().min_by(|a, b| a.2.least.total_cmp(&b.2.least));
        let (Some((_, at, _, repeats)), Some((_, slowest, ratio, _))) = (most, least) else {
            continue;
        };
        let name = sender.name();
        let claim = format!("{name}: {SENT_AGAIN} segments or fewer are sent again for a spike");
        let (holds, found) = (repeats.most <= SENT_AGAIN, format!("{repeats:.0} for {at} ms"));
        // The first overflow of CUBIC's queue may come as late as the spike.
        match sender {
            Sender::Ours("bbr") => report.claim(&claim, &COUNTED, holds, found),
            _ => report.observe(&claim, holds, found),
        }
        let claim =
            format!("{name}: from 2 s after a spike on goodput is within 5 % of that without one");
        let (holds, found) = (ratio.least >= FULL, format!("{ratio} times after {slowest} ms"));
        match sender {
            Sender::Ours("reno" | "cubic") => report.claim(&claim, &COUNTED, holds, found),
            _ => report.observe(&claim, holds, found),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_comes_and_goes() {
        assert_eq!(steps_text(0), "");
        let text = steps_text(300);
        assert!(text.contains("at = \"7000ms\"\na-to-b = \"delay=400000us\""), "{text}");
        assert!(text.ends_with("at = \"7010ms\"\na-to-b = \"delay=100000us\"\n"), "{text}");
    }
}
