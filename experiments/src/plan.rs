//! An experiment: its name, its source and the check of its results.

mod list;

use std::error::Error;

use crate::expected::Known;
use crate::report::Report;
pub(crate) use list::PLANS;

/// The reason why an experiment could not run.
pub(crate) type Failure = Box<dyn Error>;
/// Whether an experiment could run.
pub(crate) type Outcome = Result<(), Failure>;

/// An experiment.
pub(crate) struct Plan {
    /// Its name on the command line.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Its paper, figure and section.
    pub(crate) source: &'static str,
    /// What its claims say of the paper's numbers.
    pub(crate) paper: Paper,
    /// The experiment takes seconds, and no claim depends on times that a busy machine could
    /// change. It is part of every check of the project.
    pub(crate) cheap: bool,
    /// Whether its result is known.
    pub(crate) known: Known,
    pub(crate) seeds: Seeds,
    pub(crate) run: fn(&mut Report) -> Outcome,
}

/// What an experiment's claims say of its paper's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paper {
    /// They are the paper's, within a bound that the claim or the experiment's text names.
    Size,
    /// They differ in the direction of the paper's.
    Direction,
    /// The paper has none.
    Nothing,
}

const LIVE: Seeds = Seeds::None("real packets: what is random is the system's, and never the same");
const SWEPT: Seeds = Seeds::None("no random numbers: all values are given");

/// The seeds of an experiment's random numbers.
#[derive(Clone, Copy)]
pub(crate) enum Seeds {
    /// Always these. What else it seeds follows from them.
    Fixed(fn() -> Vec<u64>),
    /// This one and the next, or others by `--offset`, as many as [`Report::seeds`] returns.
    From(u64),
    /// No seed, for this reason.
    None(&'static str),
}
