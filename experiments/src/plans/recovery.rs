//! Loss recovery and congestion control of ours beside Linux's. Both send the same file over the
//! same emulated link, with the same seeds, by turns. No figure: Linux is the measure.
//!
//! ```text
//!   ours:  serve, a packet socket ── veth ──┐
//!                                           ├ bridge ── veth ── router ── veth ── the receiver,
//!   Linux: a sender on a socket ──── veth ──┘           its links                 Linux
//! ```
//!
//! The kernel's congestion control is set by socket option (TCP_CONGESTION), whatever the system's
//! default is, and each row names it. This kernel has no DCTCP: [`in_virtual_time`] has ours.
//!
//! Medians are over seeds, with an interval of 95 % or, with few seeds, the least and the greatest
//! value; a claim compares the ends of intervals. Its ablation changes ours alone, by a flag of
//! `serve` or by another controller, and runs what the claim compares, on the same path.
//!
//! A goal that is not reached, or not with room, is an observation with its reason ([`open_goal`]):
//! it is reported and fails nothing. Once it is reached it becomes a claim.

mod download;
mod kernel;
mod median;
mod rates;
mod site;
mod tail_loss;

pub(crate) mod in_virtual_time;
pub(crate) mod r_delay;
pub(crate) mod r_fair;
pub(crate) mod r_loss;
pub(crate) mod r_reorder;
pub(crate) mod r_satellite;
pub(crate) mod r_spurious;
pub(crate) mod r_tail;

use std::fmt::Display;

use crate::ablation::Ablation;
use crate::report::Report;

/// The congestion controls of both, by their names here and in the kernel.
const CONTROLLERS: [&str; 3] = ["reno", "cubic", "bbr"];

/// How ours finds losses without RACK-TLP, and the flags that have it do so.
const COUNTED: Ablation = Ablation {
    name: "counted",
    instead: "ours counts what is sacked (RFC 6675): late is lost, nothing is probed for or undone",
};
const COUNTING: &[&str] = &["--set", "congestion.detection=count"];

/// Ours without BBR.
const NO_MODEL: Ablation =
    Ablation { name: "no-model", instead: "ours sends by CUBIC in the place of BBR" };

/// Why ours is not held to Linux's rate.
const NOT_EVERYWHERE: &str = "not reached at each point";

/// The stack that sends, with its congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Ours(&'static str),
    Linux(&'static str),
}

impl Sender {
    /// Every sender there is, ours before Linux's with the same controller.
    fn all() -> Vec<Sender> {
        CONTROLLERS.iter().flat_map(|name| [Sender::Ours(name), Sender::Linux(name)]).collect()
    }

    /// Ours with each controller.
    fn ours() -> Vec<Sender> {
        CONTROLLERS.map(Sender::Ours).to_vec()
    }

    fn controller(self) -> &'static str {
        match self {
            Sender::Ours(controller) | Sender::Linux(controller) => controller,
        }
    }

    fn is_ours(self) -> bool {
        matches!(self, Sender::Ours(_))
    }

    fn name(self) -> String {
        let stack = if self.is_ours() { "ours" } else { "Linux" };
        format!("{stack}, {}", self.controller())
    }
}

/// Reports a goal that is not reached yet, for this reason: an observation. Once it is reached, a
/// claim with an ablation takes its place.
fn open_goal(report: &mut Report, why: &str, goal: &str, holds: bool, found: impl Display) {
    report.observe(&format!("{goal} [a goal: {why}]"), holds, found);
}
