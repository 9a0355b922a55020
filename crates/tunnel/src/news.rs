//! What a tunnel tells of what happens.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The pause between two lines about troubles: a proxy that is down fails every connection.
const QUIET: Duration = Duration::from_secs(5);

/// Counts what happens, and tells of troubles with the proxy. Clones share the counts.
#[derive(Clone)]
pub struct News {
    tally: Rc<Cell<Tally>>,
    told: Rc<Cell<Option<Instant>>>,
    tell: Rc<RefCell<Tell>>,
}

type Tell = dyn FnMut(&str);

/// Counts since the tunnel began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that clients have asked for.
    pub requested: u64,
    /// Those that the far side has taken.
    pub connected: u64,
    /// Those that were refused, for whatever reason.
    pub refused: u64,
    /// Those that have ended in order.
    pub ended: u64,
    /// Those that have ended with a reset of either side.
    pub reset: u64,
    /// UDP flows.
    pub flows: u64,
    /// Those that the proxy has not carried.
    pub flows_refused: u64,
}

impl Tally {
    /// These counts and those of another tunnel.
    #[must_use]
    pub fn and(self, other: Tally) -> Tally {
        Tally {
            requested: self.requested + other.requested,
            connected: self.connected + other.connected,
            refused: self.refused + other.refused,
            ended: self.ended + other.ended,
            reset: self.reset + other.reset,
            flows: self.flows + other.flows,
            flows_refused: self.flows_refused + other.flows_refused,
        }
    }
}

impl News {
    /// Troubles are told to `tell`, a line each, no more than one in 5 s.
    pub fn new(tell: impl FnMut(&str) + 'static) -> News {
        News { tally: Rc::default(), told: Rc::default(), tell: Rc::new(RefCell::new(tell)) }
    }

    /// The counts.
    pub fn tally(&self) -> Tally {
        self.tally.get()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }

    /// Tells of a trouble, unless one was told of a short while ago.
    pub(crate) fn trouble(&self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.told.get().is_none_or(|told| now - told >= QUIET) {
            self.told.set(Some(now));
            (self.tell.borrow_mut())(&text());
        }
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("News").field(&self.tally.get()).finish()
    }
}
