//! What an operator has to know of closed connections: that TIME-WAIT or FIN-WAIT-2 fills up, that
//! it is full and records go before their time or are not heard, that TIME-WAIT refuses peers who
//! come back too soon, that ports to open connections from run out, or have, and that connections
//! were reset because memory was short. But not by a line for each, of which there may be a hundred
//! thousand a second.

use std::time::Duration;

use lightwait::shard::Handle;
use lightwait_core::Host;
use lightwait_http::Tally;

use crate::log::{Concern, Kind, Log, Record};

/// A line of each kind in so long at most.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// Logs what has happened since the last time, until the task is aborted.
///
/// `tally` tells what the server on that stack has denied; nothing where there is none.
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

/// A host at a moment; events since it began.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    time_wait: Level,
    fin_wait_2: Level,
    /// Segments for FIN-WAIT-2 that were not heard.
    unheard: u64,
    /// SYNs that TIME-WAIT did not let through.
    refused: u64,
    /// Ports passed over because they are in TIME-WAIT, connections opened, and not opened for want
    /// of a port.
    passed: u64,
    opened: u64,
    without_port: u64,
    /// Connections reset because memory was short: of peers that took nothing, or too little.
    reset: u64,
    slow: u64,
    /// The same closed, and not let in.
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
        let (counters, limit) = (host.counters(), host.config().limits.time_wait);
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
        // A few of many are no sign: one in five of those looked at is.
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
    /// Four fifths of what may be.
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
