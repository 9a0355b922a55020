//! What there is, for people who look.

use core::iter;
use core::net::SocketAddr;

use super::Host;
use crate::config::Algorithm;
use crate::event::ConnectionId;
use crate::flow::Tuple;
use crate::tcp::slot::Slot;
use crate::tcp::syn_cache::{HalfOpen, is_entry};
use crate::tcp::time_wait::{Record, TimeWait};
use crate::tcp::timers::{Deadlines, Timer};
use crate::tcp::{ConnectionInfo, State};
use crate::time::Instant;

/// What [`Host::sockets`] finds.
#[derive(Clone, Copy, Debug)]
pub enum Socket<'a> {
    /// A listener.
    Listener(ListenerInfo),
    /// A handshake that a peer began, of which a few bytes are kept.
    HalfOpen(HalfOpenInfo),
    /// A connection.
    Connection(LiveConnection<'a>),
    /// What is left of a connection that has no user any more.
    Record(RecordInfo),
}

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// Where it listens.
    pub local: SocketAddr,
    /// Connections that wait to be accepted.
    pub waiting: usize,
    /// How many may wait.
    pub backlog: usize,
}

/// A handshake that a peer began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// When our SYN, ACK is sent again, or the handshake is given up.
    pub due: Instant,
    /// How often it has been sent.
    pub attempts: u8,
}

/// What is left of a connection: a record of TIME-WAIT, or of FIN-WAIT-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// TIME-WAIT or FIN-WAIT-2.
    pub state: State,
    /// When it entered that state, or 2·MSL were last started over.
    pub entered: Instant,
    /// When it goes; dropped some time after.
    pub expires: Instant,
    /// Both ends have agreed which of them holds TIME-WAIT: we do for a record of TIME-WAIT, and
    /// the peer will for one of FIN-WAIT-2. Else the end that closed first holds it.
    pub is_agreed: bool,
}

/// A connection, as [`Host::sockets`] finds it.
#[derive(Clone, Copy, Debug)]
pub struct LiveConnection<'a> {
    host: &'a Host,
    slot: &'a Slot,
    index: u32,
}

/// What a connection tells those who look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionDetail {
    /// Its state.
    pub info: ConnectionInfo,
    /// Its next timer, and when that fires.
    pub timer: Option<(Timer, Instant)>,
    /// The limit of its send buffer now, in bytes; 0 where it is not synchronized.
    pub send_limit_bytes: u64,
    /// The pages of its send buffer.
    pub send_pages: u32,
    /// How it controls congestion.
    pub congestion: Algorithm,
    /// It lies at rest, in 200 bytes.
    pub is_at_rest: bool,
}

impl LiveConnection<'_> {
    /// Its name, as its user has it; [`Host::info`] takes it unless the connection is an
    /// [orphan](Self::is_orphan).
    pub fn id(&self) -> ConnectionId {
        let generation = self.host.slots.generation(self.index);
        ConnectionId { index: self.index, generation }
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        self.slot.tuple.local()
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        self.slot.tuple.remote()
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.slot.state()
    }

    /// True if its user has left it: [`Host::info`] knows it no more.
    pub fn is_orphan(&self) -> bool {
        self.slot.is_orphan()
    }

    /// The rest of its state, at `now`.
    pub fn detail(&self, now: Instant) -> ConnectionDetail {
        let (view, host) = (self.slot.view(), self.host);
        let path_mtu_bytes = host.ip.path_mtu(self.slot.tuple.remote_ip());
        let info = view.info(&host.shared.config);
        let send = view.synchronized().map(|s| s.send.info(&view.options, host.shared.sizing(now)));
        ConnectionDetail {
            info: ConnectionInfo { path_mtu_bytes, ..info },
            timer: next(&view.deadlines),
            send_limit_bytes: send.map_or(0, |send| send.hiwat as u64),
            send_pages: send.map_or(0, |send| send.held_pages as u32),
            congestion: view.options.congestion,
            is_at_rest: self.slot.awake().is_none(),
        }
    }
}

impl LiveConnection<'_> {
    /// When each of its timers is due, in the order of [`Timer::ALL`].
    pub fn timers(&self) -> [Option<Instant>; Timer::ALL.len()] {
        let view = self.slot.view();
        let at = |timer| view.deadlines.is_set(timer).then(|| view.deadlines.at(timer));
        Timer::ALL.map(at)
    }

    /// True if its writer waits for room in the send buffer, or for memory.
    pub fn waits_for_room(&self) -> bool {
        self.slot.view().blocked.waits_for_room()
    }
}

/// The timer that fires next; the one after which a connection may rest is none of TCP's.
fn next(deadlines: &Deadlines) -> Option<(Timer, Instant)> {
    let set = Timer::ALL.into_iter().filter(|timer| *timer != Timer::Rest);
    let set = set.filter(|timer| deadlines.is_set(*timer));
    set.map(|timer| (timer, deadlines.at(timer))).min_by_key(|(_, at)| *at)
}

impl Socket<'_> {
    /// Our end.
    pub fn local(&self) -> SocketAddr {
        match self {
            Socket::Listener(listener) => listener.local,
            Socket::HalfOpen(half_open) => half_open.local,
            Socket::Connection(connection) => connection.local(),
            Socket::Record(record) => record.local,
        }
    }

    /// The peer's end; a listener has none.
    pub fn remote(&self) -> Option<SocketAddr> {
        match self {
            Socket::Listener(_) => None,
            Socket::HalfOpen(half_open) => Some(half_open.remote),
            Socket::Connection(connection) => Some(connection.remote()),
            Socket::Record(record) => Some(record.remote),
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        match self {
            Socket::Listener(_) => State::Listen,
            Socket::HalfOpen(_) => State::SynReceived,
            Socket::Connection(connection) => connection.state(),
            Socket::Record(record) => record.state,
        }
    }

    /// The name that [`Host::info`] takes, if it is a connection that has a user.
    pub fn id(&self) -> Option<ConnectionId> {
        match self {
            Socket::Connection(connection) if !connection.is_orphan() => Some(connection.id()),
            _ => None,
        }
    }
}

/// A place where a socket may lie: [`Host::sockets_from`] goes on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SocketPlace {
    part: u8,
    number: u32,
}

/// The parts of a walk: listeners, half-open handshakes, connections, and the sets of records.
const LISTENERS: u8 = 0;
const HALF_OPEN: u8 = 1;
const CONNECTIONS: u8 = 2;
const FIN_WAIT_2: u8 = 3;
const TIME_WAIT: u8 = FIN_WAIT_2 + TimeWait::SETS;
const END: u8 = TIME_WAIT + TimeWait::SETS;

impl SocketPlace {
    /// It in 40 bits, by which others name it.
    pub fn to_bits(self) -> u64 {
        u64::from(self.part) << 32 | u64::from(self.number)
    }

    /// The place that [`to_bits`](Self::to_bits) named. Any bits do: where there is no such place,
    /// the walk is over, or it begins at the next that there is.
    pub fn from_bits(bits: u64) -> SocketPlace {
        let part = u8::try_from(bits >> 32).unwrap_or(END);
        SocketPlace { part, number: bits as u32 }
    }
}

impl Host {
    /// Every listener, half-open handshake, connection (closing ones without a user as well) and
    /// TIME-WAIT record.
    pub fn sockets(&self) -> impl Iterator<Item = Socket<'_>> {
        self.sockets_from(SocketPlace::default()).filter_map(|(_, found)| found)
    }

    /// The places from `first` on, each with the place that follows, if any does, and with what
    /// lies there. The first of all is the default.
    ///
    /// A walk over a million sockets goes in pieces, so that it holds nobody up: each step takes a
    /// constant time, also where nothing lies. It sees what stays at least once. A record that was
    /// restarted or moved meanwhile it may see twice.
    pub fn sockets_from(
        &self,
        first: SocketPlace,
    ) -> impl Iterator<Item = (Option<SocketPlace>, Option<Socket<'_>>)> {
        let mut at = Some(first);
        iter::from_fn(move || {
            let place = at.filter(|place| place.part < END)?;
            let (found, following) = self.look_at(place);
            at = match following {
                Some(number) => Some(SocketPlace { number, ..place }),
                None => self.part_behind(place.part),
            };
            Some((at, found))
        })
    }

    /// What there is between these ends: a connection, a handshake or a record.
    pub fn socket_between(&self, ends: &Tuple) -> Option<Socket<'_>> {
        let hash = self.live.hasher.hash(ends);
        match self.find(hash, ends) {
            Some(number) if is_entry(number) => {
                let entry = self.opening.syn_cache.get(number)?;
                Some(Socket::HalfOpen(half_open_info(entry)))
            }
            Some(index) => {
                let slot = self.slots.get(index)?;
                Some(Socket::Connection(LiveConnection { host: self, slot, index }))
            }
            None => self.record_between(hash, ends),
        }
    }

    fn record_between(&self, hash: u64, ends: &Tuple) -> Option<Socket<'_>> {
        let orphans = self.closed.fin_wait_2.records();
        let tables =
            [(&self.closed.time_wait, State::TimeWait), (orphans, State::FinWait2)].into_iter();
        let mut found = tables.filter_map(|(table, state)| {
            table.get(hash, ends).map(|it| record_info(&it.record(), state))
        });
        found.next().map(Socket::Record)
    }

    /// What lies at a place, and the number of the next one in its part.
    fn look_at(&self, place: SocketPlace) -> (Option<Socket<'_>>, Option<u32>) {
        let SocketPlace { part, number } = place;
        let behind = |end: u32| (number < end).then(|| number + 1);
        match part {
            LISTENERS => {
                let listeners = &self.opening.listeners;
                let found = listeners.at(number).map(|it| ListenerInfo {
                    local: it.local,
                    waiting: it.queue.len(),
                    backlog: it.backlog,
                });
                (found.map(Socket::Listener), behind(listeners.end()))
            }
            HALF_OPEN => {
                let half_open = &self.opening.syn_cache;
                let found = half_open.at(number).map(half_open_info);
                (found.map(Socket::HalfOpen), behind(half_open.end()))
            }
            CONNECTIONS => {
                let slot = self.slots.get(number).filter(|slot| slot.is_known());
                let found = slot.map(|slot| LiveConnection { host: self, slot, index: number });
                (found.map(Socket::Connection), behind(self.slots.end()))
            }
            _ => {
                let (records, set, state) = self.records_of(part);
                let (found, following) = records.look_at(set, number);
                // An orphan that is awake is among the connections.
                let found = found.filter(|it| state == State::TimeWait || self.sleeps(&it.tuple));
                (found.map(|record| Socket::Record(record_info(&record, state))), following)
            }
        }
    }

    /// The records of a part: their table, the set in it, and the state that they are in.
    fn records_of(&self, part: u8) -> (&TimeWait, u8, State) {
        match part.checked_sub(TIME_WAIT) {
            Some(set) => (&self.closed.time_wait, set, State::TimeWait),
            None => (self.closed.fin_wait_2.records(), part - FIN_WAIT_2, State::FinWait2),
        }
    }

    /// The first place of the next part.
    fn part_behind(&self, part: u8) -> Option<SocketPlace> {
        let part = part + 1;
        let number = match part {
            ..FIN_WAIT_2 => 0,
            FIN_WAIT_2..END => {
                let (records, set, _) = self.records_of(part);
                records.first_number(set)
            }
            _ => return None,
        };
        Some(SocketPlace { part, number })
    }

    fn sleeps(&self, tuple: &Tuple) -> bool {
        let hash = self.live.hasher.hash(tuple);
        self.find_connection(hash, tuple).is_none()
    }
}

fn half_open_info(entry: &HalfOpen) -> HalfOpenInfo {
    HalfOpenInfo {
        local: entry.tuple.local(),
        remote: entry.tuple.remote(),
        due: entry.due(),
        attempts: entry.syn.attempts,
    }
}

fn record_info(record: &Record, state: State) -> RecordInfo {
    RecordInfo {
        local: record.tuple.local(),
        remote: record.tuple.remote(),
        state,
        entered: record.entered,
        expires: record.expires,
        is_agreed: record.is_holder,
    }
}
