//! Waits for a script's times, and judges when events happened.

use super::{Now, Player, SPIN_USECS};
use crate::ast::When;

#[expect(clippy::cast_precision_loss, reason = "for messages")]
pub(super) fn seconds(usecs: i64) -> f64 {
    usecs as f64 / 1.0e6
}

impl Player {
    /// The stack's time as the script counts it.
    pub(super) fn script_usecs(&self, live_usecs: i64) -> i64 {
        live_usecs - self.start_usecs
    }

    /// Let the stack's time pass until the event's. Calls that block may end meanwhile.
    pub(crate) fn wait_for(&mut self, now: &Now, what: &str) -> Result<(), String> {
        let due = now.usecs + self.start_usecs;
        loop {
            let wait = due - self.door.now_usecs();
            if wait <= 0 {
                break;
            }
            if self.events > 0 && wait > SPIN_USECS {
                let sleep = u32::try_from(wait - SPIN_USECS).unwrap_or(u32::MAX);
                self.door.usleep(sleep);
                self.drain()?;
            }
        }
        if self.events > 0 {
            let live = self.door.now_usecs();
            self.check_time(now, live, what)?;
        }
        Ok(())
    }

    /// Whether something that was to happen at the event's time happened at `live_usecs`.
    pub(super) fn check_time(&self, now: &Now, live_usecs: i64, what: &str) -> Result<(), String> {
        let actual = self.script_usecs(live_usecs);
        let tolerance = self.tolerance_usecs(now.usecs, self.past.map(|past| past.usecs));
        let (from, to) = (now.usecs, now.until_usecs);
        if now.when == When::Any || (from - tolerance..=to + tolerance).contains(&actual) {
            return Ok(());
        }
        Err(match now.when {
            When::AbsoluteRange(..) => format!(
                "timing error: expected {what} in time range {:.6}~{:.6} sec but happened at {:.6} \
                 sec",
                seconds(from),
                seconds(to),
                seconds(actual)
            ),
            When::RelativeRange(..) => format!(
                "timing error: expected {what} in relative time range +{:.6}~+{:.6} sec but \
                 happened at {:+.6} sec",
                seconds(from - now.offset_usecs),
                seconds(to - now.offset_usecs),
                seconds(actual - now.offset_usecs)
            ),
            _ => format!(
                "timing error: expected {what} at {:.6} sec but happened at {:.6} sec; tolerance \
                 {:.6} sec",
                seconds(from),
                seconds(actual),
                seconds(tolerance)
            ),
        })
    }

    /// The larger of the fixed tolerance and a share of the time since `last_usecs`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "as the original computes it"
    )]
    pub(super) fn tolerance_usecs(&self, usecs: i64, last_usecs: Option<i64>) -> i64 {
        let share = last_usecs
            .map_or(0.0, |last| self.config.tolerance_percent / 100.0 * (usecs - last) as f64);
        self.config.tolerance_usecs.max(share as i64)
    }
}
