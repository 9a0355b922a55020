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
//!
//! Idle connections go first, however short their wait: a silent peer may open new ones as fast as
//! any grace ends. Then go those that wait for the rest of a request, and then those whose peers
//! take nothing of their answers. A place is never taken from a peer that still receives one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::Bound;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::connection::timeouts::Phase;

/// Connections to look at for one that goes, at most.
const LOOKED_AT: usize = 256;

/// As many, once one was found that could go if no other were idle.
const LOOKED_AT_FOR_IDLE: usize = 32;

/// A connection may wait this long for the rest of a request, or to deliver an answer.
const GRACE: Duration = Duration::from_millis(500);

/// All connections of a server, roughly those first that have waited longest.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvictionQueue(Rc<RefCell<Queue>>);

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

struct Connection {
    phase: Phase,
    /// The client that it counts against, if it does.
    client: Option<IpAddr>,
    number: Cell<u64>,
    wanted: Cell<Wanted>,
    task: Cell<Option<Waker>>,
    answers: Rc<dyn Answers>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection { phase, client, number, wanted, answers, .. } = self;
        let mut text = f.debug_struct("Connection");
        text.field("phase", phase).field("client", client).field("number", number);
        text.field("wanted", wanted).field("answers", answers).finish_non_exhaustive()
    }
}

/// The answers of a connection, as its transport has them.
pub(crate) trait Answers: fmt::Debug {
    /// True while the peer has not acknowledged all that was written.
    fn are_under_way(&self) -> bool;

    /// True if they are under way, and the peer takes nothing of them.
    fn are_stalled(&self) -> bool;
}

/// The order in which connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It waits for a request, and has delivered every answer.
    Idle,
    /// It waits for more of a request; or, where memory is short, for its peer to take an answer.
    Late,
    /// Its peer takes nothing of an answer.
    Stalled,
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
    /// Its client's place, for a connection that comes to another server: it closes.
    ClientsPlace,
}

impl Wanted {
    /// True if the connection closes for another.
    pub(crate) fn is_place(self) -> bool {
        matches!(self, Wanted::Place | Wanted::ClientsPlace)
    }
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

/// A connection's entry in the queue, for the connection's whole life.
#[derive(Debug)]
pub(crate) struct EvictionEntry {
    connection: Rc<Connection>,
    room: EvictionQueue,
}

impl Drop for EvictionEntry {
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
        let is_leaving = |wanted: Wanted| usize::from(wanted.is_place());
        self.leaving = self.leaving + is_leaving(wanted) - is_leaving(before);
        // No other of the client's here may have a place that is promised elsewhere.
        let is_free = |wanted| usize::from(wanted == Wanted::Place);
        let (less, more) = (is_free(before), is_free(wanted));
        if let Some(client) = connection.client.filter(|_| less != more) {
            let leaving = self.leaving_of.entry(client).or_default();
            *leaving = *leaving + more - less;
            if *leaving == 0 {
                self.leaving_of.remove(&client);
            }
        }
    }
}

impl EvictionQueue {
    /// Enters a connection of `client` with that phase and those answers.
    pub(crate) fn enter(
        &self,
        (phase, answers): (Phase, Rc<dyn Answers>),
        client: Option<IpAddr>,
        now: Instant,
    ) -> EvictionEntry {
        let (number, wanted, task) = Default::default();
        let connection = Rc::new(Connection { phase, client, number, wanted, task, answers });
        self.0.borrow_mut().push(Place { connection: connection.clone(), since: now });
        EvictionEntry { connection, room: self.clone() }
    }

    /// Makes a connection that waits for its peer close or rest, and returns the memory that it
    /// frees. `None` if it found none.
    pub(crate) fn evict_for_memory(&self, now: Instant) -> Option<Given> {
        let connection = self.evict(&[Among::Awake, Among::Resting], Wanted::Memory, now)?;
        Some(match connection.phase.is_awake() {
            true if connection.phase.may_rest() => Given::Awake,
            true => Given::Both,
            false => Given::Resting,
        })
    }

    /// Makes a connection that waits for its peer close. It is one of `client`'s, or else the one
    /// that has waited longest, roughly. False if it found none.
    pub(crate) fn evict_for_place(&self, client: Option<IpAddr>, now: Instant) -> bool {
        let among = match client {
            Some(client) => &[Among::Client(client)][..],
            None => &[Among::Resting, Among::Awake],
        };
        self.evict(among, Wanted::Place, now).is_some()
    }

    /// Makes a connection of `client`'s that waits for its peer close, for one that comes to
    /// another server. False if it found none.
    pub(crate) fn evict_for_other_server(&self, client: IpAddr, now: Instant) -> bool {
        self.evict(&[Among::Client(client)], Wanted::ClientsPlace, now).is_some()
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

    fn evict(&self, among: &[Among], want: Wanted, now: Instant) -> Option<Rc<Connection>> {
        let connection = {
            let mut queue = self.0.borrow_mut();
            let mut found: Option<(Rank, Rc<Connection>)> = None;
            for among in among {
                found = queue.pick(*among, (want, found), now);
                if found.as_ref().is_some_and(|(rank, _)| *rank == Rank::Idle) {
                    break;
                }
            }
            let (_, connection) = found?;
            queue.want(&connection, want);
            connection
        };
        // Woken with nothing borrowed: a waker may run anything.
        let task = connection.task.take();
        task.into_iter().for_each(Waker::wake);
        Some(connection)
    }
}

impl Queue {
    /// The connection that goes before that found until now, if one does.
    fn pick(
        &mut self,
        among: Among,
        (want, mut found): (Wanted, Option<(Rank, Rc<Connection>)>),
        now: Instant,
    ) -> Option<(Rank, Rc<Connection>)> {
        // A connection that gets a second chance may be the only one: all are looked at twice.
        let most = LOOKED_AT.min(2 * self.len(among));
        for looked_at in 0..most {
            if found.is_some() && looked_at >= LOOKED_AT_FOR_IDLE {
                break;
            }
            let Some(Place { connection, since: before }) = self.pop(among) else { break };
            let waits_since = connection.phase.waits_since();
            let since = waits_since.unwrap_or(now);
            self.push(Place { connection: connection.clone(), since });
            // One that is wanted is on its way out already.
            if connection.wanted.get() != Wanted::Nothing {
                continue;
            }
            let waits = waits_since.filter(|since| *since <= before);
            let Some(rank) = connection.rank(want, waits, now) else { continue };
            if found.as_ref().is_none_or(|(least, _)| rank < *least) {
                found = Some((rank, connection));
            }
            if rank == Rank::Idle {
                break;
            }
        }
        found
    }
}

impl Connection {
    /// Its rank among those that may go; `None` if it may not. `waits`: since when it has waited
    /// for its peer, if nothing came since it was looked at last.
    fn rank(&self, want: Wanted, waits: Option<Instant>, now: Instant) -> Option<Rank> {
        // One that only rests loses nothing, and needs no second chance.
        if want == Wanted::Memory && self.phase.may_rest() {
            return Some(Rank::Idle);
        }
        let is_answered = !self.answers.are_under_way();
        if let Some(since) = waits {
            if is_answered && self.phase.is_idle() {
                return Some(Rank::Idle);
            }
            if (is_answered || want == Wanted::Memory) && now >= since + GRACE {
                return Some(Rank::Late);
            }
        }
        (want.is_place() && self.answers.are_stalled()).then_some(Rank::Stalled)
    }
}

impl EvictionEntry {
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
        let entry = &self.connection;
        let wanted = entry.wanted.get();
        if wanted != Wanted::Nothing
            && (entry.phase.waits_since().is_some() || entry.answers.are_stalled())
        {
            return wanted;
        }
        if wanted != Wanted::Nothing {
            self.room.0.borrow_mut().want(entry, Wanted::Nothing);
        }
        let known = entry.task.take().filter(|task| task.will_wake(cx.waker()));
        entry.task.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        Wanted::Nothing
    }

    /// True if the connection should close or rest ([`EvictionEntry::wanted`]).
    pub(crate) fn is_wanted(&self, cx: &Context<'_>) -> bool {
        self.wanted(cx) != Wanted::Nothing
    }
}

#[cfg(test)]
pub(crate) mod tests;
