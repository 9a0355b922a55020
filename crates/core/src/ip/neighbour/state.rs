//! The state of one neighbour, and how long it lasts. The arcs between these states are drawn in
//! [`neighbour`](super).

use crate::time::Instant;
use crate::wire::ethernet::Mac;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked for so often; the next time is at the timer.
    Incomplete { asked: u8 },
    /// It did not answer; it may be asked again from then on. No timer.
    Failed { until: Instant },
    /// Confirmed; doubted from then on. No timer.
    Reachable { mac: Mac, until: Instant },
    /// In doubt, not used since. No timer.
    Stale { mac: Mac },
    /// In doubt and in use; asked at the timer.
    Delay { mac: Mac },
    /// Asked so often, 0 if that has to wait; the next time is at the timer.
    Probe { mac: Mac, asked: u8, whom: Whom },
}

/// The hosts that are asked about an address in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// The address itself.
    Known,
    /// The address itself, and soon all hosts: another address was reported.
    Contradicted,
    /// All hosts: any answer decides.
    Everybody,
}

impl State {
    /// The address to send to.
    pub(super) fn mac(self) -> Option<Mac> {
        match self {
            State::Incomplete { .. } | State::Failed { .. } => None,
            State::Reachable { mac, .. }
            | State::Stale { mac }
            | State::Delay { mac }
            | State::Probe { mac, .. } => Some(mac),
        }
    }

    /// True if `mac` answers a question that is open.
    pub(super) fn expects(self, mac: Mac) -> bool {
        match self {
            State::Incomplete { .. } => true,
            State::Probe { asked: 0, .. } => false,
            State::Probe { whom: Whom::Everybody, .. } => true,
            State::Probe { mac: known, .. } => mac == known,
            _ => false,
        }
    }
}
