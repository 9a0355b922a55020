//! Opens connections, each from a tuple that has rested; waits if none has.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::network::{Network, TimeLimit};
use crate::recorder::Fault;
use crate::tuples::{Exhausted, Tuple, Tuples};

/// The time between two attempts to take a tuple while all are in use.
const TUPLE_POLL: Duration = Duration::from_millis(10);
/// Tuples tried for one connection while other programs use them.
const TUPLE_ATTEMPTS: usize = 16;

/// Opens connections to one server. Times are the network's.
pub(super) struct Dialer<N> {
    network: N,
    to: SocketAddr,
    tuples: RefCell<Tuples>,
    waits: Cell<u64>,
    taken: Cell<u64>,
}

/// An open connection.
pub(super) struct Opened<S> {
    pub(super) stream: S,
    pub(super) tuple: Tuple,
    /// The time of the call, when a tuple was there.
    pub(super) called: Duration,
    /// The time from the call to the established connection.
    pub(super) took: Duration,
}

impl<N: Network> Dialer<N> {
    pub(super) fn new(network: N, to: SocketAddr, tuples: Tuples) -> Dialer<N> {
        let (tuples, waits, taken) = (RefCell::new(tuples), Cell::new(0), Cell::new(0));
        Dialer { network, to, tuples, waits, taken }
    }

    /// Opens a connection.
    pub(super) async fn open(
        &self,
        deadline: Duration,
        limit: &mut TimeLimit<N>,
    ) -> Result<Opened<N::Stream>, Fault> {
        let mut attempts = TUPLE_ATTEMPTS;
        loop {
            let tuple = self.take_tuple(deadline).await?;
            let from = self.tuples.borrow().address(tuple);
            let called = self.network.now();
            let connect = self.network.connect(from, self.to);
            let result = limit.before(deadline, connect).await;
            match result.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    let took = self.network.now().saturating_sub(called);
                    return Ok(Opened { stream, tuple, called, took });
                }
                Err(error) => {
                    self.release(tuple);
                    attempts -= 1;
                    if error.kind() != io::ErrorKind::AddrInUse || attempts == 0 {
                        return Err(Fault::of(&error));
                    }
                    self.taken.set(self.taken.get() + 1);
                }
            }
        }
    }

    /// A connection has ended: its tuple begins to rest.
    pub(super) fn release(&self, tuple: Tuple) {
        self.tuples.borrow_mut().release(tuple, self.network.now());
    }

    /// True if a connection would have to wait for a tuple.
    pub(super) fn is_exhausted(&self) -> bool {
        self.tuples.borrow_mut().is_exhausted(self.network.now())
    }

    /// Tuples that are resting.
    pub(super) fn resting(&self) -> usize {
        self.tuples.borrow_mut().resting(self.network.now())
    }

    /// Connections that waited for a tuple.
    pub(super) fn waits(&self) -> u64 {
        self.waits.get()
    }

    /// Tuples that another program used.
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Takes a tuple, or waits until one has rested.
    async fn take_tuple(&self, deadline: Duration) -> Result<Tuple, Fault> {
        let mut has_waited = false;
        loop {
            let now = self.network.now();
            let Exhausted { until } = match self.tuples.borrow_mut().take(now) {
                Ok(tuple) => return Ok(tuple),
                Err(exhausted) => exhausted,
            };
            if now >= deadline {
                return Err(Fault::Source);
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.waits.set(self.waits.get() + 1);
            }
            let when = until.unwrap_or(now + TUPLE_POLL).min(deadline);
            self.network.sleep_until(when).await;
        }
    }
}
