//! The abstract's claim: overly conservative timeouts cause poor response time, low utilisation and
//! throughput loss. Tighter ones must not be bought with needless retransmissions. Our server makes
//! short HTTP transfers over a lossy path of 60 ms; only the server's estimator and its scheduling
//! clock differ.
//!
//! There are two workloads. *Each on a connection of its own*: the server's FIN is answered at
//! once, so that no timeout waits for a delayed ACK. *Lone segments*: answers of one segment each
//! on connections that stay, so that the ACK of each is delayed by 50 to 150 ms. Here a timeout
//! that does not cover path and delay causes repeats, and two settings are there to show that.

mod world;

use std::ops::Range;

use lightwait_core::config::{Estimator, Scheme, TcpConfig};
use lightwait_core::time::Duration;

use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};
use world::{CLIENTS, Found, LENGTH, RATE_BITS, Workload, run_world};

/// The paper's file: 6 KB, cached.
const SHORT: Workload =
    Workload { file_bytes: 6 * 1024, answers: 1, rest: Duration::ZERO, quick_acks: 16 };
const SHORT_LOSSES: [f64; 4] = [1.0, 2.0, 3.0, 5.0];
const SHORT_SEEDS: u64 = 5;

/// Clients that rest for longer than an ACK is delayed.
const LONE: Workload =
    Workload { file_bytes: 500, answers: 4, rest: Duration::from_millis(400), quick_acks: 0 };
const LONE_LOSSES: [f64; 3] = [0.0, 1.0, 5.0];
const LONE_SEEDS: u64 = 3;

/// A server's clocks and estimator.
struct Setting {
    name: &'static str,
    change: fn(&mut TcpConfig),
}

/// Indices in `SETTINGS`.
const BSD: usize = 0;
const FINE_500: usize = 2;
const FINE: usize = 3;
const RFC6298: usize = 4;
const RFC6298_1_MS: usize = 5;
/// The first workload compares the settings up to here.
const COMPARED: usize = 6;
const SMALL_FLOOR: usize = 6;
const NO_FLOOR: usize = 7;

const SETTINGS: [Setting; 8] = [
    Setting { name: "bsd", change: |tcp| scanned(tcp, Estimator::Bsd) },
    Setting {
        name: "bsd_brakmo_peterson",
        change: |tcp| scanned(tcp, Estimator::BsdBrakmoPeterson),
    },
    Setting {
        name: "fine, 500 ms ticks",
        change: |tcp| {
            (tcp.rto.estimator, tcp.clock.tick) = (Estimator::Fine, Duration::from_millis(500));
        },
    },
    Setting { name: "fine", change: |tcp| tcp.rto.estimator = Estimator::Fine },
    Setting { name: "rfc6298", change: |_| {} },
    Setting { name: "rfc6298, 1 ms clock", change: |tcp| tcp.clock.measure_hz = 1000 },
    Setting { name: "rfc6298, floor 1 ms", change: |tcp| tcp.rto.floor = Duration::from_millis(1) },
    Setting {
        name: "fine, no floor",
        change: |tcp| (tcp.rto.estimator, tcp.rto.floor) = (Estimator::Fine, Duration::ZERO),
    },
];

/// 4.4BSD's timers.
fn scanned(tcp: &mut TcpConfig, estimator: Estimator) {
    (tcp.timers, tcp.rto.estimator) = (Scheme::Scan, estimator);
}

/// Results by loss and setting.
type Grid = Vec<Vec<Found>>;

/// Runs every loss with every setting.
fn run_grid(
    workload: &Workload,
    losses: &[f64],
    settings: &[Setting],
    seeds: &Range<u64>,
) -> Result<Grid, Failure> {
    let found = parallel::map(losses.len() * settings.len(), |number| {
        let (loss, setting) = (number / settings.len(), number % settings.len());
        let mut found = Found::default();
        for seed in seeds.clone() {
            let mut tcp = TcpConfig::default();
            (settings[setting].change)(&mut tcp);
            run_world(workload, tcp, (losses[loss] / 100.0, seed), &mut found)?;
        }
        Ok(found)
    })?;
    Ok(found.chunks(settings.len()).map(<[Found]>::to_vec).collect())
}

/// A whole number; a dash if there were none, such as timeouts without loss.
fn whole_or_none(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}") } else { "-".to_owned() }
}

fn table(losses: &[f64], grid: &Grid) -> Table {
    let mut table = Table::new(&[
        "loss %",
        "estimator",
        "answers",
        "mean ms",
        "median ms",
        "p95 ms",
        "p99 ms",
        "kbit/s",
        "link %",
        "timeouts ‰",
        "RTO ms",
        "sent again ‰",
        "in vain ‰",
        "ACK lost ‰",
        "held ‰",
        "spurious ‰",
    ]);
    for (loss, row) in losses.iter().zip(grid) {
        for (setting, found) in SETTINGS.iter().zip(row) {
            let per_thousand = |count| format!("{:.1}", found.per_thousand(count));
            table.row(&[
                loss,
                &setting.name,
                &found.answers(),
                &format!("{:.1}", found.mean_ms()),
                &format!("{:.1}", found.median_ms()),
                &format!("{:.0}", found.quantile_ms(0.95)),
                &format!("{:.0}", found.quantile_ms(0.99)),
                &format!("{:.0}", found.throughput_kbits()),
                &format!("{:.1}", found.utilisation_percent()),
                &per_thousand(found.timeouts),
                &whole_or_none(found.median_timeout_ms()),
                &per_thousand(found.retransmits),
                &per_thousand(found.repeated),
                &per_thousand(found.unanswered),
                &per_thousand(found.held),
                &per_thousand(found.spurious),
            ]);
        }
    }
    table
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    report.say(format!(
        "{CLIENTS} clients, 60 ms, {} Mbit/s, worlds of {} s",
        RATE_BITS / 1_000_000,
        LENGTH.as_secs()
    ));
    report.say("‰: of the answers. RTO: median wait of what the timer sent again.");
    report.say(
        "In vain: the client had all of it. Of these, ACK lost: the cable lost the first ACK;",
    );
    report.say("held: no ACK covered it, as something before it was missing;");
    report.say("spurious: the first ACK was on its way, or being delayed, and came.\n");
    report.say(format!("{} B, each answer on a connection of its own", SHORT.file_bytes));
    let seeds = report.seeds(SHORT_SEEDS);
    let short = run_grid(&SHORT, &SHORT_LOSSES, &SETTINGS[..COMPARED], &seeds)?;
    report.table("response", &table(&SHORT_LOSSES, &short))?;
    report.say(format!("{} B in lone segments, whose ACK is delayed", LONE.file_bytes));
    let lone = run_grid(
        &LONE,
        &LONE_LOSSES,
        &SETTINGS,
        &(seeds.start..seeds.end.min(seeds.start + LONE_SEEDS)),
    )?;
    report.table("lone", &table(&LONE_LOSSES, &lone))?;
    benefits(report, &short);
    price(report, &short, &lone);
    let mut chart = Chart::new("Mean response time of 6 KB over 60 ms", "loss, %", "ms");
    for (number, setting) in SETTINGS[..COMPARED].iter().enumerate() {
        let line =
            SHORT_LOSSES.iter().zip(&short).map(|(loss, row)| (*loss, row[number].mean_ms()));
        chart.draw(setting.name, Mark::Line, line.collect());
    }
    report.picture("response", &chart)
}

/// Claims about the benefits of tighter timeouts, each over all losses against `bsd`.
fn benefits(report: &mut Report, all: &Grid) {
    // The fixes for `bsd` change little here: its ticks remain.
    let tighter = FINE_500..COMPARED;
    let compare = |better: fn(&Found, &Found) -> bool| {
        all.iter().all(|row| tighter.clone().all(|number| better(&row[number], &row[BSD])))
    };
    let spread = |of: fn(&Found) -> f64| {
        let last = &all[all.len() - 1];
        format!(
            "at 5 % loss {:.1} with bsd, {:.1} with fine, {:.1} with rfc6298",
            of(&last[BSD]),
            of(&last[FINE]),
            of(&last[RFC6298])
        )
    };
    report.claim(
        "tighter timeouts shorten response times (mean, ms)",
        compare(|ours, bsd| ours.mean_ms() < bsd.mean_ms()),
        spread(Found::mean_ms),
    );
    let first = &all[0];
    let factor = |number: usize| first[BSD].median_timeout_ms() / first[number].median_timeout_ms();
    report.value("factor_bsd_to_fine", factor(FINE));
    report.value("factor_bsd_to_rfc6298", factor(RFC6298));
    report.claim(
        "a lost segment is sent again sooner",
        compare(|ours, bsd| ours.median_timeout_ms() < bsd.median_timeout_ms()),
        format!(
            "at 1 % loss after {:.0} ms with bsd, {:.0} with fine ({:.1}x), {:.0} with rfc6298 \
             ({:.1}x)",
            first[BSD].median_timeout_ms(),
            first[FINE].median_timeout_ms(),
            factor(FINE),
            first[RFC6298].median_timeout_ms(),
            factor(RFC6298),
        ),
    );
    report.claim(
        "they raise throughput (kbit/s)",
        compare(|ours, bsd| ours.throughput_kbits() > bsd.throughput_kbits()),
        spread(Found::throughput_kbits),
    );
    report.claim(
        "and the link's utilisation (%)",
        compare(|ours, bsd| ours.utilisation_percent() > bsd.utilisation_percent()),
        spread(Found::utilisation_percent),
    );
}

/// Claims about their price: segments must not be repeated if they are on their way, or if their
/// ACK arrives in time.
fn price(report: &mut Report, short: &Grid, lone: &Grid) {
    let spurious = |found: &Found| found.per_thousand(found.spurious);
    let rises = |row: &Vec<Found>, number: usize| spurious(&row[number]) > spurious(&row[BSD]);
    // The finest of the paper's own has a claim of its own.
    let ours = [FINE_500, RFC6298, RFC6298_1_MS];
    let tight = short.iter().all(|row| (FINE_500..COMPARED).all(|number| !rises(row, number)));
    let covered = lone.iter().all(|row| ours.iter().all(|number| !rises(row, *number)));
    let (first, last) = (&lone[0], &lone[lone.len() - 1]);
    report.claim(
        "without more spurious retransmissions, even where every ACK is delayed (‰ of answers)",
        tight && covered,
        format!(
            "at 0 and 5 % loss {:.1} and {:.1} with bsd, {:.1} and {:.1} with rfc6298",
            spurious(&first[BSD]),
            spurious(&last[BSD]),
            spurious(&first[RFC6298]),
            spurious(&last[RFC6298])
        ),
    );
    report.claim(
        "which timeouts that do not cover path and delay would show (‰ of answers)",
        lone.iter().all(|row| [SMALL_FLOOR, NO_FLOOR].iter().all(|number| rises(row, *number))),
        format!(
            "at 0 % loss {:.1} with rfc6298 and a floor of 1 ms, {:.1} with fine and none",
            spurious(&first[SMALL_FLOOR]),
            spurious(&first[NO_FLOOR])
        ),
    );
    let between =
        |row: &Vec<Found>| rises(row, FINE) && spurious(&row[FINE]) < spurious(&row[NO_FLOOR]);
    report.claim(
        "and the paper's floor, 200 ms for path and delay together, does not quite cover (‰)",
        lone.iter().all(between),
        format!("at 0 % loss {:.1} with fine", spurious(&first[FINE])),
    );
    report.claim(
        "without loss nothing else is sent again",
        first.iter().all(|found| found.retransmits == found.spurious),
        format!("{} segments in all", first.iter().map(|found| found.retransmits).sum::<u64>()),
    );
    let explained =
        |found: &Found| found.repeated == found.unanswered + found.held + found.spurious;
    let in_vain = |found: &Found| found.per_thousand(found.repeated);
    let worst = &short[short.len() - 1];
    report.claim(
        "what else they send again in vain had lost its ACK, which no timeout can know (‰)",
        short.iter().chain(lone).flatten().all(explained)
            && short.iter().flatten().all(|found| found.spurious == 0),
        format!(
            "at 5 % loss {:.1} with bsd, {:.1} with fine, {:.1} with rfc6298: the later the timer, \
             the more often the client speaks first",
            in_vain(&worst[BSD]),
            in_vain(&worst[FINE]),
            in_vain(&worst[RFC6298])
        ),
    );
}
