//! Fig. 4: the start of a server under the modified benchmark, over two TIME-WAITs. The paper's
//! throughput falls by up to a quarter in the first 60 s, since no TIME-WAITs end yet and the scans
//! grow. See [`webserver`].

use super::webserver::{self, Clients, Mode, RUN_S, Run, TIME_WAIT_S};
use crate::ablation::Ablation;
use crate::chart::{Chart, Mark};
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// Addresses for more connections a second than the server takes.
const RATE: f64 = 120_000.0;
/// Seconds in each row of the table.
const STEP_S: u64 = 5;
/// The first second that counts: before it the server fills caches and learns ports.
const FROM_S: u64 = 1;

const BSD_IS_OURS: Ablation = Ablation { name: "ours", instead: "4.4BSD's server is ours" };
const OURS_IS_BSD: Ablation = Ablation { name: "bsd", instead: "our server is 4.4BSD's" };

pub(crate) fn run(report: &mut Report) -> Outcome {
    let modes = match (report.is_ablated(&BSD_IS_OURS), report.is_ablated(&OURS_IS_BSD)) {
        (true, _) => [Mode::Default; 2],
        (_, true) => [Mode::Bsd; 2],
        _ => [Mode::Bsd, Mode::Default],
    };
    let runs = [
        webserver::run(report, modes[0], Clients::modified(RATE))?,
        webserver::run(report, modes[1], Clients::modified(RATE))?,
    ];
    let names = modes.map(Mode::name);
    let mut table = Table::new(&[
        "until s",
        "4.4BSD conn/s",
        "4.4BSD us",
        "4.4BSD TIME-WAIT",
        "ours conn/s",
        "ours us",
        "ours TIME-WAIT",
    ]);
    for to in (STEP_S..RUN_S).step_by(STEP_S as usize) {
        let from = to - STEP_S;
        let [bsd, ours] = runs.each_ref().map(|run| {
            let micros = run.micros(from, to);
            (format!("{:.0}", run.rate(from, to)), format!("{micros:.1}"), time_wait(run, to))
        });
        table.row(&[&to, &bsd.0, &bsd.1, &bsd.2, &ours.0, &ours.1, &ours.2]);
    }
    report.say(format!("TIME-WAIT lasts {TIME_WAIT_S} s.\n"));
    report.table("start", &table)?;
    let mut rates = Chart::new("The start under the modified benchmark", "s", "connections/s");
    let mut costs =
        Chart::new("What a connection takes of the server's processor", "s", "us a connection");
    for (name, run) in names.into_iter().zip(&runs) {
        let seconds = run.connections.iter().enumerate();
        let points = seconds.map(|(second, count)| (second as f64 + 1.0, *count as f64));
        rates.draw(name, Mark::Line, points.collect());
        let points = (2..RUN_S).map(|to| (to as f64, run.micros(to - 2, to)));
        costs.draw(name, Mark::Line, points.collect());
    }
    report.picture("start", &rates)?;
    report.picture("cost", &costs)?;
    claims(report, &runs);
    Ok(())
}

fn time_wait(run: &Run, at: u64) -> u64 {
    let sample = run.samples.iter().find(|sample| sample.0 >= at as f64);
    sample.or(run.samples.last()).map_or(0, |sample| sample.1)
}

fn claims(report: &mut Report, [bsd, ours]: &[Run; 2]) {
    let early = [FROM_S, FROM_S + STEP_S / 2];
    let late = [TIME_WAIT_S, 2 * TIME_WAIT_S];
    let growth = |run: &Run| run.micros(late[0], late[1]) / run.micros(early[0], early[1]);
    // Ours is the control: a server at its start has cold caches, whatever its TIME-WAITs cost.
    let more = growth(bsd) / growth(ours);
    report.claim(
        "4.4BSD's connection takes more of the processor as TIME-WAITs gather, set against ours",
        &BSD_IS_OURS,
        more > 1.15,
        format!("x {:.2} against x {:.2}", growth(bsd), growth(ours)),
    );
    report.claim(
        "ours takes no more than a twentieth more",
        &OURS_IS_BSD,
        growth(ours) < 1.05,
        format!("x {:.2}", growth(ours)),
    );
    let change = |run: &Run| run.rate(late[0], late[1]) / run.rate(early[0], early[1]);
    let percent = |run: &Run| format!("{:+.0} %", (change(run) - 1.0) * 100.0);
    // Two runs of one server may differ by as much, where others use the processors.
    report.observe(
        "4.4BSD's rate falls in the first TIME-WAIT, set against ours (paper: by up to 25 %)",
        change(bsd) < 0.9 * change(ours),
        format!("{} against {}", percent(bsd), percent(ours)),
    );
    let holds = change(ours) > 0.9;
    report.claim("ours does not fall by a tenth", &OURS_IS_BSD, holds, percent(ours));
    webserver::check_load(report, [bsd, ours].into_iter());
}
