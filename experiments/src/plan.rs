//! The list of experiments.

use std::error::Error;

use crate::plans;
use crate::report::Report;

/// Why an experiment could not be run.
pub(crate) type Failure = Box<dyn Error>;
/// Whether it could.
pub(crate) type Outcome = Result<(), Failure>;

/// An experiment.
pub(crate) struct Plan {
    /// What it is called on the command line.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Paper, figure, section.
    pub(crate) source: &'static str,
    /// Takes seconds, and measures no times: part of every check of the project.
    pub(crate) cheap: bool,
    pub(crate) run: fn(&mut Report) -> Outcome,
}

/// All of them, in order.
pub(crate) const PLANS: &[Plan] = &[
    Plan {
        id: "a-fig12",
        title: "Retransmission timeouts of four estimators on the paper's RTTs",
        source: "Aron & Druschel 1999, Fig. 12 and Appendix I",
        cheap: true,
        run: plans::a_fig12::run,
    },
    Plan {
        id: "a-deviation",
        title: "The deviation that does not decay",
        source: "Aron & Druschel 1999, §IV-B and Appendix I, after Brakmo & Peterson 1995",
        cheap: true,
        run: plans::a_deviation::run,
    },
    Plan {
        id: "b-acks",
        title: "Needless acknowledgements on a busy one-way stream",
        source: "Mansley 2004, §1.4 and §3.2.1",
        cheap: true,
        run: plans::b_acks::run,
    },
    Plan {
        id: "a-response",
        title: "Short HTTP transfers over a path that loses, under each estimator",
        source: "Aron & Druschel 1999, abstract and §VI-B",
        cheap: true,
        run: plans::a_response::run,
    },
];
