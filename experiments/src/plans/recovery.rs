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
//! value. A goal that is not reached yet is an observation with its reason ([`open_goal`]): it is
//! reported and fails nothing. Once it is reached it becomes a claim.

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

use crate::report::Report;

/// The congestion controls of both, by their names here and in the kernel.
const CONTROLLERS: [&str; 3] = ["reno", "cubic", "bbr"];

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
