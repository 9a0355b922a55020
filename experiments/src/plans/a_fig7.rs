//! Fig. 7: a server with 48 048 connections in TIME-WAIT, under 4.4BSD's timers, Aron & Druschel's
//! ordered list and a timing wheel; and, which is today's scale, with a million. Client and server
//! stand back to back in memory; the whole control block is kept in TIME-WAIT, as in the paper, but
//! for the last line, which is what we do. All modes take turns, each of a second of the stack's
//! time and slice by slice, and of each slice the lower quartile of what it took counts. What is
//! claimed of two modes is the median of the ratios of their rates over several builds of all.
//!
//! The paper's server served 667 connections a second, ours some 100,000: what a scan costs
//! a second is the same whatever is served, so its share of the processor is told by the paper's
//! formula, and beside it by what a whole run has really lost. In such a run the stack's time goes
//! on by 60 µs a conversation, so that a slow tick comes after 8333 of them.
//!
//! What idle connections cost is measured with ticks that come as often as in the paper, where the
//! server was saturated: by the processor's time. They lie among the others in tables that every
//! segment looks into, whatever looks after their timers; what the scan of them costs is told apart
//! from that by `inline`, which does not scan.

use std::hint::black_box;

use lightwait_bench::connections::{CONVERSATION, Plan};
use lightwait_bench::sample::{median, processor_time};
use lightwait_bench::stacks::{Variant, Which};
use lightwait_core::config::TimeWaitState;
use lightwait_core::rng::Rng;
use lightwait_core::tcp::timers::bsd::Tick;
use lightwait_core::tcp::timers::{Blocks, Bsd, Deadlines, Filed, Linger, Scheme, Timer, TimerSet};
use lightwait_core::time::{Duration, Instant};

use crate::chart::{Chart, Mark, Scale};
use crate::plan::{Failure, Outcome};
use crate::report::{Report, Table};

/// In TIME-WAIT.
const COUNTS: [usize; 2] = [48_048, 1_000_000];
const IDLE: [usize; 2] = [0, 10_000];
/// Turns of each mode: 24 slow ticks.
const TURNS: usize = 12;
/// How often all modes are built for a table, and to tell what idle connections cost: that is
/// little, and next to what its claim allows.
const BUILDS: usize = 2;
const BUILDS_WITH_IDLE: usize = 4;
/// Scans of which the longest counts.
const SCANS: usize = 40;
/// fasttimeo and slowtimeo, a second.
const FAST_HZ: f64 = 5.0;
const SLOW_HZ: f64 = 2.0;

/// The paper's: connections a second; fast and slow scan in ms; % of the processor.
const PAPER: [(&str, [f64; 4]); 2] =
    [("scan", [667.0, 24.0, 63.0, 25.0]), ("ordered_list", [834.0, 0.4, 0.8, 0.36])];

/// What is compared.
const MODES: [(&str, Scheme, TimeWaitState); 5] = [
    ("scan", Scheme::Scan, TimeWaitState::Full),
    ("ordered_list", Scheme::OrderedList, TimeWaitState::Full),
    ("wheel", Scheme::Wheel, TimeWaitState::Full),
    ("inline", Scheme::Inline, TimeWaitState::Full),
    ("inline, compact", Scheme::Inline, TimeWaitState::Compact),
];

/// Which of them these are.
const SCAN: usize = 0;
const LIST: usize = 1;
const WHEEL: usize = 2;
const INLINE: usize = 3;

/// What a scan finds of a connection: as large as a control block of 4.4BSD's.
struct Block {
    filed: Filed,
    deadlines: Deadlines,
    _rest: [u64; 64],
}

/// All of them, by their number.
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

    fn read_ahead(&self, index: u32) {
        self.0[index as usize].filed.read_ahead();
    }
}

/// The longest of each scan, in ms, over so many blocks in TIME-WAIT and so many idle connections
/// with a keepalive timer. Their order in the list is not that in memory, as connections come and
/// go.
fn scans_ms(ordered: bool, time_wait: usize, idle: usize) -> [f64; 2] {
    let mut rng = Rng::from_seed(7);
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
    // None is over before the scans are: what expires is work of its own.
    let time = Linger { now: Instant::ZERO, duration: Duration::from_secs(60) };
    for &index in waiting {
        let Block { filed, deadlines, .. } = &mut memory.0[index as usize];
        deadlines.set(Timer::Lifetime, time.now + time.duration);
        bsd.linger(index, filed, deadlines, time);
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

/// The paper's formula: what both scans take a second, in % of a processor.
fn percent([fast_ms, slow_ms]: [f64; 2]) -> f64 {
    (fast_ms * FAST_HZ + slow_ms * SLOW_HZ) / 10.0
}

fn plan(mode: usize, time_wait: usize, idle: usize) -> Plan {
    let (_, scheme, state) = MODES[mode];
    let variant = Variant::Keeping(scheme, state);
    Plan { time_wait, idle, at_once: 16, variant, ..Plan::default() }
}

/// The median ratio of two modes' rates, over the builds.
fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&mut of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<f64>>())
}

/// Of one number in TIME-WAIT and one of idle connections: the scans of both lists, and the rates
/// in each mode, build by build.
struct Measured {
    time_wait: usize,
    idle: usize,
    scans_ms: [[f64; 2]; 2],
    rates: Vec<Vec<f64>>,
}

impl Measured {
    fn new(time_wait: usize, idle: usize) -> Measured {
        let plans: [Plan; MODES.len()] = std::array::from_fn(|mode| plan(mode, time_wait, idle));
        Measured {
            time_wait,
            idle,
            scans_ms: [false, true].map(|ordered| scans_ms(ordered, time_wait, idle)),
            rates: Which::take_turns(&plans, BUILDS, TURNS),
        }
    }

    fn rate(&self, mode: usize) -> f64 {
        median(&mut self.rates[mode].clone())
    }

    /// How much of its rate the scan costs against the list, in %.
    fn lost_percent(&self) -> f64 {
        (1.0 - ratio(&self.rates[SCAN], &self.rates[LIST])) * 100.0
    }

    fn show(&self, report: &mut Report) -> Outcome {
        let head = ["mode", "conn/s", "fast ms", "slow ms", "CPU %", "paper: conn/s, ms, ms, %"];
        let mut table = Table::new(&head);
        for (i, (name, ..)) in MODES.iter().enumerate() {
            let rate = format!("{:.0}", self.rate(i));
            let scans = self.scans_ms.get(i).map(|scans| {
                [scans[0], scans[1], percent(*scans)].map(|value| format!("{value:.3}"))
            });
            let [fast, slow, cpu] = scans.unwrap_or_else(|| ["–"; 3].map(str::to_owned));
            let alike = self.time_wait == COUNTS[0] && self.idle == 0;
            let paper = PAPER.iter().find(|paper| paper.0 == *name && alike);
            let paper =
                paper.map_or_else(String::new, |(_, [a, b, c, d])| format!("{a}, {b}, {c}, {d}"));
            table.row(&[name, &rate, &fast, &slow, &cpu, &paper]);
        }
        report.say(format!(
            "{} in TIME-WAIT, {} idle; really lost by the scan: {:.1} %",
            self.time_wait,
            self.idle,
            self.lost_percent()
        ));
        report.table(&format!("{}-{}", self.time_wait, self.idle), &table)
    }
}

/// Runs it.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut all = Vec::new();
    for time_wait in COUNTS {
        for idle in IDLE {
            let measured = Measured::new(time_wait, idle);
            measured.show(report)?;
            all.push(measured);
        }
    }
    let [few, _, many, _] = &all[..] else { return Err("four runs".into()) };
    for measured in [few, many] {
        let [scan, list] = measured.scans_ms.map(percent);
        report.claim(
            &format!("the list scans for less than a tenth of the time, {}", measured.time_wait),
            list < scan / 10.0,
            format!("{list:.4} % of a processor against {scan:.3} % (paper: 0.36 and 25 %)"),
        );
    }
    let lost = [few, many].map(Measured::lost_percent);
    report.claim(
        "4.4BSD's scan is slower than the list, and the more the more there are",
        lost[1] > 5.0 && lost[1] > lost[0],
        format!("{:.1} % with 48 048, {:.1} % with 1 000 000 (paper: 20 %)", lost[0], lost[1]),
    );
    for measured in [few, many] {
        let ratio = ratio(&measured.rates[LIST], &measured.rates[WHEEL]);
        report.claim(
            &format!("the list is at least as fast as the eager wheel, {}", measured.time_wait),
            // What two runs of the same differ by here.
            ratio >= 0.98,
            format!("{:+.1} % (paper: 5 % more)", (ratio - 1.0) * 100.0),
        );
    }
    claim_idle(report, many);
    report.value("conversation_us", CONVERSATION.as_micros() as u64);
    picture(report, &all)
}

/// What 10 000 idle connections cost the list: everything, and the scan of them. As in the paper
/// the ticks come by the processor's time here: the stack's time goes on by what a conversation
/// takes. (So fast, TIME-WAIT would be over within one tick if there were 48 048.)
fn claim_idle(report: &mut Report, measured: &Measured) {
    let (time_wait, conversation) =
        (measured.time_wait, Duration::from_secs_f64(1.0 / measured.rate(LIST)));
    let plan = |mode, idle| Plan { conversation, ..plan(mode, time_wait, idle) };
    let modes = [LIST, INLINE].map(|mode| IDLE.map(|idle| plan(mode, idle)));
    let rates = Which::take_turns(modes.as_flattened(), BUILDS_WITH_IDLE, TURNS);
    let lost = |with: usize, without: usize| (1.0 - ratio(&rates[with], &rates[without])) * 100.0;
    let [list, inline] = [lost(1, 0), lost(3, 2)];
    let kept = |percent: f64| 1.0 - percent / 100.0;
    let scan = (1.0 - kept(list) / kept(inline)) * 100.0;
    report.say(format!(
        "10 000 idle connections among {time_wait} in TIME-WAIT, ticks by the processor's time: \
         the list loses {list:.1} %, and `inline`, which scans nothing, {inline:.1} %; scanning \
         them costs {scan:.1} %"
    ));
    report.claim(
        &format!("the scan of 10 000 idle connections costs the list 5 % at most, {time_wait}"),
        scan <= 5.0,
        format!("{scan:.1} % (paper: 5 % with all that idle connections cost)"),
    );
    report.claim(
        &format!("10 000 idle connections cost the list 5 % at most, {time_wait}"),
        list <= 5.0,
        format!("{list:.1} %, of which {inline:.1} % without any scan (paper: 5 %)"),
    );
}

/// Rates by the number in TIME-WAIT.
fn picture(report: &Report, all: &[Measured]) -> Result<(), Failure> {
    let mut chart = Chart::new("Throughput with connections in TIME-WAIT", "TIME-WAIT", "conn/s")
        .scales(Scale::Logarithmic, Scale::Linear);
    for (i, (name, ..)) in MODES.iter().enumerate() {
        let without_idle = all.iter().filter(|measured| measured.idle == 0);
        let points = without_idle.map(|measured| (measured.time_wait as f64, measured.rate(i)));
        chart.draw(name, Mark::Line, points.collect());
    }
    report.picture("throughput", &chart)
}
