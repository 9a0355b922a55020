//! Bulk transfer. Segments have 1460 bytes at any MTU, and checksums are always computed and
//! verified: Debian's build fixes both.

use std::time::Duration;

use lightwait_lwip::Purpose;

use super::Ends;
use crate::bulk::{Pair, Plan};

/// The time that a turn takes.
const TURN: Duration = Duration::from_micros(20);

/// lwIP and the bytes from the client to the server.
#[derive(Debug)]
pub struct Bulk {
    ends: Ends,
    goal: u64,
}

impl Pair for Bulk {
    fn new(_plan: &Plan) -> Bulk {
        Bulk { ends: Ends::new(Purpose::Bulk), goal: 0 }
    }

    fn send(&mut self, bytes: usize) {
        self.goal += bytes as u64;
        while self.ends.lwip.done() < self.goal {
            self.ends.turn(TURN, 1);
        }
    }

    fn check(&self) {
        self.ends.check();
    }
}
