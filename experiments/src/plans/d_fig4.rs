//! One connection whose send buffer follows its window, beside buffers of fixed sizes. It measures
//! how long a transfer takes, how much buffer it has, and how often it has nothing to send. One set
//! of worlds makes three figures.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use lightwait_core::config::{Limits, SendRule};
use lightwait_core::time::Duration;

use crate::ablation::Ablation;
use crate::chart::Chart;
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::paths::Way;
use crate::plans::transfers::{self, Load, SEGMENT, Transfer};
use crate::report::Report;
use crate::statistics::Mean;

const SEEDS: u64 = 50;
const LOSSES_PERCENT: [f64; 7] = [0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0];
const BYTES: u64 = 1000 * SEGMENT;
const WAY: Way = Way { rate_bits: 1_000_000, round_trip: Duration::from_millis(150), loss: 0.0 };
/// The paper gives this value for its other simulations alone.
const READ_TIME: Duration = Duration::from_millis(50);
/// Bytes that a server with fixed buffers reads at a time; the paper: a few Kbytes.
const BLOCK: u64 = 16 * SEGMENT;

/// A rule, and its name. The last is ours.
const RULES: [(Option<u32>, &str); 4] =
    [(Some(8 << 10), "8 KB"), (Some(16 << 10), "16 KB"), (Some(32 << 10), "32 KB"), (None, "LOS")];
const LARGEST: usize = 2;
const LOS: usize = 3;

const NOT_FOLLOWED: Ablation =
    Ablation { name: "not-followed", instead: "the buffer that follows the window is one of 8 KB" };
const LARGE: Ablation = Ablation { name: "large", instead: "every fixed buffer has 64 KB" };
const SMALL: Ablation =
    Ablation { name: "small", instead: "the buffers of 16 and 32 KB change places" };
const FIXED: Ablation =
    Ablation { name: "fixed", instead: "the buffer that follows the window is one of 64 KB" };

/// The results with one loss and one rule, over all seeds.
#[derive(Clone, Copy, Debug)]
struct Point {
    seconds: Mean,
    /// In segments: how much the buffer may hold, and how much it holds.
    hiwat: Mean,
    held: Mean,
    misses: Mean,
    reads: Mean,
    /// Times that the blocked writer was woken because there was room, by megabyte.
    woken_per_mb: Mean,
}

/// The results by loss and rule.
type Grid = Vec<Vec<Point>>;

/// The results so far in this process, with their seeds.
static FOUND: Mutex<Option<(Asked, Arc<Grid>)>> = Mutex::new(None);

/// Seeds and rules.
type Asked = (Range<u64>, [Option<u32>; RULES.len()]);

/// The rules, or others in their place.
fn rules(report: &Report) -> [Option<u32>; RULES.len()] {
    let mut rules = RULES.map(|(rule, _)| rule);
    if report.is_ablated(&NOT_FOLLOWED) {
        rules[LOS] = Some(8 << 10);
    }
    if report.is_ablated(&FIXED) {
        rules[LOS] = Some(64 << 10);
    }
    if report.is_ablated(&LARGE) {
        rules[..LOS].fill(Some(64 << 10));
    }
    if report.is_ablated(&SMALL) {
        rules.swap(1, LARGEST);
    }
    rules
}

fn grid(report: &mut Report) -> Result<Arc<Grid>, Failure> {
    let seeds = report.seeds(SEEDS);
    let asked = (seeds.clone(), rules(report));
    let mut found = FOUND.lock().map_err(|_| "a figure before this one has failed")?;
    if let Some((_, grid)) = found.as_ref().filter(|(of, _)| *of == asked) {
        return Ok(grid.clone());
    }
    let points = parallel::map(LOSSES_PERCENT.len() * RULES.len(), |number| {
        point(LOSSES_PERCENT[number / RULES.len()], asked.1[number % RULES.len()], seeds.clone())
    })?;
    let grid: Arc<Grid> = Arc::new(points.chunks(RULES.len()).map(<[Point]>::to_vec).collect());
    *found = Some((asked, grid.clone()));
    Ok(grid)
}

fn point(loss_percent: f64, fixed: Option<u32>, seeds: Range<u64>) -> Result<Point, Failure> {
    let load = Load {
        ways: vec![Way { loss: loss_percent / 100.0, ..WAY }],
        order: vec![0],
        at_once: 1,
        bytes: BYTES,
        read_time: READ_TIME,
        told_read_time: READ_TIME,
        block: fixed.map(|_| BLOCK),
    };
    let tcp = transfers::tcp().with(|tcp| match fixed {
        Some(bytes) => (tcp.buffers.send_size, tcp.buffers.send) = (SendRule::Fixed, bytes),
        None => tcp.buffers.send_size = SendRule::Los,
    });
    let one = |seed| -> Result<(Transfer, u64), Failure> {
        let found = transfers::run(&load, tcp.clone(), Limits::default(), seed)?;
        Ok((*found.transfers.first().ok_or("no transfer")?, found.writers_woken))
    };
    let all = seeds.map(one).collect::<Result<Vec<_>, _>>()?;
    let mean = |of: fn(&Transfer) -> f64| Mean::of(all.iter().map(|(transfer, _)| of(transfer)));
    Ok(Point {
        woken_per_mb: Mean::of(all.iter().map(|(_, woken)| *woken as f64 * 1e6 / BYTES as f64)),
        seconds: mean(|transfer| transfer.seconds),
        hiwat: mean(|transfer| transfer.mean_hiwat / SEGMENT as f64),
        held: mean(|transfer| transfer.mean_held / SEGMENT as f64),
        misses: mean(|transfer| transfer.misses as f64),
        reads: mean(|transfer| transfer.reads as f64),
    })
}

/// A table and a picture of one value.
fn show(report: &mut Report, grid: &Grid, of: fn(&Point) -> Mean, label: &str) -> Outcome {
    let name = label.split(',').next().unwrap_or(label).replace(' ', "_");
    let chart = Chart::new("500 KB over 1 Mbit/s and 150 ms", "loss, %", label);
    let rows = LOSSES_PERCENT.iter().zip(grid);
    let rows = rows.map(|(loss, row)| (*loss, row.iter().map(of).collect()));
    let rows: Vec<(f64, Vec<Mean>)> = rows.collect();
    report.say(label);
    report.means(&name, "loss %", &RULES.map(|(_, name)| name), &rows, chart)
}

fn set_up(report: &Report) {
    report.say(
        "500 KB in segments of 512 B over 1 Mbit/s and 150 ms, bursty loss; a read takes 50 ms, \
         and brings\n8 KB where the buffer is fixed; ± is the 95 % confidence interval over the \
         seeds.",
    );
}

/// Figure 4.
pub(crate) fn time(report: &mut Report) -> Outcome {
    set_up(report);
    let grid = grid(report)?;
    show(report, &grid, |point| point.seconds, "seconds, mean")?;
    let is_as_fast = |row: &Vec<Point>| row[LOS].seconds.mean <= row[LARGEST].seconds.mean * 1.02;
    let slower = |row: &Vec<Point>, rule: usize| row[rule].seconds.mean / row[LOS].seconds.mean;
    let worst = grid.iter().map(|row| row[LOS].seconds.mean / row[LARGEST].seconds.mean);
    report.claim(
        "LOS is as fast as 32 KB, within 2 %, at every loss",
        &NOT_FOLLOWED,
        grid.iter().all(is_as_fast),
        format!("at worst {:.3} of its time", worst.fold(0.0, f64::max)),
    );
    report.claim(
        "8 and 16 KB are slower where little is lost",
        &LARGE,
        slower(&grid[0], 0) > 1.1 && slower(&grid[0], 1) > 1.02 && slower(&grid[1], 0) > 1.02,
        format!("at 0.1 % {:.2} and {:.2} times", slower(&grid[0], 0), slower(&grid[0], 1)),
    );
    Ok(())
}

/// Figure 5.
pub(crate) fn usage(report: &mut Report) -> Outcome {
    set_up(report);
    let grid = grid(report)?;
    show(report, &grid, |point| point.hiwat, "segments allowed, mean")?;
    show(report, &grid, |point| point.held, "segments held, mean")?;
    let first_less = grid.iter().position(|row| row[LOS].hiwat.mean < row[LARGEST].hiwat.mean);
    let from = first_less.map_or(f64::NAN, |place| LOSSES_PERCENT[place]);
    report.claim(
        "LOS has less buffer than 32 KB from 1 % of loss on, and holds less",
        &FIXED,
        grid.iter().zip(LOSSES_PERCENT).filter(|(_, loss)| *loss >= 1.0).all(|(row, _)| {
            row[LOS].hiwat.mean < row[LARGEST].hiwat.mean
                && row[LOS].held.mean < row[LARGEST].held.mean
        }),
        format!("allowed less from {from} % on"),
    );
    report.observe(
        "… and at every loss, as in the paper",
        grid.iter().all(|row| row[LOS].hiwat.mean < row[LARGEST].hiwat.mean),
        format!("at 0.1 % {:.0} segments of {:.0}", grid[0][LOS].hiwat.mean, 64.0),
    );
    let falls = grid.windows(2).all(|rows| rows[1][LOS].hiwat.mean < rows[0][LOS].hiwat.mean);
    let last = &grid[grid.len() - 1];
    report.claim(
        "and less, the more is lost; fixed sizes do not",
        &FIXED,
        falls && (0..LOS).all(|rule| last[rule].hiwat.mean == grid[0][rule].hiwat.mean),
        format!(
            "{:.0} segments at 0.1 %, {:.0} at 8 %",
            grid[0][LOS].hiwat.mean, last[LOS].hiwat.mean
        ),
    );
    Ok(())
}

/// Figure 6.
pub(crate) fn misses(report: &mut Report) -> Outcome {
    set_up(report);
    let grid = grid(report)?;
    show(report, &grid, |point| point.misses, "buffer misses, mean")?;
    show(report, &grid, |point| point.reads, "reads, mean")?;
    show(report, &grid, |point| point.woken_per_mb, "wake-ups of the writer a MB, mean")?;
    let most = |rule: usize| grid.iter().map(|row| row[rule].misses.mean).fold(0.0, f64::max);
    report.claim(
        "hardly a miss with LOS: no more than one in five transfers",
        &NOT_FOLLOWED,
        most(LOS) <= 0.2,
        format!("{:.2} a transfer at most", most(LOS)),
    );
    report.observe(
        "… and none at all, as in the paper",
        most(LOS) == 0.0,
        "those left follow a recovery, whose end lets out more than a window and the next",
    );
    report.claim(
        "many with 8 and 16 KB where little is lost",
        &LARGE,
        grid[0][0].misses.mean > 10.0 && grid[0][1].misses.mean > 10.0,
        format!("at 0.1 % {:.0} and {:.0}", grid[0][0].misses.mean, grid[0][1].misses.mean),
    );
    let fewer = |row: &Vec<Point>| row[LARGEST].misses.mean <= row[1].misses.mean;
    report.claim(
        "no more with 32 KB than with 16 KB",
        &SMALL,
        grid.iter().all(fewer),
        format!("at 1 % {:.1} and {:.1}", grid[2][LARGEST].misses.mean, grid[2][1].misses.mean),
    );
    report.observe(
        "… and less than one, as in the paper",
        most(LARGEST) < 1.0,
        format!("{:.0} at 0.1 %, where the window is the whole buffer", most(LARGEST)),
    );
    Ok(())
}
