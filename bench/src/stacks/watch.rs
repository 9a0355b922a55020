//! What the time is, for stacks that are told; and how long each end takes.

use lightwait::clock::Clock;

/// A clock that is read once a turn of an end, as a shard reads it.
#[derive(Debug)]
pub struct Watch {
    clock: Clock,
    /// ns that turns of the client and of the server took, if they are timed.
    spent_ns: Option<[u64; 2]>,
}

impl Watch {
    /// A clock. Nothing is timed yet.
    #[allow(clippy::new_without_default, reason = "a default has no side effect; this reads time")]
    pub fn new() -> Watch {
        Watch { clock: Clock::new(), spent_ns: None }
    }

    /// ns since an origin of its own.
    pub fn read(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Times the turns of each end apart from here on, or no longer; returns ns of the client and
    /// of the server until here. It takes one more reading a turn.
    pub fn time_apart(&mut self, apart: bool) -> Option<[u64; 2]> {
        std::mem::replace(&mut self.spent_ns, apart.then_some([0; 2]))
    }

    /// The server's turn began at `begin`, the client's at `between`, and both are over.
    pub fn turn_over(&mut self, begin: u64, between: u64) {
        if let Some([client, server]) = self.spent_ns {
            let client = client + self.read().saturating_sub(between);
            self.spent_ns = Some([client, server + between.saturating_sub(begin)]);
        }
    }
}
