//! Fig. 3 and §4.1: the cost of queueing a delayed acknowledgement. The paper's buckets cost 34 ns
//! and 28 instructions more than its flag, in a build without optimisation, including a reading of
//! the cycle counter; in our stack the time is already known. The claims are about instructions,
//! which other work on the machine does not change.

use lightwait_bench::instructions::{self, Uncounted};

use super::queueing::{self, Way};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// The paper's cost of buckets beyond a flag.
const PAPER_NS: f64 = 34.0;
const PAPER_INSTRUCTIONS: u32 = 28;
/// Requests a second at 1 Gbit/s: one for each 1460 bytes, by the paper's count.
pub(super) const REQUESTS: f64 = 1e9 / 8.0 / 1460.0;
/// Our own limit.
const INSTRUCTIONS: f64 = 12.0;

const FLAG: Ablation = Ablation { name: "a-flag", instead: "the buckets are a flag" };
const EAGER: Ablation =
    Ablation { name: "eager-wheel", instead: "the buckets are a timer each in an eager wheel" };

/// Said in place of claims about instructions.
pub(super) const ONLY_DIST: &str =
    "Claims about instructions are of `--profile dist` alone, and are left out here.";

/// Runs the sections for callgrind.
pub(crate) fn sections() {
    queueing::sections();
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let (ns, behind) = (queueing::overheads(), queueing::overheads_behind_work());
    let counts: Result<Vec<f64>, Uncounted> =
        Way::ALL.iter().map(|(_, name)| count(name)).collect();
    let mut table = Table::new(&[
        "queueing a delayed ACK",
        "ns",
        "ns behind a segment's work",
        "instructions",
        "paper, more than a flag",
    ]);
    for (number, (_, name)) in Way::ALL.iter().enumerate().skip(1) {
        let instructions = counts
            .as_ref()
            .map_or_else(|_| "–".to_owned(), |counts| format!("{:.1}", counts[number] - counts[0]));
        let paper = match *name {
            "buckets" => format!("{PAPER_NS} ns, {PAPER_INSTRUCTIONS} instructions"),
            "flag behind a lock" => "150 ns".to_owned(),
            _ => "–".to_owned(),
        };
        let [alone, behind] = [&ns, &behind].map(|ns| format!("{:.2}", ns[number]));
        table.row(&[name, &alone, &behind, &instructions, &paper]);
    }
    report.say("What a step takes more with a request than without:");
    report.table("queueing", &table)?;
    let buckets = ns[Way::Buckets as usize];
    let percent = |ns: f64, rate: f64| format!("{:.3} %", ns * rate / 1e7);
    report.say(format!(
        "At 1 Gbit/s a request with buckets, timers told, takes {} of a processor by one \
         request a segment (paper: 0.29 %), {} by one for every second.",
        percent(buckets, REQUESTS),
        percent(buckets, REQUESTS / 2.0)
    ));
    report.value("buckets_ns", buckets);
    claims(report, counts);
    let dearer = ns[Way::Wheel as usize] - buckets;
    report.observe("and takes longer", dearer > 0.0, format!("{dearer:.1} ns more"));
    let names = Way::ALL.map(|(_, name)| name);
    let mut chart =
        Chart::of_categories("What queueing a delayed ACK costs", &names[1..], "ns a request");
    let at = |way: Way| way as usize as f64 - 1.0;
    let bars = Way::ALL[1..].iter().map(|&(way, _)| (at(way), ns[way as usize].max(0.0)));
    chart.draw("ours", Mark::Bars, bars.collect());
    chart.draw("paper: buckets less flag", Mark::Points, vec![(at(Way::Request), PAPER_NS)]);
    chart.draw("paper: a lock pair", Mark::Points, vec![(at(Way::Locked), 150.0)]);
    report.picture("queueing", &chart)
}

/// Claims about the instructions of a step by each way.
fn claims(report: &mut Report, counts: Result<Vec<f64>, Uncounted>) {
    if !instructions::are_those_of_dist() {
        return report.say(ONLY_DIST);
    }
    match counts {
        Ok(counts) => {
            let [request, buckets] = match (report.is_ablated(&FLAG), report.is_ablated(&EAGER)) {
                (true, _) => [Way::Flag; 2],
                (_, true) => [Way::Wheel; 2],
                _ => [Way::Request, Way::Buckets],
            };
            let more = counts[request as usize] - counts[Way::Flag as usize];
            let wheel = counts[Way::Wheel as usize] - counts[buckets as usize];
            report.value("buckets_more_instructions", more);
            report.claim(
                "buckets cost more than a flag",
                &FLAG,
                more > 0.0,
                format!("{more:.1} more"),
            );
            report.claim(
                "but no more than 12 instructions",
                &EAGER,
                more <= INSTRUCTIONS,
                format!("{more:.1} instructions"),
            );
            report.claim(
                "an eager wheel costs more than buckets, when each is told",
                &EAGER,
                wheel > 0.0,
                format!("{wheel:.1} instructions more"),
            );
        }
        // Where every check must run, a missing tool is a failure.
        Err(why) => {
            report.check("instructions are counted", std::env::var_os("CI").is_none(), why);
        }
    }
}

/// Instructions of a step with a request of the scheme of that name.
pub(super) fn count(name: &str) -> Result<f64, Uncounted> {
    let counted = instructions::count(&["b-fig3".to_owned(), format!("--section={name}")])?;
    counted.ok_or_else(|| Uncounted::Failed(format!("no section {name}")))
}
