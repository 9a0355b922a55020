//! The interface of every scheme, ours and others.

use lightwait_core::Instant;

use super::connection::Connection;

/// The time at which a timer is set, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) now: Instant,
    pub(super) at: Instant,
}

/// A scheme that keeps a timer for each connection.
pub(super) trait Scheme {
    /// The key of an entry, which the connection keeps.
    type Key: Default + Clone;
    /// True if [`advance`](Scheme::advance) does work, which must not be timed.
    const ADVANCES: bool = false;
    /// True if timers fire at coarse ticks of the scheme, and not in the turn after their deadline.
    const TICKS: bool = false;

    /// A scheme without timers, at `now`.
    fn new(now: Instant) -> Self;

    /// Adds a connection, with a deadline.
    fn birth(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When);

    /// Sets the timer of a connection whose timer was cancelled.
    fn set(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When);

    /// Cancels a connection's timer.
    fn cancel(&mut self, index: u32, connection: &mut Connection<Self::Key>);

    /// Moves a connection's timer, as an ACK does.
    fn rearm(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When);

    /// Removes a connection with a timer set.
    fn death(&mut self, index: u32, connection: &mut Connection<Self::Key>);

    /// Sets the time to `now`, outside of what is timed.
    fn advance(&mut self, now: Instant) {
        let _ = now;
    }

    /// Runs a turn: asks for the time of the next work, and runs every due timer. `fire` touches
    /// the connection.
    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<Self::Key>],
        fire: impl FnMut(u32, &mut Connection<Self::Key>),
    );
}
