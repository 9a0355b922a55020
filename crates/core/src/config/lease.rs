//! The limits that may move from one shard of a host to another.

use super::Limits;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leased {
    Connections,
    SynCache,
    TimeWait,
    /// Pages, and the receive windows that they must be able to take in.
    Memory,
}

impl Leased {
    pub(crate) const ALL: [Leased; 4] =
        [Leased::Connections, Leased::SynCache, Leased::TimeWait, Leased::Memory];
}

/// A part of a limit on its way to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) what: Leased,
    pub(crate) amount: usize,
    /// The receive windows that go with the pages of [`Leased::Memory`].
    pub(crate) window_bytes: u64,
}

impl Grant {
    /// What it is out of, or goes to, among the limits of a shard.
    pub(crate) fn limit_in(self, limits: &mut Limits) -> &mut usize {
        match self.what {
            Leased::Connections => &mut limits.connections,
            Leased::SynCache => &mut limits.syn_cache,
            Leased::TimeWait => &mut limits.time_wait,
            Leased::Memory => &mut limits.pages,
        }
    }
}
