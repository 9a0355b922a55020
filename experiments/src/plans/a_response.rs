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

use lightwait_core::config::{Estimator, LossDetection, Scheme, TcpConfig};
use lightwait_core::time::Duration;

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::newreno;
use crate::report::{Report, Table};
use crate::statistics::Mean;
use world::{CLIENTS, Found, LENGTH, RATE_BITS, Workload, run_world};

/// The paper's file: 6 KB, cached.
const SHORT: Workload =
    Workload { file_bytes: 6 * 1024, answers: 1, rest: Duration::ZERO, quick_acks: 16 };
const SHORT_LOSSES: [f64; 4] = [1.0, 2.0, 3.0, 5.0];

/// Clients that rest for longer than an ACK is delayed.
const LONE: Workload =
    Workload { file_bytes: 500, answers: 4, rest: Duration::from_millis(400), quick_acks: 0 };
const LONE_LOSSES: [f64; 3] = [0.0, 1.0, 5.0];

const SEEDS: u64 = 10;

/// A server's clocks and estimator.
#[derive(Clone, Copy)]
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

const NOT_TIGHTER: Ablation =
    Ablation { name: "not-tighter", instead: "every setting has 4.4BSD's estimator and ticks" };
const UNCOVERED: Ablation = Ablation {
    name: "no-floor",
    instead: "no setting has a floor beneath its timeout, and every ACK is delayed",
};
const COVERED: Ablation =
    Ablation { name: "floors", instead: "every setting has the default's estimator and floor" };
const LOSSY: Ablation =
    Ablation { name: "lossy", instead: "the path that loses nothing loses 1 %" };

/// 4.4BSD's timers.
fn scanned(tcp: &mut TcpConfig, estimator: Estimator) {
    (tcp.timers, tcp.rto.estimator) = (Scheme::Scan, estimator);
}

/// The settings, or others in their place.
fn settings(report: &Report) -> [Setting; 8] {
    let all = |change| SETTINGS.map(|setting| Setting { change, ..setting });
    if report.is_ablated(&NOT_TIGHTER) {
        return all(|tcp| scanned(tcp, Estimator::Bsd));
    }
    if report.is_ablated(&COVERED) {
        return all(|_| {});
    }
    let mut settings = SETTINGS;
    if report.is_ablated(&UNCOVERED) {
        for setting in &mut settings[FINE_500..] {
            setting.change = SETTINGS[NO_FLOOR].change;
        }
    }
    settings
}

/// The most additional spurious retransmissions that are hardly any, in ‰ of the answers.
const HARDLY_MORE: f64 = 1.0;

/// The results of one loss and one setting.
#[derive(Clone)]
struct Cell {
    all: Found,
    by_seed: Vec<Found>,
}

impl Cell {
    /// How many times as much it has as another, of worlds of the same seed.
    fn times(&self, other: &Cell, of: fn(&Found) -> f64) -> Mean {
        Mean::of_pairs(&self.by_seed, &other.by_seed, |ours, theirs| of(ours) / of(theirs))
    }

    /// How much more it has than another, of worlds of the same seed.
    fn more(&self, other: &Cell, of: fn(&Found) -> f64) -> Mean {
        Mean::of_pairs(&self.by_seed, &other.by_seed, |ours, theirs| of(ours) - of(theirs))
    }
}

/// Results by loss and setting.
type Grid = Vec<Vec<Cell>>;

/// Runs every loss with every setting.
fn run_grid(
    workload: &Workload,
    losses: &[f64],
    settings: &[Setting],
    seeds: &Range<u64>,
) -> Result<Grid, Failure> {
    let found = parallel::map(losses.len() * settings.len(), |number| {
        let (loss, setting) = (number / settings.len(), number % settings.len());
        let run = |seed| {
            let mut tcp = newreno();
            // Found by time, no loss waits for the timeout that is compared here.
            tcp.congestion.detection = LossDetection::Count;
            (settings[setting].change)(&mut tcp);
            run_world(workload, tcp, (losses[loss] / 100.0, seed))
        };
        let by_seed = seeds.clone().map(run).collect::<Result<Vec<_>, _>>()?;
        Ok(Cell { all: Found::of_all(&by_seed), by_seed })
    })?;
    Ok(found.chunks(settings.len()).map(<[Cell]>::to_vec).collect())
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
        for (setting, Cell { all: found, .. }) in SETTINGS.iter().zip(row) {
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
    let (seeds, settings) = (report.seeds(SEEDS), settings(report));
    let quick_acks = if report.is_ablated(&UNCOVERED) { 0 } else { SHORT.quick_acks };
    let workload = Workload { quick_acks, ..SHORT };
    let short = run_grid(&workload, &SHORT_LOSSES, &settings[..COMPARED], &seeds)?;
    report.table("response", &table(&SHORT_LOSSES, &short))?;
    report.say(format!("{} B in lone segments, whose ACK is delayed", LONE.file_bytes));
    let mut losses = LONE_LOSSES;
    losses[0] += if report.is_ablated(&LOSSY) { 1.0 } else { 0.0 };
    let lone = run_grid(&LONE, &losses, &settings, &seeds)?;
    report.table("lone", &table(&losses, &lone))?;
    benefits(report, &short);
    price(report, &short, &lone);
    let mut chart = Chart::new("Mean response time of 6 KB over 60 ms", "loss, %", "ms");
    for (number, setting) in SETTINGS[..COMPARED].iter().enumerate() {
        let line =
            SHORT_LOSSES.iter().zip(&short).map(|(loss, row)| (*loss, row[number].all.mean_ms()));
        chart.draw(setting.name, Mark::Line, line.collect());
    }
    report.picture("response", &chart)
}

/// Claims about the benefits of tighter timeouts, each over all losses against `bsd`, by worlds of
/// the same seed.
fn benefits(report: &mut Report, all: &Grid) {
    // The fixes for `bsd` change little here: its ticks remain.
    let tighter = FINE_500..COMPARED;
    let all_are = |of: fn(&Found) -> f64, holds: fn(Mean) -> bool| {
        let is_so = |row: &Vec<Cell>, number: usize| holds(row[number].times(&row[BSD], of));
        all.iter().all(|row| tighter.clone().all(|number| is_so(row, number)))
    };
    let (first, last) = (&all[0], &all[all.len() - 1]);
    let spread = |of: fn(&Found) -> f64| {
        format!(
            "at 5 % loss {:.1} with bsd, {:.1} with fine ({:.2} times), {:.1} with rfc6298 ({:.2} \
             times)",
            of(&last[BSD].all),
            of(&last[FINE].all),
            last[FINE].times(&last[BSD], of),
            of(&last[RFC6298].all),
            last[RFC6298].times(&last[BSD], of),
        )
    };
    report.claim(
        "tighter timeouts shorten response times (mean, ms)",
        &NOT_TIGHTER,
        all_are(Found::mean_ms, |times| times.most() < 1.0),
        spread(Found::mean_ms),
    );
    let timeout = |number: usize| first[number].all.median_timeout_ms();
    let factor = |number: usize| timeout(BSD) / timeout(number);
    report.value("factor_bsd_to_fine", factor(FINE));
    report.value("factor_bsd_to_rfc6298", factor(RFC6298));
    report.claim(
        "a lost segment is sent again sooner",
        &NOT_TIGHTER,
        all_are(Found::median_timeout_ms, |times| times.most() < 1.0),
        format!(
            "at 1 % loss after {:.0} ms with bsd, {:.0} with fine ({:.1}x), {:.0} with rfc6298 \
             ({:.1}x)",
            timeout(BSD),
            timeout(FINE),
            factor(FINE),
            timeout(RFC6298),
            factor(RFC6298),
        ),
    );
    report.claim(
        "they raise throughput (kbit/s)",
        &NOT_TIGHTER,
        all_are(Found::throughput_kbits, |times| times.least() > 1.0),
        spread(Found::throughput_kbits),
    );
    report.claim(
        "and the link's utilisation (%)",
        &NOT_TIGHTER,
        all_are(Found::utilisation_percent, |times| times.least() > 1.0),
        spread(Found::utilisation_percent),
    );
}

/// Claims about their price: segments must not be repeated if they are on their way, or if their
/// ACK arrives in time.
fn price(report: &mut Report, short: &Grid, lone: &Grid) {
    let spurious = |found: &Found| found.per_thousand(found.spurious);
    let rise = |row: &Vec<Cell>, number: usize| row[number].more(&row[BSD], spurious);
    // The finest of the paper's own has a claim of its own.
    let ours = [FINE_500, RFC6298, RFC6298_1_MS];
    let tight = short.iter().flat_map(|row| (FINE_500..COMPARED).map(|number| rise(row, number)));
    let covered = lone.iter().flat_map(|row| ours.map(|number| rise(row, number)));
    let most = tight.chain(covered).map(Mean::most).fold(0.0, f64::max);
    let first = &lone[0];
    report.claim(
        "with hardly more spurious retransmissions, even where every ACK is delayed (‰ of answers)",
        &UNCOVERED,
        most < HARDLY_MORE,
        format!("{most:.2} more at most, by the interval's end"),
    );
    let uncovered = lone.iter().flat_map(|row| [SMALL_FLOOR, NO_FLOOR].map(|at| rise(row, at)));
    report.claim(
        "which timeouts that do not cover path and delay would show (‰ of answers)",
        &COVERED,
        uncovered.map(Mean::least).all(|least| least > 10.0 * HARDLY_MORE),
        format!(
            "at 0 % loss {:.1} more with rfc6298 and a floor of 1 ms, {:.1} with fine and none",
            rise(first, SMALL_FLOOR),
            rise(first, NO_FLOOR)
        ),
    );
    let between = |row: &Vec<Cell>| {
        rise(row, FINE).least() > HARDLY_MORE
            && row[NO_FLOOR].more(&row[FINE], spurious).least() > 0.0
    };
    report.claim(
        "and the paper's floor, 200 ms for path and delay together, does not quite cover (‰)",
        &COVERED,
        lone.iter().all(between),
        format!("at 0 % loss {:.1} more with fine", rise(first, FINE)),
    );
    report.claim(
        "without loss nothing else is sent again",
        &LOSSY,
        first.iter().all(|cell| cell.all.retransmits == cell.all.spurious),
        format!("{} segments in all", first.iter().map(|cell| cell.all.retransmits).sum::<u64>()),
    );
    let explained =
        |found: &Found| found.repeated == found.unanswered + found.held + found.spurious;
    let in_vain = |found: &Found| found.per_thousand(found.repeated);
    let worst = &short[short.len() - 1];
    report.claim(
        "what else they send again in vain had lost its ACK, which no timeout can know (‰)",
        &UNCOVERED,
        short.iter().chain(lone).flatten().all(|cell| explained(&cell.all))
            && short.iter().flatten().all(|cell| cell.all.spurious == 0),
        format!(
            "at 5 % loss {:.1} with bsd, {:.1} with fine, {:.1} with rfc6298: the later the timer, \
             the more often the client speaks first",
            in_vain(&worst[BSD].all),
            in_vain(&worst[FINE].all),
            in_vain(&worst[RFC6298].all)
        ),
    );
}
