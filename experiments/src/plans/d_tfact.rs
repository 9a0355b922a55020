//! The knowledge that a send buffer needs of a source that is slower than a round trip: T_fact. The
//! buffer learns it from the read time, has it preset, or ignores it, as the buffers of Semke,
//! Mahdavi and Mathis do.

use lightwait_core::config::{Limits, SendRule};
use lightwait_core::time::Duration;

use crate::chart::{Chart, Mark};
use crate::parallel;
use crate::plan::{Failure, Outcome};
use crate::plans::paths::Way;
use crate::plans::transfers::{self, Load, SEGMENT, Transfer};
use crate::report::{Report, Table};
use crate::statistics::Mean;

const SEEDS: u64 = 50;
/// Read times, in round trips.
const READ_TIMES: [f64; 7] = [0.2, 0.5, 0.8, 1.5, 2.0, 3.0, 4.0];
const ROUND_TRIP: Duration = Duration::from_millis(150);
const WAY: Way = Way { rate_bits: 1_000_000, round_trip: ROUND_TRIP, loss: 0.005 };
const BYTES: u64 = 1000 * SEGMENT;

/// How the buffer gets T_fact.
#[derive(Clone, Copy, Debug)]
enum Factor {
    Measured,
    Preset(u8),
}

const WAYS: [(Factor, &str); 3] = [
    (Factor::Measured, "measured"),
    (Factor::Preset(2), "preset to 2"),
    (Factor::Preset(1), "none"),
];
const MEASURED: usize = 0;
const PRESET: usize = 1;
const NONE: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Point {
    seconds: Mean,
    misses: Mean,
    hiwat: Mean,
}

fn point(read_time: f64, factor: Factor, seeds: u64) -> Result<Point, Failure> {
    let read_time = Duration::from_secs_f64(ROUND_TRIP.as_secs_f64() * read_time);
    let (told_read_time, preset) = match factor {
        Factor::Measured => (read_time, 1),
        Factor::Preset(factor) => (Duration::ZERO, factor),
    };
    let load = Load {
        ways: vec![WAY],
        order: vec![0],
        at_once: 1,
        bytes: BYTES,
        read_time,
        told_read_time,
        block: None,
    };
    let tcp = transfers::tcp().with(|tcp| {
        (tcp.buffers.send_size, tcp.buffers.send_factor) = (SendRule::Los, preset);
    });
    let one = |seed| -> Result<Transfer, Failure> {
        let found = transfers::run(&load, tcp.clone(), Limits::default(), seed)?;
        found.transfers.first().copied().ok_or_else(|| "no transfer".into())
    };
    let all = (0..seeds).map(one).collect::<Result<Vec<Transfer>, _>>()?;
    let mean = |of: fn(&Transfer) -> f64| Mean::of(all.iter().map(of));
    Ok(Point {
        seconds: mean(|transfer| transfer.seconds),
        misses: mean(|transfer| transfer.misses as f64),
        hiwat: mean(|transfer| transfer.mean_hiwat / SEGMENT as f64),
    })
}

/// Runs the experiment.
pub(crate) fn run(report: &mut Report) -> Outcome {
    let seeds = report.seeds(SEEDS);
    report.say(
        "500 KB in segments of 512 B over 1 Mbit/s and 150 ms, 0.5 % of them lost; without T_fact \
         a buffer\nis LOS's for reads of less than a round trip.",
    );
    let points = parallel::map(READ_TIMES.len() * WAYS.len(), |number| {
        point(READ_TIMES[number / WAYS.len()], WAYS[number % WAYS.len()].0, seeds)
    })?;
    let grid: Vec<&[Point]> = points.chunks(WAYS.len()).collect();
    let mut table =
        Table::new(&["read time, RTT", "T_fact", "seconds", "misses", "segments allowed"]);
    for (read_time, row) in READ_TIMES.iter().zip(&grid) {
        for ((_, name), point) in WAYS.iter().zip(*row) {
            let Point { seconds, misses, hiwat } = point;
            table.row(&[
                read_time,
                name,
                &seconds.to_string(),
                &misses.to_string(),
                &format!("{hiwat:.1}"),
            ]);
        }
    }
    report.table("read_times", &table)?;
    let mut chart = Chart::new("500 KB from a slow source", "read time, round trips", "seconds");
    for (number, (_, name)) in WAYS.iter().enumerate() {
        let line = READ_TIMES.iter().zip(&grid).map(|(at, row)| (*at, row[number].seconds.mean));
        chart.draw(name, Mark::Line, line.collect());
    }
    let of = |way: usize| grid.iter().map(move |row| &row[way]);
    let most = of(MEASURED).map(|point| point.misses.mean).fold(0.0, f64::max);
    // Before an RTT is known, the first reads use the preset.
    report.claim(
        "with T_fact measured hardly a miss but for the first reads, whose RTT is not known",
        most < 3.0,
        format!("{most:.2} a transfer at most"),
    );
    let slow = |row: &&[Point], way: usize| row[way].seconds.mean / row[MEASURED].seconds.mean;
    let beyond = || READ_TIMES.iter().zip(&grid).filter(|(at, _)| **at > 1.0).map(|(_, row)| row);
    let last = &grid[grid.len() - 1];
    report.claim(
        "without it time is lost where a read takes longer than a round trip",
        beyond().all(|row| slow(row, NONE) > 1.05),
        format!("at 4 round trips {:.2} times as long", slow(last, NONE)),
    );
    report.claim(
        "and none where it is shorter",
        (0..3).all(|at| slow(&grid[at], NONE) < 1.02),
        format!("at 0.8 round trips {:.3} times", slow(&grid[2], NONE)),
    );
    report.claim(
        "a preset of 2 is enough for two round trips, and not for four",
        slow(&grid[4], PRESET) < 1.02 && slow(last, PRESET) > 1.05,
        format!("{:.3} and {:.2} times as long", slow(&grid[4], PRESET), slow(last, PRESET)),
    );
    report.picture("read_times", &chart)
}
