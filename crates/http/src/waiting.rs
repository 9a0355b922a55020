//! Connections that wait for their peers, and the choice of one that goes when other connections
//! need memory. It has no request, or not all of one. If it has the memory that only requests need,
//! it frees that first, and stays.
//!
//! ```text
//!   front ─▶ nothing came since it was put here: goes ─▶ rests, or is closed if it did
//!            something came, or it is being answered ─▶ to the back, and looked at again
//! ```
//!
//! That is the second-chance rule: a request that comes or is answered costs nothing. A connection
//! that can rest needs no second chance. Connections that have the memory that requests need have a
//! queue of their own, which is looked at first: no connection closes while another can rest.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::patient::Phase;

/// Connections to look at for one that goes, at most.
const LOOKED_AT: usize = 256;

/// Every connection may wait this long: a new connection's request is on its way.
const GRACE: Duration = Duration::from_millis(500);

/// All connections of a server, roughly those first that have waited longest.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingRoom(Rc<RefCell<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    /// Connections with the memory that requests need, by the number of their latest entry.
    awake: BTreeMap<u64, Place>,
    /// The other connections, likewise.
    resting: BTreeMap<u64, Place>,
    next_number: u64,
}

#[derive(Debug)]
struct Place {
    connection: Rc<Connection>,
    /// When it was entered, or the start of its wait at that time.
    since: Instant,
}

#[derive(Debug)]
struct Connection {
    phase: Phase,
    number: Cell<u64>,
    is_wanted: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

/// The memory that a connection frees when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The memory that only requests need: it rests.
    Awake,
    /// The memory of a resting connection: it goes.
    Resting,
    /// All of its memory: it goes with a part of a request.
    Both,
}

/// A connection's place in the waiting room, for the connection's whole life.
#[derive(Debug)]
pub(crate) struct Seat {
    connection: Rc<Connection>,
    room: WaitingRoom,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.0.borrow_mut().remove(&self.connection);
    }
}

impl Queue {
    fn places(&mut self, is_awake: bool) -> &mut BTreeMap<u64, Place> {
        if is_awake { &mut self.awake } else { &mut self.resting }
    }

    fn push(&mut self, place: Place) {
        let number = self.next_number;
        self.next_number += 1;
        place.connection.number.set(number);
        self.places(place.connection.phase.is_awake()).insert(number, place);
    }

    fn remove(&mut self, connection: &Connection) -> Option<Place> {
        self.places(connection.phase.is_awake()).remove(&connection.number.get())
    }
}

impl WaitingRoom {
    /// Enters a connection with that phase.
    pub(crate) fn enter(&self, phase: Phase, now: Instant) -> Seat {
        let (number, is_wanted, task) = Default::default();
        let connection = Rc::new(Connection { phase, number, is_wanted, task });
        self.0.borrow_mut().push(Place { connection: connection.clone(), since: now });
        Seat { connection, room: self.clone() }
    }

    /// Makes a connection that waits for its peer close or rest, and returns the memory that it
    /// frees. `None` if it found none.
    pub(crate) fn send_one_away(&self, now: Instant) -> Option<Given> {
        let wanted = {
            let mut queue = self.0.borrow_mut();
            queue.pick(true, now).or_else(|| queue.pick(false, now))
        };
        // Woken with nothing borrowed: a waker may run anything.
        let task = wanted.as_ref().and_then(|connection| connection.task.take());
        task.into_iter().for_each(Waker::wake);
        wanted.map(|connection| match connection.phase.is_awake() {
            true if connection.phase.may_rest() => Given::Awake,
            true => Given::Both,
            false => Given::Resting,
        })
    }
}

impl Queue {
    fn pick(&mut self, is_awake: bool, now: Instant) -> Option<Rc<Connection>> {
        // A connection that gets a second chance may be the only one: all are looked at twice.
        for _ in 0..LOOKED_AT.min(2 * self.places(is_awake).len()) {
            let (_, Place { connection, since: before }) = self.places(is_awake).pop_first()?;
            let waits_since = connection.phase.waits_since();
            let since = waits_since.unwrap_or(now);
            self.push(Place { connection: connection.clone(), since });
            // One that is wanted is on its way out already. One that only rests loses nothing, and
            // needs no second chance.
            let rests = connection.phase.may_rest();
            let grace = if rests { Duration::ZERO } else { GRACE };
            let has_waited = waits_since.is_some_and(|since| now >= since + grace);
            let goes = has_waited && (rests || since <= before);
            if goes && !connection.is_wanted.replace(true) {
                return Some(connection);
            }
        }
        None
    }
}

impl Seat {
    /// Notes that the connection has the memory that requests need from now on, or has freed it. If
    /// it was wanted, that counts in place of its end.
    pub(crate) fn set_awake(&self, is_awake: bool) {
        let mut queue = self.room.0.borrow_mut();
        let place = queue.remove(&self.connection);
        self.connection.phase.set_awake(is_awake);
        self.connection.is_wanted.set(false);
        place.into_iter().for_each(|place| queue.push(place));
    }

    /// True if the connection should close or rest: its memory is wanted, and it still waits for
    /// its peer. Else the calling task is woken when that becomes true.
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
        // The first is in progress, the second was a moment ago, and the third waits for a body.
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
        assert!(room.0.borrow().resting.is_empty());
    }

    #[test]
    fn an_idle_one_is_found_at_the_first_look_among_many_awake() {
        let (room, begin) = (WaitingRoom::default(), Instant::now());
        let phases: Vec<Phase> = (0..3 * LOOKED_AT).map(|_| Phase::new(begin)).collect();
        let seats: Vec<Seat> = phases.iter().map(|p| room.enter(p.clone(), begin)).collect();
        seats.iter().for_each(|seat| seat.set_awake(true));
        let resting = room.enter(Phase::new(begin), begin);
        // All were answered after they were seated.
        let now = begin + SECOND;
        phases.iter().for_each(|phase| phase.on_response(now));
        for _ in 0..phases.len() {
            assert_eq!(room.send_one_away(now), Some(Given::Awake));
        }
        assert!(!is_wanted(&resting));
        assert_eq!(room.send_one_away(now), Some(Given::Resting));
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
