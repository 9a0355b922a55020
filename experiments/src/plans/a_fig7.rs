//! Fig. 7: a server with 48 048 connections in TIME-WAIT, under 4.4BSD's timers, Aron & Druschel's
//! ordered list and a timing wheel; and with a million, today's scale. Client and server are back
//! to back in memory. TIME-WAIT keeps the whole control block, as in the paper, except in the last
//! line, which is our default. All modes take turns, each for a second of the stack's time, slice
//! by slice. Each slice counts by the lower quartile of its times. A claim about two modes uses the
//! median of the ratios of their rates over several builds of all modes.
//!
//! The cost of a scan depends on the conversations between two ticks. The stack's time therefore
//! goes on as it would for a server. A server on this machine meets these numbers in two ways:
//!
//! - *In 60 s of TIME-WAIT* N records gather at N/60 conversations a second: 801, as in the paper,
//!   or 16,667. The paper's server was saturated then; ours is idle most of the time. The results
//!   are therefore the share of a processor that each mode takes, and the difference between the
//!   scan and the list. A saturated server would lose that share of its rate.
//! - *Saturated*, the stack's time goes on by the time of a conversation in that mode, found in a
//!   run before. With a million records TIME-WAIT then lasts little more than a second. With 48 048
//!   it would be over within one tick of 500 ms, so that there is no such run.

use std::hint::black_box;

use lightwait_bench::connections::Plan;
use lightwait_bench::sample::{median, processor_time};
use lightwait_bench::stacks::{Variant, Which};
use lightwait_core::config::{Scheme, TimeWaitState};
use lightwait_core::rng::Rng;
use lightwait_core::tcp::timers::bsd::Tick;
use lightwait_core::tcp::timers::{Blocks, Bsd, Deadlines, Filed, TimeWaitTerm, Timer, TimerSet};
use lightwait_core::time::{Duration, Instant};

use crate::ablation::Ablation;
use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

/// Connections in TIME-WAIT.
const COUNTS: [usize; 2] = [48_048, 1_000_000];
/// Idle connections.
const IDLE: usize = 10_000;
/// 2·MSL, the time in which they gather.
const TERM: Duration = Duration::from_secs(60);
/// Turns of each mode: 24 slow ticks. Turns with few conversations are short, so there are more.
const TURNS: usize = 12;
const SHORT_TURNS: usize = 60;
/// A first guess of a conversation's time, and the turns of the run that measures it.
const GUESS: Duration = Duration::from_nanos(1200);
const PILOT_TURNS: usize = 3;
/// Builds of all modes for a table, and for the cost of idle connections: that cost is small, and
/// close to the limit of its claim.
const BUILDS: usize = 2;
const BUILDS_WITH_IDLE: usize = 4;
/// Scans; the longest counts.
const SCANS: usize = 40;
/// Calls of fasttimeo and slowtimeo in a second.
const FAST_HZ: f64 = 5.0;
const SLOW_HZ: f64 = 2.0;

/// The paper's: connections a second; fast and slow scan in ms; % of the processor.
const PAPER: [(&str, [f64; 4]); 2] =
    [("scan", [667.0, 24.0, 63.0, 25.0]), ("ordered_list", [834.0, 0.4, 0.8, 0.36])];

/// The modes.
type Mode = (&'static str, Scheme, TimeWaitState);
const MODES: [Mode; 5] = [
    ("scan", Scheme::Scan, TimeWaitState::Full),
    ("ordered_list", Scheme::OrderedList, TimeWaitState::Full),
    ("wheel", Scheme::Wheel, TimeWaitState::Full),
    ("inline", Scheme::Inline, TimeWaitState::Full),
    ("inline, compact", Scheme::Inline, TimeWaitState::Compact),
];

/// Their indices.
const SCAN: usize = 0;
const LIST: usize = 1;
const WHEEL: usize = 2;
const INLINE: usize = 3;

const ALL_SCAN: Ablation =
    Ablation { name: "scans", instead: "the list scans all, as 4.4BSD does" };
const MANY_IDLE: Ablation =
    Ablation { name: "many-idle", instead: "ten times as many connections are idle" };

/// A scan's block of a connection: the size of a control block of 4.4BSD's.
struct Block {
    filed: Filed,
    deadlines: Deadlines,
    _rest: [u64; 64],
}

/// All blocks, by number.
struct Memory(Vec<Block>);

impl Memory {
    fn new(count: usize) -> Memory {
        let block = |_| Block {
            filed: Filed::default(),
            deadlines: Deadlines::default(),
            _rest: black_box([1; 64]),
        };
        Memory((0..count).map(block).collect())
    }
}

impl Blocks for Memory {
    fn count_down(&mut self, index: u32, tick: Tick) -> TimerSet {
        let Block { filed, deadlines, .. } = &mut self.0[index as usize];
        filed.count_down(tick, deadlines)
    }

    fn prefetch(&self, index: u32) {
        self.0[index as usize].filed.prefetch();
    }
}

/// The seed of the order in memory.
pub(crate) const SEED: u64 = 7;

/// The longest of each scan, in ms, over that many blocks in TIME-WAIT and idle connections with a
/// keepalive timer. Their order in the list differs from that in memory, as when connections come
/// and go.
pub(super) fn scans_ms(ordered: bool, time_wait: usize, idle: usize) -> [f64; 2] {
    let mut rng = Rng::from_seed(SEED);
    let mut order: Vec<u32> = (0..(time_wait + idle) as u32).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, rng.below(place as u32 + 1) as usize);
    }
    let mut bsd = Bsd::new(ordered);
    let (idle_ones, waiting) = order.split_at(idle);
    let mut memory = Memory::new(order.len());
    for &index in idle_ones {
        let Block { filed, deadlines, .. } = &mut memory.0[index as usize];
        deadlines.set(Timer::KeepAlive, Instant::from_millis(7_200_000));
        bsd.touched(index, filed, deadlines, Instant::ZERO);
    }
    // None expires during the scans: expiry is separate work.
    let time = TimeWaitTerm { now: Instant::ZERO, duration: Duration::from_secs(60) };
    for &index in waiting {
        let Block { filed, deadlines, .. } = &mut memory.0[index as usize];
        deadlines.set(Timer::Lifetime, time.now + time.duration);
        bsd.enter_time_wait(index, filed, deadlines, time);
    }
    let fast = longest(|| bsd.scan_fast(&mut memory));
    [fast, longest(|| bsd.scan_slow(&mut memory))]
}

/// The longest of many scans, in ms.
fn longest(mut scan: impl FnMut()) -> f64 {
    let times = (0..SCANS).map(|_| {
        let begin = processor_time();
        scan();
        (processor_time().saturating_sub(begin)).as_secs_f64() * 1e3
    });
    times.fold(0.0, f64::max)
}

/// The paper's formula: both scans' time in a second, in % of a processor.
pub(super) fn percent([fast_ms, slow_ms]: [f64; 2]) -> f64 {
    (fast_ms * FAST_HZ + slow_ms * SLOW_HZ) / 10.0
}

fn plan((_, scheme, state): Mode, time_wait: usize, idle: usize, conversation: Duration) -> Plan {
    let variant = Variant::Keeping(scheme, state);
    Plan { time_wait, idle, at_once: 16, variant, conversation, ..Plan::default() }
}

/// The median ratio of two modes' rates, over the builds.
fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&mut of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<f64>>())
}

/// For a number of connections in TIME-WAIT and of idle ones: the scans of both lists, and the
/// rates in each mode, build by build, in conversations a second of processor time.
struct Measured {
    modes: [Mode; MODES.len()],
    time_wait: usize,
    idle: usize,
    /// The stack's time for a conversation, by mode.
    conversation: [Duration; MODES.len()],
    scans_ms: [[f64; 2]; 2],
    rates: Vec<Vec<f64>>,
}

impl Measured {
    fn new(
        modes: [Mode; MODES.len()],
        time_wait: usize,
        idle: usize,
        conversation: [Duration; MODES.len()],
        turns: usize,
    ) -> Measured {
        let plans: [Plan; MODES.len()] =
            std::array::from_fn(|mode| plan(modes[mode], time_wait, idle, conversation[mode]));
        let is_ordered = modes[LIST].1 == Scheme::OrderedList;
        Measured {
            modes,
            time_wait,
            idle,
            conversation,
            scans_ms: [false, is_ordered].map(|ordered| scans_ms(ordered, time_wait, idle)),
            rates: Which::take_turns(&plans, BUILDS, turns),
        }
    }

    /// Measures with as many as gather within [`TERM`].
    fn gathering(modes: [Mode; MODES.len()], time_wait: usize, idle: usize) -> Measured {
        let conversation = TERM / time_wait as u32;
        let turns = if time_wait > COUNTS[0] { TURNS } else { SHORT_TURNS };
        Measured::new(modes, time_wait, idle, [conversation; MODES.len()], turns)
    }

    /// Measures with the stack's time equal to the processor's.
    fn saturated(modes: [Mode; MODES.len()], time_wait: usize) -> Measured {
        let plans: [Plan; MODES.len()] =
            std::array::from_fn(|mode| plan(modes[mode], time_wait, 0, GUESS));
        let pilot = Which::take_turns(&plans, 1, PILOT_TURNS);
        let took = std::array::from_fn(|mode| Duration::from_secs_f64(1.0 / pilot[mode][0]));
        Measured::new(modes, time_wait, 0, took, TURNS)
    }

    fn rate(&self, mode: usize) -> f64 {
        median(&mut self.rates[mode].clone())
    }

    /// Conversations in a second of the stack's time.
    fn offered(&self, mode: usize) -> f64 {
        1.0 / self.conversation[mode].as_secs_f64()
    }

    /// The share of a processor that the mode takes, in %: 100 if it is saturated.
    fn load_percent(&self, mode: usize) -> f64 {
        self.offered(mode) / self.rate(mode) * 100.0
    }

    /// The share of a processor that the scan takes more than the list, in %.
    fn more_percent(&self) -> f64 {
        let loads = self.rates[SCAN].iter().zip(&self.rates[LIST]);
        let more = loads
            .map(|(scan, list)| (self.offered(SCAN) / scan - self.offered(LIST) / list) * 100.0);
        median(&mut more.collect::<Vec<f64>>())
    }

    /// The part of its rate that the scan costs against the list, in %.
    fn lost_percent(&self) -> f64 {
        (1.0 - ratio(&self.rates[SCAN], &self.rates[LIST])) * 100.0
    }

    /// The mode's scans in ms, and the share of both by the paper's formula, if it scans.
    fn scans(&self, mode: usize) -> [String; 3] {
        let scans = self.scans_ms.get(mode);
        let cells = scans
            .map(|scans| [scans[0], scans[1], percent(*scans)].map(|value| format!("{value:.3}")));
        cells.unwrap_or_else(|| ["–"; 3].map(str::to_owned))
    }

    fn show_gathering(&self, report: &mut Report) -> Outcome {
        report.say(format!(
            "{} in TIME-WAIT, {} idle, TIME-WAIT of {} s: {:.0} conversations a second, \
             unsaturated (the paper's machine was saturated by 667 to 834)",
            self.time_wait,
            self.idle,
            TERM.as_secs(),
            self.offered(SCAN),
        ));
        let paper_head = "paper: conn/s, ms, ms, % by formula";
        let head = ["mode", "processor %", "fast ms", "slow ms", "% by formula", paper_head];
        let mut table = Table::new(&head);
        for (i, (name, ..)) in MODES.iter().enumerate() {
            let load = format!("{:.3}", self.load_percent(i));
            let [fast, slow, cpu] = self.scans(i);
            let alike = self.time_wait == COUNTS[0] && self.idle == 0;
            let paper = PAPER.iter().find(|paper| paper.0 == *name && alike);
            let paper =
                paper.map_or_else(String::new, |(_, [a, b, c, d])| format!("{a}, {b}, {c}, {d}"));
            table.row(&[name, &load, &fast, &slow, &cpu, &paper]);
        }
        report.table(&format!("{}-{}", self.time_wait, self.idle), &table)?;
        report.say(format!("The scan takes {:.2} % of a processor more.\n", self.more_percent()));
        Ok(())
    }

    fn show_saturated(&self, report: &mut Report) -> Outcome {
        report.say(format!(
            "{} in TIME-WAIT, saturated: the stack's time goes on by what a conversation takes",
            self.time_wait
        ));
        let mut table = Table::new(&["mode", "conn/s", "stack's µs a conversation", "TIME-WAIT s"]);
        for (i, (name, ..)) in MODES.iter().enumerate() {
            let lasts =
                plan(self.modes[i], self.time_wait, 0, self.conversation[i]).time_wait_lasts();
            table.row(&[
                name,
                &format!("{:.0}", self.rate(i)),
                &format!("{:.3}", self.conversation[i].as_secs_f64() * 1e6),
                &format!("{:.2}", lasts.as_secs_f64()),
            ]);
        }
        report.table(&format!("{}-saturated", self.time_wait), &table)?;
        report.say(format!("The scan loses {:.1} % of the rate.\n", self.lost_percent()));
        Ok(())
    }
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut modes = MODES;
    if report.is_ablated(&ALL_SCAN) {
        modes[LIST].1 = Scheme::Scan;
    }
    let [few, many] = COUNTS.map(|count| Measured::gathering(modes, count, 0));
    let among_idle = Measured::gathering(modes, COUNTS[0], IDLE);
    for measured in [&few, &among_idle, &many] {
        measured.show_gathering(report)?;
    }
    let saturated = Measured::saturated(modes, COUNTS[1]);
    saturated.show_saturated(report)?;
    for measured in [&few, &many] {
        let [scan, list] = measured.scans_ms.map(percent);
        report.claim(
            &format!("the list scans for less than a tenth of the time, {}", measured.time_wait),
            &ALL_SCAN,
            list < scan / 10.0,
            format!("{list:.4} % of a processor against {scan:.3} % (paper: 0.36 and 25 %)"),
        );
    }
    let more = [&few, &many].map(Measured::more_percent);
    report.claim(
        "4.4BSD's scan takes more of a processor than the list, and the more the more there are",
        &ALL_SCAN,
        more[0] > 0.1 && more[1] > 2.0 * more[0],
        format!(
            "{:.2} % more with 48 048, {:.1} % with 1 000 000 (paper: 25 % with 48 048)",
            more[0], more[1]
        ),
    );
    let lost = saturated.lost_percent();
    report.claim(
        "saturated among 1 000 000, 4.4BSD's scan serves less than the list",
        &ALL_SCAN,
        lost > 5.0,
        format!("{lost:.1} % less (paper: 20 % with 48 048; that share of ours is {:.2})", more[0]),
    );
    let ratio = ratio(&saturated.rates[LIST], &saturated.rates[WHEEL]);
    report.claim(
        "saturated among 1 000 000, the list is at least as fast as the eager wheel",
        &ALL_SCAN,
        // Two runs of one mode differ by as much.
        ratio >= 0.98,
        format!("{:+.1} % (paper: 5 % more with 48 048)", (ratio - 1.0) * 100.0),
    );
    claim_idle(report, &saturated);
    picture(report, &[few, many], &saturated)
}

/// The cost of 10 000 idle connections to the list: in total, and for the scan of them. The server
/// is saturated, as the paper's was.
fn claim_idle(report: &mut Report, measured: &Measured) {
    let time_wait = measured.time_wait;
    let idle = if report.is_ablated(&MANY_IDLE) { 10 * IDLE } else { IDLE };
    let plan = |mode: usize, idle| {
        plan(measured.modes[mode], time_wait, idle, measured.conversation[mode])
    };
    let modes = [LIST, INLINE].map(|mode| [0, idle].map(|idle| plan(mode, idle)));
    let rates = Which::take_turns(modes.as_flattened(), BUILDS_WITH_IDLE, TURNS);
    let lost = |with: usize, without: usize| (1.0 - ratio(&rates[with], &rates[without])) * 100.0;
    let [list, inline] = [lost(1, 0), lost(3, 2)];
    let kept = |percent: f64| 1.0 - percent / 100.0;
    let scan = (1.0 - kept(list) / kept(inline)) * 100.0;
    report.say(format!(
        "10 000 idle connections among {time_wait} in TIME-WAIT, saturated: the list loses \
         {list:.1} %, and `inline`, which scans nothing, {inline:.1} %; scanning them costs \
         {scan:.1} %"
    ));
    report.claim(
        &format!("the scan of 10 000 idle connections costs the list 5 % at most, {time_wait}"),
        &MANY_IDLE,
        scan <= 5.0,
        format!("{scan:.1} % (paper: 5 % with all that idle connections cost)"),
    );
    report.claim(
        &format!("10 000 idle connections cost the list 5 % at most, {time_wait}"),
        &MANY_IDLE,
        list <= 5.0,
        format!("{list:.1} %, of which {inline:.1} % without any scan (paper: 5 %)"),
    );
}

/// Draws each mode's share of a processor by the number in TIME-WAIT, and its rate if saturated.
fn picture(
    report: &mut Report,
    gathering: &[Measured],
    saturated: &Measured,
) -> Result<(), Failure> {
    let title = "Processor taken by N/60 conversations a second";
    let mut chart = Chart::new(title, "TIME-WAIT", "% of a processor")
        .scales(Scale::Logarithmic, Scale::Logarithmic);
    let mut rates = Vec::new();
    for (i, (name, ..)) in MODES.iter().enumerate() {
        let point = |measured: &Measured| (measured.time_wait as f64, measured.load_percent(i));
        chart.draw(name, Mark::Line, gathering.iter().map(point).collect());
        rates.push((i as f64, saturated.rate(i)));
    }
    report.picture("load", &chart)?;
    let names = MODES.map(|(name, ..)| name);
    let mut chart = Chart::of_categories("A million in TIME-WAIT, saturated", &names, "conn/s");
    chart.draw("conversations a second", Mark::Bars, rates);
    report.picture("throughput", &chart)
}
