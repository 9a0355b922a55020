//! What the bench asks of every scheme, ours and others'.

use lightwait_core::Instant;

use super::connection::Connection;

/// When a timer is set, and when it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub(super) now: Instant,
    pub(super) at: Instant,
}

/// A way to keep a timer for each connection.
pub(super) trait Scheme {
    /// How it calls an entry; kept in the connection.
    type Key: Default + Clone;
    /// True if [`advance`](Scheme::advance) does something, which must not be timed.
    const ADVANCES: bool = false;
    /// True if timers fire with coarse ticks of its own, and not in the turn after their deadline.
    const TICKS: bool = false;

    /// No timer set, at `now`.
    fn new(now: Instant) -> Self;

    /// A connection comes to be, with a deadline.
    fn birth(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When);

    /// Sets the timer of a connection whose timer was cancelled.
    fn set(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When);

    /// Cancels a connection's timer.
    fn cancel(&mut self, index: u32, connection: &mut Connection<Self::Key>);

    /// Moves a connection's timer, as an ACK does.
    fn rearm(&mut self, index: u32, connection: &mut Connection<Self::Key>, when: When);

    /// A connection with a timer set is no more.
    fn death(&mut self, index: u32, connection: &mut Connection<Self::Key>);

    /// Says that it is `now`, outside of what is timed.
    fn advance(&mut self, now: Instant) {
        let _ = now;
    }

    /// A turn: asks when there will be work, and runs every timer that is due. `fire` touches the
    /// connection.
    fn turn(
        &mut self,
        now: Instant,
        connections: &mut [Connection<Self::Key>],
        fire: impl FnMut(u32, &mut Connection<Self::Key>),
    );
}
