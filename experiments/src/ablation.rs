//! Ablations: a claim that holds also without the thing that it is about says nothing.
//!
//! Each claim names its ablation, and the experiment runs without that thing where
//! [`Report::is_ablated`](crate::report::Report::is_ablated) says so. `ablate` runs an experiment
//! whole, and once more for each ablation: each claim must hold at first and fall then.

use std::process::ExitCode;

use lightwait_bench::say_line;

use crate::plan::{Failure, Plan};
use crate::report::{Report, Table, Work};

/// Seeds of an ablated run at most, unless `--seeds` says more: an effect that is gone shows in a
/// few.
pub(crate) const FEW_SEEDS: u64 = 4;

/// A switch that takes away what claims are about.
#[derive(Debug)]
pub(crate) struct Ablation {
    /// Its name in the report, such as `no-buckets`.
    pub(crate) name: &'static str,
    /// What the experiment does instead.
    pub(crate) instead: &'static str,
}

/// A claim, and whether it holds.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) claim: String,
    pub(crate) holds: bool,
    pub(crate) found: String,
    /// What makes it fall.
    pub(crate) ablation: &'static Ablation,
}

/// A claim with its value, and the value without what it is about.
struct Trial {
    verdict: Verdict,
    /// `None` if the run without it did not come to the claim.
    ablated: Option<Verdict>,
}

impl Trial {
    fn outcome(&self) -> &'static str {
        match &self.ablated {
            _ if !self.verdict.holds => "FAILS",
            None => "NOT REACHED",
            Some(ablated) if ablated.holds => "SURVIVES",
            Some(_) => "falls",
        }
    }

    fn is_tight(&self) -> bool {
        self.outcome() == "falls"
    }
}

/// Runs the experiments whole and without what their claims are about.
pub(crate) fn run_all(plans: &[&Plan], work: &Work, run: fn(&Plan, &Work) -> Whole) -> ExitCode {
    let failed: Vec<&str> =
        plans.iter().filter(|plan| !is_tight(plan, work, run)).map(|plan| plan.id).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("claims that do not fall, or do not hold: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// The outcome of a whole run: whether all is as it should be, and its claims.
pub(crate) type Whole = (bool, Vec<Verdict>);

/// Runs one experiment whole and ablated. Returns true if all is well and every claim falls.
pub(crate) fn is_tight(plan: &Plan, work: &Work, run: fn(&Plan, &Work) -> Whole) -> bool {
    let (is_well, verdicts) = run(plan, work);
    let outcome = try_all(plan, work, verdicts).and_then(|trials| tell(plan, work, &trials));
    outcome.unwrap_or_else(|why| {
        eprintln!("{}: {why}", plan.id);
        false
    }) && is_well
}

/// Runs the experiment once for each ablation that its claims name.
fn try_all(plan: &Plan, work: &Work, verdicts: Vec<Verdict>) -> Result<Vec<Trial>, Failure> {
    let mut ablations: Vec<&'static Ablation> = Vec::new();
    for ablation in verdicts.iter().map(|verdict| verdict.ablation) {
        if !ablations.iter().any(|known| known.name == ablation.name) {
            ablations.push(ablation);
        }
    }
    let mut trials: Vec<Trial> =
        verdicts.into_iter().map(|verdict| Trial { verdict, ablated: None }).collect();
    for ablation in ablations {
        let found = without(plan, work, ablation)?;
        let is_its = |trial: &&mut Trial| trial.verdict.ablation.name == ablation.name;
        for trial in trials.iter_mut().filter(is_its) {
            trial.ablated = found.iter().find(|one| one.claim == trial.verdict.claim).cloned();
        }
    }
    Ok(trials)
}

/// The claims of a run without what `ablation` takes away.
fn without(plan: &Plan, work: &Work, ablation: &Ablation) -> Result<Vec<Verdict>, Failure> {
    let out = work.out.join("ablated").join(ablation.name);
    let work = Work { out, ablated: Some(ablation.name), bless: None, ..work.clone() };
    let mut report = Report::new(plan, &work)?;
    (plan.run)(&mut report)?;
    if !report.has_asked() {
        return Err(format!("no part of it asks for {}", ablation.name).into());
    }
    Ok(report.into_verdicts())
}

/// Prints and writes the trials of an experiment. Returns true if every claim falls.
fn tell(plan: &Plan, work: &Work, trials: &[Trial]) -> Result<bool, Failure> {
    let head = ["claim", "value", "ablation", "instead", "ablated value", "verdict"];
    let mut table = Table::new(&head);
    for trial in trials {
        let Trial { verdict, ablated } = trial;
        let Ablation { name, instead } = verdict.ablation;
        let value = ablated.as_ref().map_or("–", |ablated| &ablated.found);
        say_line!("{} {}", trial.outcome(), verdict.claim);
        say_line!("      {} | without ({name}: {instead}): {value}", verdict.found);
        table.row(&[&verdict.claim, &verdict.found, name, instead, &value, &trial.outcome()]);
    }
    let path = work.out.join(plan.id).join("ablations.csv");
    std::fs::write(&path, table.csv())?;
    Ok(trials.iter().all(Trial::is_tight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::Known;
    use crate::plan::{Outcome, Paper, Seeds};

    const BASE: Ablation = Ablation { name: "base", instead: "zero" };
    const UNASKED: Ablation = Ablation { name: "unasked", instead: "nothing" };

    fn plan(run: fn(&mut Report) -> Outcome) -> Plan {
        Plan {
            id: "trial",
            title: "t",
            source: "s",
            paper: Paper::Nothing,
            cheap: true,
            known: Known::Nothing,
            seeds: Seeds::None("none"),
            run,
        }
    }

    fn outcomes(run: fn(&mut Report) -> Outcome) -> Result<Vec<&'static str>, String> {
        let out = tempfile::tempdir().unwrap();
        let work = Work::in_directory(out.path());
        let plan = plan(run);
        let mut report = Report::new(&plan, &work).unwrap();
        (plan.run)(&mut report).unwrap();
        let trials = try_all(&plan, &work, report.into_verdicts());
        let trials = trials.map_err(|why| why.to_string())?;
        Ok(trials.iter().map(Trial::outcome).collect())
    }

    #[test]
    fn a_claim_must_hold_and_fall_with_its_ablation() {
        let found = outcomes(|report| {
            let value = if report.is_ablated(&BASE) { 0 } else { 5 };
            report.claim("it is large", &BASE, value > 3, value);
            report.claim("it is no fraction", &BASE, value >= 0, value);
            report.claim("it is negative", &BASE, value < 0, value);
            if value > 0 {
                report.claim("it comes to this", &BASE, true, value);
            }
            Ok(())
        });
        let right = ["falls", "SURVIVES", "FAILS", "NOT REACHED"];
        assert_eq!(found.unwrap(), right);
    }

    #[test]
    fn an_ablation_that_nothing_asks_for_is_an_error() {
        let found = outcomes(|report| {
            report.claim("it is large", &UNASKED, true, 5);
            Ok(())
        });
        assert_eq!(found.unwrap_err(), "no part of it asks for unasked");
    }
}
