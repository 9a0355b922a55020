//! The plan that docs/add-an-experiment.md adds, compiled and run. `xtask tidy` holds the page's
//! code against these files.

mod plans;

use crate::ablation;
use crate::expected::Known;
use crate::plan::{Paper, Plan, Seeds};
use crate::report::Work;

const PLANS: [Plan; 1] = [
    // A comment, or rustfmt would lay it out otherwise than the long list.
    Plan {
        id: "scaling",
        title: "What window scaling is worth as a round trip gets longer",
        source: "RFC 7323 §1.1; no figure",
        paper: Paper::Nothing,
        cheap: true,
        known: Known::Exactly,
        seeds: Seeds::From(1),
        run: plans::scaling::run,
    },
];

/// Four seeds do for the numbers that the page's claims are about.
#[test]
fn the_pages_claims_hold_and_fall_with_their_ablations() {
    let out = tempfile::tempdir().unwrap();
    let work = Work { seeds: Some(4), quick: true, ..Work::in_directory(out.path()) };
    assert!(ablation::is_tight(&PLANS[0], &work, crate::run));
}
