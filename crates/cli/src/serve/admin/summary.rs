//! `/summary`: what all sockets are like together, and the few that are worth a look.

use std::time::Duration;

use lightwait_core::Instant;
use lightwait_core::host::{LiveConnection, RecordInfo, Socket, SocketPlace};
use lightwait_core::tcp::State;
use serde_json::{Map, Value, json};

use super::connections::{Connection, of_connection};
use super::questions::Shards;
use crate::serve::Stacks;

/// Places that a shard looks at for one question. To ask a connection at rest takes longest: some
/// 0.1 us (`bench look`).
const PLACES: usize = 128;
/// Questions for one shard: beyond that its other sockets are left out.
const QUESTIONS_MAX: usize = 8192;
/// Connections that are worth a look, of each kind.
const NOTABLE: usize = 20;
/// A peer with data on the way to it that was not heard for so long is stalled.
const STALLED: Duration = Duration::from_secs(1);
/// Parts that the time of a record is divided into.
const AGES: usize = 10;
/// Bounds of round trips: 16 µs to 17 s, by factors of four; and what is beyond.
const ROUND_TRIPS: usize = 11;

/// What was seen so far.
#[derive(Default)]
struct Seen {
    sockets: u64,
    states: [u64; State::ALL.len()],
    /// Records of TIME-WAIT by the part of their time that is over, and how long the longest is.
    ages: [u64; AGES],
    term: Duration,
    agreed: u64,
    round_trips: [u64; ROUND_TRIPS + 1],
    sending_bytes: u64,
    receiving_bytes: u64,
    at_rest: u64,
    slowest: Notable,
    stalled: Notable,
    retransmitting: Notable,
}

/// The connections of which something is most.
#[derive(Default)]
struct Notable(Vec<(u64, Box<Connection>)>);

impl Notable {
    fn add(&mut self, much: u64, connection: impl FnOnce() -> Box<Connection>) {
        let is_full = self.0.len() == NOTABLE;
        if much == 0 || is_full && self.0.last().is_some_and(|(least, _)| *least >= much) {
            return;
        }
        self.0.truncate(NOTABLE - 1);
        let at = self.0.partition_point(|(other, _)| *other >= much);
        self.0.insert(at, (much, connection()));
    }

    fn rows(&self, shard: usize, now: Instant) -> impl Iterator<Item = (u64, Value)> {
        let row = move |connection| Value::Object(of_connection(shard, connection, now));
        self.0.iter().map(move |(much, connection)| (*much, row(connection)))
    }
}

impl Seen {
    fn add(&mut self, socket: Socket<'_>, now: Instant) {
        self.sockets += 1;
        self.states[socket.state() as usize] += 1;
        match socket {
            Socket::Connection(connection) => self.add_connection(connection, now),
            Socket::Record(record) if record.state == State::TimeWait => {
                self.add_record(&record, now);
            }
            _ => {}
        }
    }

    fn add_record(&mut self, record: &RecordInfo, now: Instant) {
        let (term, age) = (record.expires.since(record.entered), now.since(record.entered));
        let part = age.as_micros() * AGES as u128 / term.as_micros().max(1);
        self.ages[(part as usize).min(AGES - 1)] += 1;
        self.term = self.term.max(term);
        self.agreed += u64::from(record.is_agreed);
    }

    fn add_connection(&mut self, connection: LiveConnection<'_>, now: Instant) {
        let seen = Connection::of(connection, now);
        let info = &seen.detail.info;
        let srtt_us = info.srtt.as_micros() as u64;
        if srtt_us > 0 {
            self.round_trips[round_trip(srtt_us)] += 1;
        }
        self.sending_bytes += u64::from(info.send_buffered_bytes);
        self.receiving_bytes += u64::from(info.receive_buffered_bytes);
        self.at_rest += u64::from(seen.detail.is_at_rest);
        let silent = now.since(info.last_heard);
        let waits = info.send_buffered_bytes > 0 && silent >= STALLED;
        let (stalled, retransmits) =
            (u64::from(waits) * silent.as_micros() as u64, info.retransmits);
        let boxed = || Box::new(seen.clone());
        self.slowest.add(srtt_us, boxed);
        self.stalled.add(stalled, boxed);
        self.retransmitting.add(retransmits, boxed);
    }
}

/// The number of the bound that is not below a round trip of so many microseconds.
fn round_trip(us: u64) -> usize {
    (0..ROUND_TRIPS).find(|at| us <= bound_us(*at)).unwrap_or(ROUND_TRIPS)
}

fn bound_us(at: usize) -> u64 {
    16 << (2 * at)
}

/// What one shard has, and its clock when that was seen last.
struct OfShard {
    seen: Seen,
    now: Instant,
    is_cut: bool,
}

/// Looks at every socket of every shard, in pieces.
pub(super) async fn of(shards: &Shards) -> Value {
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for shard in 0..shards.count() {
        match walk(shards, shard).await {
            Some(of_shard) => found.push((shard, of_shard)),
            None => silent.push(shard),
        }
    }
    told(&found, &silent)
}

async fn walk(shards: &Shards, shard: usize) -> Option<OfShard> {
    let mut so_far = OfShard { seen: Seen::default(), now: Instant::ZERO, is_cut: false };
    let mut place = SocketPlace::default();
    for _ in 0..QUESTIONS_MAX {
        let look = move |stacks: &Stacks| look(stacks, so_far.seen, place);
        let (seen, now, next) = shards.ask(shard, look).await?;
        so_far = OfShard { seen, now, is_cut: false };
        match next {
            Some(next) => place = next,
            None => return Some(so_far),
        }
    }
    so_far.is_cut = true;
    Some(so_far)
}

/// What a shard is asked for: its share of the walk.
fn look(
    stacks: &Stacks,
    mut seen: Seen,
    first: SocketPlace,
) -> (Seen, Instant, Option<SocketPlace>) {
    stacks.with_server(|host, now| {
        seen.term = seen.term.max(host.config().tcp.time_wait.length);
        let mut next = None;
        for (following, socket) in host.sockets_from(first).take(PLACES) {
            next = following;
            if let Some(socket) = socket {
                seen.add(socket, now);
            }
        }
        for notable in [&mut seen.slowest, &mut seen.stalled, &mut seen.retransmitting] {
            notable.0.iter_mut().for_each(|(_, connection)| connection.find_client(stacks));
        }
        (seen, now, next)
    })
}

fn told(found: &[(usize, OfShard)], silent: &[usize]) -> Value {
    let all = || found.iter().map(|(_, of_shard)| &of_shard.seen);
    let sum = |of: &dyn Fn(&Seen) -> u64| all().map(of).sum::<u64>();
    let term = all().map(|seen| seen.term).max().unwrap_or_default();
    let states = State::ALL.map(|state| (state, sum(&|seen| seen.states[state as usize])));
    let states = states.into_iter().filter(|(_, count)| *count > 0);
    let part = |at: usize| (term * at as u32 / AGES as u32).as_secs_f64();
    let ages = (0..AGES).map(|at| {
        json!({ "from_s": part(at), "to_s": part(at + 1), "count": sum(&|seen| seen.ages[at]) })
    });
    let trips = (0..=ROUND_TRIPS).map(|at| {
        let bound = (at < ROUND_TRIPS).then(|| bound_us(at));
        json!({ "to_us": bound, "count": sum(&|seen| seen.round_trips[at]) })
    });
    let agreed = sum(&|seen| seen.agreed);
    let waiting = sum(&|seen| seen.states[State::TimeWait as usize]);
    json!({
        "sockets": sum(&|seen| seen.sockets),
        "states": states.map(|(it, count)| (it.name().to_owned(), count.into()))
            .collect::<Map<_, _>>(),
        "time_wait": ages.collect::<Vec<_>>(),
        "holders": { "closer": waiting.saturating_sub(agreed), "ourselves": agreed },
        "round_trips": trips.collect::<Vec<_>>(),
        "at_rest": sum(&|seen| seen.at_rest),
        "sending_bytes": sum(&|seen| seen.sending_bytes),
        "receiving_bytes": sum(&|seen| seen.receiving_bytes),
        "slowest": notable(found, |seen| &seen.slowest),
        "stalled": notable(found, |seen| &seen.stalled),
        "retransmitting": notable(found, |seen| &seen.retransmitting),
        "truncated": found.iter().any(|(_, of_shard)| of_shard.is_cut),
        "silent_shards": silent,
    })
}

/// The connections of all shards of which something is most.
fn notable(found: &[(usize, OfShard)], of: impl Fn(&Seen) -> &Notable) -> Vec<Value> {
    let mut rows: Vec<(u64, Value)> = found
        .iter()
        .flat_map(|(shard, of_shard)| of(&of_shard.seen).rows(*shard, of_shard.now))
        .collect();
    rows.sort_by_key(|(much, _)| std::cmp::Reverse(*much));
    rows.into_iter().take(NOTABLE).map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightwait_core::{Capabilities, Config, Host, Medium};

    /// A connection, which is on its way to a peer.
    fn connection() -> (Host, Instant) {
        let device = Capabilities::plain(Medium::Ip, 1500);
        let config = Config::new(device, "10.0.0.1/24".parse().unwrap(), [7; 32]);
        let (mut host, now) = (Host::new(config).unwrap(), Instant::from_millis(5000));
        let remote = "10.0.0.2:80".parse().unwrap();
        host.connect(now, lightwait_core::host::any_local(&remote), remote).unwrap();
        (host, now)
    }

    #[test]
    fn the_most_notable_are_kept_in_order() {
        let (host, now) = connection();
        let Some(Socket::Connection(live)) = host.sockets().next() else { panic!() };
        let mut notable = Notable::default();
        for much in [3, 0, 9, 5].into_iter().chain(10..10 + NOTABLE as u64) {
            notable.add(much, || Box::new(Connection::of(live, now)));
        }
        let kept: Vec<u64> = notable.0.iter().map(|(much, _)| *much).collect();
        let expected: Vec<u64> = (10..10 + NOTABLE as u64).rev().collect();
        assert_eq!(kept, expected);
        notable.add(1, || unreachable!("it is less than all"));
    }

    #[test]
    fn records_are_counted_by_the_part_of_their_time_that_is_over() {
        let end = "10.0.0.2:80".parse().unwrap();
        let record = |entered_ms: u64| RecordInfo {
            local: end,
            remote: end,
            state: State::TimeWait,
            entered: Instant::from_millis(entered_ms),
            expires: Instant::from_millis(entered_ms + 60_000),
            is_agreed: entered_ms == 0,
        };
        let mut seen = Seen::default();
        let now = Instant::from_millis(61_000);
        for entered_ms in [0, 1000, 1001, 31_000, 61_000, 62_000] {
            seen.add_record(&record(entered_ms), now);
        }
        assert_eq!(seen.ages, [2, 0, 0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!((seen.term, seen.agreed), (Duration::from_secs(60), 1));
        let told = told(&[(0, OfShard { seen, now, is_cut: false })], &[2]);
        let last = json!({ "from_s": 54.0, "to_s": 60.0, "count": 3 });
        assert_eq!(told["time_wait"][9], last);
        assert_eq!((&told["silent_shards"], &told["truncated"]), (&json!([2]), &json!(false)));
    }

    #[test]
    fn round_trips_have_bounds_by_four() {
        for (us, at) in [(1, 0), (16, 0), (17, 1), (64, 1), (16_777_216, 10), (16_777_217, 11)] {
            assert_eq!(round_trip(us), at, "{us}");
        }
    }

    #[test]
    fn a_connection_is_among_its_state() {
        let (host, now) = connection();
        let mut seen = Seen::default();
        host.sockets().for_each(|socket| seen.add(socket, now));
        assert_eq!((seen.sockets, seen.states[State::SynSent as usize]), (1, 1));
        assert!(seen.slowest.0.is_empty(), "it has no round trip yet");
    }
}
