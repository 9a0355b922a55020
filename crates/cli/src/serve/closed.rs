//! Warns the operator about closed connections: TIME-WAIT or FIN-WAIT-2 fills up; it is full and
//! drops records early or ignores segments; TIME-WAIT refuses peers that come back too soon; local
//! ports run out or have run out; connections were reset because memory was short. It logs each
//! kind at most once an interval, because a hundred thousand a second may occur.

use std::time::Duration;

use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_http::Tally;

use crate::log::{Concern, Kind, Log, Record};

/// The interval: at most one line of each kind.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Logs the events since the last interval, until the task is aborted.
///
/// `tally` returns the counts of the server on that stack; `None` where there is no server.
pub(super) async fn watch(stack: Handle, tally: impl Fn() -> Tally, log: Log) {
    let mut last = Look::default();
    loop {
        lightwait::rt::sleep(INTERVAL).await;
        let tally = tally();
        let look = stack.with_host(|host: &Host| Look {
            closed: tally.closed_for_memory,
            refused_for_memory: tally.refused_for_memory,
            ..Look::at(host)
        });
        for concern in look.concerns_since(last) {
            log.write(Record::Closed(concern));
        }
        last = look;
    }
}

/// A host's levels at one moment, and its counts since it began.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    time_wait: Level,
    fin_wait_2: Level,
    /// Segments for FIN-WAIT-2 that the host ignored.
    unheard: u64,
    /// SYNs that TIME-WAIT refused.
    refused: u64,
    /// Ports passed over because they are in TIME-WAIT, connections opened, and not opened for want
    /// of a port.
    passed: u64,
    opened: u64,
    without_port: u64,
    /// Connections reset because memory was short: their peers took nothing, or too little.
    reset: u64,
    slow: u64,
    /// Connections closed, and refused, because memory was short.
    closed: u64,
    refused_for_memory: u64,
}

/// Records of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    held: usize,
    limit: usize,
    evicted: u64,
}

impl Look {
    fn at(host: &Host) -> Look {
        let (counters, limit) = (host.counters(), host.limits().time_wait);
        let level = |held, evicted| Level { held, limit, evicted };
        Look {
            time_wait: level(host.time_wait_len(), counters.time_wait_evicted),
            fin_wait_2: level(host.fin_wait_2_len(), counters.fin_wait_2_evicted),
            unheard: counters.fin_wait_2_unheard,
            refused: counters.time_wait_refused,
            passed: counters.ports_in_time_wait,
            opened: counters.active_opens,
            without_port: counters.ports_exhausted,
            reset: counters.reset_for_memory_closed_window + counters.reset_for_memory_orphan,
            slow: counters.reset_for_memory_slow,
            closed: 0,
            refused_for_memory: 0,
        }
    }

    fn concerns_since(self, last: Look) -> impl Iterator<Item = Concern> {
        let [segments, syns, passed, opens, unopened] = [
            self.unheard - last.unheard,
            self.refused - last.refused,
            self.passed - last.passed,
            self.opened - last.opened,
            self.without_port - last.without_port,
        ];
        // A few ports passed over among many are no sign; one in five is.
        let are_scarce = passed > 0 && passed.saturating_mul(4) >= opens;
        let concerns = [
            self.time_wait.concern_since(last.time_wait, Kind::TimeWait),
            self.fin_wait_2.concern_since(last.fin_wait_2, Kind::FinWait2),
            (segments > 0).then_some(Concern::Unheard { segments }),
            (syns > 0).then_some(Concern::Refused { syns }),
            are_scarce.then_some(Concern::PortsScarce { passed, opens }),
            (unopened > 0).then_some(Concern::NoPort { opens: unopened }),
            self.shortage_since(last),
        ];
        concerns.into_iter().flatten()
    }

    fn shortage_since(self, last: Look) -> Option<Concern> {
        let [resets, slow, closed, refused] = [
            self.reset - last.reset,
            self.slow - last.slow,
            self.closed - last.closed,
            self.refused_for_memory - last.refused_for_memory,
        ];
        let is_short = resets + slow + closed + refused > 0;
        is_short.then_some(Concern::MemoryShort { resets, slow, closed, refused })
    }
}

impl Level {
    /// True at four fifths of the limit.
    fn is_high(&self) -> bool {
        self.held > 0 && self.held.saturating_mul(5) >= self.limit.saturating_mul(4)
    }

    fn concern_since(self, last: Level, kind: Kind) -> Option<Concern> {
        let Level { held, limit, evicted } = self;
        match evicted - last.evicted {
            0 => (self.is_high() && !last.is_high()).then_some(Concern::Filling {
                kind,
                held,
                limit,
            }),
            evicted => Some(Concern::Full { kind, evicted, held }),
        }
    }
}

#[cfg(test)]
mod tests;
