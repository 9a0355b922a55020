//! The plan that docs/add-an-experiment.md adds, compiled and run. `xtask tidy` holds the page's
//! code against these files.

mod plans;

use crate::expected::Known;
use crate::plan::{Plan, Seeds};
use crate::report::{Report, Work};

const PLANS: [Plan; 1] = [
    // A comment, or rustfmt would lay it out otherwise than the long list.
    Plan {
        id: "scaling",
        title: "What window scaling is worth as a round trip gets longer",
        source: "RFC 7323 §1.1; no figure",
        cheap: true,
        known: Known::Exactly,
        seeds: Seeds::From(1),
        run: plans::scaling::run,
    },
];

/// Four seeds do for the numbers that the page's claims are about.
#[test]
fn the_pages_experiment_runs_and_its_claims_hold() {
    let out = tempfile::tempdir().unwrap();
    let work = Work { out: out.path().into(), seeds: Some(4), offset: 0, quick: true, bless: None };
    let mut report = Report::new(&PLANS[0], &work).unwrap();
    (PLANS[0].run)(&mut report).unwrap();
    assert!(report.finish().unwrap());
}
