//! The list of experiments.

use std::error::Error;

use crate::expected::Known;
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
    /// Takes seconds, and no claim hangs on times that a busy machine could turn round: part of
    /// every check of the project.
    pub(crate) cheap: bool,
    /// Whether what it finds is known beforehand.
    pub(crate) known: Known,
    pub(crate) run: fn(&mut Report) -> Outcome,
}

/// All of them, in order.
pub(crate) const PLANS: &[Plan] = &[
    Plan {
        id: "a-fig3",
        title: "What the conventional benchmark hides, over devices; TIME-WAIT of 20 s",
        source: "Aron & Druschel 1999, Fig. 3 and §2",
        cheap: false,
        known: Known::Nothing,
        run: plans::a_fig3::run,
    },
    Plan {
        id: "a-fig4",
        title: "The start of a server, over devices; TIME-WAIT of 20 s",
        source: "Aron & Druschel 1999, Fig. 4",
        cheap: false,
        known: Known::Nothing,
        run: plans::a_fig4::run,
    },
    Plan {
        id: "a-fig5",
        title: "How long two ticks are",
        source: "Aron & Druschel 1999, Fig. 5",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_fig5::run,
    },
    Plan {
        id: "a-fig7",
        title: "48 048 and a million in TIME-WAIT, by scan, list and wheel, at this machine's rate",
        source: "Aron & Druschel 1999, Fig. 7 and §VI-A",
        cheap: false,
        known: Known::Nothing,
        run: plans::a_fig7::run,
    },
    Plan {
        id: "a-fig7-live",
        title: "A saturated server by scan, list, wheel and ours, over devices; TIME-WAIT of 20 s",
        source: "Aron & Druschel 1999, Fig. 7",
        cheap: false,
        known: Known::Nothing,
        run: plans::a_fig7_live::run,
    },
    Plan {
        id: "a-fig9",
        title: "The memory of TIME-WAIT",
        source: "Aron & Druschel 1999, Figs. 3 and 9",
        cheap: true,
        known: Known::Within(0.01),
        run: plans::a_fig9::run,
    },
    Plan {
        id: "a-fig11",
        title: "The bounds of the timer framework",
        source: "Aron & Druschel 1999, Fig. 11",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_fig11::run,
    },
    Plan {
        id: "a-fig12",
        title: "Retransmission timeouts of three estimators on the paper's RTTs",
        source: "Aron & Druschel 1999, Fig. 12 and Appendix I",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_fig12::run,
    },
    Plan {
        id: "a-fig13",
        title: "A timeout of 150 ms, by the framework and by BSD",
        source: "Aron & Druschel 1999, Fig. 13",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_fig13::run,
    },
    Plan {
        id: "a-deviation",
        title: "The deviation that does not decay",
        source: "Aron & Druschel 1999, §IV-B and Appendix I, after Brakmo & Peterson 1995",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_deviation::run,
    },
    Plan {
        id: "a-packet-pair",
        title: "The bottleneck by packet pair, on a fine clock and on one of 1 ms",
        source: "Aron & Druschel 1999, §IV-B and §VI",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_packet_pair::run,
    },
    Plan {
        id: "a-delay-router",
        title: "Packets behind a delay router that polls, and behind one that waits for a clock",
        source: "Aron & Druschel 1999, §III-A",
        cheap: false,
        known: Known::Nothing,
        run: plans::a_delay_router::run,
    },
    Plan {
        id: "a-packet-pair-live",
        title: "The bottleneck by packet pair, with real packets through a delay router",
        source: "Aron & Druschel 1999, §IV-B and §VI",
        cheap: false,
        known: Known::Nothing,
        run: plans::a_packet_pair_live::run,
    },
    Plan {
        id: "b-acks",
        title: "Needless acknowledgements on a busy one-way stream",
        source: "Mansley 2004, §1.4 and §3.2.1",
        cheap: true,
        known: Known::Exactly,
        run: plans::b_acks::run,
    },
    Plan {
        id: "a-response",
        title: "Short HTTP transfers over a path that loses, under each estimator",
        source: "Aron & Druschel 1999, abstract and §VI-B",
        cheap: true,
        known: Known::Exactly,
        run: plans::a_response::run,
    },
    Plan {
        id: "b-fig3",
        title: "What queueing a delayed acknowledgement costs",
        source: "Mansley 2004, Fig. 3 and §4.1",
        cheap: true,
        known: Known::Nothing,
        run: plans::b_fig3::run,
    },
    Plan {
        id: "b-fig4",
        title: "What the periodic walk over all connections costs",
        source: "Mansley 2004, Fig. 4 and §4.2",
        cheap: false,
        known: Known::Nothing,
        run: plans::b_fig4::run,
    },
    Plan {
        id: "b-locks",
        title: "What a lock pair costs that is not needed",
        source: "Mansley 2004, §4.3",
        cheap: true,
        known: Known::Nothing,
        run: plans::b_locks::run,
    },
    Plan {
        id: "b-lateness",
        title: "How late in-line timers fire under load",
        source: "Mansley 2004, §3.3",
        cheap: false,
        known: Known::Nothing,
        run: plans::b_lateness::run,
    },
    Plan {
        id: "c-fig4",
        title: "Two transfers into a server with N in TIME-WAIT, by list, hash and ours, in memory",
        source: "Faber, Touch & Yue 1999, Fig. 4 and §5.1",
        cheap: false,
        known: Known::Nothing,
        run: plans::c_fig4::run,
    },
    Plan {
        id: "c-table2",
        title: "WebSTONE: memory in virtual time; speed by one list, TIME-WAIT of 1 s, in memory",
        source: "Faber, Touch & Yue 1999, Table 2 and §5.2",
        cheap: false,
        known: Known::Nothing,
        run: plans::c_table2::run,
    },
    Plan {
        id: "c-table3",
        title: "Small files from a server with 3600 control blocks, in virtual time",
        source: "Faber, Touch & Yue 1999, Table 3 and §2.2",
        cheap: true,
        known: Known::Exactly,
        run: plans::c_table3::run_all,
    },
    Plan {
        id: "c-fig5-7",
        title: "Persistent connections by one list, TIME-WAIT of 0.5 s, in memory",
        source: "Faber, Touch & Yue 1999, Figs. 5 to 7 and §5.3",
        cheap: false,
        known: Known::Nothing,
        run: plans::c_fig5_7::run,
    },
    Plan {
        id: "c-table4",
        title: "Three ways to keep TIME-WAIT from the server, each cell by a check",
        source: "Faber, Touch & Yue 1999, Table 4",
        cheap: true,
        known: Known::Exactly,
        run: plans::c_table4::run,
    },
    Plan {
        id: "c-short-msl",
        title: "A server that cuts its MSL, in virtual time; the network delivers much twice",
        source: "Faber, Touch & Yue 1999, §2.2",
        cheap: false,
        known: Known::Exactly,
        run: plans::c_short_msl::run,
    },
    Plan {
        id: "today",
        title: "Linux and nginx beside ours on this machine",
        source: "none: what the papers' servers are today",
        cheap: false,
        known: Known::Nothing,
        run: plans::today::run,
    },
];
