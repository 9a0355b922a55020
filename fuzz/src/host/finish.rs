//! The end of a run: written data arrives, everything is closed, and nothing is left.

use lightwait_core::time::Duration;

use super::World;
use super::check;
use super::end::End;

/// Turns within which an honest cable must deliver everything.
const DRAIN_TURNS_MAX: usize = 5000;
/// Time within which it must: some retransmissions at the longest interval.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2 * 3600);

impl World {
    /// Lets time pass to the next work of an end if both are at rest, but not beyond `until`. False
    /// if there is no work before that.
    fn advance(&mut self, until: lightwait_core::Instant) -> bool {
        let at_rest = self.ends.iter().all(|end| check::is_at_rest(end, self.now));
        if !self.cable.is_empty() || !at_rest {
            return true;
        }
        let next = self.ends.iter().filter_map(|end| end.host.deadline()).min();
        match next.filter(|next| *next < until) {
            Some(next) => {
                self.now = self.now.max(next);
                true
            }
            None => false,
        }
    }

    /// With no more disturbance, all data written between two sockets that are still open arrives,
    /// unless their connection has failed.
    pub(super) fn drain(&mut self) {
        if !self.ledger.honest {
            return;
        }
        self.say(format_args!("-- everything is read"));
        let until = self.now + DRAIN_TIME_MAX;
        for _ in 0..DRAIN_TURNS_MAX {
            self.run_for(4);
            self.read_all();
            let ways: Vec<_> = self.ends.iter().flat_map(End::ways).collect();
            if self.ledger.is_complete(&ways) {
                return;
            }
            if !self.advance(until) {
                break;
            }
        }
        let ways: Vec<_> = self.ends.iter().flat_map(End::ways).collect();
        self.ledger.assert_complete(&ways);
    }

    /// Closes everything, and lets time pass until nothing is left.
    pub(super) fn finish(&mut self) {
        for end in &mut self.ends {
            end.close_all(self.now);
        }
        self.say(format_args!("-- everything is closed"));
        let until = self.now + check::FINISH_TIME_MAX;
        for _ in 0..check::FINISH_TURNS_MAX {
            self.run_for(1);
            if self.ends.iter().all(check::is_empty) {
                return;
            }
            if !self.advance(until) {
                break;
            }
        }
        check::left_over(&self.ends);
    }
}
