//! What counters tell of a device that does not do its part, logged once.

use std::time::Duration;

use lightwait::rt;
use lightwait::shard::Handle;
use lightwait_core::config::Member;
use lightwait_core::counters::Counters;

use crate::log::{Log, Record};

/// How often the counters are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// So many frames tell whether a device steers.
const FRAMES_LEAST: u64 = 10_000;
/// So many wrong checksums tell that they are not by chance.
const CHECKSUMS_LEAST: u64 = 3;

/// The faults of a device that were told.
#[derive(Debug, Default)]
struct Told {
    steering: bool,
    checksums: bool,
}

impl Told {
    /// The faults that the counters of a shard show, each once.
    fn look(&mut self, counters: &Counters, shard: u16) -> Vec<String> {
        let Counters { frames_in, handed_over, checksum_errors, .. } = *counters;
        let mut texts = Vec::new();
        let is_unsteered = frames_in >= FRAMES_LEAST && handed_over * 4 >= frames_in;
        if is_unsteered && !std::mem::replace(&mut self.steering, true) {
            let percent = handed_over * 100 / frames_in;
            texts.push(format!(
                "The device brings shard {shard} what is for others: {percent} % of its frames are \
                 handed over, which costs time."
            ));
        }
        let is_unsummed = checksum_errors >= CHECKSUMS_LEAST && checksum_errors * 2 >= frames_in;
        if is_unsummed && !std::mem::replace(&mut self.checksums, true) {
            texts.push(format!(
                "{checksum_errors} of {frames_in} frames have wrong checksums and are dropped. A \
                 peer on this machine leaves them undone: ethtool -K PEER tx off tso off gso off."
            ));
        }
        texts
    }
}

/// Logs the faults of a stack's device until the task is aborted.
pub(super) async fn watch(stack: Handle, member: Member, log: Log) {
    let mut told = Told::default();
    loop {
        rt::sleep(LOOK).await;
        let counters = stack.with_host(|host| *host.counters());
        for text in told.look(&counters, member.index) {
            log.write(Record::Trouble { text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a look at these counters tells first.
    fn tells(told: &mut Told, frames_in: u64, handed_over: u64, checksum_errors: u64) -> String {
        let counters = Counters { frames_in, handed_over, checksum_errors, ..Counters::default() };
        told.look(&counters, 1).concat()
    }

    #[test]
    fn a_device_that_does_not_steer_is_told_of_once() {
        let told = &mut Told::default();
        assert_eq!(tells(told, FRAMES_LEAST - 1, FRAMES_LEAST - 1, 0), "", "too few to say");
        assert_eq!(tells(told, 20_000, 4_999, 0), "");
        assert!(tells(told, 20_000, 5_000, 0).contains("shard 1 what is for others: 25 %"));
        assert_eq!(tells(told, 40_000, 40_000, 0), "", "once");
    }

    #[test]
    fn checksums_that_nobody_computes_are_told_of_once() {
        let told = &mut Told::default();
        assert_eq!(tells(told, 5, 0, 2), "", "too few to say");
        assert_eq!(tells(told, 100, 0, 49), "", "most are right");
        assert!(tells(told, 6, 0, 5).contains("5 of 6 frames"));
        assert_eq!(tells(told, 60, 0, 50), "", "once");
    }
}
