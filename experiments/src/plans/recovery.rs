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
//! default is, and each row names it. A list has our controllers and those of the kernel; where
//! ours lacks one, Linux is measured alone and the report says so.
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

/// A congestion control.
#[derive(Debug)]
struct Controller {
    /// Its name here and in the kernel.
    name: &'static str,
    /// The flags of `serve` that choose it; `None`: ours does not have it yet.
    ours: Option<&'static [&'static str]>,
}

/// Reno, CUBIC and BBR, in this order. An entry of ours is all that a new controller needs here.
static CONTROLLERS: [Controller; 3] = [
    Controller { name: "reno", ours: Some(&["--congestion=reno"]) },
    Controller { name: "cubic", ours: Some(&["--congestion=cubic"]) },
    Controller { name: "bbr", ours: None },
];

/// Who sends.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Ours(&'static Controller, &'static [&'static str]),
    Linux(&'static Controller),
}

impl Sender {
    /// Every sender there is, ours before Linux's with the same controller.
    fn all() -> Vec<Sender> {
        let of = |controller: &'static Controller| {
            let ours = controller.ours.map(|flags| Sender::Ours(controller, flags));
            ours.into_iter().chain([Sender::Linux(controller)])
        };
        CONTROLLERS.iter().flat_map(of).collect()
    }

    fn controller(self) -> &'static Controller {
        match self {
            Sender::Ours(controller, _) | Sender::Linux(controller) => controller,
        }
    }

    fn is_ours(self) -> bool {
        matches!(self, Sender::Ours(..))
    }

    fn name(self) -> String {
        let stack = if self.is_ours() { "ours" } else { "Linux" };
        format!("{stack}, {}", self.controller().name)
    }
}

/// Reports a goal that is not reached yet, for this reason: an observation. Once it is reached, a
/// claim with an ablation takes its place.
fn open_goal(report: &mut Report, why: &str, goal: &str, holds: bool, found: impl Display) {
    report.observe(&format!("{goal} [a goal: {why}]"), holds, found);
}

/// Says which of the controllers ours lacks. A goal of each that is not there is not reached.
fn tell_missing(report: &mut Report) {
    let missing: Vec<&str> =
        CONTROLLERS.iter().filter(|one| one.ours.is_none()).map(|one| one.name).collect();
    let found = match missing.len() {
        0 => "none is missing".to_owned(),
        _ => format!("missing: {}; Linux is measured alone", missing.join(", ")),
    };
    report.observe("ours has each controller that Linux has here", missing.is_empty(), found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_of_ours_has_linux_beside_it() {
        for ours in Sender::all().into_iter().filter(|sender| sender.is_ours()) {
            let name = ours.controller().name;
            let names = Sender::all().into_iter().filter(|one| one.controller().name == name);
            let names: Vec<String> = names.map(Sender::name).collect();
            assert_eq!(names, [format!("ours, {name}"), format!("Linux, {name}")]);
        }
    }
}
