//! Fig. 3: the part of TIME-WAIT that the conventional benchmark hides. Both benchmarks run with a
//! server that has 4.4BSD's timers and control blocks, and with ours: see [`webserver`].
//!
//! The scans are timed as the paper's were: alone, over as many blocks as were in TIME-WAIT. The
//! overhead is the paper's formula of their longest times.

use super::a_fig7::{percent, scans_ms};
use super::webserver::{self, Clients, MACHINES, Mode, PORTS, Run, STEADY, TIME_WAIT_S};
use crate::ablation::Ablation;
use crate::plan::Outcome;
use crate::report::{Report, Table};

/// The paper's: connections a second, in TIME-WAIT, scans in ms, % of the processor, MB.
const PAPER: [(&str, [f64; 6]); 2] = [
    ("conventional", [801.0, 11_928.0, 6.0, 15.0, 5.8, 9.0]),
    ("modified", [667.0, 48_048.0, 24.0, 63.0, 25.0, 32.0]),
];

const HEAD: [&str; 10] = [
    "server",
    "benchmark",
    "connections/s",
    "most in TIME-WAIT",
    "fast scan ms, alone",
    "slow scan ms, alone",
    "scans %, alone",
    "us a connection",
    "server %",
    "peak MB",
];

const CONVENTIONAL: Ablation =
    Ablation { name: "conventional", instead: "both benchmarks are the conventional one" };
const MODIFIED: Ablation =
    Ablation { name: "modified", instead: "both benchmarks are the modified one" };
const OURS: Ablation = Ablation { name: "ours", instead: "4.4BSD's server is ours" };

/// Addresses for more connections a second than the server takes.
const MANY: f64 = 120_000.0;

/// One line of the figure.
struct Line {
    run: Run,
    scans_ms: [f64; 2],
}

impl Line {
    fn new(report: &Report, mode: Mode, clients: Clients) -> Result<Line, crate::plan::Failure> {
        let run = webserver::run(report, mode, clients)?;
        let scans_ms = match mode {
            Mode::Bsd => scans_ms(false, run.peak_time_wait() as usize, 0),
            // This mode has no scans.
            _ => [0.0; 2],
        };
        Ok(Line { run, scans_ms })
    }

    fn row(&self, mode: Mode, benchmark: &str, table: &mut Table) {
        let run = &self.run;
        let [from, to] = STEADY;
        let [fast, slow] = self.scans_ms;
        table.row(&[
            &mode.name(),
            &benchmark,
            &format!("{:.0}", run.rate(from, to)),
            &run.peak_time_wait(),
            &format!("{fast:.2}"),
            &format!("{slow:.2}"),
            &format!("{:.1}", percent(self.scans_ms)),
            &format!("{:.1}", run.micros(from, to)),
            &format!("{:.0}", run.micros(from, to) * run.rate(from, to) / 1e4),
            &format!("{:.1}", run.peak_memory as f64 / 1e6),
        ]);
    }

    /// The server's processor time for a connection in the steady part.
    fn micros(&self) -> f64 {
        self.run.micros(STEADY[0], STEADY[1])
    }

    fn rate(&self) -> f64 {
        self.run.rate(STEADY[0], STEADY[1])
    }
}

pub(crate) fn run(report: &mut Report) -> Outcome {
    let mut table = Table::new(&HEAD);
    for (benchmark, [rate, time_wait, fast, slow, overhead, memory]) in PAPER {
        let paper = "paper's (60 s)";
        table.row(&[
            &paper, &benchmark, &rate, &time_wait, &fast, &slow, &overhead, &"-", &"-", &memory,
        ]);
    }
    let mut all = Vec::new();
    let bsd = if report.is_ablated(&OURS) { Mode::Default } else { Mode::Bsd };
    for mode in [bsd, Mode::Default] {
        let conventional = match report.is_ablated(&MODIFIED) {
            true => Clients::modified(MANY),
            false => Clients::Conventional,
        };
        let conventional = Line::new(report, mode, conventional)?;
        let best = conventional.run.connections.iter().max().copied().unwrap_or_default();
        let needed = webserver::addresses(best as f64);
        let modified = match report.is_ablated(&CONVENTIONAL) {
            true => Clients::Conventional,
            false => Clients::modified(best as f64),
        };
        let modified = Line::new(report, mode, modified)?;
        report.say(format!(
            "{}: N = ceil({best}/s / {MACHINES} · {} s / {PORTS} ports) = {needed} addresses for \
             each client; they have {}",
            mode.name(),
            STEADY[0],
            modified.run.addresses / MACHINES as u64,
        ));
        conventional.row(mode, "conventional", &mut table);
        modified.row(mode, "modified", &mut table);
        all.extend([conventional, modified]);
    }
    report.say(format!("TIME-WAIT lasts {TIME_WAIT_S} s; the file has 6 KB.\n"));
    report.table("webserver", &table)?;
    let [bsd, bsd_modified, ours, ours_modified] = &all[..] else { unreachable!("two of two") };
    claims(report, [bsd, bsd_modified], [ours, ours_modified]);
    Ok(())
}

fn claims(report: &mut Report, bsd: [&Line; 2], ours: [&Line; 2]) {
    webserver::check_load(report, [bsd, ours].as_flattened().iter().map(|line| &line.run));
    for (name, [conventional, modified]) in [("4.4BSD", bsd), ("ours", ours)] {
        let [hidden, shown] = [conventional, modified].map(|line| line.run.peak_time_wait());
        let most = MACHINES as u64 * PORTS;
        report.claim(
            &format!("{name}: the conventional benchmark's TIME-WAITs are machines x ports"),
            &MODIFIED,
            hidden <= most && hidden * 100 >= most * 95,
            format!("{hidden} of {most}"),
        );
        report.claim(
            &format!("{name}: the modified benchmark shows more than four times as many"),
            &CONVENTIONAL,
            shown > 4 * hidden,
            format!("{shown} against {hidden}"),
        );
    }
    let overheads = bsd.map(|line| percent(line.scans_ms));
    report.claim(
        "4.4BSD: the scans' overhead grows with the true number",
        &CONVENTIONAL,
        overheads[1] > 4.0 * overheads[0],
        format!("{:.1} % -> {:.1} %", overheads[0], overheads[1]),
    );
    let growth = |[conventional, modified]: [&Line; 2]| modified.micros() / conventional.micros();
    report.claim(
        "the true number costs a connection more of 4.4BSD's server than of ours",
        &OURS,
        growth(bsd) > 1.1 * growth(ours),
        format!("x {:.2} against x {:.2}", growth(bsd), growth(ours)),
    );
    let memory = |line: &Line| line.run.peak_memory as f64 / 1e6;
    report.claim(
        "4.4BSD's peak of memory is more than six times ours (Fig. 9)",
        &OURS,
        memory(bsd[1]) > 6.0 * memory(ours[1]),
        format!("{:.0} MB against {:.0} MB", memory(bsd[1]), memory(ours[1])),
    );
    for (name, [conventional, modified]) in [("4.4BSD", bsd), ("ours", ours)] {
        let change = modified.rate() / conventional.rate() - 1.0;
        let falls = change < -0.1;
        report.observe(
            &format!(
                "{name}: the rate {} with the modified benchmark",
                if name == "ours" { "does not fall by a tenth" } else { "falls by a tenth" },
            ),
            falls == (name != "ours"),
            format!("{:+.0} % (paper, 4.4BSD: -17 %)", change * 100.0),
        );
    }
}
