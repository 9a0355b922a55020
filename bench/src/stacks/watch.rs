//! The time for stacks that take it as an argument, and the time that each end takes.

use lightwait::clock::Clock;

/// A clock that is read once a turn of an end, as a shard reads it.
#[derive(Debug)]
pub struct Watch {
    clock: Clock,
    /// ns of the turns of the client and of the server, if they are timed.
    spent_ns: Option<[u64; 2]>,
}

impl Watch {
    /// A clock, without timing.
    #[allow(clippy::new_without_default, reason = "a default has no side effect; this reads time")]
    pub fn new() -> Watch {
        Watch { clock: Clock::new(), spent_ns: None }
    }

    /// ns since the clock's origin.
    pub fn read(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Starts or stops separate timing of both ends. Returns ns of the client and of the server so
    /// far. It takes one more reading a turn.
    pub fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]> {
        std::mem::replace(&mut self.spent_ns, apart.then_some([0; 2]))
    }

    /// Records a turn: the server's began at `begin`, the client's at `between`, and both are over.
    pub fn turn_over(&mut self, begin: u64, between: u64) {
        if let Some([client, server]) = self.spent_ns {
            let client = client + self.read().saturating_sub(between);
            self.spent_ns = Some([client, server + between.saturating_sub(begin)]);
        }
    }
}
