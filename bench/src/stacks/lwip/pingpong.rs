//! Requests on connections that stay, over lwIP.

use std::time::Duration;

use lightwait_lwip::Purpose;

use super::Ends;
use crate::pingpong::{Pair, Plan};

/// The time that a turn takes.
const TURN: Duration = Duration::from_micros(1);

/// lwIP and the requests on it.
#[derive(Debug)]
pub struct PingPong {
    ends: Ends,
    connections: u64,
    goal: u64,
}

impl Pair for PingPong {
    fn new(plan: &Plan) -> PingPong {
        let connections = plan.connections as u64;
        PingPong { ends: Ends::new(Purpose::PingPong), connections, goal: 0 }
    }

    fn exchange(&mut self, count: usize) {
        self.goal += count as u64;
        while self.ends.lwip.done() < self.goal {
            self.ends.turn(TURN, self.connections);
        }
    }

    fn packets(&self) -> Option<u64> {
        Some(self.ends.lwip.packets())
    }

    fn check(&self) {
        self.ends.check();
    }
}
