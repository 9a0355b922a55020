//! The report of an experiment: text on the terminal, tables as CSV, charts as SVG, everything as
//! JSON, and a verdict on each claim.

use lightwait_bench::say_line;
use std::cell::Cell;
use std::fmt::{Display, Write};
use std::fs;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::{Map, Value, json};

use crate::ablation::{Ablation, FEW_SEEDS, Verdict, Whole};
use crate::chart::{Chart, Mark};
use crate::expected::Known;
use crate::plan::{Failure, Plan, Seeds};
use crate::statistics::Mean;

/// The directory of the experiments' sources.
fn root_of_crate() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The default directory of the results.
pub(crate) fn usual_directory() -> PathBuf {
    root_of_crate().with_file_name("target").join("experiments")
}

/// How the line of a run's text begins that tells where it was made, and how it ends where that was
/// a quick one.
pub(crate) const MADE_ON: &str = "made on ";
pub(crate) const QUICK: &str = "; --quick";

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// The directory of the results.
    pub(crate) out: PathBuf,
    /// Seeds to average over, instead of an experiment's own number.
    pub(crate) seeds: Option<u64>,
    /// Is added to each seed.
    pub(crate) offset: u64,
    /// A tenth of the seeds suffices, and fewer values.
    pub(crate) quick: bool,
    /// The results become the known ones, for this reason.
    pub(crate) bless: Option<String>,
    /// The ablation to run with, by its name: silently, and nothing is compared.
    pub(crate) ablated: Option<&'static str>,
}

impl Work {
    /// A whole run whose results go to `out`.
    #[cfg(test)]
    pub(crate) fn in_directory(out: &Path) -> Work {
        let (seeds, offset, quick, bless, ablated) = Default::default();
        Work { out: out.to_owned(), seeds, offset, quick, bless, ablated }
    }
}

/// The report of one experiment.
pub(crate) struct Report {
    id: &'static str,
    known: Known,
    work: Work,
    directory: PathBuf,
    data: Map<String, Value>,
    /// Each table's columns, in order.
    columns: Map<String, Value>,
    claims: Vec<Value>,
    verdicts: Vec<Verdict>,
    all_hold: bool,
    /// The experiment has asked for the ablation that it is run with.
    has_asked: Cell<bool>,
    first_seed: Option<u64>,
    /// The seeds of all random numbers.
    seeds: Vec<u64>,
    /// Why there are none.
    without_seeds: Option<&'static str>,
}

impl Report {
    /// An empty report; makes its directory.
    pub(crate) fn new(plan: &Plan, work: &Work) -> Result<Report, Failure> {
        let directory = work.out.join(plan.id);
        fs::create_dir_all(&directory)?;
        let mut data = Map::new();
        for (key, text) in [("id", plan.id), ("title", plan.title), ("source", plan.source)] {
            data.insert(key.to_owned(), json!(text));
        }
        let known = if work.ablated.is_some() { Known::Nothing } else { plan.known };
        let (id, work) = (plan.id, work.clone());
        let (columns, claims, verdicts, has_asked) = Default::default();
        let (first_seed, seeds, without_seeds) = match plan.seeds {
            Seeds::Fixed(seeds) => (None, seeds(), None),
            Seeds::From(first) => (Some(first), Vec::new(), None),
            Seeds::None(why) => (None, Vec::new(), Some(why)),
        };
        Ok(Report {
            id,
            known,
            work,
            directory,
            data,
            columns,
            claims,
            verdicts,
            all_hold: true,
            has_asked,
            first_seed,
            seeds,
            without_seeds,
        })
    }

    /// The seeds to average over; `usual` are enough for the claims.
    ///
    /// # Panics
    /// If the plan does not say where they begin.
    pub(crate) fn seeds(&mut self, usual: u64) -> Range<u64> {
        let first = self.first_seed.expect("`Seeds::From` in the plan") + self.work.offset;
        if self.work.offset > 0 {
            self.known = Known::Nothing;
        }
        let seeds = first..first + self.repeats(usual);
        self.seeds = seeds.clone().collect();
        seeds
    }

    /// The number of runs to average over, of an experiment without seeds.
    pub(crate) fn repeats(&mut self, usual: u64) -> u64 {
        let few = if self.work.quick { usual.div_ceil(10).max(4).min(usual) } else { usual };
        let few = if self.work.ablated.is_some() { few.min(FEW_SEEDS) } else { few };
        let count = self.work.seeds.unwrap_or(few);
        if count != usual {
            self.known = Known::Nothing;
        }
        count
    }

    /// True if fewer values should be swept. The results are then not compared.
    pub(crate) fn is_quick(&mut self) -> bool {
        if self.work.quick {
            self.known = Known::Nothing;
        }
        self.work.quick
    }

    /// The path of a file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Prints text for the reader.
    pub(crate) fn say(&self, text: impl Display) {
        if self.work.ablated.is_none() {
            say_line!("{text}");
        }
    }

    /// Prints a table, and writes it as `name.csv`.
    pub(crate) fn table(&mut self, name: &str, table: &Table) -> Result<(), Failure> {
        self.say(table.text());
        fs::write(self.directory.join(format!("{name}.csv")), table.csv())?;
        self.data.insert(name.to_owned(), table.json());
        self.columns.insert(name.to_owned(), json!(table.head));
        Ok(())
    }

    /// Adds a table and a chart of means: a row for each swept value, a column and a line for each
    /// name.
    pub(crate) fn means(
        &mut self,
        name: &str,
        swept: &str,
        names: &[&str],
        rows: &[(f64, Vec<Mean>)],
        mut chart: Chart,
    ) -> Result<(), Failure> {
        let mut table = Table::new(&[&[swept], names].concat());
        for (at, means) in rows {
            let means = means.iter().map(|mean| mean as &dyn Display);
            table.row(&std::iter::once(at as &dyn Display).chain(means).collect::<Vec<_>>());
        }
        for (number, name) in names.iter().enumerate() {
            let line = rows.iter().map(|(at, means)| (*at, means[number]));
            chart.draw_means(name, Mark::Line, line);
        }
        self.table(name, &table)?;
        self.picture(name, &chart)
    }

    /// Adds a value for programs.
    pub(crate) fn value(&mut self, name: &str, value: impl Into<Value>) {
        self.data.insert(name.to_owned(), value.into());
    }

    /// Writes a chart as `name.svg`.
    pub(crate) fn picture(&self, name: &str, chart: &Chart) -> Result<(), Failure> {
        Ok(fs::write(self.directory.join(format!("{name}.svg")), chart.svg())?)
    }

    /// True if the experiment should run without what `ablation` takes away.
    pub(crate) fn is_ablated(&self, ablation: &Ablation) -> bool {
        let is_ablated = self.work.ablated == Some(ablation.name);
        self.has_asked.set(self.has_asked.get() | is_ablated);
        is_ablated
    }

    /// True if the experiment has asked for the ablation that it is run with.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.get()
    }

    /// Adds a claim of the paper, whether it holds, and the result. The claim falls with
    /// `ablation`.
    pub(crate) fn claim(
        &mut self,
        claim: &str,
        ablation: &'static Ablation,
        holds: bool,
        found: impl Display,
    ) {
        let found = found.to_string();
        self.check(claim, holds, &found);
        self.verdicts.push(Verdict { claim: claim.to_owned(), holds, found, ablation });
    }

    /// Adds a check of the set-up, without which the claims would say nothing. It is no claim, and
    /// has no ablation.
    pub(crate) fn check(&mut self, check: &str, holds: bool, found: impl Display) {
        let found = found.to_string();
        self.say(format_args!("{} {check}: {found}", if holds { "holds " } else { "FAILS " }));
        self.claims.push(json!({ "claim": check, "holds": holds, "found": found }));
        self.all_hold &= holds;
    }

    /// The claims so far.
    pub(crate) fn into_verdicts(self) -> Vec<Verdict> {
        self.verdicts
    }

    /// Adds a claim that depends on times: whether it holds on this machine now is reported, but is
    /// no failure.
    pub(crate) fn observe(&mut self, claim: &str, holds: bool, found: impl Display) {
        self.say(format_args!("{} {claim}: {found}", if holds { "is so  " } else { "NOT SO " }));
        let found = found.to_string();
        self.claims.push(json!({ "observed": claim, "is_so": holds, "found": found }));
    }

    /// The contents of `data.json`: also what differs from machine to machine, and is not compared.
    fn written(&self, data: &Value) -> Value {
        assert!(!self.seeds.is_empty() || self.without_seeds.is_some(), "it has drawn no seeds");
        let mut written = data.clone();
        written["made_on"] = made_on();
        written["seeds"] = json!(self.seeds);
        if let Some(why) = self.without_seeds {
            written["without_seeds"] = json!(why);
        }
        written["columns"] = Value::Object(self.columns.clone());
        written
    }

    /// Writes `data.json`, and the known results if they are to be blessed. Returns true if all
    /// claims hold and the results are the known ones; and the claims.
    pub(crate) fn finish(mut self) -> Result<Whole, Failure> {
        self.data.insert("claims".to_owned(), Value::Array(mem::take(&mut self.claims)));
        let data = Value::Object(mem::take(&mut self.data));
        let written = self.written(&data);
        say_line!("{}", provenance(&written, self.work.quick));
        let text = serde_json::to_string_pretty(&written)?;
        fs::write(self.directory.join("data.json"), text + "\n")?;
        say_line!("written to {}", self.directory.display());
        let reason = self.work.bless.as_deref();
        let differences = self.known.compare(self.id, &data, reason)?;
        for line in &differences {
            say_line!("DIFFERS from expected/{}.json: {line}", self.id);
        }
        if !differences.is_empty() {
            say_line!("If meant: {} --bless WHY, and commit", self.id);
        }
        Ok((self.all_hold && differences.is_empty(), self.verdicts))
    }
}

/// The line of a run's text that tells where, of what and with which seeds it was made. It begins
/// and ends as the table of stored runs expects.
fn provenance(written: &Value, is_quick: bool) -> String {
    let made = |key: &str| match &written["made_on"][key] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "unknown".to_owned(),
    };
    let seeds = match written["seeds"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => "no seeds".to_owned(),
        [one] => format!("seed {one}"),
        [first, .., last] => format!("seeds {first} to {last}"),
    };
    format!(
        "{MADE_ON}{}, {} processors; Linux {}; commit {}; {}; {seeds}{}",
        made("processor"),
        made("processors"),
        made("kernel"),
        made("commit"),
        made("compiler"),
        if is_quick { QUICK } else { "" },
    )
}

/// The machine, the commit and the compiler.
fn made_on() -> Value {
    let first_line = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(root_of_crate()).output();
        let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        text.map(|text| first_line(String::from_utf8_lossy(&text).into_owned()))
    };
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    json!({
        "processor": processor,
        "processors": thread::available_parallelism().ok().map(usize::from),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(first_line),
        "commit": said("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        "compiler": said("rustc", &["--version"]),
    })
}

/// Rows of cells under a head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. Each column has a name of its own: data.json keeps values by it.
    pub(crate) fn new(head: &[&str]) -> Table {
        let is_new = |(place, name): (usize, &&str)| !head[..place].contains(name);
        assert!(head.iter().enumerate().all(is_new), "two columns of one name: {head:?}");
        Table { head: head.iter().map(|cell| (*cell).to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row, with as many cells as the head.
    pub(crate) fn row(&mut self, cells: &[&dyn Display]) {
        assert_eq!(cells.len(), self.head.len(), "a cell for each column");
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }

    /// The table as text, with columns flush right except for the first.
    fn text(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            lines().map(|line| line[column].chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for line in lines() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let _ = match column {
                    0 => write!(text, "  {cell:<width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            text.push('\n');
        }
        text
    }

    /// The table with a number in each cell, where it can be: a mean with its confidence, and a
    /// number with the paper's, have columns of their own.
    pub(crate) fn csv(&self) -> String {
        let mut columns: Vec<Vec<String>> = Vec::new();
        for (place, name) in self.head.iter().enumerate() {
            let parts: Vec<Parts> = self.rows.iter().map(|row| Parts::of(&row[place])).collect();
            let mut column = |name: String, part: fn(&Parts) -> &str| {
                let cells = parts.iter().map(|parts| part(parts).to_owned());
                columns.push(std::iter::once(name).chain(cells).collect());
            };
            column(name.clone(), |parts| &parts.value);
            if parts.iter().any(|parts| !parts.ci.is_empty()) {
                column(format!("{name}, ci"), |parts| &parts.ci);
            }
            if parts.iter().any(|parts| !parts.paper.is_empty()) {
                column(format!("{name}, paper"), |parts| &parts.paper);
            }
        }
        let quote = |cell: &String| match cell.contains([',', '"', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let line = |row: usize| {
            let cells: Vec<String> = columns.iter().map(|column| quote(&column[row])).collect();
            cells.join(",") + "\n"
        };
        (0..=self.rows.len()).map(line).collect()
    }

    /// An object for each row.
    fn json(&self) -> Value {
        let row = |cells: &Vec<String>| {
            let value = |cell: &String| match cell.parse::<f64>() {
                Ok(number) if number.is_finite() => json!(number),
                _ => json!(cell),
            };
            let pairs = self.head.iter().cloned().zip(cells.iter().map(value));
            Value::Object(pairs.collect())
        };
        self.rows.iter().map(row).collect()
    }
}

/// A cell in parts: `13.94±0.96 (paper: 14)`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Parts {
    /// A mean, a number, or any text.
    value: String,
    /// Half of the mean's 95 % confidence interval.
    ci: String,
    paper: String,
}

impl Parts {
    fn of(cell: &str) -> Parts {
        let paper = cell.split_once(" (paper: ").and_then(|(own, rest)| {
            let paper = rest.strip_suffix(')')?;
            Some((own, paper))
        });
        let (own, paper) = paper.unwrap_or((cell, ""));
        let is_number = |text: &&str| text.parse::<f64>().is_ok();
        let mean = own.split_once('±').map(|(mean, half)| (mean.trim_end(), half.trim_start()));
        let mean = mean.filter(|(mean, half)| is_number(mean) && is_number(half));
        let (value, ci) = mean.unwrap_or((own, ""));
        Parts { value: value.to_owned(), ci: ci.to_owned(), paper: paper.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PLANS;

    #[test]
    fn a_table_comes_out_as_text_csv_and_json() {
        let mut table = Table::new(&["who", "ms"]);
        table.row(&[&"a, b", &1.5]);
        table.row(&[&"c", &20]);
        assert_eq!(table.text(), "  who    ms\n  a, b  1.5\n  c      20\n");
        assert_eq!(table.csv(), "who,ms\n\"a, b\",1.5\nc,20\n");
        assert_eq!(table.json(), json!([{ "who": "a, b", "ms": 1.5 }, { "who": "c", "ms": 20.0 }]));
    }

    #[test]
    fn a_cell_of_csv_is_a_number_that_can_be_drawn() {
        let mut table = Table::new(&["who", "ms", "rate"]);
        table.row(&[&"a±b", &"13.94±0.96", &"1693 (paper: 1193 *)"]);
        table.row(&[&"c", &"7", &"12 ± 0.5 (paper: 11)"]);
        let csv = "who,ms,\"ms, ci\",rate,\"rate, ci\",\"rate, paper\"\n\
                   a±b,13.94,0.96,1693,,1193 *\nc,7,,12,0.5,11\n";
        assert_eq!(table.csv(), csv);
    }

    #[test]
    fn other_seeds_have_no_known_result() {
        let out = tempfile::tempdir().unwrap();
        let plan = PLANS.iter().find(|plan| plan.id == "d-fig4").unwrap();
        for (offset, known) in [(0, Known::Exactly), (7, Known::Nothing)] {
            let work = Work { offset, ..Work::in_directory(out.path()) };
            let mut report = Report::new(plan, &work).unwrap();
            assert_eq!((report.seeds(3), report.known), (offset..offset + 3, known));
        }
    }

    #[test]
    fn each_datum_has_its_machine_commit_compiler_and_seeds() {
        let out = tempfile::tempdir().unwrap();
        for plan in PLANS {
            let work = Work { quick: true, ..Work::in_directory(out.path()) };
            let mut report = Report::new(plan, &work).unwrap();
            if let Seeds::From(_) = plan.seeds {
                report.seeds(50);
            }
            let data = report.written(&json!({}));
            let made_on = data["made_on"].as_object().unwrap();
            for fact in ["processor", "kernel", "commit", "compiler"] {
                assert!(made_on.contains_key(fact), "{}: no {fact}", plan.id);
            }
            let seeds = data["seeds"].as_array().unwrap_or_else(|| panic!("{}", plan.id));
            let why = data["without_seeds"].as_str().unwrap_or_default();
            assert_ne!(
                seeds.is_empty(),
                why.is_empty(),
                "{}: seeds, or why there are none",
                plan.id
            );
            assert!(seeds.iter().all(Value::is_u64), "{}", plan.id);
        }
    }
}
