//! Fig. 7 over devices: a saturated server under the modified benchmark, with 4.4BSD's scans, the
//! ordered list, a timing wheel (all with the whole control block in TIME-WAIT), and ours. See
//! [`webserver`].

use super::webserver::{self, Clients, Mode, STEADY, TIME_WAIT_S};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// Addresses for more connections a second than the server takes.
const RATE: f64 = 120_000.0;
const MODES: [Mode; 4] = [Mode::Bsd, Mode::OrderedList, Mode::Wheel, Mode::Default];

/// A tenth is more than what two runs of one server differ by.
const LESS: f64 = 0.9;

const SCANS: Ablation = Ablation { name: "scans", instead: "each server scans, as 4.4BSD's" };

pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut runs = Vec::new();
    let mut table =
        Table::new(&["server", "connections/s", "most in TIME-WAIT", "us a connection", "peak MB"]);
    let [from, to] = STEADY;
    for mode in MODES {
        let server = if report.is_ablated(&SCANS) { Mode::Bsd } else { mode };
        let run = webserver::run(report, server, Clients::modified(RATE))?;
        table.row(&[
            &mode.name(),
            &format!("{:.0}", run.rate(from, to)),
            &run.peak_time_wait(),
            &format!("{:.1}", run.micros(from, to)),
            &format!("{:.1}", run.peak_memory as f64 / 1e6),
        ]);
        runs.push(run);
    }
    report.say(format!(
        "TIME-WAIT lasts {TIME_WAIT_S} s. Paper, 48 048 in TIME-WAIT: 667 connections/s by scans, \
         834 by the list.\n"
    ));
    report.table("modes", &table)?;
    let names = MODES.map(Mode::name);
    let mut chart = Chart::of_categories("What a connection takes of the processor", &names, "us");
    let micros: Vec<f64> = runs.iter().map(|run| run.micros(from, to)).collect();
    let bars = (0..).map(f64::from).zip(micros.iter().copied());
    chart.draw("steady part", Mark::Bars, bars.collect());
    report.picture("modes", &chart)?;
    webserver::check_load(report, runs.iter());
    for (mode, micros_of) in MODES.iter().zip(&micros).skip(1) {
        report.claim(
            &format!("{}: a connection takes a tenth less than by scans", mode.name()),
            &SCANS,
            *micros_of < LESS * micros[0],
            format!("{micros_of:.1} against {:.1} us", micros[0]),
        );
    }
    let [_, list, wheel, _] = micros[..] else { unreachable!("four modes") };
    report.observe(
        "the list costs less than the wheel (paper: by 5 %)",
        list < wheel,
        format!("{list:.1} against {wheel:.1} us"),
    );
    Ok(())
}
