//! How a run fails.

use std::fmt;
use std::time::Duration;

/// What ended a run, with the seed that runs it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the simulation.
    pub seed: u64,
    /// The time since its begin.
    pub after: Duration,
    /// What happened.
    pub cause: Cause,
}

/// What ends a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A host's program has returned an error.
    Program {
        /// The host's name.
        host: String,
        /// The error.
        error: String,
    },
    /// No event follows, and the run is not done: all programs wait for each other.
    Quiet,
    /// The time limit is over, and the run is not done.
    Late,
    /// The clock stands still: tasks wake each other and no time passes.
    Spinning,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, after {:?}: ", self.seed, self.after)?;
        match &self.cause {
            Cause::Program { host, error } => write!(f, "{host}: {error}"),
            Cause::Quiet => f.write_str("nothing will ever happen again"),
            Cause::Late => f.write_str("still not done"),
            Cause::Spinning => f.write_str("work without end that takes no time"),
        }
    }
}

impl std::error::Error for Failure {}
