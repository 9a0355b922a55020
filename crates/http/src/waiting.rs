//! Connections that wait for their peers, and the choice of one that goes when other connections
//! need memory or a place. It has no request, or not all of one. If others need memory and it has
//! what only requests need, it frees that first, and stays.
//!
//! ```text
//!   front ─▶ nothing came since it was put here: goes ─▶ rests, or is closed if it did
//!            something came, or it is being answered ─▶ to the back, and looked at again
//! ```
//!
//! A client that has as many connections as it may makes room among its own: they have an order of
//! their own.
//!
//! That is the second-chance rule: a request that comes or is answered costs nothing. A connection
//! that can rest needs no second chance. Connections that have the memory that requests need have a
//! queue of their own, which is looked at first: no connection closes while another can rest.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
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
    /// Those numbers, by client.
    by_client: BTreeSet<(IpAddr, u64)>,
    /// Connections that are on their way out since others need their places, of all and of each
    /// client.
    leaving: usize,
    leaving_of: BTreeMap<IpAddr, usize>,
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
    /// The client that it counts against, if it does.
    client: Option<IpAddr>,
    number: Cell<u64>,
    wanted: Cell<Wanted>,
    task: RefCell<Option<Waker>>,
}

/// What others want of a connection that waits for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    Nothing,
    /// Memory: it rests, or closes if it does.
    Memory,
    /// Its place: it closes.
    Place,
}

/// Where to look for a connection that goes.
#[derive(Clone, Copy)]
enum Among {
    Awake,
    Resting,
    Client(IpAddr),
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
        let mut queue = self.room.0.borrow_mut();
        queue.want(&self.connection, Wanted::Nothing);
        queue.remove(&self.connection);
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
        self.by_client.extend(place.connection.client.map(|client| (client, number)));
        self.places(place.connection.phase.is_awake()).insert(number, place);
    }

    fn remove(&mut self, connection: &Connection) -> Option<Place> {
        let number = connection.number.get();
        if let Some(client) = connection.client {
            self.by_client.remove(&(client, number));
        }
        self.places(connection.phase.is_awake()).remove(&number)
    }

    /// The connections to look at.
    fn len(&mut self, among: Among) -> usize {
        match among {
            Among::Awake => self.awake.len(),
            Among::Resting => self.resting.len(),
            // Counting them would take as long as looking at them.
            Among::Client(_) => LOOKED_AT,
        }
    }

    /// Takes out the connection that has waited longest, roughly.
    fn pop(&mut self, among: Among) -> Option<Place> {
        let number = match among {
            Among::Awake => *self.awake.first_key_value()?.0,
            Among::Resting => *self.resting.first_key_value()?.0,
            Among::Client(client) => {
                let from = (Bound::Included((client, 0)), Bound::Included((client, u64::MAX)));
                self.by_client.range(from).next()?.1
            }
        };
        let place = self.awake.get(&number).or_else(|| self.resting.get(&number))?;
        let connection = place.connection.clone();
        self.remove(&connection)
    }

    /// Sets what is wanted of a connection.
    fn want(&mut self, connection: &Connection, wanted: Wanted) {
        let before = connection.wanted.replace(wanted);
        let is_leaving = |wanted| usize::from(wanted == Wanted::Place);
        let (less, more) = (is_leaving(before), is_leaving(wanted));
        self.leaving = self.leaving + more - less;
        if let Some(client) = connection.client.filter(|_| less != more) {
            let leaving = self.leaving_of.entry(client).or_default();
            *leaving = *leaving + more - less;
            if *leaving == 0 {
                self.leaving_of.remove(&client);
            }
        }
    }
}

impl WaitingRoom {
    /// Enters a connection of `client` with that phase.
    pub(crate) fn enter(&self, phase: Phase, client: Option<IpAddr>, now: Instant) -> Seat {
        let (number, wanted, task) = Default::default();
        let connection = Rc::new(Connection { phase, client, number, wanted, task });
        self.0.borrow_mut().push(Place { connection: connection.clone(), since: now });
        Seat { connection, room: self.clone() }
    }

    /// Makes a connection that waits for its peer close or rest, and returns the memory that it
    /// frees. `None` if it found none.
    pub(crate) fn send_one_away(&self, now: Instant) -> Option<Given> {
        let connection = self.send_away(&[Among::Awake, Among::Resting], Wanted::Memory, now)?;
        Some(match connection.phase.is_awake() {
            true if connection.phase.may_rest() => Given::Awake,
            true => Given::Both,
            false => Given::Resting,
        })
    }

    /// Makes a connection that waits for its peer close. It is one of `client`'s, or else the one
    /// that has waited longest, roughly. False if it found none.
    pub(crate) fn give_up_a_place(&self, client: Option<IpAddr>, now: Instant) -> bool {
        let among = match client {
            Some(client) => &[Among::Client(client)][..],
            None => &[Among::Resting, Among::Awake],
        };
        self.send_away(among, Wanted::Place, now).is_some()
    }

    /// Connections that are on their way out, so that others have their places: of all, or of
    /// `client`.
    pub(crate) fn leaving(&self, client: Option<IpAddr>) -> usize {
        let queue = self.0.borrow();
        match client {
            Some(client) => queue.leaving_of.get(&client).copied().unwrap_or(0),
            None => queue.leaving,
        }
    }

    fn send_away(&self, among: &[Among], want: Wanted, now: Instant) -> Option<Rc<Connection>> {
        let connection = {
            let mut queue = self.0.borrow_mut();
            among.iter().find_map(|among| queue.pick(*among, want, now))
        }?;
        // Woken with nothing borrowed: a waker may run anything.
        let task = connection.task.take();
        task.into_iter().for_each(Waker::wake);
        Some(connection)
    }
}

impl Queue {
    fn pick(&mut self, among: Among, want: Wanted, now: Instant) -> Option<Rc<Connection>> {
        // A connection that gets a second chance may be the only one: all are looked at twice.
        for _ in 0..LOOKED_AT.min(2 * self.len(among)) {
            let Place { connection, since: before } = self.pop(among)?;
            let waits_since = connection.phase.waits_since();
            let since = waits_since.unwrap_or(now);
            self.push(Place { connection: connection.clone(), since });
            // One that is wanted is on its way out already. One that only rests loses nothing, and
            // needs no second chance.
            let rests = want == Wanted::Memory && connection.phase.may_rest();
            let grace = if rests { Duration::ZERO } else { GRACE };
            let has_waited = waits_since.is_some_and(|since| now >= since + grace);
            let goes = has_waited && (rests || since <= before);
            if goes && connection.wanted.get() == Wanted::Nothing {
                self.want(&connection, want);
                return Some(connection);
            }
        }
        None
    }
}

impl Seat {
    /// Notes that the connection has the memory that requests need from now on, or has freed it. If
    /// its memory was wanted, that counts in place of its end.
    pub(crate) fn set_awake(&self, is_awake: bool) {
        let mut queue = self.room.0.borrow_mut();
        let place = queue.remove(&self.connection);
        self.connection.phase.set_awake(is_awake);
        if self.connection.wanted.get() == Wanted::Memory {
            queue.want(&self.connection, Wanted::Nothing);
        }
        place.into_iter().for_each(|place| queue.push(place));
    }

    /// What is wanted of the connection, while it still waits for its peer. If that is nothing, the
    /// calling task is woken when it becomes something.
    pub(crate) fn wanted(&self, cx: &Context<'_>) -> Wanted {
        let seat = &self.connection;
        let wanted = seat.wanted.get();
        if wanted != Wanted::Nothing && seat.phase.waits_since().is_some() {
            return wanted;
        }
        if wanted != Wanted::Nothing {
            self.room.0.borrow_mut().want(seat, Wanted::Nothing);
        }
        let mut task = seat.task.borrow_mut();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        Wanted::Nothing
    }

    /// True if the connection should close or rest ([`Seat::wanted`]).
    pub(crate) fn is_wanted(&self, cx: &Context<'_>) -> bool {
        self.wanted(cx) != Wanted::Nothing
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
        let seats: Vec<Seat> = phases.iter().map(|p| room.enter(p.clone(), None, begin)).collect();
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
        let seats: Vec<Seat> = phases.iter().map(|p| room.enter(p.clone(), None, begin)).collect();
        seats.iter().for_each(|seat| seat.set_awake(true));
        let resting = room.enter(Phase::new(begin), None, begin);
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
        let seat = room.enter(phase.clone(), None, begin);
        assert!(room.send_one_away(begin).is_none(), "its request is on its way, maybe");
        assert!(!is_wanted(&seat));
        assert!(room.send_one_away(begin + GRACE).is_some() && is_wanted(&seat));
        phase.on_request(begin, false);
        assert!(!is_wanted(&seat));
        phase.on_response(begin);
        assert!(!is_wanted(&seat), "it is not wanted any more");
    }
}
