//! The table of README.md that says what became of each figure. It is made of the stored results:
//! `expected/` for experiments in virtual time, and the newest run under `bench/runs` for others.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::plan::{Failure, Outcome, PLANS, Paper, Plan};
use crate::report::{MADE_ON, QUICK};

/// The table lies between this heading and the next one.
const HEADING: &str = "\n## What came of it\n";
const HEAD: &str = "| figure | command `… --` | verdict | claims | observed | time | stored |\n\
                    |---|---|---|---|---|---|---|\n";

/// The papers' letters.
const PAPERS: [(&str, &str); 4] = [
    ("Aron & Druschel 1999, ", "A: "),
    ("Mansley 2004, ", "B: "),
    ("Faber, Touch & Yue 1999, ", "C: "),
    ("Cohen & Cohen 2002, ", "D: "),
];

/// The outcome of a stored run: claims and checks that hold, of how many; and observations that are
/// so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    claims: [usize; 2],
    observed: [usize; 2],
    /// The run had few seeds and swept few values.
    is_quick: bool,
}

impl Tally {
    /// Counts one that is as claimed, or is not.
    fn count(&mut self, is_claim: bool, is_so: bool) {
        let [so, all] = if is_claim { &mut self.claims } else { &mut self.observed };
        *so += usize::from(is_so);
        *all += 1;
    }

    /// The outcome in `expected/ID.json`; `None` where a tolerance leaves the claims out.
    fn of_known(data: &Value) -> Option<Tally> {
        let mut tally = Tally::default();
        for claim in data["claims"].as_array()? {
            let is_claim = claim.get("claim").is_some();
            tally.count(is_claim, claim[if is_claim { "holds" } else { "is_so" }] == true);
        }
        Some(tally)
    }

    /// The outcome of `id` in the printed text of a run; `None` if it is not there.
    fn of_text(id: &str, text: &str) -> Option<Tally> {
        let title = format!("{id} — ");
        let (mut is_its, mut tally) = (false, None);
        for line in text.lines() {
            if PLANS.iter().any(|plan| is_title(line, plan.id)) {
                is_its = line.starts_with(&title);
                if is_its {
                    tally = Some(Tally::default());
                }
            }
            let Some(tally) = tally.as_mut().filter(|_| is_its) else { continue };
            tally.is_quick |= line.starts_with(MADE_ON) && line.ends_with(QUICK);
            for (word, is_claim, is_so) in [
                ("holds ", true, true),
                ("FAILS  ", true, false),
                ("is so  ", false, true),
                ("NOT SO ", false, false),
            ] {
                if line.starts_with(word) {
                    tally.count(is_claim, is_so);
                }
            }
        }
        tally.filter(|tally| tally.claims[1] > 0)
    }

    fn verdict(self, plan: &Plan) -> &'static str {
        match plan.paper {
            _ if self.claims[0] < self.claims[1] => "not so",
            Paper::Size => "same size",
            Paper::Direction => "same direction",
            Paper::Nothing => "ours holds",
        }
    }
}

fn is_title(line: &str, id: &str) -> bool {
    line.strip_prefix(id).is_some_and(|rest| rest.starts_with(" — "))
}

/// The directory of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate lies in the repository")
}

fn readme() -> PathBuf {
    root().join("experiments/README.md")
}

/// Files and directories there, in order of their names.
fn entries(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(path)? {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The newest stored outcome of an experiment, and where it is. Documents cite the runs in `cited`.
fn stored(plan: &Plan, cited: &str) -> Result<Option<(Tally, String)>, Failure> {
    let known = root().join(format!("experiments/expected/{}.json", plan.id));
    if let Ok(text) = fs::read_to_string(known)
        && let Some(tally) = Tally::of_known(&serde_json::from_str(&text)?)
    {
        return Ok(Some((tally, "`expected`".to_owned())));
    }
    for day in entries(&root().join("bench/runs"))?.iter().rev() {
        let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let mut texts = entries(day)?;
        texts.retain(|path| path.extension().is_some_and(|end| end == "txt"));
        texts.reverse();
        // Of a day, the run that documents cite comes first.
        texts.sort_by_key(|path| !cited.contains(&format!("{}/{}", name(day), name(path))));
        for path in &texts {
            if let Some(tally) = Tally::of_text(plan.id, &fs::read_to_string(path)?) {
                let extent = if tally.is_quick { ", quick" } else { "" };
                return Ok(Some((tally, name(day) + extent)));
            }
        }
    }
    Ok(None)
}

/// The time that README's lists of experiments give for an experiment: those of the papers have six
/// columns, and those beside Linux four.
fn time(readme: &str, id: &str) -> String {
    let its = |line: &&str| line.starts_with("| ") && line.contains(&format!("`{id}`"));
    let time = readme.lines().filter(its).find_map(|line| match line.matches('|').count() {
        7 => line.split('|').nth(4),
        5 => line.split('|').nth(3),
        _ => None,
    });
    time.unwrap_or("–").trim().trim_end_matches(" each").to_owned()
}

/// Paper and figure.
fn figure(plan: &Plan) -> String {
    let known = PAPERS.iter().find_map(|(paper, letter)| {
        plan.source.strip_prefix(paper).map(|figure| format!("{letter}{figure}"))
    });
    let figure = known.unwrap_or_else(|| "–".to_owned());
    figure.split(", after ").next().unwrap_or_default().replace(" and ", ", ")
}

/// The table, by README's list and the stored results.
fn table(readme: &str) -> Result<String, Failure> {
    let (mut table, mut cited) = (HEAD.to_owned(), String::new());
    for path in entries(&root().join("bench/figures"))? {
        cited += &fs::read_to_string(path)?;
    }
    for plan in PLANS {
        let part = |[so, all]: [usize; 2]| match all {
            0 => "–".to_owned(),
            all => format!("{so} of {all}"),
        };
        let (verdict, claims, observed, place) = match stored(plan, &cited)? {
            Some((tally, place)) => {
                (tally.verdict(plan), part(tally.claims), part(tally.observed), place)
            }
            None => ("no run is stored", part([0; 2]), part([0; 2]), "–".to_owned()),
        };
        let (figure, time) = (figure(plan), time(readme, plan.id));
        writeln!(
            table,
            "| {figure} | `{}` | {verdict} | {claims} | {observed} | {time} | {place} |",
            plan.id
        )?;
    }
    Ok(table)
}

/// README with a current table.
fn current(readme: &str) -> Result<String, Failure> {
    let (before, rest) = readme.split_once(HEADING).ok_or("README has no such heading")?;
    let (words, old) = rest.split_once("| figure |").ok_or("README has no such table")?;
    let after = old.split_once("\n\n").map_or("", |(_, after)| after);
    Ok(format!("{before}{HEADING}{words}{}\n{after}", table(readme)?))
}

/// Writes the table into README.
pub(crate) fn write() -> Outcome {
    let text = fs::read_to_string(readme())?;
    Ok(fs::write(readme(), current(&text)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readmes_table_is_that_of_the_stored_results() {
        let text = fs::read_to_string(readme()).unwrap();
        let current = current(&text).unwrap();
        assert!(text == current, "run `lightwait-experiments table`, and commit");
    }

    #[test]
    fn a_time_is_found_in_either_list() {
        let readme = "| C | `c-devices`: both | devices | 7 min | 1 GB | claims |\n\
                      | – | `c-devices` | ours | 1 | 2 | 3 | 4 |\n\
                      | `r-loss`, `r-tail`: ours | devices | 4 h | 2 min |\n";
        let times = ["c-devices", "r-tail", "r-fair"].map(|id| time(readme, id));
        assert_eq!(times, ["7 min", "4 h", "–"]);
    }

    #[test]
    fn a_run_is_counted_from_its_title_to_the_next() {
        let text =
            "a-fig3 — one\nholds  x: 1\nFAILS  y: 2\n\na-fig4 — two\nNOT SO z: 3\nholds  x: 1";
        let tally = |claims, observed| Some(Tally { claims, observed, is_quick: false });
        assert_eq!(Tally::of_text("a-fig3", text), tally([1, 2], [0, 0]));
        assert_eq!(Tally::of_text("a-fig4", text), tally([1, 1], [0, 1]));
        assert_eq!(Tally::of_text("a-fig5", text), None);
        let quick = format!("{text}\nmade on it; seed 1{QUICK}");
        assert!(Tally::of_text("a-fig4", &quick).unwrap().is_quick);
        assert!(!Tally::of_text("a-fig3", &quick).unwrap().is_quick);
        let plan = |id: &str| PLANS.iter().find(|plan| plan.id == id).unwrap();
        assert_eq!(tally([1, 2], [0, 0]).unwrap().verdict(plan("a-fig5")), "not so");
        assert_eq!(tally([2, 2], [0, 1]).unwrap().verdict(plan("a-fig5")), "same size");
        assert_eq!(tally([2, 2], [0, 1]).unwrap().verdict(plan("a-fig4")), "same direction");
    }
}
