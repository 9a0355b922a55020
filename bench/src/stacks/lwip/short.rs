//! Short connections over lwIP; the server closes first.

use std::time::Duration;

use lightwait_lwip::Purpose;

use super::Ends;
use crate::connections::{Pair, Plan};
use crate::stacks::raw::OPENED_AT_ONCE;

/// The time that a turn takes by itself.
const TURN: Duration = Duration::from_micros(1);

/// lwIP and the conversations on it.
#[derive(Debug)]
pub struct Short {
    pub(super) ends: Ends,
    at_once: u64,
    idle: u64,
    /// The wanted number of records.
    residents: usize,
    /// Conversations at the time when surplus records were last ended.
    kept: usize,
    conversation: Duration,
    goal: usize,
}

/// Conversations that end before their records are set aside.
const ASIDE: usize = 256;

impl Short {
    /// Makes `records` records, as quickly as among few.
    fn fill(&mut self, records: usize) {
        let mut left = records;
        while left > 0 {
            self.converse(left.min(ASIDE));
            self.ends.lwip.set_aside();
            left -= left.min(ASIDE);
            self.kept = self.goal;
        }
        self.ends.lwip.bring_back();
    }
}

impl Pair for Short {
    fn new(plan: &Plan) -> Short {
        let mut ends = Ends::new(Purpose::Idle);
        let idle = plan.idle as u64;
        while ends.lwip.done() < idle {
            let open = idle.min(ends.lwip.done() + OPENED_AT_ONCE as u64);
            ends.turn(TURN, open);
        }
        // The last acknowledgements.
        ends.turn(TURN, idle);
        ends.lwip.set_purpose(Purpose::Short);
        let (at_once, residents) = (plan.at_once as u64, plan.residents());
        let (conversation, kept) = (plan.conversation, plan.idle);
        let mut short =
            Short { ends, at_once, idle, residents, kept, conversation, goal: plan.idle };
        short.fill(plan.time_wait);
        short
    }

    const BEGINS_FULL: bool = true;

    fn warm_up(plan: &Plan) -> usize {
        4 * plan.at_once
    }

    fn into_server(self) -> impl Sized {}

    fn converse(&mut self, count: usize) {
        self.goal += count;
        let mut done = self.ends.lwip.done() as usize;
        while done < self.goal {
            self.ends.turn(TURN, self.idle + self.at_once);
            let before = done;
            done = self.ends.lwip.done() as usize;
            self.ends.now += self.conversation * (done - before) as u32;
            // Not each time, since finding the oldest means walking past all others.
            if done - self.kept > (self.residents / 16).max(1) {
                self.ends.lwip.keep(self.residents as u32);
                self.kept = done;
            }
        }
    }

    fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]> {
        self.ends.watch.time_apart(apart)
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.lwip.packets())
    }

    fn time_waits(&self) -> usize {
        self.ends.lwip.time_waits() as usize
    }

    fn check(&self) {
        self.ends.check();
    }
}
