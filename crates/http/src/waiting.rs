//! Connections that wait for their peers, and who of them goes when memory is wanted for others:
//! one that has no request, or not all of it.
//!
//! ```text
//!   front ─▶ nothing came since it was put here: goes ─▶ closed
//!            something came, or it is being answered ─▶ to the back, and looked at again
//! ```
//!
//! That is the second-chance rule: nothing is done when a request comes or is answered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::patient::Phase;

/// Connections that are looked at for one that goes, at most.
const LOOKED_AT: usize = 256;

/// So long every connection may wait: a request is under way to one that has just come.
const GRACE: Duration = Duration::from_millis(500);

/// All connections of a server, those first that have waited longest, more or less.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingRoom(Rc<RefCell<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    /// By the number that each drew when it was put there last.
    places: BTreeMap<u64, Place>,
    next_number: u64,
}

#[derive(Debug)]
struct Place {
    connection: Rc<Connection>,
    /// When it was put here, or what it waited for then had begun.
    since: Instant,
}

#[derive(Debug)]
struct Connection {
    phase: Phase,
    number: Cell<u64>,
    is_wanted: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

/// A connection's place, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Seat {
    connection: Rc<Connection>,
    room: WaitingRoom,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.0.borrow_mut().places.remove(&self.connection.number.get());
    }
}

impl Queue {
    fn push(&mut self, place: Place) {
        place.connection.number.set(self.next_number);
        self.places.insert(self.next_number, place);
        self.next_number += 1;
    }
}

impl WaitingRoom {
    /// A place for a connection whose phase that is.
    pub(crate) fn enter(&self, phase: Phase, now: Instant) -> Seat {
        let (number, is_wanted, task) = Default::default();
        let connection = Rc::new(Connection { phase, number, is_wanted, task });
        self.0.borrow_mut().push(Place { connection: connection.clone(), since: now });
        Seat { connection, room: self.clone() }
    }

    /// Has one that waits for its peer go, and says whether it has what requests need. `None` if
    /// none was found.
    pub(crate) fn send_one_away(&self, now: Instant) -> Option<bool> {
        let wanted = self.0.borrow_mut().pick(now);
        // Woken with nothing borrowed: a waker may run anything.
        let task = wanted.as_ref().and_then(|connection| connection.task.take());
        task.into_iter().for_each(Waker::wake);
        wanted.map(|connection| connection.phase.is_awake())
    }
}

impl Queue {
    fn pick(&mut self, now: Instant) -> Option<Rc<Connection>> {
        // Whoever gets a second chance may be the only one: all are looked at twice.
        for _ in 0..LOOKED_AT.min(2 * self.places.len()) {
            let (_, Place { connection, since: before }) = self.places.pop_first()?;
            let waits_since = connection.phase.waits_since();
            let since = waits_since.unwrap_or(now);
            self.push(Place { connection: connection.clone(), since });
            // One that is wanted is on its way out already.
            let has_waited = waits_since.is_some_and(|since| now >= since + GRACE);
            if has_waited && since <= before && !connection.is_wanted.replace(true) {
                return Some(connection);
            }
        }
        None
    }
}

impl Seat {
    /// True if the connection should end: its place is wanted, and it still waits for its peer.
    /// Else whoever polls is woken when that is so.
    pub(crate) fn is_wanted(&self, cx: &Context<'_>) -> bool {
        let seat = &self.connection;
        if seat.is_wanted.get() && seat.phase.waits_since().is_some() {
            return true;
        }
        seat.is_wanted.set(false);
        let mut task = seat.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn is_wanted(seat: &Seat) -> bool {
        seat.is_wanted(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_has_waited_longest_goes_and_nobody_who_is_answered() {
        let (room, begin) = (WaitingRoom::default(), Instant::now());
        let phases: Vec<Phase> = (0..4).map(|_| Phase::new(begin)).collect();
        let seats: Vec<Seat> = phases.iter().map(|p| room.enter(p.clone(), begin)).collect();
        // The first is being answered, the second was a moment ago, of the third a body is awaited.
        phases[0].on_request(begin + SECOND, false);
        phases[1].on_response(begin + SECOND * 2);
        phases[2].on_request(begin, true);
        let order: Vec<Option<usize>> = (0..4)
            .map(|_| {
                let before: Vec<bool> = seats.iter().map(is_wanted).collect();
                room.send_one_away(begin + SECOND * 3);
                seats.iter().zip(before).position(|(seat, before)| is_wanted(seat) && !before)
            })
            .collect();
        assert_eq!(order, [Some(2), Some(3), Some(1), None]);
        drop(seats);
        assert!(room.0.borrow().places.is_empty());
    }

    #[test]
    fn who_is_asked_something_before_it_can_go_stays() {
        let (room, begin) = (WaitingRoom::default(), Instant::now());
        let phase = Phase::new(begin);
        let seat = room.enter(phase.clone(), begin);
        assert!(room.send_one_away(begin).is_none(), "its request is on its way, maybe");
        assert!(!is_wanted(&seat));
        assert!(room.send_one_away(begin + GRACE).is_some() && is_wanted(&seat));
        phase.on_request(begin, false);
        assert!(!is_wanted(&seat));
        phase.on_response(begin);
        assert!(!is_wanted(&seat), "it is not wanted any more");
    }
}
